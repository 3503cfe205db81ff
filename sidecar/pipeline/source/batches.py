"""One batch of a log, checked and unpacked: format, CRC-32C, codec, and the cut to a range of offsets. Pure.

Errors name the partition and the offset of the fault; no faulty batch is ever skipped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.pipeline.errors import CorruptLogError
from sidecar.protocol import stretches as wire
from sidecar.protocol.batch import HEADER_BYTES, SEQUENCE_MODULUS, BatchHeader, crc_matches, read_header
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.primitives import Octets

LARGEST_BYTES: Final = 512 * 1024 * 1024
"""The limit for a batch's records, decompressed: anything larger is taken for a decompression bomb."""

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL_TYPES: Final = {0: "abort", 1: "commit"}  # KIP-98; others (KIP-595, KIP-630) lie in no topic of a client


class Headers(NamedTuple):
    """The names of the record headers that carry a sequence id and a producer name."""

    sequence_id: bytes = b"sidecar-sequence-id"
    producer_name: bytes = b"sidecar-producer-name"


class Range(NamedTuple):
    """Offsets of a partition from `start` to `end`, exclusive. `is_first`: no other range is before it, so a batch that
    begins before the range and overlaps it is counted here.
    """

    start: int
    end: int
    is_first: bool = True


class OpenBatch:
    """A batch that overlaps the range; its records are decompressed when they are needed.

    `low` and `high` are the lowest and the highest offset delta inside the range. Raises `CorruptLogError`.
    """

    __slots__ = ("_batch", "_section", "_where", "header", "high", "low")

    def __init__(self, batch: memoryview, header: BatchHeader, where: TopicPartition, within: Range) -> None:
        self.header = header
        self.low = max(0, within.start - header.base_offset)
        self.high = min(header.last_offset_delta, within.end - 1 - header.base_offset)
        self._batch = batch
        self._where = where
        self._section: Octets | None = None

    @property
    def is_cut_in_front(self) -> bool:
        """Whether it begins before the range."""
        return self.low > 0

    @property
    def is_compacted(self) -> bool:
        """Whether records of it were deleted by compaction."""
        return self.header.records != self.header.last_offset_delta + 1

    @property
    def section(self) -> Octets:
        """The records, decompressed."""
        if self._section is None:
            codec = self.header.attributes & _CODEC
            try:
                self._section = decompress(codec, self._batch[HEADER_BYTES : self.header.size], LARGEST_BYTES)
            except KafkaError as error:
                raise corrupt(self._where, self.header.base_offset, error) from None
        return self._section

    def stretches(self, headers: Headers, low: int, high: int) -> list[wire.Stretch]:
        """The stretches of records with offset deltas from `low` to `high`."""
        count = self.header.records
        try:
            return wire.stretches(self.section, count, headers.sequence_id, headers.producer_name, low, high)
        except KafkaError as error:
            raise corrupt(self._where, self.header.base_offset, error) from None

    def unpack(self, headers: Headers, columns: wire.Columns, wanted: int) -> int:
        """Append the records in the range to `columns`, and return their number."""
        before = len(columns)
        try:
            wire.unpack(
                self.section, self.header.records, headers.sequence_id, headers.producer_name, columns,
                wanted=wanted, low=self.low, high=self.high,
            )  # fmt: skip
        except KafkaError as error:
            raise corrupt(self._where, self.header.base_offset, error) from None
        return len(columns) - before

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker's time replaces that of all records (KIP-32)."""
        return bool(self.header.attributes & _LOG_APPEND_TIME)

    def timestamp(self, delta: int) -> int:
        """Unix ms of a record: the append time if the topic has LogAppendTime."""
        header = self.header
        if self.has_log_append_time:
            return header.max_timestamp
        return (header.base_timestamp + delta + 2**63) % 2**64 - 2**63  # as Java adds

    def sequence(self, offset_delta: int) -> int:
        """The stamped sequence of a record, -1 for a producer without an id."""
        base = self.header.base_sequence
        return (base + offset_delta) % SEQUENCE_MODULUS if base >= 0 else -1

    @property
    def control(self) -> str | None:
        """The type of a control batch: commit or abort; None for a batch of records."""
        if not self.header.is_control:
            return None
        if not self.header.records:
            return "removed"  # compaction keeps the batch of a marker for a while, without the marker
        columns = wire.Columns()
        self.unpack(Headers(), columns, wire.KEY)
        key = columns.keys[0] if columns.keys else None
        kind = int.from_bytes(key[2:4], "big", signed=True) if key and len(key) >= 4 else -1
        return _CONTROL_TYPES.get(kind, f"type {kind}")


def open_batch(batch: memoryview, where: TopicPartition, within: Range) -> OpenBatch | None:
    """The batch, or None if it does not overlap the range. Raises `CorruptLogError`."""
    try:
        header = read_header(batch, 0, len(batch))
        if header.base_offset + header.last_offset_delta < within.start or header.base_offset >= within.end:
            return None
        if not crc_matches(batch, 0, header.size):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "its CRC-32C does not fit its bytes")
    except KafkaError as error:
        raise corrupt(where, int.from_bytes(batch[:8], "big", signed=True), error) from None
    return OpenBatch(batch, header, where, within)


def corrupt(where: TopicPartition, offset: int, error: KafkaError) -> CorruptLogError:
    """The error for a batch that cannot be read."""
    what = f"the batch at offset {offset} of {where} cannot be read: {error.message or error}"
    if error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
        return CorruptLogError(f"{what}. Kafka before 0.11 wrote it: begin behind it")
    return CorruptLogError(f"{what}. Look whether the broker's disk is sound, or begin behind it")
