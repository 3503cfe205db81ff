"""Rights of members of groups whose coordinator assigns partitions, and on these groups. Pure.

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
    Asked,
    Asking,
    Divided,
    error_fields,
    shown_by,
    some,
    whole,
)
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import new_groups, shares
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, ResourceType

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
    """Refused to a member that may not read in its group, or not DESCRIBE a topic that it names."""
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
    """The topics of its own that an application of Kafka Streams has made."""
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
    """The topics that the coordinator may make, and the client may not."""
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


def assigned_topics(group: Values) -> Iterable[str]:
    """The topics that members of a group that was described have, or are to have."""
    for member in group["members"]:
        for assignment in (member["assignment"], member.get("target_assignment")):
            for topic in assignment["topic_partitions"] if assignment else ():
                yield topic["topic_name"]


def used_topics(group: Values) -> Iterable[str]:
    """The topics of a group of Kafka Streams that was described."""
    return streams_topics(group["topology"])


def _described(topics_of: Callable[[Values], Iterable[str]], said: str) -> Callable[[Asking], Divided]:
    """A description of groups: none of a group that the client may not describe, or with topics that it may not."""

    def check(asking: Asking) -> Divided:
        rights = asking.rights
        hidden = {"error_code": TOPIC, "error_message": said, "authorized_operations": NO_OPERATIONS}

        def refusal(name: str) -> Values:
            return {"group_id": name, "error_code": GROUP, "authorized_operations": NO_OPERATIONS}

        def shown(group: Values) -> Values:
            if group["error_code"]:
                return group
            if not all(rights.topic(Operation.DESCRIBE, name) for name in topics_of(group)):
                return hidden | {"group_id": group["group_id"]}
            if not asking.fields["include_authorized_operations"]:
                return group
            allowed = rights.allowed(ResourceType.GROUP, group["group_id"])
            return group | {"authorized_operations": group["authorized_operations"] & allowed}

        divided = some(
            asking, ("group_ids", "groups"), lambda name: rights.group(Operation.DESCRIBE, name), refusal, GROUP
        )
        return shown_by(asking, divided, lambda answer: answer | {"groups": [*map(shown, answer["groups"])]})

    return check


def _share_offsets(asking: Asking) -> Divided:
    rights = asking.rights

    def may(topic: Values) -> bool:
        return rights.topic(Operation.DESCRIBE, topic["topic_name"])

    def offset(index: int) -> Values:
        return {"partition_index": index, "start_offset": NO_ID, "lag": NO_ID} | error_fields(TOPIC)

    hidden: dict[str, list[Values]] = {}
    groups: list[Values] = []
    refused: list[Values] = []
    for group in asking.fields["groups"]:
        if not rights.group(Operation.DESCRIBE, group["group_id"]):
            refused.append({"group_id": group["group_id"], "error_code": GROUP})
            continue
        topics: list[Values] | None = group["topics"]
        if topics is not None:
            hidden[group["group_id"]] = [
                {"topic_name": topic["topic_name"], "partitions": [offset(index) for index in topic["partitions"]]}
                for topic in topics
                if not may(topic)
            ]
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


def _share_offsets_altered(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return whole(error_fields(GROUP), GROUP)

    def refusal(topic: Values) -> Values:
        partitions = [
            {"partition_index": each["partition_index"]} | error_fields(TOPIC) for each in topic["partitions"]
        ]
        return {"topic_name": topic["topic_name"], "partitions": partitions}

    return _share_topics(asking, refusal)


def _share_offsets_deleted(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.DELETE, asking.fields["group_id"]):
        return whole(error_fields(GROUP), GROUP)
    return _share_topics(asking, lambda topic: {"topic_name": topic["topic_name"]} | error_fields(TOPIC))


def _share_topics(asking: Asking, refusal: Callable[[Values], Values]) -> Divided | None:
    def may(topic: Values) -> bool:
        return asking.rights.topic(Operation.READ, topic["topic_name"])

    return some(asking, ("topics", "responses"), may, refusal, TOPIC, empty_goes_on=True)


ASSIGNED: Final = "The group has described topic(s) that the client is not authorized to describe."
USED: Final = "The described group uses topics that the client is not authorized to describe."
ROWS: Final = (
    Asked(new_groups.CONSUMER_GROUP_HEARTBEAT, _consumer_heartbeat),
    Asked(new_groups.CONSUMER_GROUP_DESCRIBE, _described(assigned_topics, ASSIGNED)),
    Asked(shares.SHARE_GROUP_HEARTBEAT, _share_heartbeat),
    Asked(shares.SHARE_GROUP_DESCRIBE, _described(assigned_topics, ASSIGNED)),
    Asked(shares.DESCRIBE_SHARE_GROUP_OFFSETS, _share_offsets),
    Asked(shares.ALTER_SHARE_GROUP_OFFSETS, _share_offsets_altered),
    Asked(shares.DELETE_SHARE_GROUP_OFFSETS, _share_offsets_deleted),
    Asked(new_groups.STREAMS_GROUP_HEARTBEAT, _streams_heartbeat, _missing),
    Asked(new_groups.STREAMS_GROUP_DESCRIBE, _described(used_topics, USED)),
)
