"""Record batches (KIP-98) as a log holds them: their header read once, offset and leader epoch put in place.

Base offset and leader epoch stand before the bytes that the CRC covers, so a leader leaves the CRC as the client made
it; it computes a new one only where it changes the timestamp (LogAppendTime, or a newest timestamp that is not that of
the records: `LogValidator`).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from tests.sim.kafka import errors
from tests.sim.kafka.errors import RefusedError

HEADER_BYTES: Final = 61
_HEADER: Final = Struct(">qiibIhiqqqhii")
_I64: Final = Struct(">q")
_I32: Final = Struct(">i")
_I16: Final = Struct(">h")
_CRC: Final = Struct(">I")
_MARKER_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")
_CODEC: Final = 0x07
_ZSTD: Final = 4
_LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
NO_SEQUENCE: Final = -1
LAST_SEQUENCE: Final = 2**31 - 1
_SEQUENCES: Final = 2**31


class Batch:
    """One batch. The same object lies in the logs of all replicas: nobody changes it."""

    __slots__ = (
        "at", "attributes", "base", "coordinator_epoch", "count", "data", "epoch", "first_seq", "last", "last_seq",
        "marker", "max_ts", "note", "pid", "producer_epoch", "size",
    )  # fmt: skip

    at: float
    """When a leader appended it."""
    base: int
    last: int
    epoch: int
    """The leader epoch in which it was appended."""
    data: bytes
    size: int
    attributes: int
    max_ts: int
    pid: int
    producer_epoch: int
    first_seq: int
    last_seq: int
    count: int
    marker: int
    """Of a control batch: 0 abort, 1 commit; -1 for anything else, an emptied control batch included."""
    coordinator_epoch: int
    note: Any
    """What a coordinator keeps in its partition instead of bytes."""

    def __repr__(self) -> str:
        return f"Batch({self.base}-{self.last} e{self.epoch} {self.pid}@{self.producer_epoch}#{self.first_seq})"

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def base_ms(self) -> int:
        """What the times of its records count from."""
        found: int = _I64.unpack_from(self.data, 27)[0]
        return found

    @property
    def delete_horizon(self) -> int | None:
        """From when on its tombstones, or its marker, may go; None: no cleaning has found them yet (KIP-534)."""
        return self.base_ms if self.attributes & _DELETE_HORIZON else None


def read(data: bytes, version: int = 8) -> Batch:
    """The batch of a Produce request: one, whole, v2, zstd since version 7 (`ProduceRequest.validateRecords`)."""
    if len(data) < HEADER_BYTES:
        raise RefusedError(errors.INVALID_RECORD, f"{len(data)} bytes are no batch")
    (
        base, length, epoch, magic, _, attributes, last_delta, _, max_ts, pid, producer_epoch, sequence, count,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != 2:
        raise RefusedError(errors.INVALID_RECORD, f"message format {magic}")
    if length + 12 != len(data):
        raise RefusedError(errors.INVALID_RECORD, f"a batch of {length + 12} bytes in {len(data)}")
    if attributes & _CODEC == _ZSTD and version < 7:
        raise RefusedError(errors.UNSUPPORTED_COMPRESSION_TYPE, "zstd before version 7 (KIP-110)")
    return _make(data, base, epoch, attributes, last_delta, max_ts, pid, producer_epoch, sequence, count)


def check(batch: Batch, max_bytes: int) -> None:
    """What a leader wants of a client's batch before it looks into its records, in the order of
    `UnifiedLog.analyzeAndValidateRecords` and `LogValidator.validateBatch`.
    """
    if batch.base:
        raise RefusedError(errors.INVALID_RECORD, f"base offset {batch.base}")
    if batch.size > max_bytes:
        raise RefusedError(errors.MESSAGE_TOO_LARGE, f"{batch.size} bytes")
    if _CRC.unpack_from(batch.data, 17)[0] != crc32c(memoryview(batch.data)[21:]):
        raise RefusedError(errors.CORRUPT_MESSAGE, "crc")
    if batch.attributes & _CODEC > _ZSTD:
        raise RefusedError(errors.UNKNOWN_SERVER_ERROR, "unknown compression type")
    if batch.count != batch.last + 1 or batch.count <= 0:
        raise RefusedError(errors.INVALID_RECORD, f"{batch.count} records, last offset {batch.last}")
    if batch.control:
        raise RefusedError(errors.INVALID_RECORD, "clients are not allowed to write control records")
    if batch.pid != -1 and batch.first_seq < 0:
        raise RefusedError(errors.INVALID_RECORD, f"sequence {batch.first_seq}")


def _make(
    data: bytes, base: int, epoch: int, attributes: int, last_delta: int, max_ts: int, pid: int, producer_epoch: int,
    sequence: int, count: int,
) -> Batch:  # fmt: skip
    batch = Batch.__new__(Batch)
    batch.data, batch.size = data, len(data)
    batch.base, batch.last, batch.epoch = base, base + last_delta, epoch
    batch.attributes, batch.max_ts, batch.count = attributes, max_ts, count
    batch.pid, batch.producer_epoch, batch.first_seq = pid, producer_epoch, sequence
    batch.last_seq = NO_SEQUENCE if sequence < 0 else (sequence + last_delta) % _SEQUENCES
    batch.marker, batch.coordinator_epoch, batch.note, batch.at = -1, -1, None, 0.0
    return batch


def placed(batch: Batch, offset: int, epoch: int, append_time: int | None) -> Batch:
    """The batch as the leader writes it: base offset, leader epoch, and its own clock where the topic wants that."""
    data = _I64.pack(offset) + batch.data[8:12] + _I32.pack(epoch) + batch.data[16:]
    if append_time is not None:
        out = bytearray(data)
        out[22] |= _LOG_APPEND_TIME
        _I64.pack_into(out, 35, append_time)
        _CRC.pack_into(out, 17, crc32c(memoryview(out)[21:]))
        data = bytes(out)
        batch.attributes |= _LOG_APPEND_TIME
        batch.max_ts = append_time
    elif _I64.unpack_from(data, 35)[0] != batch.max_ts:
        out = bytearray(data)
        _I64.pack_into(out, 35, batch.max_ts)
        _CRC.pack_into(out, 17, crc32c(memoryview(out)[21:]))
        data = bytes(out)
    batch.data = data
    batch.last += offset - batch.base
    batch.base = offset
    batch.epoch = epoch
    return batch


def rebuilt(
    batch: Batch, section: bytes, count: int, horizon: int | None = None, max_ts: int | None = None
) -> Batch:  # fmt: skip
    """The batch with other records in the same place of the log (`MemoryRecords.filterTo`): what compaction leaves.
    Sequences and offsets stay. From `horizon` on its tombstones, or its marker, may go (KIP-534).
    """
    made = Batch.__new__(Batch)
    for name in Batch.__slots__:
        setattr(made, name, getattr(batch, name))
    made.attributes &= ~_CODEC
    if max_ts is not None and not batch.attributes & _LOG_APPEND_TIME:
        made.max_ts = max_ts
    out = bytearray(batch.data[:HEADER_BYTES]) + section
    if horizon is not None:
        made.attributes |= _DELETE_HORIZON
        _I64.pack_into(out, 27, horizon)
    if not count:
        made.attributes &= ~_DELETE_HORIZON  # `DefaultRecordBatch.writeEmptyHeader`
        made.marker = -1
    _I32.pack_into(out, 8, len(out) - 12)
    _I16.pack_into(out, 21, made.attributes)
    _I64.pack_into(out, 35, made.max_ts)
    _I32.pack_into(out, 57, count)
    _CRC.pack_into(out, 17, crc32c(memoryview(out)[21:]))
    made.data, made.size, made.count = bytes(out), len(out), count
    return made


def varint(value: int) -> bytes:
    """A zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_record(delta: int, key: bytes | None, value: bytes | None, time_delta: int = 0) -> bytes:
    """One record without headers."""
    body = b"\0" + varint(time_delta) + varint(delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += (varint(-1) if value is None else varint(len(value)) + value) + b"\0"
    return varint(len(body)) + body


def encode(
    records: list[tuple[bytes | None, bytes | None]], timestamp: int, pid: int = -1, epoch: int = -1,
    sequence: int = -1, attributes: int = 0,
) -> bytes:  # fmt: skip
    """A whole uncompressed batch of (key, value) records, with a valid CRC."""
    section = b"".join(encode_record(delta, key, value) for delta, (key, value) in enumerate(records))
    out = bytearray(HEADER_BYTES) + section
    last = len(records) - 1
    _HEADER.pack_into(
        out, 0, 0, len(out) - 12, -1, 2, 0, attributes, last, timestamp, timestamp, pid, epoch, sequence, len(records)
    )
    _CRC.pack_into(out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


def marker(pid: int, epoch: int, commit: bool, coordinator_epoch: int, timestamp: int) -> Batch:
    """A transaction marker (`MemoryRecords.withEndTransactionMarker`): transactional, control, no sequence."""
    kind = int(commit)
    data = encode(
        [(_MARKER_KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch))],
        timestamp, pid, epoch, NO_SEQUENCE, TRANSACTIONAL | CONTROL,
    )  # fmt: skip
    made = _make(data, 0, -1, TRANSACTIONAL | CONTROL, 0, timestamp, pid, epoch, NO_SEQUENCE, 1)
    made.marker, made.coordinator_epoch = kind, coordinator_epoch
    return made


def noted(note: Any, timestamp: int, stamp: tuple[int, int] | None = None) -> Batch:
    """One record of a coordinator's partition: no bytes, what it says as an object that nobody changes. With a stamp,
    producer id and epoch, it is part of a transaction.
    """
    attributes = 0 if stamp is None else TRANSACTIONAL
    made = _make(bytes(HEADER_BYTES), 0, -1, attributes, 0, timestamp, *(stamp or (-1, -1)), NO_SEQUENCE, 1)
    made.note = note
    return made
