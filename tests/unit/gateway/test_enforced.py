"""What a client without some rights gets, and what of its request goes on to the brokers: each row of `access` through
`Enforcement`, with requests and answers as they are on the wire.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.enforcement import AmendedExchange, Enforcement
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.messages import admin, cluster, groups, new_groups, security, shares, transactions
from sidecar.security.acls import CLUSTER_NAME, Acls, Operation, PatternType, Permission, ResourceType, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.protocol.schema import Message, Values

ALICE, HOST = "User:alice", "10.0.0.1"
KINDS = {
    "topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.CLUSTER,
    "id": ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_ID, UNKNOWN_ID = 29, 30, 31, 53, 100
ORDERS, SECRET = b"orders'    an id", b"secret's   an id"
STRANGE = b"nobody knows it."
IDS = {ORDERS: b"orders", SECRET: b"secret"}


def acls(granted: Iterable[str]) -> list[AclBinding]:
    """Rules, from words such as "READ topic orders" or "ALTER cluster"."""
    found: list[AclBinding] = []
    for words in granted:
        operation, kind, *name = words.split(" ", 2)
        resource = name[0] if name else CLUSTER_NAME
        found.append(
            AclBinding(KINDS[kind], resource, PatternType.LITERAL, ALICE, HOST, Operation[operation], Permission.ALLOW)
        )
    return found


class Upstream:
    """Knows of topics and ids only after it was asked to look for them."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = topics
        self.looked_for: set[str] = set()
        self.view = SimpleNamespace(names={}, route=self._route)

    def _route(self, topic: bytes) -> object:
        return topic.decode() in self.looked_for & self.topics.keys() or None

    def has_partition(self, topic: bytes, partition: int) -> bool:
        return bool(self._route(topic)) and partition < self.topics[topic.decode()]

    async def find_leaders(self, topics: Iterable[bytes]) -> None:
        self.looked_for.update(topic.decode() for topic in topics)

    async def find_ids(self, ids: Iterable[bytes]) -> None:
        self.view.names.update({topic_id: IDS[topic_id] for topic_id in ids if topic_id in IDS})


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.told = b""
        self.error: int | None = None

    def expect(self, exchange: AmendedExchange) -> None:
        """Not looked at."""

    def answer_ready(self, exchange: AmendedExchange) -> None:
        self.told = b"".join(exchange.parts or [])

    def error_answered(self, _exchange: AmendedExchange, code: int) -> None:
        self.error = code


class Seen:
    """One request of alice. `passed`: what the API's module was given, None: nothing. `told`: her answer. `refusals`:
    what operators see of it.
    """

    def __init__(self) -> None:
        self.passed: Values | None = None
        self.is_same = False
        self.told: Values = {}
        self.refusals: list[tuple[bytes, int, str]] = []
        self.looked_for: set[str] = set()
        self.error: int | None = None


async def enforced(
    message: Message,
    version: int,
    fields: Values,
    *granted: str,
    broker: Values | None = None,
    there: Mapping[str, int] | None = None,
    principal: str = ALICE,
    without_acls: bool = False,
    creates: bool = True,
    closes: bool = False,
) -> Seen:
    """Send a request to a node on which alice has these rights. `broker`: the answer to what goes on; `closes`:
    she disconnects before it comes.
    """
    seen, connection, upstream = Seen(), Connection(), Upstream(there or {})
    mirror: Any = SimpleNamespace(
        acls=Acls(acls(granted), Rules(frozenset({"User:chief"}))), take_over=Operation.ALTER, creates_topics=creates,
        changes=0,
    )  # fmt: skip
    mirror.read_soon = lambda: setattr(mirror, "changes", mirror.changes + 1)
    enforcement = Enforcement(upstream, None if without_acls else mirror, {"User:chief"})  # pyright: ignore[reportArgumentType]
    client: Any = SimpleNamespace(
        principal=principal,
        identity=None,
        connection=SimpleNamespace(peer=f"{HOST}:4711"),
        note_refusal=lambda *refusal: seen.refusals.append(refusal),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    )
    client.rights = enforcement.rights(client)
    frame = bytearray(message.encode_request(version, 7, b"app", fields))
    request = Request(message.key, version, 7, b"app", Frame(frame, 0, len(frame), True), 14 + len(b"app"))

    async def module(_client: object, exchange: Exchange, going_on: Request) -> None:
        seen.is_same = going_on is request
        body, end = going_on.body, going_on.frame.end
        seen.passed = message.decode_request(going_on.frame.buffer, body, end, version)
        connection.closed = closes
        exchange.answer([message.encode_answer(version, 7, broker or {})])

    held: Any = connection
    await enforcement.run(module, client, AmendedExchange(held, request), request)
    if closes:
        assert not connection.told
        return seen
    seen.told = message.decode_answer(connection.told, 0, len(connection.told), version)
    seen.error, seen.looked_for = connection.error, upstream.looked_for
    assert mirror.changes == (message.key in (30, 31) and not without_acls), "changes of ACLs are read soon"
    return seen


def holds(found: Any, wanted: Any) -> bool:
    """Whether values have these fields, and lists exactly these elements."""
    if isinstance(wanted, dict):
        return all(holds(found[name], value) for name, value in wanted.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(holds, found, wanted))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return found == wanted


# Refused as a whole -------------------------------------------------------------------------------------------------

_CLUSTER = {"error_code": NO_CLUSTER, "error_message": "Cluster authorization failed."}
_QUOTA = [{"entity_type": "user", "entity_name": "bob"}]
_DESCRIPTION = {"subtopologies": [], "global_stores": []}
_PARTITIONS = [{"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 2}]}]
_NOT_COMMITTED = [{"name": "orders", "partitions": [{"partition_index": index, "error_code": 0} for index in (0, 2)]}]


def _all(topics: list[dict[str, Any]], partitions: str, **error: Any) -> list[dict[str, Any]]:
    return [topic | {partitions: [each | error for each in topic[partitions]]} for topic in topics]


WHOLE: list[tuple[Message, int, Values, list[str], Values]] = [
    (security.DESCRIBE_ACLS, 3, {}, ["DESCRIBE cluster"], _CLUSTER | {"resources": []}),
    (security.CREATE_ACLS, 3, {"creations": [{}, {}]}, ["ALTER cluster"], {"results": [_CLUSTER, _CLUSTER]}),
    (security.DELETE_ACLS, 3, {"filters": [{}]}, ["ALTER cluster"], {"filter_results": [_CLUSTER]}),
    (admin.DESCRIBE_LOG_DIRS, 4, {"topics": None}, ["DESCRIBE cluster"], {"error_code": NO_CLUSTER}),
    (
        admin.ELECT_LEADERS, 2, {"topic_partitions": [{"topic": "orders", "partitions": [0, 2]}]}, ["ALTER cluster"],
        {"replica_election_results": [
            {"topic": "orders", "partition_result": [{"partition_id": index} | _CLUSTER for index in (0, 2)]}
        ]},
    ),
    (
        admin.ELECT_LEADERS, 2, {"topic_partitions": None}, ["ALTER cluster"],
        {"error_code": NO_CLUSTER, "replica_election_results": []},
    ),
    (
        admin.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": _PARTITIONS}, ["ALTER cluster"],
        _CLUSTER | {"responses": _all(_PARTITIONS, "partitions", **_CLUSTER)},
    ),
    (
        admin.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": "orders", "partition_indexes": [0, 2]}]},
        ["DESCRIBE cluster"], _CLUSTER | {"topics": _PARTITIONS},
    ),
    (admin.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, ["DESCRIBE cluster"], _CLUSTER | {"topics": []}),
    (admin.LIST_CONFIG_RESOURCES, 1, {}, ["DESCRIBE_CONFIGS cluster"], {"error_code": NO_CLUSTER}),
    (security.DESCRIBE_CLIENT_QUOTAS, 1, {}, ["DESCRIBE_CONFIGS cluster"], _CLUSTER | {"entries": None}),
    (
        security.ALTER_CLIENT_QUOTAS, 1, {"entries": [{"entity": _QUOTA}]}, ["ALTER_CONFIGS cluster"],
        {"entries": [{"entity": _QUOTA} | _CLUSTER]},
    ),
    (
        security.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "bob"}]}, ["DESCRIBE cluster"],
        _CLUSTER | {"results": [_CLUSTER]},
    ),
    (
        security.ALTER_USER_SCRAM_CREDENTIALS, 0,
        {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": [{"name": "eve"}, {"name": "bob"}]},
        ["ALTER cluster"], {"results": [{"user": "bob"} | _CLUSTER, {"user": "eve"} | _CLUSTER]},
    ),
    (
        transactions.INIT_PRODUCER_ID, 4, {"transactional_id": None}, ["IDEMPOTENT_WRITE cluster"],
        {"error_code": NO_CLUSTER, "producer_id": -1, "producer_epoch": -1},
    ),
    (
        transactions.INIT_PRODUCER_ID, 4, {"transactional_id": "t"}, ["WRITE id t"],
        {"error_code": NO_ID, "producer_id": -1, "producer_epoch": -1},
    ),
    (
        transactions.END_TXN, 5, {"transactional_id": "t"}, ["WRITE id t"],
        {"error_code": NO_ID, "producer_id": -1, "producer_epoch": -1},
    ),
    (
        transactions.ADD_PARTITIONS_TO_TXN, 3,
        {"transactional_id": "t", "topics": [{"name": "orders", "partitions": [0]}]},
        ["WRITE topic orders", "WRITE id t"],
        {"results_by_topic": [
            {"name": "orders", "results_by_partition": [{"partition_index": 0, "partition_error_code": NO_ID}]}
        ]},
    ),
    (
        transactions.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": "t", "group_id": "g"}, ["READ group g", "WRITE id t"],
        {"error_code": NO_ID},
    ),
    (
        transactions.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": "t", "group_id": "g"}, ["WRITE id t", "READ group g"],
        {"error_code": NO_GROUP},
    ),
    (cluster.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0}, ["DESCRIBE group g"],
     {"error_code": NO_GROUP, "node_id": -1, "port": -1}),
    (cluster.FIND_COORDINATOR, 0, {"key": "g"}, ["DESCRIBE group g"], {"error_code": NO_GROUP, "node_id": -1}),
    (cluster.FIND_COORDINATOR, 3, {"key": "t", "key_type": 1}, ["DESCRIBE id t"],
     {"error_code": NO_ID, "node_id": -1, "port": -1}),
    (groups.JOIN_GROUP, 9, {"group_id": "g"}, ["READ group g"],
     {"error_code": NO_GROUP, "generation_id": -1, "protocol_name": None}),
    (groups.JOIN_GROUP, 6, {"group_id": "g"}, ["READ group g"],
     {"error_code": NO_GROUP, "generation_id": -1, "protocol_name": ""}),
    (groups.HEARTBEAT, 4, {"group_id": "g"}, ["READ group g"], {"error_code": NO_GROUP}),
    (new_groups.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0, {"group_id": "g", "topology_description": _DESCRIPTION},
     ["READ group g"], {"error_code": NO_GROUP}),
    (groups.LEAVE_GROUP, 5, {"group_id": "g"}, ["READ group g"], {"error_code": NO_GROUP}),
    (groups.SYNC_GROUP, 4, {"group_id": "g"}, ["READ group g"], {"error_code": NO_GROUP}),
    (groups.SYNC_GROUP, 5, {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"},
     ["READ group g"], {"error_code": NO_GROUP}),
    (groups.OFFSET_COMMIT, 9, {"group_id": "g", "topics": _PARTITIONS}, ["READ topic orders", "READ group g"],
     {"topics": _all(_NOT_COMMITTED, "partitions", error_code=NO_GROUP)}),
    (groups.TXN_OFFSET_COMMIT, 3, {"transactional_id": "t", "group_id": "g", "topics": _PARTITIONS},
     ["READ topic orders", "READ group g", "WRITE id t"],
     {"topics": _all(_NOT_COMMITTED, "partitions", error_code=NO_ID)}),
    (groups.TXN_OFFSET_COMMIT, 3, {"transactional_id": "t", "group_id": "g", "topics": _PARTITIONS},
     ["READ topic orders", "WRITE id t", "READ group g"],
     {"topics": _all(_NOT_COMMITTED, "partitions", error_code=NO_GROUP)}),
    (groups.OFFSET_DELETE, 0, {"group_id": "g", "topics": _PARTITIONS}, ["READ topic orders", "DELETE group g"],
     {"error_code": NO_GROUP, "topics": []}),
    (groups.OFFSET_FETCH, 7, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
     ["DESCRIBE topic orders", "DESCRIBE group g"], {"error_code": NO_GROUP, "topics": []}),
    (groups.OFFSET_FETCH, 2, {"group_id": "g", "topics": None}, ["DESCRIBE group g"],
     {"error_code": NO_GROUP, "topics": []}),
    (groups.OFFSET_FETCH, 2, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
     ["DESCRIBE topic orders", "DESCRIBE group g"], {"error_code": NO_GROUP, "topics": []}),
    (groups.OFFSET_FETCH, 1, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
     ["DESCRIBE topic orders", "DESCRIBE group g"],
     {"topics": [{"name": "orders", "partitions": [
         {"partition_index": 0, "committed_offset": -1, "metadata": "", "error_code": NO_GROUP}]}]}),
    (new_groups.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "g", "subscribed_topic_names": ["orders"]},
     ["DESCRIBE topic orders", "READ group g"], {"error_code": NO_GROUP, "error_message": None}),
    (new_groups.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "g", "subscribed_topic_names": ["orders"]},
     ["READ group g", "DESCRIBE topic orders"], {"error_code": NO_TOPIC, "error_message": None}),
    (shares.SHARE_GROUP_HEARTBEAT, 1, {"group_id": "g", "subscribed_topic_names": ["orders"]},
     ["READ group g", "DESCRIBE topic orders"], {"error_code": NO_TOPIC}),
    (shares.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": "g", "topics": []}, ["READ group g"],
     {"error_code": NO_GROUP}),
    (shares.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "g", "topics": []}, ["DELETE group g"],
     {"error_code": NO_GROUP}),
]  # fmt: skip
"""Message, version, request, the rights that it takes, the answer if only the last of them is missing."""


@pytest.mark.parametrize(("message", "version", "fields", "takes", "told"), WHOLE)
async def test_a_request_without_its_right_is_refused_as_a_whole(
    message: Message, version: int, fields: Values, takes: list[str], told: Values
) -> None:
    refused = await enforced(message, version, fields, *takes[:-1])
    assert refused.passed is None
    assert holds(refused.told, told)
    assert refused.error
    operation, kind, *name = takes[-1].split()
    assert len(refused.refusals) == 1
    topic, code, why = refused.refusals[0]
    assert code == refused.error
    assert topic == (name[0].encode() if kind == "topic" else b"")
    assert "by User:alice" in why
    assert ("super users" in why) is False
    on = {"id": "transactional id", "cluster": "the cluster"}.get(kind, kind)
    if message is not transactions.INIT_PRODUCER_ID:
        assert f", {operation} on {' '.join([on, *name])}: Kafka's ACLs do not allow it" in why
    allowed = await enforced(message, version, fields, *takes)
    assert allowed.is_same
    assert (allowed.refusals, allowed.error) == ([], None)


async def test_a_member_that_names_no_protocol_is_refused_by_the_coordinator() -> None:
    for protocol in ({"protocol_type": None, "protocol_name": "range"}, {"protocol_type": "consumer"}):
        assert (await enforced(groups.SYNC_GROUP, 5, {"group_id": "g"} | protocol)).is_same


async def test_coordinators_of_other_kinds_take_no_right() -> None:
    assert (await enforced(cluster.FIND_COORDINATOR, 4, {"key_type": 2, "coordinator_keys": ["g:1:2"]})).is_same


async def test_an_idempotent_producer_needs_a_topic_that_it_may_write_to() -> None:
    fields = {"transactional_id": None}
    assert (await enforced(transactions.INIT_PRODUCER_ID, 4, fields, "WRITE topic orders")).is_same


# Refused in part ----------------------------------------------------------------------------------------------------


def _topic(name: str, **more: Any) -> Values:
    return {"name": name} | more


HIDDEN = b"\x01\x00\x02\x00\x1d"
"""The tagged field `topicConfigErrorCode` (KIP-525): 29."""
_OFFSETS = {"partition_index": 0, "committed_offset": 4}
PARTS: list[tuple[Message, int, Values, list[str], Values | None, Values, Values]] = [
    (
        cluster.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g", "h"]}, ["DESCRIBE group g"],
        {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "node_id": 1, "host": "b", "port": 9}]},
        {"coordinators": [{"key": "g", "node_id": 1}, {"key": "h", "node_id": -1, "port": -1, "error_code": NO_GROUP}]},
    ),
    (
        transactions.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t", "u"]},
        ["DESCRIBE id t", "DESCRIBE topic orders"], {"transactional_ids": ["t"]},
        {"transaction_states": [{"transactional_id": "t", "topics": [{"topic": "orders"}, {"topic": "secret"}]}]},
        {"transaction_states": [
            {"transactional_id": "t", "topics": [{"topic": "orders"}]},
            {"transactional_id": "u", "error_code": NO_ID},
        ]},
    ),
    (
        groups.DELETE_GROUPS, 3, {"groups_names": ["g", "h"]}, ["DELETE group g"], {"groups_names": ["g"]},
        {"results": [{"group_id": "g", "error_code": 135, "error_message": "the plugin failed"}]},
        {"results": [
            {"group_id": "g", "error_code": 135, "error_message": "the plugin failed"},
            {"group_id": "h", "error_code": NO_GROUP, "error_message": "Group authorization failed."},
        ]},
    ),
    (
        groups.DESCRIBE_GROUPS, 6, {"groups": ["g", "h"]}, ["DESCRIBE group g"], {"groups": ["g"]},
        {"groups": [{"group_id": "g", "authorized_operations": -7}]},
        {"groups": [
            {"group_id": "g", "authorized_operations": -7},
            {"group_id": "h", "error_code": NO_GROUP, "error_message": None, "authorized_operations": -(2**31)},
        ]},
    ),
    (
        groups.OFFSET_COMMIT, 9,
        {"group_id": "g", "topics": [_topic("orders", partitions=[_OFFSETS]), _topic("secret", partitions=[_OFFSETS])]},
        ["READ group g", "READ topic orders"], {"topics": [_topic("orders", partitions=[_OFFSETS])]},
        {"topics": [_topic("orders", partitions=[{"partition_index": 0}])]},
        {"topics": [
            _topic("orders", partitions=[{"partition_index": 0, "error_code": 0}]),
            _topic("secret", partitions=[{"partition_index": 0, "error_code": NO_TOPIC}]),
        ]},
    ),
    (
        groups.OFFSET_COMMIT, 10,
        {"group_id": "g", "topics": [{"topic_id": each, "partitions": [_OFFSETS]} for each in (ORDERS, SECRET)]},
        ["READ group g", "READ topic orders"], {"topics": [{"topic_id": ORDERS}]},
        {"topics": [{"topic_id": ORDERS, "partitions": [{"partition_index": 0}]}]},
        {"topics": [
            {"topic_id": ORDERS, "partitions": [{"partition_index": 0, "error_code": 0}]},
            {"topic_id": SECRET, "partitions": [{"partition_index": 0, "error_code": NO_TOPIC}]},
        ]},
    ),
    (  # the coordinator says whether there is such a group, if no topic is left
        groups.OFFSET_DELETE, 0, {"group_id": "g", "topics": [_topic("secret", partitions=[{"partition_index": 1}])]},
        ["DELETE group g"], {"group_id": "g", "topics": []}, {},
        {"topics": [_topic("secret", partitions=[{"partition_index": 1, "error_code": NO_TOPIC}])]},
    ),
    (
        groups.OFFSET_DELETE, 0, {"group_id": "g", "topics": [_topic("secret", partitions=[{"partition_index": 1}])]},
        ["DELETE group g"], {"group_id": "g", "topics": []}, {"error_code": 69}, {"error_code": 69, "topics": []},
    ),
    (
        groups.OFFSET_FETCH, 7,
        {"group_id": "g", "topics": [_topic(name, partition_indexes=[0, 2]) for name in ("orders", "secret")]},
        ["DESCRIBE group g", "DESCRIBE topic orders"], {"topics": [_topic("orders", partition_indexes=[0, 2])]},
        {"topics": [_topic("orders", partitions=[{"partition_index": 0, "committed_offset": 4}])]},
        {"topics": [
            _topic("orders", partitions=[{"partition_index": 0, "committed_offset": 4}]),
            _topic("secret", partitions=[
                {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": "",
                 "error_code": NO_TOPIC} for index in (0, 2)
            ]),
        ]},
    ),
    (  # of several errors the smallest is counted
        groups.OFFSET_COMMIT, 10,
        {"group_id": "g", "topics": [{"topic_id": each, "partitions": [_OFFSETS]} for each in (STRANGE, SECRET)]},
        ["READ group g"], None, {},
        {"topics": [{"partitions": [{"error_code": code}]} for code in (UNKNOWN_ID, NO_TOPIC)]},
    ),
    (
        groups.OFFSET_FETCH, 7,
        {"group_id": "g", "topics": [_topic(name, partition_indexes=[0]) for name in ("orders", "secret")]},
        ["DESCRIBE group g", "DESCRIBE topic orders"], {"topics": [_topic("orders", partition_indexes=[0])]},
        {"error_code": 15}, {"error_code": 15, "topics": []},
    ),
    (
        groups.OFFSET_FETCH, 8,
        {"groups": [
            {"group_id": "h", "topics": None},
            {"group_id": "g", "topics": [_topic(name, partition_indexes=[0]) for name in ("secret", "orders")]},
        ]},
        ["DESCRIBE group g", "DESCRIBE topic orders"],
        {"groups": [{"group_id": "g", "topics": [_topic("orders", partition_indexes=[0])]}]},
        {"groups": [{"group_id": "g", "topics": [_topic("orders", partitions=[_OFFSETS])]}]},
        {"groups": [
            {"group_id": "h", "error_code": NO_GROUP, "topics": []},
            {"group_id": "g", "error_code": 0, "topics": [
                _topic("orders", partitions=[_OFFSETS]),
                _topic("secret", partitions=[{"partition_index": 0, "committed_offset": -1, "error_code": NO_TOPIC}]),
            ]},
        ]},
    ),
    (
        groups.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": []}]}, [], None, {},
        {"groups": [{"group_id": "g", "error_code": NO_GROUP, "topics": []}]},
    ),
    (
        groups.OFFSET_FETCH, 10,
        {"groups": [{"group_id": "g", "topics": [{"topic_id": STRANGE}, {"topic_id": SECRET}, {"topic_id": ORDERS}]}]},
        ["DESCRIBE group g", "DESCRIBE topic orders"],
        {"groups": [{"group_id": "g", "topics": [{"topic_id": ORDERS}]}]},
        {"groups": [{"group_id": "g", "topics": [{"topic_id": ORDERS}]}]},
        {"groups": [{"group_id": "g", "topics": [{"topic_id": each} for each in (ORDERS, STRANGE, SECRET)]}]},
    ),
    (
        admin.CREATE_TOPICS, 4, {"topics": [_topic("orders", num_partitions=3), _topic("secret")]},
        ["CREATE topic orders"], {"topics": [_topic("orders", num_partitions=3)]}, {"topics": [_topic("orders")]},
        {"topics": [
            _topic("orders", error_code=0),
            _topic("secret", error_code=NO_TOPIC, error_message="Authorization failed."),
        ]},
    ),
    (
        admin.CREATE_TOPICS, 7, {"topics": [_topic(name) for name in ("orders", "mine", "twice", "twice", "secret")]},
        ["CREATE topic orders", "CREATE topic mine", "DESCRIBE_CONFIGS topic mine"],
        {"topics": [_topic(name) for name in ("orders", "mine", "twice", "twice")]},
        {"topics": [
            _topic("orders", num_partitions=3, replication_factor=2, configs=[{"name": "a"}]),
            _topic("mine", num_partitions=3, replication_factor=2, configs=[{"name": "a"}]),
            _topic("twice", error_code=42, num_partitions=-1, replication_factor=-1),
        ]},
        {"topics": [
            _topic("orders", error_code=0, num_partitions=-1, replication_factor=-1, configs=[], tags=HIDDEN),
            _topic("mine", error_code=0, num_partitions=3, replication_factor=2, configs=[{"name": "a"}], tags=b"\0"),
            _topic("twice", error_code=42, tags=b"\0"),
            _topic("secret", error_code=NO_TOPIC, num_partitions=-1, replication_factor=-1, tags=b"\0"),
        ]},
    ),
    (
        admin.CREATE_PARTITIONS, 3,
        {"topics": [_topic(name, count=4) for name in ("orders", "twice", "twice", "secret")]},
        ["ALTER topic orders"], {"topics": [_topic(name, count=4) for name in ("orders", "twice", "twice")]},
        {"results": [_topic("orders"), _topic("twice", error_code=42)]},
        {"results": [
            _topic("orders", error_code=0), _topic("twice", error_code=42), _topic("secret", error_code=NO_TOPIC)
        ]},
    ),
    (
        admin.DESCRIBE_CONFIGS, 4,
        {"resources": [
            {"resource_type": kind, "resource_name": name}
            for kind, name in (
                (2, "orders"), (2, "secret"), (4, "1"), (8, "1"), (16, "m"), (32, "h"), (32, "g"), (77, "?")
            )
        ]},
        ["DESCRIBE_CONFIGS topic orders", "DESCRIBE_CONFIGS group g"],
        {"resources": [
            {"resource_type": kind, "resource_name": name} for kind, name in ((2, "orders"), (32, "g"), (77, "?"))
        ]},
        {"results": [{"resource_type": 2, "resource_name": "orders"}]},
        {"results": [
            {"resource_type": 2, "resource_name": "orders", "error_code": 0},
            {"resource_type": 2, "resource_name": "secret", "error_code": NO_TOPIC,
             "error_message": "Topic authorization failed."},
            *(
                {"resource_type": kind, "resource_name": name} | _CLUSTER
                for kind, name in ((4, "1"), (8, "1"), (16, "m"))
            ),
            {"resource_type": 32, "resource_name": "h", "error_code": NO_GROUP,
             "error_message": "Group authorization failed."},
        ]},
    ),
    (
        admin.INCREMENTAL_ALTER_CONFIGS, 1,
        {"resources": [{"resource_type": 2, "resource_name": name} for name in ("secret", "twice", "orders", "twice")]},
        ["ALTER_CONFIGS topic orders"], {"resources": [{"resource_type": 2, "resource_name": "orders"}]},
        {"responses": [{"resource_type": 2, "resource_name": "orders"}]},
        {"responses": [
            {"resource_name": "orders", "error_code": 0},
            {"resource_type": 2, "resource_name": "secret", "error_code": NO_TOPIC},
            *[{"resource_type": 2, "resource_name": "twice", "error_code": 42,
               "error_message": "Each resource must appear at most once."}] * 2,
        ]},
    ),
    (
        admin.ALTER_CONFIGS, 2, {"resources": [{"resource_type": 4, "resource_name": "1"}] * 2}, [], None, {},
        {"responses": [{"resource_type": 4, "resource_name": "1"} | _CLUSTER] * 2},
    ),
    (
        transactions.DESCRIBE_PRODUCERS, 0,
        {"topics": [_topic(name, partition_indexes=[0, 2]) for name in ("no topic!", "secret", "orders")]},
        ["READ topic orders"], {"topics": [_topic(name, partition_indexes=[0, 2]) for name in ("no topic!", "orders")]},
        {"topics": [_topic("orders")]},
        {"topics": [
            _topic("orders"),
            _topic("secret", partitions=[
                {"partition_index": index, "error_code": NO_TOPIC, "error_message": "Topic authorization failed."}
                for index in (0, 2)
            ]),
        ]},
    ),
    (
        shares.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
        {"groups": [
            {"group_id": "h", "topics": None},
            {"group_id": "g", "topics": [{"topic_name": name, "partitions": [0]} for name in ("orders", "secret")]},
        ]},
        ["DESCRIBE group g", "DESCRIBE topic orders"],
        {"groups": [{"group_id": "g", "topics": [{"topic_name": "orders", "partitions": [0]}]}]},
        {"groups": [{"group_id": "g", "topics": [{"topic_name": "orders"}]}]},
        {"groups": [
            {"group_id": "g", "topics": [
                {"topic_name": "orders"},
                {"topic_name": "secret", "partitions": [
                    {"partition_index": 0, "start_offset": -1, "lag": -1, "error_code": NO_TOPIC,
                     "error_message": "Topic authorization failed."}
                ]},
            ]},
            {"group_id": "h", "error_code": NO_GROUP},
        ]},
    ),
    (
        shares.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": "g", "topics": None}]}, [], None, {},
        {"groups": [{"group_id": "g", "error_code": NO_GROUP}]},
    ),
    (
        shares.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": [{"group_id": "g", "topics": [{"topic_name": "secret"}]}]},
        ["DESCRIBE group g"], {"groups": [{"group_id": "g", "topics": []}]},
        {"groups": [{"group_id": "g", "error_code": 69}]},
        {"groups": [{"group_id": "g", "error_code": 69, "topics": []}]},
    ),
    (
        shares.ALTER_SHARE_GROUP_OFFSETS, 0,
        {"group_id": "g", "topics": [
            {"topic_name": name, "partitions": [{"partition_index": 1, "start_offset": 5}]}
            for name in ("orders", "secret")
        ]},
        ["READ group g", "READ topic orders"], {"topics": [{"topic_name": "orders"}]},
        {"responses": [{"topic_name": "orders"}]},
        {"responses": [
            {"topic_name": "orders"},
            {"topic_name": "secret", "partitions": [
                {"partition_index": 1, "error_code": NO_TOPIC, "error_message": "Topic authorization failed."}
            ]},
        ]},
    ),
    (
        shares.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "g", "topics": [{"topic_name": "secret"}]},
        ["DELETE group g"], {"group_id": "g", "topics": []}, {},
        {"responses": [
            {"topic_name": "secret", "error_code": NO_TOPIC, "error_message": "Topic authorization failed."}
        ]},
    ),
]  # fmt: skip
"""Message, version, request, alice's rights, what goes on to the broker (None: nothing), its answer, her answer."""


@pytest.mark.parametrize(("message", "version", "fields", "granted", "passed", "broker", "told"), PARTS)
async def test_what_a_client_has_no_right_to_is_left_out_of_its_request(
    message: Message,
    version: int,
    fields: Values,
    granted: list[str],
    passed: Values | None,
    broker: Values,
    told: Values,
) -> None:
    seen = await enforced(message, version, fields, *granted, broker=broker)
    assert (seen.passed is None) is (passed is None)
    assert passed is None or holds(seen.passed, passed)
    assert holds(seen.told, told)
    assert seen.error
    assert [code for _, code, _ in seen.refusals] == [seen.error]


# Hidden in an answer ------------------------------------------------------------------------------------------------

_READ, _ALTER, _DESCRIBE = 1 << Operation.READ, 1 << Operation.ALTER, 1 << Operation.DESCRIBE
_BY_NAME = [_topic("orders", topic_authorized_operations=-1), _topic("secret", topic_authorized_operations=-1)]
_MEMBER: Values = {"assignment": {"topic_partitions": [{"topic_name": "orders"}]}, "target_assignment": {}}
_TARGET: Values = {"assignment": {}, "target_assignment": {"topic_partitions": [{"topic_name": "secret"}]}}
_SEES_G = ["DESCRIBE group g", "DESCRIBE topic orders"]


def _uses(**topics: Any) -> Values:
    return {"group_id": "g", "topology": {"subtopologies": [topics]}}


def _hidden(message: str, group: str = "g") -> Values:
    return {"group_id": group, "error_code": NO_TOPIC, "error_message": message, "authorized_operations": -(2**31)}


ASSIGNED = "The group has described topic(s) that the client is not authorized to describe."
USED = "The described group uses topics that the client is not authorized to describe."
HIDES: list[tuple[Message, int, Values, list[str], Values, Values]] = [
    (
        groups.LIST_GROUPS, 4, {}, ["DESCRIBE group g"], {"groups": [{"group_id": "g"}, {"group_id": "h"}]},
        {"groups": [{"group_id": "g"}]},
    ),
    (
        transactions.LIST_TRANSACTIONS, 1, {}, ["DESCRIBE id t"],
        {"transaction_states": [{"transactional_id": "t"}, {"transactional_id": "u"}]},
        {"transaction_states": [{"transactional_id": "t"}]},
    ),
    (
        shares.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": "g", "topics": None}]}, _SEES_G,
        {"groups": [{"group_id": "g", "topics": [{"topic_name": "secret"}, {"topic_name": "orders"}]}]},
        {"groups": [{"group_id": "g", "topics": [{"topic_name": "orders"}]}]},
    ),
    (
        groups.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}, _SEES_G,
        {"groups": [{"group_id": "g", "topics": [_topic("secret"), _topic("orders")]}]},
        {"groups": [{"group_id": "g", "topics": [_topic("orders")]}]},
    ),
    (
        cluster.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True},
        ["ALTER cluster", "DESCRIBE cluster"], {"cluster_authorized_operations": _ALTER | _READ},
        {"cluster_authorized_operations": _ALTER},
    ),
    (
        cluster.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True}, [],
        {"cluster_authorized_operations": _ALTER}, {"cluster_authorized_operations": 0},
    ),
    (
        groups.DESCRIBE_GROUPS, 5, {"groups": ["g"], "include_authorized_operations": True}, ["READ group g"],
        {"groups": [{"group_id": "g", "authorized_operations": _READ | _ALTER | _DESCRIBE}]},
        {"groups": [{"group_id": "g", "authorized_operations": _READ | _DESCRIBE}]},
    ),
    (
        new_groups.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}, _SEES_G,
        {"groups": [{"group_id": "g", "members": [_MEMBER], "authorized_operations": -5}]},
        {"groups": [{"group_id": "g", "members": [_MEMBER], "authorized_operations": -5, "error_code": 0}]},
    ),
    *(
        (
            message, 1, {"group_ids": ["g"], "include_authorized_operations": True}, rights,
            {"groups": [{"group_id": "g", "members": [member]}]}, {"groups": [_hidden(ASSIGNED)]},
        )
        for message, rights, member in (
            (new_groups.CONSUMER_GROUP_DESCRIBE, _SEES_G, _TARGET),
            (new_groups.CONSUMER_GROUP_DESCRIBE, ["DESCRIBE group g"], _MEMBER),
            (shares.SHARE_GROUP_DESCRIBE, ["DESCRIBE group g"], {"assignment": _MEMBER["assignment"]}),
        )
    ),
    (
        new_groups.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}, ["DESCRIBE group g"],
        {"groups": [{"group_id": "g", "error_code": 69, "error_message": "gone"}]},
        {"groups": [{"group_id": "g", "error_code": 69, "error_message": "gone"}]},
    ),
    *(
        (
            new_groups.STREAMS_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}, _SEES_G, {"groups": [_uses(**topics)]},
            {"groups": [_hidden(USED)]},
        )
        for topics in (
            {"source_topics": ["orders", "secret"]}, {"repartition_sink_topics": ["secret"]},
            {"repartition_source_topics": [_topic("secret")]}, {"state_changelog_topics": [_topic("secret")]},
        )
    ),
    (
        new_groups.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": ["g"]}, _SEES_G,
        {"groups": [_uses(source_topics=["orders"]), {"group_id": "g", "topology": None}]},
        {"groups": [{"group_id": "g", "error_code": 0}] * 2},
    ),
    (
        cluster.METADATA, 9, {"topics": None}, ["DESCRIBE topic orders"], {"topics": _BY_NAME},
        {"topics": [_topic("orders", topic_authorized_operations=-1)]},
    ),
    (
        cluster.METADATA, 9, {"topics": None, "include_topic_authorized_operations": True},
        ["READ topic orders", "DESCRIBE cluster"], {"topics": _BY_NAME, "cluster_authorized_operations": -9},
        {
            "topics": [_topic("orders", topic_authorized_operations=_READ | _DESCRIBE)],
            "cluster_authorized_operations": -9,
        },
    ),
    (
        cluster.METADATA, 9, {"topics": [_topic("orders")], "include_cluster_authorized_operations": True},
        ["DESCRIBE topic orders", "DESCRIBE cluster"],
        {"topics": _BY_NAME[:1], "cluster_authorized_operations": _ALTER | _DESCRIBE},
        {"topics": _BY_NAME[:1], "cluster_authorized_operations": _DESCRIBE},
    ),
    (
        cluster.METADATA, 9, {"topics": [_topic("orders")], "include_topic_authorized_operations": True},
        ["READ topic orders"], {"topics": _BY_NAME[:1]},
        {"topics": [_topic("orders", topic_authorized_operations=_READ | _DESCRIBE)]},
    ),
    (
        cluster.METADATA, 0, {"topics": []}, ["DESCRIBE topic orders"], {"topics": _BY_NAME},
        {"topics": [_topic("orders")]},
    ),
]  # fmt: skip
"""Message, version, request, alice's rights, the broker's answer, her answer."""


@pytest.mark.parametrize(("message", "version", "fields", "granted", "broker", "told"), HIDES)
async def test_what_a_client_may_not_see_is_left_out_of_the_answer(
    message: Message, version: int, fields: Values, granted: list[str], broker: Values, told: Values
) -> None:
    seen = await enforced(message, version, fields, *granted, broker=broker)
    assert seen.is_same or holds(seen.passed, fields)
    assert holds(seen.told, told)
    assert (seen.refusals, seen.error) == ([], None), "that something is hidden is no refusal"


@pytest.mark.parametrize("kind", [4, 8, 16])
async def test_configurations_of_brokers_take_the_right_to_the_cluster(kind: int) -> None:
    fields = {"resources": [{"resource_type": kind, "resource_name": "1"}]}
    assert (await enforced(admin.DESCRIBE_CONFIGS, 4, fields, "DESCRIBE_CONFIGS cluster")).is_same
    assert (await enforced(admin.INCREMENTAL_ALTER_CONFIGS, 1, fields, "ALTER_CONFIGS cluster")).is_same


async def test_whoever_may_describe_the_cluster_sees_all_groups() -> None:
    answer = {"groups": [{"group_id": "g"}]}
    assert holds((await enforced(groups.LIST_GROUPS, 4, {}, "DESCRIBE cluster", broker=answer)).told, answer)


# Topics that have to be looked up -----------------------------------------------------------------------------------


async def test_metadata_by_id_hides_which_topics_there_are() -> None:
    unknown = STRANGE
    fields = {"topics": [{"topic_id": each, "name": "x"} for each in (ORDERS, SECRET, unknown)]}
    broker = {
        "topics": [_topic("orders", topic_id=ORDERS), {"name": None, "topic_id": unknown, "error_code": UNKNOWN_ID}]
    }
    seen = await enforced(cluster.METADATA, 12, fields, "DESCRIBE topic orders", broker=broker)
    assert seen.passed is not None
    assert {(each["topic_id"], each["name"]) for each in seen.passed["topics"]} == {(ORDERS, None), (unknown, None)}
    told = {each["topic_id"]: (each["name"], each["error_code"]) for each in seen.told["topics"]}
    assert told == {ORDERS: ("orders", 0), unknown: (None, UNKNOWN_ID), SECRET: (None, NO_TOPIC)}
    assert seen.told["topics"][-1]["topic_authorized_operations"] == -(2**31)
    found_since = {"topics": [_topic("secret", topic_id=unknown, partitions=[{}])]}
    seen = await enforced(cluster.METADATA, 12, {"topics": [{"topic_id": unknown}]}, broker=found_since)
    assert holds(seen.told["topics"], [{"name": None, "topic_id": unknown, "error_code": NO_TOPIC, "partitions": []}])


@pytest.mark.parametrize(
    ("fields", "granted", "passed"),
    [
        ({"creates": False}, [], "same"),
        ({}, ["CREATE topic new"], "same"),
        ({}, ["CREATE cluster"], "same"),
        ({"allow_auto_topic_creation": False}, [], "same"),
        ({}, [], ["orders"]),
    ],
)
async def test_a_missing_topic_is_looked_up_by_whoever_may_create_it(
    fields: Values, granted: list[str], passed: str | list[str]
) -> None:
    creates = fields.get("creates", True)
    asked = {"topics": [_topic("orders"), _topic("new")], "allow_auto_topic_creation": True} | fields
    broker = {"topics": [_topic("orders"), _topic("new")]} if passed == "same" else {"topics": [_topic("orders")]}
    seen = await enforced(
        cluster.METADATA, 9, asked, "DESCRIBE topic orders", "DESCRIBE topic new", *granted, broker=broker,
        there={"orders": 1}, creates=creates,
    )  # fmt: skip
    assert seen.passed is not None
    assert ("same" if seen.is_same else [each["name"] for each in seen.passed["topics"]]) == passed
    assert [each["error_code"] for each in seen.told["topics"]] == [0, 0 if passed == "same" else NO_TOPIC]


async def test_what_a_client_may_not_see_is_not_looked_up() -> None:
    """The time would show whether it exists."""
    asked = {"topics": [_topic("orders"), _topic("secret")], "allow_auto_topic_creation": True}
    seen = await enforced(cluster.METADATA, 9, asked, "DESCRIBE topic orders", broker={"topics": []})
    assert seen.looked_for == {"orders"}
    names = {"topic_names": ["orders", "secret"]}
    seen = await enforced(admin.DELETE_TOPICS, 5, names, "DESCRIBE topic orders", broker={"responses": []})
    assert seen.looked_for == {"orders"}


async def test_a_topic_that_may_not_be_deleted_is_refused_only_if_it_may_be_seen_and_exists() -> None:
    fields = {"topic_names": ["orders", "gone", "mine", "secret"]}
    rights = "DESCRIBE topic orders", "DESCRIBE topic gone", "DELETE topic mine"
    broker = {"responses": [_topic("gone", error_code=3), _topic("mine")]}
    seen = await enforced(admin.DELETE_TOPICS, 5, fields, *rights, broker=broker, there={"orders": 1, "secret": 1})
    assert holds(seen.passed, {"topic_names": ["gone", "mine"]})
    assert {each["name"]: each["error_code"] for each in seen.told["responses"]} == {
        "gone": 3, "mine": 0, "orders": NO_TOPIC, "secret": NO_TOPIC,
    }  # fmt: skip
    assert (await enforced(admin.DELETE_TOPICS, 5, fields, "DELETE cluster")).is_same


async def test_topics_are_deleted_by_id_with_the_rights_to_their_names() -> None:
    unknown, none = STRANGE, bytes(16)
    elements = [
        {"name": None, "topic_id": ORDERS}, {"name": None, "topic_id": SECRET}, {"name": None, "topic_id": unknown},
        {"name": "gone", "topic_id": none}, {"name": "twice", "topic_id": none}, {"name": "twice", "topic_id": none},
        {"name": "both", "topic_id": ORDERS}, {"name": None, "topic_id": none},
    ]  # fmt: skip
    rights = "DELETE topic orders", "DESCRIBE topic secret", "DESCRIBE topic gone"
    seen = await enforced(admin.DELETE_TOPICS, 6, {"topics": elements}, *rights)
    assert seen.passed is not None
    assert [(each["name"], each["topic_id"]) for each in seen.passed["topics"]] == [
        (None, ORDERS), ("gone", none), ("twice", none), ("twice", none), ("both", ORDERS), (None, none),
    ]  # fmt: skip
    refused = [(each["name"], each["topic_id"], each["error_code"]) for each in seen.told["responses"]]
    assert refused == [("secret", SECRET, NO_TOPIC), (None, unknown, UNKNOWN_ID)]
    seen = await enforced(admin.DELETE_TOPICS, 6, {"topics": elements[1:2] * 2 + elements[1:2]})
    assert seen.is_same, "the controller refuses an id that occurs twice"
    seen = await enforced(admin.DELETE_TOPICS, 6, {"topics": elements[1:2]})
    assert holds(seen.told, {"responses": [{"name": None, "topic_id": SECRET, "error_code": NO_TOPIC}]})
    assert seen.passed is None


async def test_nothing_is_added_to_a_transaction_beside_a_topic_that_is_refused() -> None:
    topics = [{"name": name, "partitions": [0, 1]} for name in ("orders", "gone", "secret", "__consumer_offsets")]
    rights = "WRITE id t", "WRITE topic orders", "WRITE topic gone", "WRITE topic __consumer_offsets"
    fields = {"transactional_id": "t", "topics": topics}
    seen = await enforced(transactions.ADD_PARTITIONS_TO_TXN, 3, fields, *rights, there={"orders": 1, "secret": 2})
    assert seen.passed is None
    told = {
        each["name"]: [result["partition_error_code"] for result in each["results_by_partition"]]
        for each in seen.told["results_by_topic"]
    }
    assert told == {"orders": [55, 3], "gone": [3, 3], "secret": [NO_TOPIC] * 2, "__consumer_offsets": [NO_TOPIC] * 2}


async def test_an_unknown_topic_id_is_no_refusal() -> None:
    fields = {"group_id": "g", "topics": [{"topic_id": STRANGE, "partitions": [_OFFSETS]}]}
    seen = await enforced(groups.OFFSET_COMMIT, 10, fields, "READ group g")
    assert holds(seen.told["topics"], [{"partitions": [{"error_code": UNKNOWN_ID}]}])
    assert (seen.refusals, seen.error) == ([], UNKNOWN_ID)


# Heartbeats whose coordinator sees more than the client ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "granted", "error"),
    [
        ({"subscribed_topic_regex": "or.*"}, ["READ group g"], 128),
        ({"subscribed_topic_regex": "or.*"}, ["READ group g", "DESCRIBE topic *"], 0),
        ({"subscribed_topic_regex": "or.*"}, [], NO_GROUP),
        ({"subscribed_topic_regex": ""}, ["READ group g"], 0),
        ({"subscribed_topic_names": None}, ["READ group g"], 0),
    ],
)
async def test_an_expression_takes_the_right_to_see_every_topic(fields: Values, granted: list[str], error: int) -> None:
    seen = await enforced(new_groups.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "g"} | fields, *granted)
    assert (seen.told["error_code"], seen.is_same) == (error, not error)


_MADE = {"repartition_source_topics": [_topic("b")], "state_changelog_topics": [_topic("a"), _topic("b")]}
_SEES = ["READ group g", *(f"DESCRIBE topic {name}" for name in ("a", "b", "orders", "sink"))]


@pytest.mark.parametrize(
    ("topics", "granted", "there", "error", "said"),
    [
        ({"source_topics": ["orders"]}, _SEES, [], 0, None),
        ({"source_topics": ["secret"]}, _SEES, [], NO_TOPIC, None),
        ({"repartition_sink_topics": ["secret"]}, _SEES, [], NO_TOPIC, None),
        (_MADE, _SEES, [], NO_TOPIC, "Unauthorized to CREATE on topics a, b."),
        (_MADE, _SEES, ["a"], NO_TOPIC, "Unauthorized to CREATE on topics b."),
        (_MADE, _SEES, ["a", "b"], 0, None),
        (_MADE, [*_SEES, "CREATE topic a", "CREATE topic b"], [], 0, None),
        (_MADE, [*_SEES, "CREATE cluster"], [], 0, None),
        (_MADE, ["READ group g"], ["a", "b"], NO_TOPIC, None),
        ({"source_topics": ["secret", "__consumer_offsets"]}, _SEES, [], 0, None),
        ({"source_topics": ["__consumer_offsets"]}, [], [], NO_GROUP, None),
    ],
)
async def test_an_application_of_kafka_streams_takes_the_rights_to_its_topics(
    topics: Values, granted: list[str], there: list[str], error: int, said: str | None
) -> None:
    fields = {"group_id": "g", "topology": {"epoch": 1, "subtopologies": [topics]}}
    seen = await enforced(new_groups.STREAMS_GROUP_HEARTBEAT, 1, fields, *granted, there=dict.fromkeys(there, 1))
    assert (seen.told["error_code"], seen.told["error_message"], seen.is_same) == (error, said, not error)
    if error:
        assert seen.told["active_tasks"] is seen.told["partitions_by_user_endpoint"] is None
    without = {"group_id": "g", "topology": None}
    assert (await enforced(new_groups.STREAMS_GROUP_HEARTBEAT, 0, without, "READ group g")).is_same


async def test_a_client_that_has_gone_is_not_answered() -> None:
    answer = {"groups": [{"group_id": "g"}]}
    assert (await enforced(groups.LIST_GROUPS, 4, {}, broker=answer, closes=True)).is_same


async def test_modules_of_hot_requests_check_rights_themselves() -> None:
    assert (await enforced(cluster.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [_topic("secret")]})).is_same


# Without ACLs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("without_acls", [True, False])
async def test_what_is_for_operators_alone_is_theirs_without_acls_and_by_rights_with_them(without_acls: bool) -> None:
    fields = {"creations": [{}]}
    seen = await enforced(security.CREATE_ACLS, 3, fields, "READ topic orders", without_acls=without_acls)
    assert seen.passed is None
    assert ("super users alone may do that" in seen.refusals[0][2]) is without_acls
    assert (await enforced(security.CREATE_ACLS, 3, fields, principal="User:chief", without_acls=without_acls)).is_same


async def test_without_acls_everything_else_goes_on_as_it_is() -> None:
    for message, version, fields, *_ in WHOLE:
        if message not in (security.CREATE_ACLS, security.DELETE_ACLS, security.ALTER_USER_SCRAM_CREDENTIALS):
            assert (await enforced(message, version, fields, without_acls=True)).is_same
