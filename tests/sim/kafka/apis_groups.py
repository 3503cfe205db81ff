"""OffsetCommit (8), OffsetFetch (9), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups
(15), ListGroups (16), TxnOffsetCommit (28): of the group coordinator.
"""

from __future__ import annotations

from typing import Any

from sidecar.protocol.schema import Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID
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
    _commit(broker, request, values.get("generation_id_or_member_epoch", -1), values.get("member_id", ""), stamp)


def _refusal(broker: Broker, values: Values, stamp: tuple[int, int]) -> int:
    """Why this producer may not commit offsets, as an error code."""
    try:
        shard, group = broker.groups.find_named(values["group_id"])
        runtime = broker.cluster.settings.version >= (4, 0)
        if group is None and not runtime:
            shard.groups[values["group_id"]] = Group()  # it is there even if the producer is refused
        entry = shard.replica.producers.entries.get(stamp[0])
        if entry is None or entry.txn_start < 0:
            partition = CONSUMER_OFFSETS, shard.replica.index
            verify(broker.cluster, values["transactional_id"], stamp, partition)
        elif stamp[1] < entry.epoch:
            return errors.INVALID_PRODUCER_EPOCH if runtime else errors.UNKNOWN_SERVER_ERROR
    except RefusedError as error:
        return error.code
    return errors.NONE


def _name(broker: Broker, topic: Values) -> str | None:
    """Which topic is named, be it by its id (version 10); None for an id that nobody has."""
    if "name" in topic:
        return topic["name"]
    found = broker.image.by_id.get(topic["topic_id"])
    return None if found is None else found.name


def _called(topic: Values) -> Values:
    """A topic in an answer, as the request calls it."""
    return {field: topic[field] for field in ("name", "topic_id") if field in topic}


def _unknown(broker: Broker, topic: str | None, part: Values) -> int:
    """Why there is nothing to commit for, as an error code."""
    if topic is None:
        return errors.UNKNOWN_TOPIC_ID
    known = broker.image.partition(topic, part["partition_index"]) is not None
    return errors.NONE if known else errors.UNKNOWN_TOPIC_OR_PARTITION


def _is_too_large(part: Values) -> bool:
    """offset.metadata.max.bytes."""
    return len(part["committed_metadata"] or "") > 4096


def _commit(
    broker: Broker, request: Request, generation: int, member: str, stamp: tuple[int, int] | None = None
) -> None:
    values = request.values
    places = [
        (_name(broker, topic), topic.get("topic_id", NO_TOPIC_ID), part)
        for topic in values["topics"]
        for part in topic["partitions"]
    ]
    unknown = [_unknown(broker, name, part) for name, _, part in places]
    too_large = [errors.OFFSET_METADATA_TOO_LARGE if _is_too_large(part) else 0 for *_, part in places]
    commits = tuple(
        Commit(
            values["group_id"], name or "", part["partition_index"], part["committed_offset"],
            part.get("committed_leader_epoch", -1), part["committed_metadata"] or "", topic_id,
        )
        for (name, topic_id, part), *codes in zip(places, unknown, too_large, strict=True)
        if not any(codes)
    )  # fmt: skip

    def done(error: int) -> None:
        codes = iter([code or error or large for code, large in zip(unknown, too_large, strict=True)])
        topics = [
            _called(topic)
            | {
                "partitions": [
                    {"partition_index": part["partition_index"], "error_code": next(codes)}
                    for part in topic["partitions"]
                ]
            }
            for topic in values["topics"]
        ]
        request.answer({"topics": topics})

    if all(unknown):  # the coordinator is not asked
        done(errors.NONE)
        return
    refused = _refusal(broker, values, stamp) if stamp is not None else errors.NONE
    if refused:
        done(refused)
    else:
        broker.groups.commit(values["group_id"], member, generation, commits, done, stamp)


@serves(9)
def offset_fetch(broker: Broker, request: Request) -> None:
    values = request.values
    if request.version >= 8:
        rows: list[Values] = []
        for each in values["groups"]:
            topics, error = _offsets(broker, each, stable=values["require_stable"], by_id=request.version >= 10)
            rows.append({"group_id": each["group_id"], "topics": topics, "error_code": error})
        request.answer({"groups": rows})
        return
    topics, error = _offsets(broker, values, stable=values.get("require_stable", False), by_id=False)
    request.answer({"topics": topics, "error_code": error})


def _offsets(broker: Broker, asked: Values, *, stable: bool, by_id: bool) -> tuple[list[Values], int]:
    """`stable`: no offset where that of an open transaction may take its place (KIP-447). `by_id`: topics are named by
    their ids in the answer; one that was committed by the id of a former topic counts as none.
    """
    try:
        _, group = broker.groups.find(asked["group_id"])
    except RefusedError as error:
        return [], error.code
    known = group.offsets if group is not None else {}
    pending = {place for offsets in group.pending.values() for place in offsets} if group is not None and stable else ()
    wanted: list[Values] | None = asked["topics"]
    if wanted is None:
        wanted = _all(broker, known, by_id=by_id)
    rows: list[Values] = []
    for topic in wanted:
        name = _name(broker, topic)
        parts: list[dict[str, Any]] = []
        indexes: list[int] = topic["partition_indexes"]
        if broker.cluster.settings.version < (4, 0):
            indexes = list(dict.fromkeys(indexes))
        for index in indexes:
            waits = (name, index) in pending
            commit = None if waits or name is None else known.get((name, index))
            if commit is not None and by_id and commit.topic_id not in (NO_TOPIC_ID, topic["topic_id"]):
                commit = None
            parts.append(
                {
                    "partition_index": index, "committed_offset": -1 if commit is None else commit.offset,
                    "committed_leader_epoch": -1 if commit is None else commit.leader_epoch,
                    "metadata": "" if commit is None else commit.metadata,
                    "error_code": errors.UNKNOWN_TOPIC_ID if name is None
                    else errors.UNSTABLE_OFFSET_COMMIT if waits else errors.NONE,
                }
            )  # fmt: skip
        rows.append(_called(topic) | {"partitions": parts})
    return rows, errors.NONE


def _all(broker: Broker, known: dict[tuple[str, int], Commit], *, by_id: bool) -> list[Values]:
    """All that a group has committed; without what cannot be named, where topics are named by id."""
    named: dict[str, list[int]] = {}
    for topic, index in known:
        named.setdefault(topic, []).append(index)
    if not by_id:
        return [{"name": topic, "partition_indexes": indexes} for topic, indexes in named.items()]
    topics = broker.image.topics
    return [
        {"topic_id": topics[topic].id, "partition_indexes": indexes}
        for topic, indexes in named.items()
        if topic in topics
    ]


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
    row: Values = {
        "error_code": 0, "group_id": name, "group_state": "Dead", "members": [], "authorized_operations": -(2**31),
    }  # fmt: skip
    try:
        _, group = broker.groups.find(name)
    except RefusedError as error:
        return row | {"error_code": error.code}
    if group is None:
        return row | {"error_code": errors.GROUP_ID_NOT_FOUND if version >= 6 else 0}
    stable, runtime = group.state == "Stable", broker.cluster.settings.version >= (4, 0)
    members = [
        {
            "member_id": each.id, "member_assignment": each.assignment if stable or runtime else b"",
            "member_metadata": each.metadata(group.protocol) if stable else b"",
        }
        for each in group.members.values()
    ]  # fmt: skip
    return row | {
        "group_state": group.state, "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if stable else "",
        "members": members,
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
