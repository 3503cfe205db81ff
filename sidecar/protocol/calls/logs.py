"""Calls to a partition's leader about its log: Produce of one batch, Fetch without a session, ListOffsets.

They are used for internal topics and for reading governed logs. Clients' own Produce and Fetch are never handled here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeVar

from sidecar.protocol import fetch, produce, produce_upstream
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.calls import tails
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.protocol.messages import logs as tables
from sidecar.protocol.primitives import MalformedFrameError, Octets, Reader, Writer
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View, by_partition

_CONSUMER = -1
_NO_LEADER_EPOCH = -1

PartT = TypeVar("PartT", produce.ProduceResult, fetch.FetchedPart)


class IsolationLevel(IntEnum):
    """READ_UNCOMMITTED reads up to the high watermark, READ_COMMITTED up to the last stable offset (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def _only(asked: TopicPartition, api: str, found: Sequence[PartT]) -> PartT:
    """The answer's only element, which must be of the requested partition."""
    if [(each.topic, each.partition) for each in found] != [(asked.topic.encode(), asked.partition)]:
        names = ", ".join(f"{each.topic.decode(errors='replace')}-{each.partition}" for each in found) or "nothing"
        raise MalformedFrameError(f"{api} of {asked} answered for {names}")
    return found[0]


@dataclass(frozen=True, slots=True)
class Appended:
    """A leader's answer for one batch. `base_offset` is -1 if `error` is not 0; for a repeated batch it is that of the
    first.

    `log_append_time_ms` is -1 on topics with CreateTime.
    """

    error: int
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: int
    message: str | None


class ProduceBatch(Request[Appended]):
    """Append one record batch to one partition with acks=all. `timeout_ms` is how long the leader waits for its
    replicas.
    """

    api_key: ClassVar[int] = ApiKey.PRODUCE
    api_version: ClassVar[int] = produce_upstream.SINGLE_VERSION

    partition: TopicPartition
    batch: Octets
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        table = produce_upstream.table_head(self.partition.topic.encode(), self.partition.partition)
        writer.raw(produce_upstream.single_body(self.timeout_ms, table, len(self.batch)))
        writer.raw(self.batch)

    def decode(self, reader: Reader) -> Appended:
        results, _ = produce_upstream.read_body(reader, self.api_version)
        found = _only(self.partition, "Produce", results)
        reasons = "; ".join(f"record {index}: {reason or 'refused'}" for index, reason in found.record_errors)
        base_offset, message = Offset(found.base_offset), found.message or reasons or None
        return Appended(found.error, base_offset, found.log_append_time, found.log_start_offset, message)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches of one partition as in its log; the last one may be cut off. Offsets are -1 with an error."""

    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: bytes


class FetchPartition(Request[Fetched]):
    """Read one partition from `offset` on, without a fetch session (KIP-227), from its leader.

    Waits `max_wait_ms` at most for `min_bytes`. The first batch is whole even if it is larger than `max_bytes`
    (KIP-74). A broker that throttles answers without partitions and delays the next request (KIP-219). Here that is
    error 89, as an empty answer would look like an empty log.
    """

    api_key: ClassVar[int] = ApiKey.FETCH
    api_version: ClassVar[int] = tails.VERSION

    partition: TopicPartition
    offset: Offset
    max_wait_ms: int
    max_bytes: int
    min_bytes: int = 1
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def encode(self, writer: Writer) -> None:
        topic = self.partition.topic.encode()
        position = tails.Position(topic, self.partition.partition, _NO_LEADER_EPOCH, self.offset)
        limits = (self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation)
        fetch.write_body(writer, self.api_version, limits, [(topic, tails.element_of(position, self.max_bytes))])

    def decode(self, reader: Reader) -> Fetched:
        found = fetch.walk_body(reader, self.api_version)
        if not found.parts:
            error = found.error or ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return Fetched(error, Offset(-1), Offset(-1), Offset(-1), b"")
        part = _only(self.partition, "Fetch", found.parts)
        high, stable, log_start = map(Offset, fetch.watermarks(reader.buffer, part.start))
        records = bytes(reader.buffer[part.end - part.record_bytes : part.end])
        return Fetched(part.error, high, stable, log_start, records)


class OffsetAt(IntEnum):
    """The special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """Answer of ListOffsets for one partition. `offset` is -1 with an error, or if no record is as new."""

    error: int
    timestamp_ms: int
    offset: Offset
    leader_epoch: int


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
