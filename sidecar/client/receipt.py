"""A record to send, its receipt, an upper bound of its size in a batch, and the partition of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.codec import Codec

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record for `ExclusiveProducer.send_all`, with what `send` takes."""

    value: bytes | None
    key: bytes | None = None
    headers: Iterable[tuple[str, bytes | None]] = ()
    partition: int | None = None
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """A record that is in the log.

    `offset` is -1 if it is not known: for a duplicate, and for a record whose first answer was lost.
    `sequence_id` is -1 on a topic without deduplication. `duplicate`: the log had this id already, from an earlier
    producer or try, so nothing was written. `generation` is the one under which this producer owned the topic, or the
    partition where each has its own owner.
    """

    partition: int
    offset: int
    sequence_id: int
    duplicate: bool
    generation: int


@dataclass(eq=False, slots=True)
class Pending:
    """A record that has no outcome yet. `number` is its sequence id, `size` an upper bound in bytes. `left`: it was put
    in a batch to send. `stop`: called with its partition if it fails.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    number: int | None
    timestamp_ms: int
    size: int
    outcome: asyncio.Future[Receipt]
    left: bool = False
    stop: Callable[[int], None] | None = None


_CODECS: Final = {"gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_RECORD_BYTES: Final = HEADER_BYTES + 21
"""An upper bound of the size of a batch with one record, without its key, value and headers."""
_HEADER_LENGTHS: Final = 10


def codec_of(compression: str | None) -> Codec:
    """The codec of a compression name. Raises ValueError for an unknown name."""
    if compression is None:
        return Codec.NONE
    if compression not in _CODECS:
        raise ValueError(f"compression {compression!r} is none of {', '.join(_CODECS)}")
    return _CODECS[compression]


def octets(data: bytes | None) -> bytes | None:
    """A copy of the bytes of an object with a buffer (a bytearray, an array of numbers). Raises TypeError for other
    objects.
    """
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        message = f"keys, values and values of headers are bytes, not {type(data).__name__}: encode it first"
        raise TypeError(message) from None


def header_name(name: object) -> str:
    """Return the name. Raises TypeError if it is not a `str`."""
    if not isinstance(name, str):
        raise TypeError(f"names of headers are str, not {type(name).__name__}: {name!r:.100}")
    return name


def largest_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of what a record takes in a batch, in bytes."""
    sizes = [_RECORD_BYTES, *(len(part) for part in (key, value) if part is not None)]
    for name, content in headers:
        sizes.append(_HEADER_LENGTHS + len(name.encode()) + len(content or b""))
    return sum(sizes)


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
