"""ListOffsets (2), DeleteRecords (21), OffsetForLeaderEpoch (23), DescribeProducers (61): asked of a leader."""

from __future__ import annotations

from collections import Counter
from functools import partial

from sidecar.protocol.schema import Values
from tests.sim.kafka import errors
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.records import parse
from tests.sim.kafka.replica import Deleting, Replica

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3


def leader_of(broker: Broker, topic: str, index: int, epoch: int = -1) -> Replica:
    """The replica here if it leads. Raises `RefusedError` 3, 6, 74, 75."""
    replica = replica_of(broker, topic, index)
    replica.check_epoch(epoch)
    replica.check_leader()
    return replica


def replica_of(broker: Broker, topic: str, index: int) -> Replica:
    """`ReplicaManager.getPartitionOrError`."""
    replica = broker.hosted(topic, index)
    if replica is None:
        known = broker.image.partition(topic, index) is not None
        raise RefusedError(errors.NOT_LEADER_OR_FOLLOWER if known else errors.UNKNOWN_TOPIC_OR_PARTITION)
    return replica


@serves(2)
def list_offsets(broker: Broker, request: Request) -> None:
    """`Partition.fetchOffsetForTimestamp`; a client sees the high watermark, or the last stable offset."""
    values = request.values
    committed = values.get("isolation_level", 0) == 1
    named = Counter(
        (topic["name"], part["partition_index"]) for topic in values["topics"] for part in topic["partitions"]
    )
    topics: list[Values] = []
    for topic in values["topics"]:
        rows: list[Values] = []
        for part in topic["partitions"]:
            row: Values = {
                "partition_index": part["partition_index"], "error_code": 0, "timestamp": -1, "offset": -1,
                "leader_epoch": -1,
            }  # fmt: skip
            try:
                if named[topic["name"], part["partition_index"]] > 1:
                    raise RefusedError(errors.INVALID_REQUEST)
                if part["timestamp"] < _EARLIEST and not (part["timestamp"] == _MAX_TIMESTAMP and request.version >= 7):
                    raise RefusedError(errors.UNSUPPORTED_VERSION)  # KIP-734, KIP-405, KIP-1005
                replica = leader_of(
                    broker, topic["name"], part["partition_index"], part.get("current_leader_epoch", -1)
                )
                row["timestamp"], row["offset"], row["leader_epoch"] = _find(
                    replica, part["timestamp"], committed=committed, version=request.version
                )
            except RefusedError as error:
                row["error_code"] = error.code
            if row not in rows or broker.cluster.settings.version < (4, 0):
                rows.append(row)
        topics.append({"name": topic["name"], "partitions": rows})
    request.answer({"topics": topics})


def _find(replica: Replica, timestamp: int, *, committed: bool, version: int) -> tuple[int, int, int]:
    log = replica.log
    if timestamp == _EARLIEST:
        return -1, log.start, log.epoch_of(log.start)
    fetchable = replica.stable_offset() if committed else replica.high_watermark
    behind = replica.high_watermark < replica.epoch_start  # KIP-207
    late = errors.OFFSET_NOT_AVAILABLE if version >= 5 else errors.LEADER_NOT_AVAILABLE
    if timestamp == _LATEST:
        if behind:
            raise RefusedError(late)
        return -1, fetchable, replica.epoch
    if timestamp == _MAX_TIMESTAMP:
        timestamp = max((batch.max_ts for batch in log.batches), default=0)
    batch = log.by_time(timestamp)
    if batch is None or batch.last >= fetchable:
        if behind and batch is not None:
            raise RefusedError(late)
        if batch is None or batch.base >= fetchable:
            return -1, -1, -1
    if batch.attributes & 0x08 or batch.control:
        return batch.max_ts, max(batch.base, log.start), batch.epoch
    for record in parse(batch):
        offset = batch.base + record.delta
        if record.time >= timestamp and offset >= log.start:
            return record.time, offset, batch.epoch
    return batch.max_ts, batch.last, batch.epoch


class _DeleteRecords:
    """One request; `left` counts the partitions that wait for followers, and the request itself."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self.broker = broker
        self.request = request
        self.topics: list[Values] = []
        self.left = 1
        self.waiting: list[tuple[Replica, Deleting, Values]] = []

    def run(self) -> None:
        for topic in self.request.values["topics"]:
            rows = [
                self._delete(topic["name"], each["partition_index"], each["offset"]) for each in topic["partitions"]
            ]
            self.topics.append({"name": topic["name"], "partitions": rows})
        if self.left > 1:
            self.broker.later(max(0, self.request.values["timeout_ms"]) / 1000, self._overdue)
        self._one_less()

    def _delete(self, topic: str, index: int, offset: int) -> Values:
        row: Values = {"partition_index": index, "low_watermark": -1, "error_code": 0}
        try:
            replica = leader_of(self.broker, topic, index)
            deleting = replica.delete_before(offset, partial(self._done, row))
            self.left += 1
            if not replica.look_at_starts(deleting):
                self.waiting.append((replica, deleting, row))
        except RefusedError as error:
            row["error_code"] = error.code
        return row

    def _done(self, row: Values, code: int, low: int) -> None:
        self.waiting = [each for each in self.waiting if each[2] is not row]
        row["error_code"], row["low_watermark"] = code, low
        self._one_less()

    def _overdue(self) -> None:
        for replica, deleting, row in self.waiting:
            replica.deleting.remove(deleting)
            self._done(row, errors.REQUEST_TIMED_OUT, -1)

    def _one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self.request.answer({"topics": self.topics})


@serves(21)
def delete_records(broker: Broker, request: Request) -> None:
    """`ReplicaManager.deleteRecords`: answered when all live replicas begin there, or with 7 when the time is over."""
    _DeleteRecords(broker, request).run()


@serves(23)
def offset_for_leader_epoch(broker: Broker, request: Request) -> None:
    """`Partition.lastOffsetForLeaderEpoch` (KIP-101, KIP-320)."""
    topics: list[Values] = []
    for topic in request.values["topics"]:
        rows: list[Values] = []
        for part in topic["partitions"]:
            row: Values = {"partition": part["partition"], "error_code": 0, "leader_epoch": -1, "end_offset": -1}
            try:
                replica = leader_of(broker, topic["topic"], part["partition"], part["current_leader_epoch"])
                row["leader_epoch"], row["end_offset"] = replica.log.end_of_epoch(part["leader_epoch"])
            except RefusedError as error:
                row["error_code"] = error.code
            rows.append(row)
        topics.append({"topic": topic["topic"], "partitions": rows})
    request.answer({"topics": topics})


@serves(61)
def describe_producers(broker: Broker, request: Request) -> None:
    """What a replica remembers, what is not committed included (KIP-664, KA 2472); any replica answers."""
    topics: list[Values] = []
    for topic in request.values["topics"]:
        rows: list[Values] = []
        for index in topic["partition_indexes"]:
            row: Values = {"partition_index": index, "error_code": 0, "error_message": None, "active_producers": []}
            try:
                row["active_producers"] = _producers(replica_of(broker, topic["name"], index))
            except RefusedError as error:
                row["error_code"] = error.code
            rows.append(row)
        topics.append({"name": topic["name"], "partitions": rows})
    request.answer({"topics": topics})


def _producers(replica: Replica) -> list[Values]:
    return [
        {
            "producer_id": entry.pid, "producer_epoch": entry.epoch, "last_sequence": entry.last_seq,
            "last_timestamp": entry.last_ts, "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": entry.txn_start,
        }
        for entry in replica.producers.entries.values()
    ]  # fmt: skip
