"""A new batch of records (format v2, KIP-98), written whole: by the client library and for the internal topics."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.batch import HEADER_BYTES, stamp
from sidecar.protocol.codec import Codec
from sidecar.protocol.compression import compress

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_FROM: Final = 12
_NO_LEADER_EPOCH: Final = -1
_FORMAT: Final = 2
_JAVAS_FRAMING: Final = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
"""The only form of snappy that Java reads."""


class NewRecord(NamedTuple):
    """Key and value for the log (None: null), headers, and the time in Unix ms."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


def build_batch(
    records: Sequence[NewRecord], producer_id: int, epoch: int, sequence: int, codec: Codec = Codec.NONE
) -> bytearray:
    """Build one batch. Its first record has `sequence`, 0 to 2^31 - 1; each record takes one. Without a producer id all
    three numbers are -1, and a batch that is sent twice is appended twice. Raises ValueError without records.
    """
    if not records:
        raise ValueError("a batch without records")
    base, newest = records[0].timestamp_ms, max(each.timestamp_ms for each in records)
    body = bytearray()
    for index, each in enumerate(records):
        record = _record(each, index, each.timestamp_ms - base)
        _varint(body, len(record))
        body += record
    data = compress(codec, body, _JAVAS_FRAMING if codec == Codec.SNAPPY else body)
    out, count = bytearray(HEADER_BYTES), len(records)
    out += data
    head = (0, len(out) - _LENGTH_FROM, _NO_LEADER_EPOCH, _FORMAT, 0, codec, count - 1, base, newest, -1, -1, -1, count)
    _HEADER.pack_into(out, 0, *head)
    stamp(out, 0, len(out), producer_id, epoch, sequence)
    return out


def _record(record: NewRecord, index: int, later_ms: int) -> bytearray:
    out = bytearray(1)  # no attributes
    _varint(out, later_ms)
    _varint(out, index)
    _bytes(out, record.key)
    _bytes(out, record.value)
    _varint(out, len(record.headers))
    for name, content in record.headers:
        _bytes(out, name.encode())
        _bytes(out, content)
    return out


def _bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _varint(out, -1)
    else:
        _varint(out, len(data))
        out += data


def _varint(out: bytearray, value: int) -> None:
    """A zigzag varint."""
    value = value << 1 if value >= 0 else ~(value << 1)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
