"""Requests with tagged fields (KIP-482) as clients of today send them, and Fetch in every form.

Written anew here, as in `wire`, so that it shares no mistake with the product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.wire import Produced, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_TAGS: Final = b"\0"
_FIRST_SESSIONS: Final = 7
_FIRST_FLEXIBLE: Final = 12
_FIRST_BY_ID: Final = 13
_LAST_WITH_REPLICA: Final = 14
_ID_BYTES: Final = 16


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _text(value: str) -> bytes:
    data = value.encode()
    return _uvarint(len(data) + 1) + data


class FlexibleReader(Reader):
    """Reads compact lengths, too, where null counts as empty."""

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def raw(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def compact(self) -> bytes:
        return self.raw(max(0, self.uvarint() - 1))

    def compact_count(self) -> range:
        return range(max(0, self.uvarint() - 1))

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.raw(self.uvarint())


# Metadata -------------------------------------------------------------------------------------------------------------

METADATA_VERSION: Final = 12


def metadata(topics: Sequence[str]) -> bytes:
    """Version 12, header's tags in front: nothing is created."""
    named = b"".join(bytes(_ID_BYTES) + _text(topic) + NO_TAGS for topic in topics)
    return NO_TAGS + _uvarint(len(topics) + 1) + named + b"\0\0" + NO_TAGS


def ids(data: bytes) -> dict[str, bytes]:
    """The topics that are there, of an answer to `metadata`."""
    read, found = FlexibleReader(data), dict[str, bytes]()
    read.tags()
    read.i32()
    for _ in read.compact_count():
        read.i32()
        read.compact()
        read.i32()
        read.compact()
        read.tags()
    read.compact()
    read.i32()
    for _ in read.compact_count():
        error, name, topic_id = read.i16(), read.compact().decode(), read.raw(_ID_BYTES)
        read.i8()
        for _ in read.compact_count():
            read.raw(14)
            for _ in range(3):
                for _ in read.compact_count():
                    read.i32()
            read.tags()
        read.i32()
        read.tags()
        if not error:
            found[name] = topic_id
    return found


# Produce --------------------------------------------------------------------------------------------------------------

PRODUCE_BY_ID: Final = 13


def produce(version: int, topic: str | bytes, batches: Mapping[int, bytes], timeout_ms: int) -> bytes:
    """From version 9 on, header's tags in front; by id (16 bytes) in version 13. All replicas have to confirm."""
    assert isinstance(topic, bytes) == (version >= PRODUCE_BY_ID)
    out = Writer()
    out.parts += [NO_TAGS, _uvarint(0)]
    out.i16(-1).i32(timeout_ms)
    out.parts += [_uvarint(2), topic if isinstance(topic, bytes) else _text(topic), _uvarint(len(batches) + 1)]
    for partition, batch in batches.items():
        out.i32(partition)
        out.parts += [_uvarint(len(batch) + 1), batch, NO_TAGS]
    out.parts += [NO_TAGS, NO_TAGS]
    return out.done()


def produced(version: int, data: bytes) -> dict[int, Produced]:
    """The partitions of the one topic."""
    read, found = FlexibleReader(data), dict[int, Produced]()
    read.tags()
    for _ in read.compact_count():
        if version >= PRODUCE_BY_ID:
            read.raw(_ID_BYTES)
        else:
            read.compact()
        for _ in read.compact_count():
            partition, error, offset = read.i32(), read.i16(), read.i64()
            read.raw(16)
            for _ in read.compact_count():
                read.i32()
                read.compact()
                read.tags()
            found[partition] = Produced(error, offset, read.compact().decode())
            read.tags()
        read.tags()
    read.i32()
    read.tags()
    assert read.at == len(data), f"{len(data) - read.at} bytes behind the answer"
    return found


# Fetch ----------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where to read from a partition; -1: no leader epoch is named."""

    offset: int
    epoch: int = -1
    most: int = 1 << 20


class Row(NamedTuple):
    """All that an answer says of a partition, but for tagged fields. `start` is -1 in versions without; `aborted` None
    where it is null.
    """

    error: int
    high_watermark: int
    last_stable_offset: int
    start: int
    aborted: tuple[tuple[int, int], ...] | None
    records: bytes


def fetch(
    version: int, topic: str | bytes, places: Mapping[int, Place], max_wait_ms: int = 0, isolation: int = 0
) -> bytes:
    """From version 4 on; by id (16 bytes) from 13 on."""
    flexible = version >= _FIRST_FLEXIBLE
    out = Writer()
    out.parts.append(NO_TAGS if flexible else b"")
    if version <= _LAST_WITH_REPLICA:
        out.i32(-1)
    out.i32(max_wait_ms).i32(1).i32(1 << 20).i8(isolation)
    if version >= _FIRST_SESSIONS:
        out.i32(0).i32(-1)
    if not flexible:
        assert isinstance(topic, str)
        out.i32(1).text(topic).i32(len(places))
    else:
        assert isinstance(topic, bytes) == (version >= _FIRST_BY_ID)
        out.parts += [_uvarint(2), topic if isinstance(topic, bytes) else _text(topic), _uvarint(len(places) + 1)]
    for partition, place in places.items():
        out.i32(partition)
        if version >= 9:
            out.i32(place.epoch)
        out.i64(place.offset)
        if flexible:
            out.i32(-1)
        if version >= 5:
            out.i64(-1)
        out.i32(place.most)
        out.parts.append(NO_TAGS if flexible else b"")
    if flexible:
        out.parts += [NO_TAGS, _uvarint(1), _text("") if version >= 11 else b"", NO_TAGS]
        return out.done()
    if version >= _FIRST_SESSIONS:
        out.i32(0)
    return out.text("").done() if version >= 11 else out.done()


def fetched(version: int, data: bytes) -> dict[int, Row]:
    """The rows of the one topic; empty where the whole answer is an error."""
    flexible, read, found = version >= _FIRST_FLEXIBLE, FlexibleReader(data), dict[int, Row]()
    if flexible:
        read.tags()
    read.i32()
    if version >= _FIRST_SESSIONS:
        read.raw(6)
    for _ in read.compact_count() if flexible else read.count():
        if version >= _FIRST_BY_ID:
            read.raw(_ID_BYTES)
        elif flexible:
            read.compact()
        else:
            read.text()
        for _ in read.compact_count() if flexible else read.count():
            partition, row = _row(read, version, flexible=flexible)
            found[partition] = row
        if flexible:
            read.tags()
    return found


def _row(read: FlexibleReader, version: int, *, flexible: bool) -> tuple[int, Row]:
    partition, error, high_watermark, stable = read.i32(), read.i16(), read.i64(), read.i64()
    start = read.i64() if version >= 5 else -1
    count = read.uvarint() - 1 if flexible else read.i32()
    aborted = None if count < 0 else tuple((read.i64(), _with_tags(read, flexible=flexible)) for _ in range(count))
    if version >= 11:
        read.i32()
    records = read.compact() if flexible else read.blob()
    if flexible:
        read.tags()
    return partition, Row(error, high_watermark, stable, start, aborted, records)


def _with_tags(read: FlexibleReader, *, flexible: bool) -> int:
    value = read.i64()
    if flexible:
        read.tags()
    return value
