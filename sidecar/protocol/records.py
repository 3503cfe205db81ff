"""The records inside an ordinary v2 batch (KIP-98): reads the sequence ids in their headers (KIP-82), and removes
records from a batch.

Reads and writes the wire format and never decides what is a duplicate. All positions are bytes in the uncompressed
records section, decompressed by `sidecar.protocol.compression`. `_records.pyx` walks through it if it was compiled,
else its twin `_records_pure.py`.
"""

from enum import IntEnum
from struct import Struct
from types import ModuleType
from typing import Final, NamedTuple

from sidecar.protocol import _records_pure
from sidecar.protocol.batch import HEADER_BYTES, read_header, stamp
from sidecar.protocol.compiled import COMPILED
from sidecar.protocol.compression import compress
from sidecar.protocol.primitives import Octets, new_tuple

_walker: ModuleType = COMPILED or _records_pure

LONGEST_NAME_BYTES: Final = _records_pure.LONGEST_NAME_BYTES
_SHOWN_BYTES: Final = 40
_LOG_APPEND_TIME: Final = 0x08
_LENGTH_AT: Final = 8
_LAST_OFFSET_DELTA_AT: Final = 23
_MAX_TIMESTAMP_AT: Final = 35
_COUNT_AT: Final = 57
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class Kind(IntEnum):
    """What the records of a section have in common.

    RISING: each has exactly one id header with an id of 0 to 2^63 - 1 in ASCII decimal, greater than the one before
    it, and none has a name header. NONE: none has either header. OTHER: anything else.
    """

    NONE = _records_pure.NONE
    RISING = _records_pure.RISING
    OTHER = _records_pure.OTHER


class Summary(NamedTuple):
    """`first` and `last` are the ids of the first and the last record if the kind is RISING, else -1."""

    kind: Kind
    first: int
    last: int


class RecordIds(NamedTuple):
    """One record. `start`: position of its length. `end`: start of the next record. `timestamp_delta` is in ms.

    `sequence_id` and `name` are None if the record has no such header, or if it is faulty; `problem` describes the
    fault.
    """

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    sequence_id: int | None
    name: bytes | None
    problem: str | None


_NONE: Final = Summary(Kind.NONE, -1, -1)
_OTHER: Final = Summary(Kind.OTHER, -1, -1)


def walker() -> ModuleType:
    """The twin in use, for other code that walks through sections. The pure one takes about a hundred times as long."""
    return _walker


def summarise(records: Octets, count: int, id_header: bytes, name_header: bytes, *, dense: bool = True) -> Summary:
    """Return what the `count` records of a section have in common, in one pass without an object per record.

    Raises `KafkaError` 2 if the section is not exactly `count` records with the offset deltas 0 to `count` - 1. If not
    `dense`, any offset deltas are valid, as in a log that may be compacted.
    """
    kind, first, last = _walker.summarise(records, count, id_header, name_header, dense)
    if kind == _records_pure.RISING:
        return new_tuple(Summary, (Kind.RISING, first, last))
    return _OTHER if kind else _NONE


def each(
    records: Octets, count: int, id_header: bytes, name_header: bytes, *, dense: bool = True, own: bytes | None = None
) -> list[RecordIds]:
    """Return every record of a section with its ids; `own` is the name of a record without a name header.

    Raises `KafkaError` 2 as `summarise` does.
    """
    return [
        new_tuple(RecordIds, row if row[6] is None else (*row[:4], *judge(row[6][0], row[6][1], own)))
        for row in _walker.walk(records, count, id_header, name_header, dense, own)
    ]


def judge(
    ids: tuple[bytes | None, ...], names: tuple[bytes | None, ...], own: bytes | None
) -> tuple[int | None, bytes | None, str | None]:
    """Return sequence id, name, and the fault, if any; of two faults the id's is reported."""
    sequence_id: int | None = None
    name = own
    problem: str | None = None
    if ids:
        found = _records_pure.id_of(ids[0]) if len(ids) == 1 else -1
        if found >= 0:
            sequence_id = found
        else:
            problem = _fault_of_ids(ids)
    if names:
        fault = _fault_of_names(names)
        name = names[0] if fault is None else None
        problem = problem or fault
    return sequence_id, name, problem


def _fault_of_ids(ids: tuple[bytes | None, ...]) -> str:
    value = ids[0]
    if len(ids) > 1:
        return "the sequence id is given twice"
    if value is None:
        return "the sequence id is null"
    shown = repr(value[:_SHOWN_BYTES])[1:] + ("…" if len(value) > _SHOWN_BYTES else "")
    if value.isdigit():
        return f"the sequence id {shown} is larger than 2^63 - 1"
    if value[:1] == b"-" and value[1:].isdigit():
        return f"the sequence id {shown} is negative"
    return f"the sequence id {shown} is not a decimal integer"


def _fault_of_names(names: tuple[bytes | None, ...]) -> str | None:
    value = names[0]
    if len(names) > 1:
        return "the producer name is given twice"
    if value is None:
        return "the producer name is null"
    if not value:
        return "the producer name is empty"
    if len(value) > LONGEST_NAME_BYTES:
        return f"the producer name is longer than {LONGEST_NAME_BYTES} bytes"
    try:
        value.decode()
    except UnicodeDecodeError:
        return "the producer name is not UTF-8"
    return None


def keep(batch: Octets, records: Octets, kept: list[RecordIds]) -> bytearray:
    """Return the batch with only the records `kept`, which `each` found in its uncompressed section, in their order.

    Offset deltas become 0 to n - 1; codec, attributes, base timestamp, producer id, epoch and base sequence stay, and
    so does everything else in the records kept. The maximum timestamp becomes theirs, unless it is the log append time.
    Raises `ValueError` for a batch without records, `KafkaError` as `read_header` and `compress` do.
    """
    if not kept:
        raise ValueError("a batch without records")
    header = read_header(batch, 0, len(batch))
    section = _walker.renumber(records, kept)
    out = bytearray(batch[:HEADER_BYTES])
    out += compress(header.attributes & 0x07, section, batch[HEADER_BYTES : header.size])
    _I32.pack_into(out, _LENGTH_AT, len(out) - 12)
    _I32.pack_into(out, _LAST_OFFSET_DELTA_AT, len(kept) - 1)
    _I32.pack_into(out, _COUNT_AT, len(kept))
    if not header.attributes & _LOG_APPEND_TIME:
        newest = max(_wrapped(header.base_timestamp + record.timestamp_delta) for record in kept)
        _I64.pack_into(out, _MAX_TIMESTAMP_AT, newest)
    stamp(out, 0, len(out), header.producer_id, header.producer_epoch, header.base_sequence)
    return out


def newest_timestamp(batch: Octets, records: Octets) -> int:
    """The time (Unix ms) of the newest record of a batch, as a leader with CreateTime finds it; `records` is its
    uncompressed section. Raises as `each` and `read_header` do.
    """
    header = read_header(batch, 0, len(batch))
    if header.attributes & _LOG_APPEND_TIME:
        return header.max_timestamp
    found: int = _walker.newest(records, header.records, header.base_timestamp)
    return found


def _wrapped(value: int) -> int:
    """The sum in Java's 64 bits: a hostile delta makes a timestamp overflow."""
    return (value + 2**63) % 2**64 - 2**63
