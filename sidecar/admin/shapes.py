"""The shapes of REST for a node, topics, producers, and events (from their records in the changelog), and the parsing
of a policy's JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

from sidecar.admin.faults import (
    LAST_PARTITION,
    TOPIC_PATTERN,
    ShapeError,
    check_known,
    is_internal,
    is_topic,
    quoted,
    unknown_fields,
    whole_number,
)
from sidecar.admin.fields import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Kind,
    Shape,
    always,
    by_key,
    list_of,
    one_of,
    page_of,
)
from sidecar.admin.judged import DETAIL, SESSION
from sidecar.admin.shadow_shapes import SHADOW_STATS
from sidecar.gateway.sequence_ids import State
from sidecar.node.port import AccessMode, Check, NewTopic, NodeState, Policy, Scope
from sidecar.protocol.errors import error_name
from sidecar.takeover.records import mode_of
from sidecar.v1 import state_pb2 as state

PRODUCERS: Final = 100
"""The default number of producer names in one page, and in the answer about a topic."""
MODE: Final = one_of(AccessMode)


def is_ready(checks: Sequence[Check]) -> bool:
    """Whether no required check fails."""
    return all(check.ok or not check.required for check in checks)


# The node -------------------------------------------------------------------------------------------------------------

ERROR: Final = Shape("Error", error_code=NUMBER.said("The HTTP status."), message=TEXT)
ALIVE: Final = Shape("Alive", status=always("alive"))
CHECK: Final = Shape("Check", name=TEXT, ok=FLAG, required=FLAG, detail=TEXT)
_CHECKS: Final = list_of(CHECK.kind)
READY: Final = Shape("Ready", status=always("ready"), checks=_CHECKS)
NOT_READY: Final = Shape("NotReady", error_code=always(503), message=TEXT, status=always("not ready"), checks=_CHECKS)
_PEERS: Final = list_of(Shape("Peer", id=NUMBER, host=TEXT, port=NUMBER).inline)
_LISTENER: Final = Shape("Listener", name=TEXT, listen=TEXT, advertise=TEXT, security_protocol=TEXT)
STATUS: Final = Shape(
    "Status",
    version=TEXT,
    node_id=NUMBER,
    cluster=TEXT,
    state=one_of(NodeState),
    ready=FLAG.of(lambda status: is_ready(status.checks)),
    started=TIME.of("started_ms"),
    advertise=TEXT.of(lambda status: "{}:{}".format(*status.advertise)),
    listeners=list_of(_LISTENER.inline).said("Every listener for Kafka clients; `advertise` is of the first."),
    kafka_cluster_id=TEXT.or_null(),
    nodes=_PEERS,
    brokers=_PEERS,
    client_connections=NUMBER,
    governed_topics=NUMBER,
    deduplication=Shape(
        "Deduplicated", ready=NUMBER, reading=NUMBER, lost=NUMBER, crowded=NUMBER, unprotected=NUMBER
    ).inline,
    checks=_CHECKS,
)
CLIENT: Final = Shape(
    "Client",
    node_id=NUMBER,
    client_id=TEXT.said('As it was sent, cut where it is very long; "" before a request.'),
    name=TEXT.said("What stands in it before the first semicolon."),
    mode=MODE.or_null().said("What the client.id asks for."),
    software_name=TEXT.or_null().said("As the client sends it (KIP-511).").of(lambda client: client.software[0]),
    software_version=TEXT.or_null().of(lambda client: client.software[1]),
    principal=TEXT.or_null().said(
        "As Kafka's ACLs name it, User:ANONYMOUS without authentication; null before a login."
    ),
    listener=TEXT.said("The name of the listener that it came through."),
    address=TEXT.said("host:port, an IPv6 address in brackets."),
    since=TIME.of("since_ms"),
    requests=COUNT.said("Taken up since it connected."),
    bytes_in=COUNT,
    bytes_out=COUNT,
    in_flight=COUNT.said("Requests that have no answer yet."),
)
CLIENTS: Final = page_of("Clients", CLIENT)
REFUSAL: Final = Shape(
    "Refusal",
    client_id=TEXT.said('As it was sent, cut where it is very long; "": none.'),
    address=TEXT.of("host").said("Without the port, which changes with each connection."),
    topic=TEXT.said('"": of no topic, as with a client.id that cannot be.'),
    error_code=NUMBER.of("code").said("Kafka's."),
    error=TEXT.of(lambda refusal: error_name(refusal.code)),
    reason=DETAIL.said("Of the newest one."),
    count=COUNT,
    first=TIME.of("first_ms"),
    last=TIME.of("last_ms"),
)
REFUSALS: Final = page_of("Refusals", REFUSAL)
SETTING: Final = Shape(
    "Setting",
    setting=TEXT.said("The name of its variable."),
    value=TEXT.said('As people write it; "": none. Secrets are ***.'),
    origin=TEXT.said("default, environment, flag, or the path of the file."),
    reloadable=FLAG.said("A node takes another value from its file on SIGHUP."),
)
SETTINGS: Final = page_of("Settings", SETTING, Kind({"type": "null"}))

# Topics ---------------------------------------------------------------------------------------------------------------

POLICY: Final = Shape(
    "Policy",
    "Only the fields that are decided; in a request those that are to change.",
    access_mode=MODE.or_absent(),
    deduplication=FLAG.or_absent(),
    exclusive_reader=FLAG.or_absent(),
    scope=one_of(Scope).or_absent(),
    log_append_time=FLAG.said("The topic's message.timestamp.type is LogAppendTime.").or_absent(),
)
OWNER: Final = Shape("Owner", name=TEXT, session=SESSION, mode=MODE, since=TIME.of("since_ms"), client=TEXT)
PARTITION_OWNER: Final = Shape("PartitionOwner", **OWNER.fields, generation=NUMBER)
_WAITING: Final = Shape(
    "Waiting",
    name=TEXT,
    session=SESSION,
    since=TIME.of("since_ms"),
    partition=NUMBER.or_null().said("Which one, of scope partition."),
)
PRODUCER: Final = Shape(
    "Producer",
    name=TEXT,
    last_sequence_id=NUMBER.said("The minimum over all partitions, -1 where one has none: where to resume."),
    last_sequence_ids=by_key(NUMBER).said("By partition; what is in the log, nothing that is under way."),
)
PRODUCER_IDS: Final = Shape(
    "ProducerIds",
    **PRODUCER.fields,
    offsets=by_key(NUMBER.or_null()).said("Of the records with these ids, by partition; null: not known."),
    last_seen=by_key(TIME).of("last_seen_ms"),
    in_use=FLAG.said("A connected session writes under the name."),
)
PRODUCERS_PAGE: Final = page_of("Producers", PRODUCER)
TOPIC: Final = Shape(
    "Topic",
    "`owners` (by partition) only where the scope is partition; `owner` is null then. "
    "`policies` and `shadowReplication` (by shadow) only of one topic that is asked for.",
    topic=TEXT.of("name"),
    policy=POLICY.kind.or_null(),
    generation=COUNT.said("Rises with each change of owner; 0: never owned."),
    owner=OWNER.kind.or_null(),
    waiting=list_of(_WAITING.inline),
    producers=list_of(PRODUCER.kind).said(f"Of one topic whose ids are known: the newest {PRODUCERS}."),
    shadows=list_of(TEXT),
    serving_node=NUMBER.or_null(),
    partitions=NUMBER,
    deduplication_state=Kind({"enum": [*State, None]})
    .said(
        "What is known of the sequence ids; idle: nobody serves the topic; elsewhere: of a list,"
        " or the node that serves the topic does not answer. Null: a prefix."
    )
    .of("deduplication"),
    deduplication_detail=TEXT.or_null().said(
        "How far the reading has come, what is lost, or which partition is nearly full of names."
    ),
    owners=by_key(PARTITION_OWNER.kind).or_absent(),
    shadowReplication=by_key(SHADOW_STATS.kind)
    .said("Statistics of its shadows, by shadow. Spelled as in Pulsar's PIP-180, unlike all other fields.")
    .or_absent(),
    policies=by_key(POLICY.kind)
    .said("The policies that cover it, by topic or prefix, each with the fields that it decides; the nearest wins.")
    .or_absent(),
    warnings=list_of(TEXT)
    .said("After a change of the policy: what is weaker, or may not work, on the topics that it covers.")
    .of(lambda topic: topic.warnings or None)
    .or_absent(),
)
TOPICS: Final = page_of("Topics", TOPIC)
_INT16: Final = 2**15 - 1
_CONFIGS: Final = Kind({"type": "object", "additionalProperties": {**TEXT.schema, "maxLength": _INT16}})
NEW_TOPIC: Final = Shape(
    "NewTopic",
    "What is left out is as the brokers have it by default. `policy` is set once the topic is there; a policy that an"
    " earlier topic of this name left is changed by it, or stays.",
    topic=Kind({**TEXT.schema, "pattern": TOPIC_PATTERN}),
    partitions=Kind({**NUMBER.schema, "minimum": 1, "maximum": LAST_PARTITION}).or_absent(),
    replication_factor=Kind({**NUMBER.schema, "minimum": 1, "maximum": _INT16}).or_absent(),
    configs=_CONFIGS.said("Kafka's settings of the topic, such as `retention.ms`.").or_absent(),
    policy=POLICY.kind.or_absent(),
)


def new_topic_from_json(body: object) -> tuple[NewTopic, Policy | None]:
    """A topic to create and its policy. Raises ShapeError."""
    if not isinstance(body, dict) or not isinstance(name := body.get("topic"), str):
        raise ShapeError('the body has to be a JSON object such as {"topic": "orders", "partitions": 6}')
    check_known(body, NEW_TOPIC.fields)
    if not is_topic(name):
        raise ShapeError(f"{quoted(name)} is no name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -")
    if is_internal(name):
        raise ShapeError(f"{name} would be an internal topic: choose a name that does not begin with __")
    partitions = _count(body, "partitions", LAST_PARTITION)
    factor = _count(body, "replication_factor", _INT16)
    configs: Any = body.get("configs", {})
    if not isinstance(configs, dict) or not all(_fits(each) for pair in configs.items() for each in pair):
        example = '{"retention.ms": "60000"}'
        raise ShapeError(f"configs has to be an object of texts such as {example}, not {quoted(configs)}")
    try:
        policy = policy_from_json(body["policy"]) if "policy" in body else None
    except ShapeError as error:
        raise ShapeError(f"policy: {error}") from None
    return NewTopic(name, partitions, factor, configs), policy


def _fits(text: object) -> bool:
    """Whether Kafka's protocol can carry it: Unicode of at most 32,767 bytes."""
    try:
        return isinstance(text, str) and len(text.encode()) <= _INT16
    except UnicodeEncodeError:
        return False


def _count(body: dict[str, Any], name: str, most: int) -> int | None:
    if name not in body:
        return None
    found = whole_number(body[name])
    if found is None or not 1 <= found <= most:
        raise ShapeError(f"{name} has to be a whole number from 1 to {most}, not {quoted(body[name])}")
    return found


def policy_from_json(body: object) -> Policy:
    """The fields to change. Raises ShapeError, which names all unknown fields and values at once."""
    if not isinstance(body, dict):
        raise ShapeError('the body has to be a JSON object such as {"access_mode": "exclusive"}')
    faults = unknown_fields(body, POLICY.fields)
    found: dict[str, Any] = {}
    for name in filter(body.__contains__, POLICY.fields):
        value, words = body[name], POLICY.fields[name].schema.get("enum")
        if words is None and not isinstance(value, bool):
            faults.append(f"{name} has to be true or false, not {quoted(value)}")
        elif words is not None and value not in words:
            faults.append(f"{name} has to be one of {', '.join(words)}, not {quoted(value)}")
        else:
            found[name] = value if words is None else words[words.index(value)]
    if faults:
        raise ShapeError("; ".join(faults))
    return Policy(**found)


KINDS: Final = {number: name.lower() for name, number in state.Event.Kind.items() if number}
"""Names by the number in a record; newer nodes write further numbers."""


def _said(name: str) -> Callable[[state.Event], Any]:
    """Reads a detail that is a text or a boolean; None if it is empty."""
    return lambda event: getattr(event.details, name) or None


def _present(get: Callable[[state.EventDetails], Any], name: str) -> Callable[[state.Event], Any]:
    """Reads a detail that may be empty; None if it is absent."""
    return lambda event: get(event.details) if event.details.HasField(name) else None


def _policy(event: state.Event) -> Policy | None:
    """The policy in `detail`, which is JSON. None if it was deleted, or if a newer node wrote something else."""
    if event.kind != state.Event.POLICY:
        return None
    try:
        return Policy.of_body(event.detail)
    except (ValueError, TypeError):
        return None


def _moves(reset: state.CursorReset) -> dict[int, tuple[int, int]]:
    """The offsets before and after the reset, by partition."""
    moves = zip(reset.partition, reset.from_offset, reset.to_offset, strict=True)
    return {index: (before, after) for index, before, after in moves}


_CURSOR_MOVE: Final = Shape("CursorMove", before=NUMBER.of(itemgetter(0)), after=NUMBER.of(itemgetter(1)))
_CURSOR_RESET: Final = Shape("CursorReset", group=TEXT, limit=NUMBER, partitions=by_key(_CURSOR_MOVE.inline).of(_moves))
EVENT_DETAILS: Final = Shape(
    "EventDetails",
    "What `detail` says, for programs: only the fields that the event has.",
    by=DETAIL.said("deposed: who owns it since, a name or a session; policy: who changed it, in words.")
    .of(_said("by"))
    .or_absent(),
    deposed=DETAIL.said("claimed, failover: who owned it before, a name or a session.")
    .of(_said("deposed"))
    .or_absent(),
    reason=TEXT.of(_said("reason")).or_absent(),
    deleted=FLAG.said("A policy, or a shadow.").of(_said("deleted")).or_absent(),
    policy=POLICY.kind.of(_policy).or_absent(),
    source=TEXT.said("Of a shadow, as it is since; so are the next two.")
    .of(_present(attrgetter("shadow.source"), "shadow"))
    .or_absent(),
    allow=list_of(TEXT)
    .said("Left out where it is long.")
    .of(_present(lambda said: None if said.long_allow else said.shadow.allow, "shadow"))
    .or_absent(),
    auto_reset_backlog_entries=COUNT.of(
        _present(attrgetter("shadow.auto_reset_backlog_entries"), "shadow")
    ).or_absent(),
    closed=TEXT.said('Why a shadow cannot be read any more; "": it can again.')
    .of(_present(attrgetter("closed"), "closed"))
    .or_absent(),
    reset=_CURSOR_RESET.inline.said("A cursor that fell too far behind and was moved to the end.")
    .of(_present(attrgetter("reset"), "reset"))
    .or_absent(),
)
EVENT: Final = Shape(
    "Event",
    id=TEXT.of(lambda event: event.id.hex()),
    at=TIME.of("at_ms"),
    kind=Kind({**TEXT.schema, "enum": list(KINDS.values())}, KINDS.__getitem__),
    topic=TEXT,
    partition=NUMBER.or_null().of(lambda event: event.partition if event.HasField("partition") else None),
    generation=NUMBER,
    session=SESSION,
    name=TEXT,
    mode=MODE.or_null().of(lambda event: mode_of(event.mode) if event.mode else None),
    client=TEXT,
    node=NUMBER,
    detail=DETAIL.said("For people."),
    details=Kind(EVENT_DETAILS.kind.schema).of(lambda event: EVENT_DETAILS.to_json(event) or None).or_absent(),
)
