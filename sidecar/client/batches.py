"""A batch as a producer sends it (format v2, KIP-98), and which partition a key belongs to. Pure."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.protocol.batch import HEADER_BYTES, stamp
from sidecar.protocol.codec import Codec
from sidecar.protocol.compression import compress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.client.receipt import Headers
    from sidecar.protocol.ids import Stamp

CODECS: Final = {"gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_HEADER: Final = Struct(">qiibIhiqqqhii")
_NO_LEADER_EPOCH: Final = -1
_FORMAT: Final = 2
_RECORD_BYTES: Final = HEADER_BYTES + 21
"""Of a batch with one record and a record without its parts, at most."""
_HEADER_LENGTHS: Final = 10
_JAVAS_FRAMING: Final = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
"""Java reads snappy in this form alone."""


class Record(Protocol):
    """What of a record is in a batch; its time in Unix ms."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def octets(data: bytes | None) -> bytes | None:
    """The bytes of whatever lies in memory as such (a bytearray, an array of numbers), as they are now. Raises
    TypeError for what does not.
    """
    return data if data is None or type(data) is bytes else bytes(memoryview(data))


def largest_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of what a record takes in a batch, in bytes."""
    sizes = [_RECORD_BYTES, *(len(part) for part in (key, value) if part is not None)]
    for name, content in headers:
        sizes.append(_HEADER_LENGTHS + len(name.encode()) + len(content or b""))
    return sum(sizes)


def build(records: Sequence[Record], producer: Stamp, sequence: int, codec: Codec) -> bytes:
    """One batch of records, the first of which has this sequence."""
    base, newest = records[0].timestamp_ms, max(each.timestamp_ms for each in records)
    body = bytearray()
    for index, each in enumerate(records):
        record = _record(each, index, each.timestamp_ms - base)
        _varint(body, len(record))
        body += record
    data = compress(codec, body, _JAVAS_FRAMING if codec == Codec.SNAPPY else body)
    out, count = bytearray(HEADER_BYTES), len(records)
    size = HEADER_BYTES + len(data)
    _HEADER.pack_into(
        out, 0, 0, size - 12, _NO_LEADER_EPOCH, _FORMAT, 0, codec, count - 1, base, newest, -1, -1, -1, count
    )
    out += data
    stamp(out, 0, size, producer.producer_id, producer.epoch, sequence)
    return bytes(out)


def _record(record: Record, index: int, later_ms: int) -> bytearray:
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


_MASK: Final = 0xFFFFFFFF
_MIX: Final = 0x5BD1E995


def partition_of(key: bytes, count: int) -> int:
    """The partition of a key among `count`, as Java's `BuiltInPartitioner.partitionForKey` has it."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, without a sign."""
    whole = len(data) & ~3
    h = 0x9747B28C ^ len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        k = (k ^ k >> 24) * _MIX & _MASK
        h = (h * _MIX & _MASK) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    h = (h ^ h >> 13) * _MIX & _MASK
    return h ^ h >> 15
