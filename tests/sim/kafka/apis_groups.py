"""OffsetCommit (8), OffsetFetch (9), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups
(15), ListGroups (16), TxnOffsetCommit (28): of the group coordinator.
"""

from __future__ import annotations

from typing import Any

from sidecar.protocol.schema import Values
from tests.sim.kafka import errors
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.coordinator import verify
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.groups import Commit, Group
from tests.sim.kafka.topics import CONSUMER_OFFSETS


@serves(8)
def offset_commit(broker: Broker, request: Request) -> None:
    values = request.values
    _commit(broker, request, values["generation_id_or_member_epoch"], values["member_id"])


@serves(28)
def txn_offset_commit(broker: Broker, request: Request) -> None:
    """The offsets count when the transaction commits; the group's partition has to be part of it (KIP-890)."""
    values = request.values
    stamp = values["producer_id"], values["producer_epoch"]
    _commit(broker, request, values.get("generation_id", -1), values.get("member_id", ""), stamp)


def _refusal(broker: Broker, values: Values, stamp: tuple[int, int]) -> int:
    """Why this producer may not commit offsets, as an error code."""
    try:
        shard, _ = broker.groups.find(values["group_id"])
        entry = shard.replica.producers.entries.get(stamp[0])
        if entry is None or entry.txn_start < 0:
            partition = CONSUMER_OFFSETS, shard.replica.index
            verify(broker.cluster, values["transactional_id"], stamp, partition)
        elif stamp[1] < entry.epoch:
            return errors.INVALID_PRODUCER_EPOCH
    except RefusedError as error:
        return error.code
    return errors.NONE


def _unfit(broker: Broker, topic: str, part: Values) -> int:
    """Why an offset is not kept, as an error code (offset.metadata.max.bytes)."""
    if broker.image.partition(topic, part["partition_index"]) is None:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    return errors.OFFSET_METADATA_TOO_LARGE if len(part["committed_metadata"] or "") > 4096 else errors.NONE


def _commit(
    broker: Broker, request: Request, generation: int, member: str, stamp: tuple[int, int] | None = None
) -> None:
    values = request.values
    refused_parts = {
        (topic["name"], part["partition_index"]): code
        for topic in values["topics"]
        for part in topic["partitions"]
        if (code := _unfit(broker, topic["name"], part))
    }
    commits = tuple(
        Commit(
            values["group_id"], topic["name"], part["partition_index"], part["committed_offset"],
            part.get("committed_leader_epoch", -1), part["committed_metadata"] or "",
        )
        for topic in values["topics"]
        for part in topic["partitions"]
        if (topic["name"], part["partition_index"]) not in refused_parts
    )  # fmt: skip

    def done(error: int) -> None:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": part["partition_index"],
                        "error_code": refused_parts.get((topic["name"], part["partition_index"]), error),
                    }
                    for part in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
        request.answer({"topics": topics})

    refused = _refusal(broker, values, stamp) if stamp is not None else errors.NONE
    if refused or not commits:
        done(refused)
    else:
        broker.groups.commit(values["group_id"], member, generation, commits, done, stamp)


@serves(9)
def offset_fetch(broker: Broker, request: Request) -> None:
    values = request.values
    if request.version >= 8:
        rows: list[Values] = []
        for each in values["groups"]:
            topics, error = _offsets(broker, each["group_id"], each["topics"], stable=values["require_stable"])
            rows.append({"group_id": each["group_id"], "topics": topics, "error_code": error})
        request.answer({"groups": rows})
        return
    stable = values.get("require_stable", False)
    topics, error = _offsets(broker, values["group_id"], values["topics"], stable=stable)
    request.answer({"topics": topics, "error_code": error})


def _offsets(broker: Broker, name: str, wanted: list[Values] | None, *, stable: bool) -> tuple[list[Values], int]:
    """`stable`: no offset where that of an open transaction may take its place (KIP-447)."""
    try:
        _, group = broker.groups.find(name)
    except RefusedError as error:
        return [], error.code
    known = group.offsets if group is not None else {}
    pending = {place for offsets in group.pending.values() for place in offsets} if group is not None and stable else ()
    if wanted is None:
        named: dict[str, list[int]] = {}
        for topic, index in known:
            named.setdefault(topic, []).append(index)
        wanted = [{"name": topic, "partition_indexes": indexes} for topic, indexes in named.items()]
    rows: list[Values] = []
    for topic in wanted:
        parts: list[dict[str, Any]] = []
        for index in topic["partition_indexes"]:
            waits = (topic["name"], index) in pending
            commit = None if waits else known.get((topic["name"], index))
            parts.append(
                {
                    "partition_index": index, "committed_offset": -1 if commit is None else commit.offset,
                    "committed_leader_epoch": -1 if commit is None else commit.leader_epoch,
                    "metadata": "" if commit is None else commit.metadata,
                    "error_code": errors.UNSTABLE_OFFSET_COMMIT if waits else errors.NONE,
                }
            )  # fmt: skip
        rows.append({"name": topic["name"], "partitions": parts})
    return rows, errors.NONE


@serves(11)
def join_group(broker: Broker, request: Request) -> None:
    broker.groups.join(request.values, request.version, request.answer)


@serves(14)
def sync_group(broker: Broker, request: Request) -> None:
    broker.groups.sync(request.values, request.answer)


@serves(12)
def heartbeat(broker: Broker, request: Request) -> None:
    values = request.values
    request.answer(
        {"error_code": broker.groups.heartbeat(values["group_id"], values["member_id"], values["generation_id"])}
    )


@serves(13)
def leave_group(broker: Broker, request: Request) -> None:
    values = request.values
    if request.version < 3:
        request.answer({"error_code": broker.groups.leave(values["group_id"], values["member_id"])})
        return
    members = [
        {
            "member_id": each["member_id"], "group_instance_id": each["group_instance_id"],
            "error_code": broker.groups.leave(values["group_id"], each["member_id"]),
        }
        for each in values["members"]
    ]  # fmt: skip
    request.answer({"error_code": 0, "members": members})


@serves(15)
def describe_groups(broker: Broker, request: Request) -> None:
    request.answer({"groups": [_describe(broker, each, request.version) for each in request.values["groups"]]})


def _describe(broker: Broker, name: str, version: int) -> Values:
    row: Values = {"error_code": 0, "group_id": name, "group_state": "Dead", "members": []}
    try:
        _, group = broker.groups.find(name)
    except RefusedError as error:
        return row | {"error_code": error.code}
    if group is None:
        return row | {"error_code": errors.GROUP_ID_NOT_FOUND if version >= 6 else 0}
    stable = group.state == "Stable"
    members = [
        {
            "member_id": each.id, "member_assignment": each.assignment if stable else b"",
            "member_metadata": each.metadata(group.protocol) if stable else b"",
        }
        for each in group.members.values()
    ]  # fmt: skip
    return row | {
        "group_state": group.state, "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if stable else "",
        "members": members, "authorized_operations": -(2**31),
    }  # fmt: skip


@serves(16)
def list_groups(broker: Broker, request: Request) -> None:
    found: list[Values] = []
    states = {each.lower() for each in request.values.get("states_filter", ())}
    for shard in broker.groups.shards.values():
        found += [
            _listed(name, group)
            for name, group in shard.groups.items()
            if not states or group.state.lower() in states  # KIP-518
        ]
    request.answer({"error_code": 0, "groups": found})


def _listed(name: str, group: Group) -> Values:
    return {"group_id": name, "protocol_type": group.protocol_type, "group_state": group.state, "group_type": "classic"}
