"""Rights on groups and on what they commit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    some,
    whole,
)
from sidecar.protocol.messages import groups
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from sidecar.protocol.schema import Values


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


def _committed(topic: Values, code: int) -> Values:
    """A topic of OffsetCommit, TxnOffsetCommit or OffsetDelete of which nothing was written."""
    partitions = [{"partition_index": each["partition_index"], "error_code": code} for each in topic["partitions"]]
    return {"name": topic["name"], "partitions": partitions}


def _all_refused(asking: Asking, code: int) -> Divided:
    return whole({"topics": [_committed(topic, code) for topic in asking.fields["topics"]]}, code)


def _readable(asking: Asking, *, empty_goes_on: bool = False) -> Divided | None:
    """The topics of a commit that the client may read go on."""
    return some(
        asking,
        ("topics", "topics"),
        lambda topic: asking.rights.topic(Operation.READ, topic["name"]),
        lambda topic: _committed(topic, TOPIC),
        TOPIC,
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


def _fetched(topic: Values, code: int) -> Values:
    def refused(index: int) -> Values:
        offset = {"committed_offset": NO_ID, "committed_leader_epoch": NO_ID, "metadata": ""}
        return {"partition_index": index, "error_code": code} | offset

    return {"name": topic["name"], "partitions": [refused(index) for index in topic["partition_indexes"]]}


def _offset_fetch(asking: Asking) -> Divided | None:
    fields, rights = asking.fields, asking.rights
    topics: list[Values] | None = fields["topics"]
    if not rights.group(Operation.DESCRIBE, fields["group_id"]):
        refused = [_fetched(topic, GROUP) for topic in topics or ()] if asking.version < 2 else []
        return whole({"error_code": GROUP, "topics": refused}, GROUP)

    def may(topic: Values) -> bool:
        return rights.topic(Operation.DESCRIBE, topic["name"])

    if topics is None:
        return Divided(fields, lambda answer: answer | {"topics": [each for each in answer["topics"] if may(each)]})
    return some(asking, ("topics", "topics"), may, lambda topic: _fetched(topic, TOPIC), TOPIC, empty_goes_on=True)


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

    def amend(answer: Values) -> Values:
        answer = divided.amend(answer) if divided else answer
        return answer | {"groups": [shown(group) for group in answer["groups"]]}

    return Divided(divided.fields if divided else asking.fields, amend, divided.code if divided else 0)


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


ROWS: Final = (
    Asked(groups.OFFSET_COMMIT, _offset_commit),
    Asked(groups.OFFSET_FETCH, _offset_fetch),
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
