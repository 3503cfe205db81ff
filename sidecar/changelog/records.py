"""Build and read the record batches of the internal topics (format v2, KIP-98, never compressed); pack positions and
offsets by partition into columns of a message, and unpack them.

The internal topics are configured `compression.type=uncompressed`, so no node wrote a compressed batch there.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.protocol import new_batch
from sidecar.protocol.batch import HEADER_BYTES, batch_sizes, crc_matches, read_header
from sidecar.protocol.calls.transactions import NO_STAMP
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence, Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.new_batch import NewRecord
from sidecar.protocol.stretches import KEY, VALUE, Columns, unpack
from sidecar.v1 import state_pb2 as state

_CODEC: Final = 0x07


class RawRecord(NamedTuple):
    """Key and value as they are stored in the log; a value None is a tombstone."""

    key: bytes
    value: bytes | None


class UnreadableBatchError(ValueError):
    """A batch in an internal topic that no node can have written: damaged, compressed, or in an older format."""


def build_batch(records: Sequence[RawRecord], writer: Stamp | None, sequence: int = 0) -> bytearray:
    """Build one v2 batch. Without a writer it has no producer id, so sending it twice may append it twice.

    `sequence` is the sequence of the first record under the writer's epoch, 0 to 2^31 - 1; each record takes one.
    """
    now = int(time.time() * 1000)
    by, first = (NO_STAMP, -1) if writer is None else (writer, sequence)
    made = [NewRecord(record.key, record.value, (), now) for record in records]
    return new_batch.build_batch(made, by.producer_id, by.epoch, first)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch as read from the log. `writer` is None if it has no producer id; a control batch is a marker.

    Compaction keeps a producer's last batch without its records, to preserve the sequence: then `records` is empty.
    """

    base_offset: Offset
    next_offset: Offset
    writer: Stamp | None
    is_control: bool
    timestamp_ms: int
    records: tuple[tuple[Offset, RawRecord], ...]


def read_batches(data: bytes) -> Iterator[LoggedBatch]:
    """Yield the complete batches of a fetched record set; checks each CRC. Raises `UnreadableBatchError`."""
    for start, size in batch_sizes(data, 0, len(data)):
        try:
            header = read_header(data, start, start + size)
        except KafkaError as error:
            raise UnreadableBatchError(str(error)) from None
        if not crc_matches(data, start, size):
            raise UnreadableBatchError(f"the CRC of the batch at offset {header.base_offset} does not match")
        if header.attributes & _CODEC:
            raise UnreadableBatchError(f"the batch at offset {header.base_offset} is compressed")
        base = Offset(header.base_offset)
        writer = Stamp(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
        records: tuple[tuple[Offset, RawRecord], ...] = ()
        if not header.is_control:
            section = memoryview(data)[start + HEADER_BYTES : start + size]
            columns = Columns()
            try:
                unpack(section, header.records, b"", b"", columns, wanted=KEY | VALUE)
            except KafkaError as error:
                raise UnreadableBatchError(f"the batch at offset {base}: {error.message}") from None
            rows = zip(columns.offset_deltas, columns.keys, columns.values, strict=True)
            records = tuple((Offset(base + delta), RawRecord(key or b"", value)) for delta, key, value in rows)
        yield LoggedBatch(
            base,
            Offset(base + header.last_offset_delta + 1),
            writer if writer.producer_id >= 0 else None,
            header.is_control,
            header.max_timestamp,
            records,
        )


class Position(NamedTuple):
    """A session's position in one partition: its client epoch and a sequence modulo 2^31. The sequence is 0 if the
    session has no batch before it; a sequence that wrapped to 0 is stored as 2^31.
    """

    client_epoch: int
    sequence: ClientSequence


def pack_positions(positions: Mapping[int, Position]) -> state.Positions:
    """Pack positions into columns, ordered by partition, so that equal positions give equal bytes."""
    columns = sorted(positions.items())
    return state.Positions(
        partition=[partition for partition, _ in columns],
        client_epoch=[position.client_epoch for _, position in columns],
        sequence=[position.sequence for _, position in columns],
    )


def unpack_positions(columns: state.Positions) -> dict[int, Position]:
    """Return the positions by partition. Raises ValueError if the columns differ in length."""
    rows = zip(columns.partition, columns.client_epoch, columns.sequence, strict=True)
    return {partition: Position(epoch, ClientSequence(sequence)) for partition, epoch, sequence in rows}


def pack_offsets(offsets: Mapping[int, int]) -> state.Offsets:
    """Pack offsets into columns, ordered by partition."""
    columns = sorted(offsets.items())
    return state.Offsets(partition=[partition for partition, _ in columns], offset=[offset for _, offset in columns])


def unpack_offsets(columns: state.Offsets) -> dict[int, int]:
    """Return the offsets by partition. Raises ValueError if the columns differ in length."""
    return dict(zip(columns.partition, columns.offset, strict=True))
