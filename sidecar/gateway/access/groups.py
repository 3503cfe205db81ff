"""Rights on groups and on what they commit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    called,
    ids_in,
    shown_by,
    some,
    whole,
)
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import groups
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, ResourceType


def _sync_group(asking: Asking) -> Divided | None:
    fields = asking.fields
    if asking.version >= 5 and None in (fields["protocol_type"], fields["protocol_name"]):
        return None  # the coordinator refuses it (23) before it looks at rights
    return _member(asking)


def _member(asking: Asking) -> Divided | None:
    """SyncGroup, Heartbeat, LeaveGroup."""
    if asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return None
    return whole({"error_code": GROUP}, GROUP)


def _join_group(asking: Asking) -> Divided | None:
    if asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return None
    name = None if asking.version >= 7 else ""
    return whole({"error_code": GROUP, "generation_id": NO_ID, "protocol_name": name}, GROUP)


def _why(asking: Asking, topic: Values) -> int:
    """Why a topic of a request is refused: an id that is not known has no rights (`KafkaApis`, KIP-516)."""
    return ErrorCode.UNKNOWN_TOPIC_ID if asking.named(topic) is None else TOPIC


def committed(topic: Values, code: int) -> Values:
    """A topic of OffsetCommit, TxnOffsetCommit or OffsetDelete of which nothing was written."""
    partitions = [{"partition_index": each["partition_index"], "error_code": code} for each in topic["partitions"]]
    return {**called(topic), "partitions": partitions}


def _all_refused(asking: Asking, code: int) -> Divided:
    return whole({"topics": [committed(topic, code) for topic in asking.fields["topics"]]}, code)


def _may(asking: Asking, operation: Operation) -> Callable[[Values], bool]:
    def may(topic: Values) -> bool:
        name = asking.named(topic)
        return name is not None and asking.rights.topic(operation, name)

    return may


def _readable(asking: Asking, *, empty_goes_on: bool = False) -> Divided | None:
    """The topics of a commit that the client may read go on."""
    may = _may(asking, Operation.READ)
    code = min((_why(asking, topic) for topic in asking.fields["topics"] if not may(topic)), default=0)
    return some(
        asking,
        ("topics", "topics"),
        may,
        lambda topic: committed(topic, _why(asking, topic)),
        code,
        empty_goes_on=empty_goes_on,
    )


def _offset_commit(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return _all_refused(asking, GROUP)
    return _readable(asking)


def _txn_offset_commit(asking: Asking) -> Divided | None:
    if not asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return _all_refused(asking, TRANSACTIONAL_ID)
    return _offset_commit(asking)


def _offset_delete(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.DELETE, asking.fields["group_id"]):
        return whole({"error_code": GROUP}, GROUP)
    return _readable(asking, empty_goes_on=True)  # whether there is the group the coordinator says


def fetched(topic: Values, code: int) -> Values:
    """A topic in an OffsetFetch answer with this error code in every partition."""

    def refused(index: int) -> Values:
        offset = {"committed_offset": NO_ID, "committed_leader_epoch": NO_ID, "metadata": ""}
        return {"partition_index": index, "error_code": code} | offset

    return {**called(topic), "partitions": [refused(index) for index in topic["partition_indexes"]]}


def _group_fetched(asking: Asking, group: Values) -> Divided:
    """What is left of a group in OffsetFetch: a request before version 8, an element of it since."""
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


def _describe_groups(asking: Asking) -> Divided | None:
    rights, version = asking.rights, asking.version

    def refusal(name: str) -> Values:
        message = {"error_message": None} if version >= 6 else {}
        return {"group_id": name, "error_code": GROUP, "authorized_operations": NO_OPERATIONS} | message

    divided = some(asking, ("groups", "groups"), lambda name: rights.group(Operation.DESCRIBE, name), refusal, GROUP)
    if not asking.fields.get("include_authorized_operations"):
        return divided

    def shown(group: Values) -> Values:
        name = "authorized_operations"
        if group["error_code"]:
            return group
        return group | {name: group[name] & rights.allowed(ResourceType.GROUP, group["group_id"])}

    return shown_by(asking, divided, lambda answer: answer | {"groups": [*map(shown, answer["groups"])]})


def _delete_groups(asking: Asking) -> Divided | None:
    return some(
        asking,
        ("groups_names", "results"),
        lambda name: asking.rights.group(Operation.DELETE, name),
        lambda name: {"group_id": name, "error_code": GROUP},
        GROUP,
    )


def _list_groups(asking: Asking) -> Divided | None:
    rights = asking.rights
    if rights.cluster(Operation.DESCRIBE):
        return None

    def may(group: Values) -> bool:
        return rights.group(Operation.DESCRIBE, group["group_id"])

    return Divided(asking.fields, lambda answer: answer | {"groups": [each for each in answer["groups"] if may(each)]})


def _ids_fetched(fields: Values) -> Iterable[bytes]:
    return (topic_id for group in fields.get("groups", ()) for topic_id in ids_in(group["topics"]))


ROWS: Final = (
    Asked(groups.OFFSET_COMMIT, _offset_commit, ids=lambda fields: ids_in(fields["topics"])),
    Asked(groups.OFFSET_FETCH, _offset_fetch, ids=_ids_fetched),
    Asked(groups.JOIN_GROUP, _join_group),
    Asked(groups.HEARTBEAT, _member),
    Asked(groups.LEAVE_GROUP, _member),
    Asked(groups.SYNC_GROUP, _sync_group),
    Asked(groups.DESCRIBE_GROUPS, _describe_groups),
    Asked(groups.LIST_GROUPS, _list_groups),
    Asked(groups.TXN_OFFSET_COMMIT, _txn_offset_commit),
    Asked(groups.DELETE_GROUPS, _delete_groups),
    Asked(groups.OFFSET_DELETE, _offset_delete),
)
