"""Batches with sequence ids as clients write them, and as they lie in a log."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from sidecar.dedup.content import Headers
from sidecar.protocol.batch import read_header, stamp

HEADERS = Headers()
TIME_MS = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20
_I16, _I32, _I64 = Struct(">h"), Struct(">i"), Struct(">q")


class Rec(NamedTuple):
    """A record: an id (None: no header; bytes: as they are), a name of its own, a value (else told from the id)."""

    id: int | bytes | None
    name: bytes | None = None
    value: bytes | None = None


def recs(*ids: int | bytes | None, name: bytes | None = None) -> list[Rec]:
    return [Rec(sequence_id, name) for sequence_id in ids]


def _headers(rec: Rec) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    if rec.id is not None:
        found.append((HEADERS.sequence_id.decode(), rec.id if isinstance(rec.id, bytes) else str(rec.id).encode()))
    if rec.name is not None:
        found.append((HEADERS.producer_name.decode(), rec.name))
    return found


def batch(found: Sequence[Rec], codec: int = 0) -> memoryview:
    """As a client sends it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, 4711, 5, 77, 10_000_000)
    for index, rec in enumerate(found):
        value = f"value {rec.id}".encode() if rec.value is None else rec.value
        assert builder.append(index, TIME_MS + index, b"key", value, _headers(rec))
    return memoryview(bytearray(builder.build()))


class Read(NamedTuple):
    """A record as a consumer has it."""

    offset: int
    id: bytes | None
    name: bytes | None
    value: bytes


def read(data: memoryview | bytearray) -> list[Read]:
    """The records of a batch."""
    found: list[Read] = []
    for record in DefaultRecordBatch(bytes(data)):
        headers = dict(record.headers)
        its_id = headers.get(HEADERS.sequence_id.decode())
        found.append(Read(record.offset, its_id, headers.get(HEADERS.producer_name.decode()), record.value or b""))
    return found


def ids_of(data: memoryview | bytearray) -> list[int | None]:
    return [None if record.id is None else int(record.id) for record in read(data)]


def logged(
    found: Sequence[Rec], offset: int, producer_id: int = 7, epoch: int = 0, *, codec: int = 0, attributes: int = 0
) -> bytes:
    """As it lies in the log."""
    data = batch(found, codec)
    _I64.pack_into(data, 0, offset)
    header = read_header(data, 0, len(data))
    _I16.pack_into(data, 21, header.attributes | attributes)
    stamp(data, 0, len(data), producer_id, epoch, 0)
    return bytes(data)
