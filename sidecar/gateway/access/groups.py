"""Rights on groups, of their members, and on committed offsets. Pure.

A coordinator would check the topics that an expression matches, or that Kafka Streams wants created, against the rights
of the connection to it, which are the node's. So both are refused to a member whose own rights do not cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    each_takes,
    error_fields,
    ids_in,
    refused_topic,
    shown_by,
    some,
    takes,
    whole,
)
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import groups, new_groups, shares
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, ResourceType

_GROUP: Final = ResourceType.GROUP
_NOTHING_COMMITTED: Final = {"committed_offset": NO_ID, "committed_leader_epoch": NO_ID, "metadata": ""}


def _sync_group(asking: Asking) -> Divided | None:
    fields = asking.fields
    if asking.version >= 5 and None in (fields["protocol_type"], fields["protocol_name"]):
        return None  # the coordinator refuses it (23) before it checks rights
    return takes(Operation.READ, _GROUP)(asking)


def _not_joined(asking: Asking) -> Values:
    return {"generation_id": NO_ID, "protocol_name": None if asking.version >= 7 else ""}


# What is committed ----------------------------------------------------------------------------------------------------


def _why(asking: Asking, topic: Values) -> int:
    """The error of a refused topic: an unknown id is refused without a check of rights (`KafkaApis`, KIP-516)."""
    return ErrorCode.UNKNOWN_TOPIC_ID if asking.named(topic) is None else TOPIC


def committed(topic: Values, code: int) -> Values:
    """The answer for a refused topic of OffsetCommit, TxnOffsetCommit or OffsetDelete."""
    return refused_topic(topic, {"error_code": code})


def _not_committed(code: int) -> Callable[[Asking], Values]:
    return lambda asking: {"topics": [committed(topic, code) for topic in asking.fields["topics"]]}


def _may(asking: Asking, operation: Operation) -> Callable[[Values], bool]:
    def may(topic: Values) -> bool:
        name = asking.named(topic)
        return name is not None and asking.rights.topic(operation, name)

    return may


def _readable(asking: Asking, *, empty_goes_on: bool = False) -> Divided | None:
    """Forwards the topics of a commit that the client may read."""
    may = _may(asking, Operation.READ)
    code = min((_why(asking, topic) for topic in asking.fields["topics"] if not may(topic)), default=0)

    def refused(topic: Values) -> Values | None:
        return None if may(topic) else committed(topic, _why(asking, topic))

    return some(asking.fields, ("topics", "topics"), refused, code, empty_goes_on=empty_goes_on)


_offset_commit: Final = takes(Operation.READ, _GROUP, _not_committed(GROUP), _readable)


def fetched(topic: Values, code: int) -> Values:
    """A topic in an OffsetFetch answer with this error code in every partition."""
    return refused_topic(topic, {"error_code": code} | _NOTHING_COMMITTED)


def _group_fetched(asking: Asking, group: Values) -> Divided:
    """The allowed part of a group in OffsetFetch: of the request before version 8, of one element since."""
    topics: list[Values] | None = group["topics"]
    if not asking.rights.group(Operation.DESCRIBE, group["group_id"]):
        refused = [fetched(topic, GROUP) for topic in topics or ()] if asking.version < 2 else []
        return whole({"group_id": group["group_id"], "error_code": GROUP, "topics": refused}, GROUP)
    may = _may(asking, Operation.DESCRIBE)
    if topics is None:
        return Divided(group, lambda answer: answer | {"topics": [each for each in answer["topics"] if may(each)]})
    codes = [_why(asking, topic) for topic in topics if not may(topic)]
    hidden = [fetched(topic, _why(asking, topic)) for topic in topics if not may(topic)]

    def amend(answer: Values) -> Values:
        return answer if answer.get("error_code") else answer | {"topics": [*answer["topics"], *hidden]}

    return Divided(group | {"topics": [topic for topic in topics if may(topic)]}, amend, min(codes, default=0))


def _offset_fetch(asking: Asking) -> Divided | None:
    if "groups" not in asking.fields:
        divided = _group_fetched(asking, asking.fields)
        return divided if divided.code or asking.fields["topics"] is None else None
    found = [_group_fetched(asking, group) for group in asking.fields["groups"]]
    kept = [each.fields for each in found if each.fields is not None]
    code = next((each.code for each in found if each.code), 0)
    if not code and all(group["topics"] is not None for group in kept):
        return None

    def amend(answer: Values) -> Values:
        """Brokers answer in the order of the request."""
        left = iter(answer.get("groups", ()))
        return answer | {"groups": [each.amend({} if each.fields is None else next(left)) for each in found]}

    return Divided(asking.fields | {"groups": kept} if kept else None, amend, code)


def _ids_fetched(fields: Values) -> Iterable[bytes]:
    return (topic_id for group in fields.get("groups", ()) for topic_id in ids_in(group["topics"]))


# Descriptions ---------------------------------------------------------------------------------------------------------


def _described(
    asked: str = "group_ids", topics_of: Callable[[Values], Iterable[str]] = lambda _: (), said: str = ""
) -> Callable[[Asking], Divided | None]:
    """The check of descriptions: refuses groups that the client may not describe, or with topics that it may not."""
    divide = each_takes(
        Operation.DESCRIBE,
        _GROUP,
        (asked, "groups"),
        "group_id",
        lambda _: {"error_message": None, "authorized_operations": NO_OPERATIONS},
    )
    hidden = {"error_code": TOPIC, "error_message": said, "authorized_operations": NO_OPERATIONS}

    def check(asking: Asking) -> Divided | None:
        rights, with_operations = asking.rights, asking.fields.get("include_authorized_operations")

        def shown(group: Values) -> Values:
            if group["error_code"]:
                return group
            if not all(rights.topic(Operation.DESCRIBE, name) for name in topics_of(group)):
                return hidden | {"group_id": group["group_id"]}
            if not with_operations:
                return group
            allowed = rights.allowed(_GROUP, group["group_id"])
            return group | {"authorized_operations": group["authorized_operations"] & allowed}

        divided = divide(asking)
        if not said and not with_operations:
            return divided
        return shown_by(asking, divided, lambda answer: answer | {"groups": [*map(shown, answer["groups"])]})

    return check


def _list_groups(asking: Asking) -> Divided | None:
    rights = asking.rights
    if rights.cluster(Operation.DESCRIBE):
        return None

    def may(group: Values) -> bool:
        return rights.group(Operation.DESCRIBE, group["group_id"])

    return Divided(asking.fields, lambda answer: answer | {"groups": [each for each in answer["groups"] if may(each)]})


def assigned_topics(group: Values) -> Iterable[str]:
    """The topics in the present and target assignments of a described group's members."""
    for member in group["members"]:
        for assignment in (member["assignment"], member.get("target_assignment")):
            for topic in assignment["topic_partitions"] if assignment else ():
                yield topic["topic_name"]


def used_topics(group: Values) -> Iterable[str]:
    """The topics of a described Kafka Streams group."""
    return streams_topics(group["topology"])


# Heartbeats -----------------------------------------------------------------------------------------------------------

NOT_EXPANDED: Final = KafkaError(
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    "brokers resolve this expression with the rights of the sidecar, which sees topics that this client may not: "
    "subscribe by an expression that the client resolves (java.util.regex.Pattern), or by names",
)
_NO_LISTS: Final[Values] = dict.fromkeys(
    ("active_tasks", "standby_tasks", "warmup_tasks", "partitions_by_user_endpoint")
)
"""Null in an answer to StreamsGroupHeartbeat that has nothing new of them; other answers do not have them."""


def not_beaten(code: int, message: str | None = None) -> Values:
    """The answer to a heartbeat that is refused."""
    return _NO_LISTS | {"error_code": code, "error_message": message}


def _heartbeat(asking: Asking, names: Iterable[str]) -> Divided | None:
    """Refuses a member that may not READ its group, or not DESCRIBE a topic that it names."""
    if not asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return whole(not_beaten(GROUP), GROUP)
    if not all(asking.rights.topic(Operation.DESCRIBE, name) for name in names):
        return whole(not_beaten(TOPIC), TOPIC)
    return None


def _share_heartbeat(asking: Asking) -> Divided | None:
    return _heartbeat(asking, asking.fields["subscribed_topic_names"] or ())


def _consumer_heartbeat(asking: Asking) -> Divided | None:
    refused = _share_heartbeat(asking)
    if refused or not asking.fields.get("subscribed_topic_regex") or asking.rights.describes_every_topic():
        return refused
    return whole(not_beaten(NOT_EXPANDED.code, NOT_EXPANDED.message), NOT_EXPANDED.code)


def made_topics(topology: Values | None) -> Iterable[str]:
    """The internal topics that an application of Kafka Streams needs."""
    if topology is None:
        return
    for each in topology["subtopologies"]:
        yield from (topic["name"] for topic in each["repartition_source_topics"])
        yield from (topic["name"] for topic in each["state_changelog_topics"])


def streams_topics(topology: Values | None) -> Iterable[str]:
    """All topics that a topology names."""
    if topology is not None:
        for each in topology["subtopologies"] or ():
            yield from each["source_topics"]
            yield from each["repartition_sink_topics"]
        yield from made_topics(topology)


def _missing(asking: Asking) -> list[str]:
    """The topics that the coordinator would create, and the client may not."""
    rights = asking.rights
    if rights.cluster(Operation.CREATE):
        return []
    return [name for name in made_topics(asking.fields["topology"]) if not rights.topic(Operation.CREATE, name)]


def _streams_heartbeat(asking: Asking) -> Divided | None:
    names = [*streams_topics(asking.fields["topology"])]
    if not KAFKAS_OWN.isdisjoint(names):
        return _heartbeat(asking, ())  # the coordinator refuses it
    if (refused := _heartbeat(asking, names)) is not None:
        return refused
    missing = sorted({name for name in _missing(asking) if not asking.has(name, None)})
    if missing:
        return whole(not_beaten(TOPIC, f"Unauthorized to CREATE on topics {', '.join(missing)}."), TOPIC)
    return None


# Offsets of share groups ----------------------------------------------------------------------------------------------


def _share_offsets(asking: Asking) -> Divided:
    rights = asking.rights
    nothing = {"start_offset": NO_ID, "lag": NO_ID} | error_fields(TOPIC)

    def may(topic: Values) -> bool:
        return rights.topic(Operation.DESCRIBE, topic["topic_name"])

    hidden: dict[str, list[Values]] = {}
    groups: list[Values] = []
    refused: list[Values] = []
    for group in asking.fields["groups"]:
        if not rights.group(Operation.DESCRIBE, group["group_id"]):
            refused.append({"group_id": group["group_id"], "error_code": GROUP})
            continue
        topics: list[Values] | None = group["topics"]
        if topics is not None:
            hidden[group["group_id"]] = [refused_topic(topic, nothing) for topic in topics if not may(topic)]
            group = group | {"topics": [topic for topic in topics if may(topic)]}  # noqa: PLW2901 - what is left of it
        groups.append(group)

    def shown(group: Values) -> Values:
        kept = [topic for topic in group["topics"] if may(topic)]
        more = [] if group["error_code"] else hidden.get(group["group_id"], [])
        return group | {"topics": [*kept, *more]}

    def amend(answer: Values) -> Values:
        return answer | {"groups": [*map(shown, answer.get("groups", ())), *refused]}

    code = GROUP if refused else TOPIC if any(hidden.values()) else 0
    return Divided(asking.fields | {"groups": groups} if groups else None, amend, code)


def _share_topics(
    operation: Operation, refusal: Callable[[Values], Values] = lambda _: {}
) -> Callable[[Asking], Divided | None]:
    """The check of an operation on the group, and of READ on each topic."""
    lists, kind = ("topics", "responses"), ResourceType.TOPIC
    then = each_takes(Operation.READ, kind, lists, "topic_name", refusal, empty_goes_on=True)
    return takes(operation, _GROUP, then=then)


ASSIGNED: Final = "The group has described topic(s) that the client is not authorized to describe."
USED: Final = "The described group uses topics that the client is not authorized to describe."
ROWS: Final = (
    Asked(groups.OFFSET_COMMIT, _offset_commit, ids=lambda fields: ids_in(fields["topics"])),
    Asked(groups.OFFSET_FETCH, _offset_fetch, ids=_ids_fetched),
    Asked(groups.JOIN_GROUP, takes(Operation.READ, _GROUP, _not_joined)),
    Asked(groups.HEARTBEAT, takes(Operation.READ, _GROUP)),
    Asked(groups.LEAVE_GROUP, takes(Operation.READ, _GROUP)),
    Asked(groups.SYNC_GROUP, _sync_group),
    Asked(groups.DESCRIBE_GROUPS, _described("groups")),
    Asked(groups.LIST_GROUPS, _list_groups),
    Asked(
        groups.TXN_OFFSET_COMMIT,
        takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _not_committed(TRANSACTIONAL_ID), _offset_commit),
    ),
    Asked(groups.DELETE_GROUPS, each_takes(Operation.DELETE, _GROUP, ("groups_names", "results"), "group_id")),
    Asked(  # whether there is the group the coordinator says
        groups.OFFSET_DELETE, takes(Operation.DELETE, _GROUP, then=partial(_readable, empty_goes_on=True))
    ),
    Asked(new_groups.CONSUMER_GROUP_HEARTBEAT, _consumer_heartbeat),
    Asked(new_groups.CONSUMER_GROUP_DESCRIBE, _described(topics_of=assigned_topics, said=ASSIGNED)),
    Asked(shares.SHARE_GROUP_HEARTBEAT, _share_heartbeat),
    Asked(shares.SHARE_GROUP_DESCRIBE, _described(topics_of=assigned_topics, said=ASSIGNED)),
    Asked(shares.DESCRIBE_SHARE_GROUP_OFFSETS, _share_offsets),
    Asked(
        shares.ALTER_SHARE_GROUP_OFFSETS,
        _share_topics(Operation.READ, lambda topic: refused_topic(topic, error_fields(TOPIC))),
    ),
    Asked(shares.DELETE_SHARE_GROUP_OFFSETS, _share_topics(Operation.DELETE)),
    Asked(new_groups.STREAMS_GROUP_HEARTBEAT, _streams_heartbeat, _missing),
    Asked(new_groups.STREAMS_GROUP_DESCRIBE, _described(topics_of=used_topics, said=USED)),
)
