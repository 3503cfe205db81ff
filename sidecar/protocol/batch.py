"""The header of a v2 record batch (KIP-98), read and re-stamped in place; records are never changed here.

Offsets in the header, in bytes: baseOffset 0, batchLength 8, partitionLeaderEpoch 12, magic 16, crc 17, attributes 21,
lastOffsetDelta 23, baseTimestamp 27, maxTimestamp 35, producerId 43, producerEpoch 51, baseSequence 53, count 57,
records 61. The CRC-32C covers everything from the attributes to the end, so a new producer id needs a new CRC.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from sidecar.protocol.compiled import COMPILED
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.primitives import Octets, new_tuple

HEADER_BYTES: Final = 61
_HEADER: Final = Struct(">qiibIhiqqqhii")
_HEADER_AND_FIRST: Final = Struct(">qiibIhiqqqhiiI")
"""The header and the next four bytes: they have the first record's length, its attributes, and the beginning of its
timestamp delta.
"""
_STAMP: Final = Struct(">qhi")
_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">i")
_STAMP_AT: Final = 43
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_LENGTH_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
_OFFSET: Final = Struct(">q")
_LAST_DELTA_AT: Final = 23
_MAGIC_AT: Final = 16
_CODEC_AT: Final = 22
_CODEC: Final = 0x07

_LONGEST_LENGTH: Final = 6
"""A varint of 32 bits has five bytes; the attributes of the record follow."""
NO_TIME: Final = -(2**63)
"""Older than any record."""

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
SEQUENCE_MODULUS: Final = 2**31


class BatchHeader(NamedTuple):
    """The fields of a batch's header that a node needs. Timestamps are Unix milliseconds. In a client's Produce
    `base_sequence` is the client's; readers of a log use `last_sequence`.
    """

    base_offset: int
    size: int
    magic: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: ClientSequence
    records: int

    @property
    def is_special(self) -> bool:
        """Whether it is transactional or a control batch: producers without transactions write neither."""
        return bool(self.attributes & (_TRANSACTIONAL | _CONTROL))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def read_header(buffer: Octets, start: int, end: int) -> BatchHeader:
    """Read the header of the batch that begins at `start`. The CRC is not checked.

    Raises `KafkaError` 43 for a message format below v2, 2 if the bytes are no batch.
    """
    if end - start <= _MAGIC_AT:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {end - start} bytes")
    magic = buffer[start + _MAGIC_AT]
    if magic != 2:
        if magic in (0, 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format v{magic}: only v2 carries producer ids"
            )
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown message format {magic}")
    if end - start < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {end - start} bytes")
    fields = _HEADER.unpack_from(buffer, start)
    size = fields[1] + 12
    if size < HEADER_BYTES or size > end - start:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes in {end - start}")
    return new_tuple(BatchHeader, (fields[0], size, magic, *fields[5:13]))


class Numbers(NamedTuple):
    """The producer of a batch and its sequence, -1 for a producer without an id. `newest`: see `surely_newest`."""

    producer_id: int
    producer_epoch: int
    base_sequence: ClientSequence
    records: int
    newest: int


def read_numbers(batch: memoryview) -> Numbers | None:
    """Return the numbers of an ordinary batch that is valid and fills `batch` exactly.

    None for anything else: `read_header` and `crc_matches` find what is wrong or special.
    """
    if COMPILED is not None and (found := COMPILED.read_numbers(batch, Numbers)) is not None:
        return found
    size = len(batch)
    if size < _HEADER_AND_FIRST.size:
        return None
    _, length, _, magic, crc, attributes, last_delta, base, claimed, producer_id, epoch, sequence, records, first = (
        _HEADER_AND_FIRST.unpack_from(batch)
    )
    if (
        magic != 2
        or length + 12 != size
        or attributes & (_TRANSACTIONAL | _CONTROL)
        or records <= 0
        or last_delta != records - 1
        or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        or crc != crc32c(batch[_CRC_FROM:])
    ):
        return None
    if attributes & _CODEC:
        newest = claimed
    elif first & 0x808000FF == 0x80000000 or not first & 0x8000FF00:  # a length of two bytes, or one, and no delta
        newest = base if base < claimed else claimed  # noqa: FURB136  a call costs more
    else:
        newest = surely_newest(batch, attributes, base, claimed)
    return new_tuple(Numbers, (producer_id, epoch, sequence, records, newest))


def surely_newest(batch: Octets, attributes: int, base_timestamp: int, max_timestamp: int) -> int:
    """Return a time (Unix ms) not later than that of the newest record; `NO_TIME` if the first record is damaged.

    A client may write any `max_timestamp` into the header. A leader looks for the newest record itself and overwrites
    that field (`LogValidator`). So this is the first record's time, but never later than the header's, because with
    attribute bit 3 (LogAppendTime) the leader uses the header's. Compressed records are not opened here: for those it
    is the header's time.
    """
    if attributes & _CODEC:
        return max_timestamp
    try:
        at = HEADER_BYTES + 2  # after a length of one byte, and the attributes
        while batch[at - 2] & 0x80:
            at += 1
            if at > HEADER_BYTES + _LONGEST_LENGTH:
                return NO_TIME
        if batch[at]:  # rare: clients use the first record's time as the base
            base_timestamp = (base_timestamp + _varlong(batch, at) + 2**63) % 2**64 - 2**63  # as Java adds
    except IndexError:
        return NO_TIME
    return min(base_timestamp, max_timestamp)


def _varlong(batch: Octets, at: int) -> int:
    """The zigzag varint of 64 bits at position `at`. Raises IndexError if it is too long."""
    value = shift = 0
    while (byte := batch[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise IndexError(at)
    value = (value | byte << shift) & (2**64 - 1)
    return (value >> 1) ^ -(value & 1)


def codec_of(batch: Octets) -> int:
    """How the records of a batch are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd (KIP-110)."""
    return batch[_CODEC_AT] & _CODEC


def crc_matches(buffer: Octets, start: int, size: int) -> bool:
    """Whether the batch's CRC-32C fits its bytes (34 GB/s in hardware)."""
    stored: int = _CRC.unpack_from(buffer, start + _CRC_AT)[0]
    return stored == crc32c(_window(buffer)[start + _CRC_FROM : start + size])


def stamp(buffer: bytearray | memoryview, start: int, size: int, producer_id: int, epoch: int, sequence: int) -> None:
    """Write another producer id, epoch and base sequence into a batch, and its new CRC, in place."""
    if COMPILED is not None:
        COMPILED.stamp(buffer, start, size, producer_id, epoch, sequence)
        return
    _STAMP.pack_into(buffer, start + _STAMP_AT, producer_id, epoch, sequence)
    _CRC.pack_into(buffer, start + _CRC_AT, crc32c(_window(buffer)[start + _CRC_FROM : start + size]))


def _window(buffer: Octets) -> memoryview:
    return buffer if isinstance(buffer, memoryview) else memoryview(buffer)


def batch_sizes(buffer: Octets, start: int, end: int) -> list[tuple[int, int]]:
    """Return (start, size) of each whole batch in a record set. A batch that is cut off at the end, as Fetch may
    return, is left out. So is a batch whose length is shorter than its own header, and all that follows it.
    """
    found: list[tuple[int, int]] = []
    while end - start >= _MAGIC_AT + 1:
        size = _LENGTH.unpack_from(buffer, start + _LENGTH_AT)[0] + 12
        if size <= _MAGIC_AT or size > end - start or (size < HEADER_BYTES and buffer[start + _MAGIC_AT] == 2):
            break
        found.append((start, size))
        start += size
    return found


def leader_epoch(buffer: Octets, start: int) -> int:
    """The leader epoch in which the batch at `start` was appended; the leader wrote it into the batch (KIP-101)."""
    return _LENGTH.unpack_from(buffer, start + _LEADER_EPOCH_AT)[0]


def batch_end(buffer: Octets, start: int) -> int | None:
    """The offset after the last record of the whole batch at `start`; None if it is older than v2."""
    if buffer[start + _MAGIC_AT] != 2:
        return None
    base, last = _OFFSET.unpack_from(buffer, start)[0], _LENGTH.unpack_from(buffer, start + _LAST_DELTA_AT)[0]
    return base + last + 1
