"""Record batches of the internal topics: built whole, read record by record. Format v2 (KIP-98), never compressed.

The internal topics are configured `compression.type=uncompressed`, so a compressed batch there is somebody else's
doing.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.protocol import new_batch
from sidecar.protocol.batch import HEADER_BYTES, batch_sizes, crc_matches, read_header
from sidecar.protocol.calls.transactions import NO_STAMP
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.new_batch import NewRecord
from sidecar.protocol.stretches import KEY, VALUE, Columns, unpack

_CODEC: Final = 0x07


class RawRecord(NamedTuple):
    """Key and value as they lie in the log; no value is a tombstone."""

    key: bytes
    value: bytes | None


class UnreadableBatchError(ValueError):
    """A batch in an internal topic that no node wrote so: damaged, compressed, or in an older format."""


def build_batch(records: Sequence[RawRecord], writer: Stamp | None, sequence: int = 0) -> bytearray:
    """One v2 batch; without a writer it carries no producer id, and sending it twice appends it twice.

    `sequence` is the first record's under the writer's epoch, 0 to 2^31 - 1; each record takes one.
    """
    now = int(time.time() * 1000)
    by, first = (NO_STAMP, -1) if writer is None else (writer, sequence)
    made = [NewRecord(record.key, record.value, (), now) for record in records]
    return new_batch.build_batch(made, by.producer_id, by.epoch, first)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch as a reader found it. `writer` is None where it carries no producer id; a control batch is a marker.

    Compaction keeps a producer's last batch without its records, to remember its sequence: `records` is empty then.
    """

    base_offset: Offset
    next_offset: Offset
    writer: Stamp | None
    is_control: bool
    timestamp_ms: int
    records: tuple[tuple[Offset, RawRecord], ...]


def read_batches(data: bytes) -> Iterator[LoggedBatch]:
    """The whole batches of a fetched record set, each checked against its CRC. Raises `UnreadableBatchError`."""
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
