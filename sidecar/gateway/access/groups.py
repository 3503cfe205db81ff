"""Rights on groups, of their members, and on committed offsets. Pure.

A coordinator would check the topics that an expression matches, or that Kafka Streams wants created, against the rights
of the connection to it, which are the node's. So both are refused to a member whose own rights do not cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TOPIC,
    Asking,
    Divided,
    each_takes,
    refused_topic,
    shown_by,
    some,
    takes,
    whole,
)
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, ResourceType

_GROUP: Final = ResourceType.GROUP
_NOTHING_COMMITTED: Final = {"committed_offset": NO_ID, "committed_leader_epoch": NO_ID, "metadata": ""}


# What is committed ----------------------------------------------------------------------------------------------------


def why_refused(asking: Asking, topic: Values) -> int:
    """The error of a refused topic: an unknown id is refused without a check of rights (`KafkaApis`, KIP-516)."""
    return ErrorCode.UNKNOWN_TOPIC_ID if asking.named(topic) is None else TOPIC


def committed(topic: Values, code: int) -> Values:
    """The answer for a refused topic of OffsetCommit, TxnOffsetCommit or OffsetDelete."""
    return refused_topic(topic, {"error_code": code})


def not_committed(code: int) -> Callable[[Asking], Values]:
    """The answer to a commit that is refused as a whole."""
    return lambda asking: {"topics": [committed(topic, code) for topic in asking.fields["topics"]]}


def permitted(asking: Asking, operation: Operation) -> Callable[[Values], bool]:
    """Whether the client may do this with a topic that is known."""

    def may(topic: Values) -> bool:
        name = asking.named(topic)
        return name is not None and asking.rights.topic(operation, name)

    return may


def readable(asking: Asking, *, empty_goes_on: bool = False) -> Divided | None:
    """Forwards the topics of a commit that the client may read."""
    may = permitted(asking, Operation.READ)
    code = min((why_refused(asking, topic) for topic in asking.fields["topics"] if not may(topic)), default=0)

    def refused(topic: Values) -> Values | None:
        return None if may(topic) else committed(topic, why_refused(asking, topic))

    return some(asking.fields, ("topics", "topics"), refused, code, empty_goes_on=empty_goes_on)


offset_commit: Final = takes(Operation.READ, _GROUP, not_committed(GROUP), readable)
"""The check of OffsetCommit, and of the topics of TxnOffsetCommit."""


def fetched(topic: Values, code: int) -> Values:
    """A topic in an OffsetFetch answer with this error code in every partition."""
    return refused_topic(topic, {"error_code": code} | _NOTHING_COMMITTED)


# Descriptions ---------------------------------------------------------------------------------------------------------


def described(
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


ASSIGNED: Final = "The group has described topic(s) that the client is not authorized to describe."


def assigned_topics(group: Values) -> Iterable[str]:
    """The topics in the present and target assignments of a described group's members."""
    for member in group["members"]:
        for assignment in (member["assignment"], member.get("target_assignment")):
            for topic in assignment["topic_partitions"] if assignment else ():
                yield topic["topic_name"]


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
_NO_LAG: Final = {"acceptable_recovery_lag": NO_ID}
"""In such an answer from version 1 on."""


def not_beaten(code: int, message: str | None = None) -> Values:
    """The answer to a heartbeat that is refused."""
    return _NO_LISTS | _NO_LAG | {"error_code": code, "error_message": message}


def heartbeat(asking: Asking, names: Iterable[str]) -> Divided | None:
    """Refuses a member that may not READ its group, or not DESCRIBE a topic that it names."""
    if not asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return whole(not_beaten(GROUP), GROUP)
    if not all(asking.rights.topic(Operation.DESCRIBE, name) for name in names):
        return whole(not_beaten(TOPIC), TOPIC)
    return None


def subscription(asking: Asking) -> Divided | None:
    """The check of a member that names topics."""
    return heartbeat(asking, asking.fields["subscribed_topic_names"] or ())


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


def described_topics(description: Values | None) -> Iterable[str]:
    """All topics that the description of a topology names (KIP-1331)."""
    for node in _nodes(description):
        yield from node["source_topics"]
    yield from sinks(description)


def sinks(description: Values | None) -> Iterable[str]:
    """The topics that a described topology writes to."""
    return (node["sink_topic"] for node in _nodes(description) if node["sink_topic"] is not None)


def _nodes(description: Values | None) -> Iterable[Values]:
    if description is not None:
        for subtopology in description["subtopologies"]:
            yield from subtopology["nodes"]
        for store in description["global_stores"]:
            yield from (store["source"], store["processor"])


# Offsets of share groups ----------------------------------------------------------------------------------------------


def share_topics(
    operation: Operation, refusal: Callable[[Values], Values] = lambda _: {}
) -> Callable[[Asking], Divided | None]:
    """The check of an operation on the group, and of READ on each topic."""
    lists, kind = ("topics", "responses"), ResourceType.TOPIC
    then = each_takes(Operation.READ, kind, lists, "topic_name", refusal, empty_goes_on=True)
    return takes(operation, _GROUP, then=then)
