"""Kafka's codecs: gzip, snappy, lz4, zstd, as its brokers and librdkafka read them.

It never makes more bytes than its limit, whatever size a frame declares. It never reads records, and never changes the
client's codec and framing.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from typing import Final, Self

import cramjam
import zstandard

from sidecar.protocol.codec import Codec, too_large
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import BATCH_AT_ONCE_BYTES
from sidecar.protocol.primitives import Octets
from sidecar.protocol.room import room_for


def decompress(codec: int, data: Octets, limit: int) -> Octets:
    """As `sidecar.protocol.compression.decompress`, for compressed data.

    In a thread that has a `Room` the result may be in it: it is then valid until the thread's next batch.
    """
    found = _DECOMPRESS[_known(codec)](data, limit, room_for(limit))
    if isinstance(found, memoryview) and len(found) <= BATCH_AT_ONCE_BYTES < limit:
        return bytes(found)  # the caller may store it
    return found


def compress(codec: int, data: Octets, like: Octets) -> Octets:
    """As `sidecar.protocol.compression.compress`, for a codec other than none."""
    known = _known(codec)
    if known == Codec.SNAPPY:
        return _frame_snappy(data) if _is_framed(like) else memoryview(cramjam.snappy.compress_raw(data))
    found: Octets = b""
    for level in _LEVELS[known]:
        found = _at_level(known, data, level)
        if len(found) <= len(like):
            break
    return found


_LEVELS: Final = {Codec.GZIP: (6, 9), Codec.LZ4: (1, 9), Codec.ZSTD: (3, 9)}
"""The levels to try, in order. Higher ones of zstd take a second per MB, and all clients of a node would wait."""


def _at_level(codec: Codec, data: Octets, level: int) -> Octets:
    if codec == Codec.GZIP:
        return zlib.compress(data, level, _GZIP)
    if codec == Codec.LZ4:
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        for at in range(0, len(data), _ADDED_BYTES):  # it takes only `bytes`; the copy needs Python's lock
            frame.compress(bytes(data[at : at + _ADDED_BYTES]))
        return memoryview(frame.finish())
    return zstandard.ZstdCompressor(level=level).compress(data)


def _known(codec: int) -> Codec:
    try:
        return Codec(codec)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}") from None


def _damaged(codec: Codec, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()}: {reason}")


# gzip: the zlib of the standard library is as fast as cramjam's, and shows where a member ends -----------------------

_GZIP: Final = 31
_MEMBER: Final = b"\x1f\x8b\x08"
_LEAST_MEMBER_BYTES: Final = 18
_PIECE_BYTES: Final = 1 << 14  # zlib copies the rest after each member: a thousand tiny ones must stay cheap
_ADDED_BYTES: Final = 1 << 18
"""Bytes that are made at a time: to append them takes Python's lock, which a thread must not hold for long."""


def _gzip(data: Octets, limit: int, room: memoryview | None) -> Octets:
    view = memoryview(data)
    out = bytearray() if room is None else _Filled(room)
    at = 0
    while True:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = view[at : at + _PIECE_BYTES]
            if not piece:
                raise _damaged(Codec.GZIP, "cut off")
            try:
                # One byte more than there may be distinguishes "too large" from "just fits".
                made = member.decompress(piece, min(limit + 1 - len(out), _ADDED_BYTES))
            except zlib.error as error:
                raise _damaged(Codec.GZIP, error) from None
            if len(out) + len(made) > limit:
                raise too_large(limit)
            out += made
            at += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
        if len(view) - at < _LEAST_MEMBER_BYTES or bytes(view[at : at + len(_MEMBER)]) != _MEMBER:
            return out if isinstance(out, bytearray) else out.found


class _Filled:
    """Memory that is filled from its beginning, as a `bytearray` grows."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: memoryview) -> None:
        self._room, self._size = room, 0

    def __len__(self) -> int:
        return self._size

    def __iadd__(self, piece: bytes) -> Self:
        self._room[self._size : self._size + len(piece)] = piece
        self._size += len(piece)
        return self

    @property
    def found(self) -> memoryview:
        return self._room[: self._size]


# lz4 and zstd: into a buffer that grows, as the size that a frame declares may be false -------------------------------

_FIRST_BYTES: Final = 1 << 14
_GUESS: Final = 4
_LARGEST_GUESS: Final = 64
_expected: dict[Codec, int] = {}
"""By which factor the last frame of a codec grew. Topics are similar; a frame that does not fit is decompressed again.
"""
_NO_ROOM: Final = "failed to write whole buffer"  # the text of cramjam's error for a full output; tests check it


def _growing(
    codec: Codec, into: Callable[[Octets, Octets], int], data: Octets, limit: int, room: memoryview | None
) -> Octets:
    size = _first_guess(codec, data, limit) if room is None else limit
    while True:
        out = bytearray(size) if room is None else room
        try:
            found = into(data, out)
            _expected[codec] = min(_LARGEST_GUESS, max(_GUESS, 1 + found * 5 // 4 // max(1, len(data))))
            return memoryview(out)[:found]
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise _damaged(codec, error) from None
        if size >= limit:
            raise too_large(limit)
        size = min(limit, _GUESS * size)


def _first_guess(codec: Codec, data: Octets, limit: int) -> int:
    return min(limit, max(_FIRST_BYTES, _expected.get(codec, _GUESS) * len(data)))


_LZ4_MAGIC: Final = 0x184D2204
_LZ4_INDEPENDENT, _LZ4_BLOCK_SUM, _LZ4_SIZE, _LZ4_SUM, _LZ4_DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_STORED: Final = 0x80000000  # the bit of a block that is not compressed
_LE32: Final = struct.Struct("<I")


def _lz4(data: Octets, limit: int, room: memoryview | None) -> Octets:
    try:
        end = _end_of_lz4(data)
    except struct.error:
        raise _damaged(Codec.LZ4, "cut off") from None
    return _growing(Codec.LZ4, cramjam.lz4.decompress_into, memoryview(data)[:end], limit, room)


def _end_of_lz4(data: Octets) -> int:
    """Where the first frame ends (lz4's doc/lz4_Frame_format.md). Raises `struct.error` if it is cut off."""
    if _LE32.unpack_from(data)[0] != _LZ4_MAGIC:
        raise _damaged(Codec.LZ4, "no frame")
    flags = _LE32.unpack_from(data, 4)[0] & 0xFF
    if not flags & _LZ4_INDEPENDENT:
        raise _damaged(Codec.LZ4, "blocks that depend on one another (KIP-57)")
    at = 7 + (8 if flags & _LZ4_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    behind_block = 4 if flags & _LZ4_BLOCK_SUM else 0
    while size := _LE32.unpack_from(data, at)[0] & ~_STORED:
        at += 4 + size + behind_block
    return at + 4 + (4 if flags & _LZ4_SUM else 0)


_ZSTD_DESCRIPTOR_AT, _ZSTD_CHECKSUM, _ZSTD_REPEATED = 4, 0x04, 1


class _OfThread(threading.local):
    """A zstd context that each thread reuses: a small frame takes 0.5 µs, a new context 10 µs."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()


_MINE: Final = _OfThread()


def _zstd(data: Octets, limit: int, room: memoryview | None) -> Octets:
    try:
        declared = zstandard.frame_content_size(data)
        if room is None and declared <= limit and _is_one_zstd(data):
            most = 0 if declared >= 0 else _first_guess(Codec.ZSTD, data, limit)
            return _MINE.zstd.decompress(data, max_output_size=most)
    except (zstandard.ZstdError, struct.error, IndexError):
        pass  # damaged, or larger than guessed: the code below finds out which
    return _growing(Codec.ZSTD, cramjam.zstd.decompress_into, data, limit, room)


def _is_one_zstd(data: Octets) -> bool:
    """Whether the data ends with its first frame (RFC 8878 §3.1.1). Raises if that frame is cut off."""
    at, block = zstandard.frame_header_size(data), 0
    while not block & 1:
        block = _LE32.unpack_from(data, at - 1)[0] >> 8  # 3 bytes
        at += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED else block >> 3)
    return at + (4 if data[_ZSTD_DESCRIPTOR_AT] & _ZSTD_CHECKSUM else 0) == len(data)


# snappy: raw as librdkafka writes it, or in the framing of Java's SnappyOutputStream ----------------------------------

_MAGIC: Final = b"\x82SNAPPY\x00"
_FRAMING: Final = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
"""Magic, version 1, readable from version 1 on."""
_BLOCK_BYTES: Final = 32 << 10
_I32: Final = struct.Struct(">i")


def _is_framed(data: Octets) -> bool:
    return len(data) >= len(_FRAMING) and data[: len(_MAGIC)] == _MAGIC


def _snappy(data: Octets, limit: int, room: memoryview | None) -> Octets:
    view = memoryview(data)
    try:
        blocks = _blocks(view) if _is_framed(view) else [view]
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > limit:
            raise too_large(limit)
        out = memoryview(bytearray(total)) if room is None else room[:total]
        at = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, out[at : at + size])
            at += size
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None
    return out


def _blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks of a framed stream, each after its length; streams in a row each begin with the framing again."""
    found: list[memoryview] = []
    at = 0
    while at < len(view):
        if _is_framed(view[at:]):
            if _I32.unpack_from(view, at + len(_MAGIC))[0] < 1:
                raise _damaged(Codec.SNAPPY, "a framing older than version 1")
            at += len(_FRAMING)
            continue
        size = _I32.unpack_from(view, at)[0] if len(view) - at >= _I32.size else -1
        at += _I32.size
        if not 0 <= size <= len(view) - at:
            raise _damaged(Codec.SNAPPY, f"a block of {size} bytes, {max(0, len(view) - at)} left")
        found.append(view[at : at + size])
        at += size
    return found


def _frame_snappy(data: Octets) -> bytearray:
    view = memoryview(data)
    out = bytearray(_FRAMING)
    for start in range(0, len(view), _BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        out += _I32.pack(len(block))
        out += block
    return out


_DECOMPRESS: Final[dict[Codec, Callable[[Octets, int, memoryview | None], Octets]]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
