"""Calls to a partition's leader about its log: Produce of one batch, Fetch without a session, ListOffsets.

These serve internal topics and the reading forward of governed logs. Clients' own Produce and Fetch never pass through
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.protocol.messages import logs as tables
from sidecar.protocol.primitives import MalformedFrameError, Octets, Reader, Writer
from sidecar.protocol.views import View, by_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.protocol.schema import Values

_ALL_IN_SYNC_REPLICAS = -1
_CONSUMER = -1
_NO_LEADER_EPOCH = -1
_NO_SESSION = -1


class IsolationLevel(IntEnum):
    """READ_UNCOMMITTED reads up to the high watermark, READ_COMMITTED up to the last stable offset (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def _only(found: list[tuple[TopicPartition, object]], asked: TopicPartition, api: str) -> None:
    if [partition for partition, _ in found] != [asked]:
        names = ", ".join(str(partition) for partition, _ in found) or "nothing"
        raise MalformedFrameError(f"{api} of {asked} answered for {names}")


@dataclass(frozen=True, slots=True)
class Appended:
    """What a leader says to one batch. `base_offset` is -1 where `error` is not 0; for a repeated batch it is the
    first one's.

    `log_append_time_ms` is -1 on topics with CreateTime.
    """

    error: int
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: int
    message: str | None


@dataclass(frozen=True, slots=True)
class ProduceBatch(FixedRequest):
    """Append one record batch to one partition with acks=all. `timeout_ms` is how long the leader waits for its
    replicas.
    """

    api_key: ClassVar[int] = 0
    api_version: ClassVar[int] = 8

    partition: TopicPartition
    batch: Octets
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.string(None)
        writer.i16(_ALL_IN_SYNC_REPLICAS)
        writer.i32(self.timeout_ms)
        writer.array(1)
        writer.string(self.partition.topic)
        writer.array(1)
        writer.i32(self.partition.partition)
        writer.nullable_bytes(self.batch)

    def decode(self, reader: Reader) -> Appended:
        found: list[tuple[TopicPartition, Appended]] = []
        for _ in range(reader.array(element_bytes=6)):
            topic = reader.string()
            found += [_read_appended(reader, topic) for _ in range(reader.array(element_bytes=36))]
        reader.i32()
        _only([*found], self.partition, "Produce")
        return found[0][1]


def _read_appended(reader: Reader, topic: str) -> tuple[TopicPartition, Appended]:
    partition = TopicPartition(topic, reader.i32())
    error, base_offset = reader.i16(), Offset(reader.i64())
    append_time, log_start = reader.i64(), reader.i64()
    reasons: list[str] = []
    for _ in range(reader.array(element_bytes=6)):
        index, reason = reader.i32(), reader.nullable_string()
        reasons.append(f"record {index}: {reason or 'refused'}")
    message = reader.nullable_string() or None
    return partition, Appended(error, base_offset, append_time, log_start, message or "; ".join(reasons) or None)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches of one partition as they lie in its log, the last one possibly cut off; offsets are -1 with an
    error.
    """

    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: bytes


@dataclass(frozen=True, slots=True)
class FetchPartition(FixedRequest):
    """Read one partition from `offset` on, without a fetch session (KIP-227), from its leader.

    Waits `max_wait_ms` at most for `min_bytes`. One whole batch comes even where it is larger than `max_bytes`
    (KIP-74). A broker that throttles answers for no partition at all and holds the next request back (KIP-219): that is
    error 89 here, an empty answer would be taken for an empty log.
    """

    api_key: ClassVar[int] = 1
    api_version: ClassVar[int] = 11

    partition: TopicPartition
    offset: Offset
    max_wait_ms: int
    max_bytes: int
    min_bytes: int = 1
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def encode(self, writer: Writer) -> None:
        writer.i32(_CONSUMER)
        writer.i32(self.max_wait_ms)
        writer.i32(self.min_bytes)
        writer.i32(self.max_bytes)
        writer.i8(self.isolation)
        writer.i32(0)
        writer.i32(_NO_SESSION)
        writer.array(1)
        writer.string(self.partition.topic)
        writer.array(1)
        writer.i32(self.partition.partition)
        writer.i32(_NO_LEADER_EPOCH)
        writer.i64(self.offset)
        writer.i64(-1)
        writer.i32(self.max_bytes)
        writer.array(0)
        writer.string("")

    def decode(self, reader: Reader) -> Fetched:
        reader.i32()
        error = reader.i16()
        reader.i32()
        found: list[tuple[TopicPartition, Fetched]] = []
        for _ in range(reader.array(element_bytes=6)):
            topic = reader.string()
            found += [_read_fetched(reader, topic) for _ in range(reader.array(element_bytes=42))]
        if not found:
            error = error or ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return Fetched(error, Offset(-1), Offset(-1), Offset(-1), b"")
        _only([*found], self.partition, "Fetch")
        return found[0][1]


def _read_fetched(reader: Reader, topic: str) -> tuple[TopicPartition, Fetched]:
    partition = TopicPartition(topic, reader.i32())
    error = reader.i16()
    high_watermark, stable, log_start = Offset(reader.i64()), Offset(reader.i64()), Offset(reader.i64())
    reader.skip(16 * reader.array(element_bytes=16))
    reader.i32()
    return partition, Fetched(error, high_watermark, stable, log_start, reader.nullable_bytes() or b"")


class OffsetAt(IntEnum):
    """The special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """Answer of ListOffsets for one partition. `offset` is -1 with an error, or where no record is that young."""

    error: int
    timestamp_ms: int
    offset: Offset
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ListOffsets(View[dict[TopicPartition, ListedOffset]], of=tables.LIST_OFFSETS, version=5):
    """An offset per partition: `OffsetAt`, or the first one whose timestamp (Unix ms) is not lower. Only leaders
    answer.

    Version 5 answers 78 while a new leader's high watermark may still lag behind what was acknowledged (KIP-207).
    """

    timestamps: Mapping[TopicPartition, int]
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def asked(self) -> Values:
        topics: dict[str, list[Values]] = {}
        for (topic, index), timestamp in self.timestamps.items():
            partition = {"partition_index": index, "current_leader_epoch": _NO_LEADER_EPOCH, "timestamp": timestamp}
            topics.setdefault(topic, []).append(partition)
        return {
            "replica_id": _CONSUMER,
            "isolation_level": self.isolation,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }

    def answered(self, values: Values) -> dict[TopicPartition, ListedOffset]:
        return {
            partition: ListedOffset(each["error_code"], each["timestamp"], Offset(each["offset"]), each["leader_epoch"])
            for partition, each in by_partition(values["topics"]).items()
        }
