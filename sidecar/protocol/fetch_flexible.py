"""Fetch in the flexible versions, 12 to 18 (KIP-482): as `sidecar.protocol.fetch`, which calls it.

Versions: 12 last fetched epoch, diverging epochs and new leaders as tagged fields · 13 topics by id (KIP-516) · 14 an
error of tiered storage · 15 the replica in a tagged field · 16 the addresses of new leaders (KIP-951) · 17 and 18
tagged fields of followers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from sidecar.protocol.fetch_parts import NOT_LOOKED_FOR, FetchAnswer, FetchedPart, FetchPart, FetchRequest
from sidecar.protocol.leaders import endpoint_tags, leader_tags, read_leader
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import I32, MalformedFrameError, Octets, Reader, RequestReader, Writer, new_tuple
from sidecar.protocol.topic_ids import ID_BYTES, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.protocol.leaders import Leader
    from sidecar.protocol.topic_ids import Ids, Names

FIRST: Final = 12
FIRST_BY_ID: Final = 13
FIRST_WITH_LEADERS: Final = 16
_FIRST_WITH_STATE: Final = 15
"""The first version that has the replica in a tagged field."""
_STATE_TAG: Final = 1
_LEADER_TAG: Final = 1
_ADDRESSES_TAG: Final = 0
_LIMITS: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_ELEMENT_BYTES: Final = 32
_LAST_EPOCH_AT: Final = 16
"""Of a partition in a request, behind its index, leader epoch and offset."""
FIXED: Final = Struct(">ihqqq")
_ABORTED_BYTES: Final = 16
_NO_REPLICA: Final = I32.pack(-1)
_CONSUMER: Final = -1


# Requests -------------------------------------------------------------------------------------------------------------


def walk(buffer: Octets, body: int, end: int, version: int, names: Names) -> FetchRequest:
    """Find the partitions of a request whose body begins at `body`. Raises `MalformedFrameError`."""
    reader = RequestReader(buffer, body, end, BOUNDS.fetch)
    reader.skip_tags()
    replica_id = reader.i32() if version < _FIRST_WITH_STATE else _CONSUMER
    max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(buffer, reader.skip(_LIMITS.size))
    session = reader.skip(_SESSION.size)
    session_id, session_epoch = _SESSION.unpack_from(buffer, session)
    ids: Ids | None = None if version < FIRST_BY_ID else {}
    parts: list[FetchPart] = []
    for _ in range(reader.array(True, element_bytes=3)):
        topic = _topic(reader, names, ids)
        for _ in range(reader.array(True, element_bytes=_ELEMENT_BYTES)):
            start = reader.skip(_ELEMENT_BYTES)
            reader.skip_tags()
            index = I32.unpack_from(buffer, start)[0]
            parts.append(new_tuple(FetchPart, (topic, index, start, reader.position)))
        reader.skip_tags()
    for _ in range(reader.array(True, element_bytes=3)):
        reader.skip(ID_BYTES if version >= FIRST_BY_ID else reader.uvarint() - 1)
        reader.skip(4 * reader.array(True, element_bytes=4))
        reader.skip_tags()
    has_rack = reader.skip(max(0, (size := reader.uvarint()) - 1)) >= 0 and size > 1
    replica_id = _replica(reader, replica_id, version)
    if reader.position != end:
        raise MalformedFrameError(f"{end - reader.position} bytes behind the end of a Fetch request")
    return FetchRequest(
        max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch, session, replica_id, has_rack, parts, ids
    )


def _topic(reader: Reader, names: Names, ids: Ids | None) -> bytes:
    if ids is None:
        return reader.raw(reader.uvarint() - 1)
    topic_id = reader.raw(ID_BYTES)
    topic = names.get(topic_id) or stand_in(topic_id)
    ids[topic] = topic_id
    return topic


def _replica(reader: Reader, replica_id: int, version: int) -> int:
    """Step over the tagged fields of a request: which replica asks."""
    for _ in range(reader.array_of_tags()):
        number, size = reader.uvarint(), reader.uvarint()
        at = reader.skip(size)
        if number == _STATE_TAG and version >= _FIRST_WITH_STATE:
            if size < I32.size:
                raise MalformedFrameError(f"the state of a replica in {size} bytes")
            replica_id = I32.unpack_from(reader.buffer, at)[0]
    return replica_id


def plain_element(element: Octets) -> bytes | None:
    """A partition of a request as v9 to v11 have it; None where it asks for more: a follower's fields, or whether the
    log has diverged.
    """
    behind = _LAST_EPOCH_AT + I32.size
    if len(element) != _ELEMENT_BYTES + 1 or element[_LAST_EPOCH_AT:behind] != _NO_REPLICA:
        return None
    return bytes(element[:_LAST_EPOCH_AT]) + bytes(element[behind:_ELEMENT_BYTES])


def flexible_element(plain: bytes) -> bytes:
    """A partition of a request of v9 to v11 as the flexible versions have it."""
    return plain[:_LAST_EPOCH_AT] + _NO_REPLICA + plain[_LAST_EPOCH_AT:] + b"\0"


def write_body(
    out: bytearray, version: int, limits: tuple[int, int, int, int], parts: Iterable[tuple[bytes, Octets]]
) -> None:
    """Append the body of a sessionless request of a consumer. `limits` = max wait ms, min bytes, max bytes, isolation
    level; `parts` = (topic or its id, element).
    """
    writer = Writer()
    writer.out = out
    if version < _FIRST_WITH_STATE:
        writer.i32(_CONSUMER)
    writer.raw(_LIMITS.pack(*limits))
    writer.raw(_SESSION.pack(0, -1))
    by_topic: dict[bytes, list[Octets]] = {}
    for topic, element in parts:
        by_topic.setdefault(topic, []).append(element)
    writer.array(len(by_topic), True)
    for topic, elements in by_topic.items():
        _write_topic(writer, version, topic)
        writer.array(len(elements), True)
        for element in elements:
            writer.raw(element)
        writer.tags(True)
    writer.array(0, True)
    writer.compact_string("")
    writer.tags(True)


def _write_topic(writer: Writer, version: int, topic: bytes) -> None:
    if version < FIRST_BY_ID:
        writer.uvarint(len(topic) + 1)
    writer.raw(topic)


# Answers --------------------------------------------------------------------------------------------------------------


def walk_body(reader: Reader, version: int, names: Names) -> FetchAnswer:
    """Find the partitions of an answer, from behind the tags of its header on. `names`: topics by id."""
    buffer = reader.buffer
    throttle_ms, error = reader.i32(), reader.i16()
    reader.skip(4)
    parts: list[FetchedPart] = []
    for _ in range(reader.array(True, element_bytes=3)):
        if version < FIRST_BY_ID:
            topic = reader.raw(reader.uvarint() - 1)
        else:
            topic = reader.raw(ID_BYTES)
            topic = names.get(topic, topic)
        for _ in range(reader.array(True, element_bytes=FIXED.size + 7)):
            at = reader.skip(FIXED.size)
            fields = FIXED.unpack_from(buffer, at)
            size = _skip_to_tags(reader)
            leader = read_leader(reader, _LEADER_TAG)
            parts.append(new_tuple(FetchedPart, (topic, fields[0], fields[1], at, reader.position, size, leader)))
        reader.skip_tags()
    has_addresses = False
    for _ in range(reader.array_of_tags()):
        has_addresses |= reader.uvarint() == _ADDRESSES_TAG
        reader.skip(reader.uvarint())
    return FetchAnswer(throttle_ms, error, parts, has_addresses)


def _skip_to_tags(reader: Reader) -> int:
    """Step over aborted transactions, preferred replica and records of a partition; the size of its record set."""
    for _ in range(reader.array(True, element_bytes=_ABORTED_BYTES + 1)):
        reader.skip(_ABORTED_BYTES)
        reader.skip_tags()
    reader.skip(4)
    size = max(0, reader.uvarint() - 1)
    reader.skip(size)
    return size


def with_first_topic(buffer: Octets, start: int, end: int, version: int, topic: bytes) -> tuple[bytes, int]:
    """The beginning of an answer frame with another name, or id, for its first topic, and where the rest begins."""
    reader = Reader(buffer, start + 8, end)
    reader.skip_tags()
    reader.skip(10)
    reader.array(True)
    writer = Writer()
    writer.raw(buffer[start : reader.position])
    reader.skip(ID_BYTES if version >= FIRST_BY_ID else reader.uvarint() - 1)
    _write_topic(writer, version, topic)
    I32.pack_into(writer.out, 0, len(writer.out) + end - reader.position - 4)
    return writer.finish(), reader.position


def error_element(partition: int, error: int) -> bytes:
    """The element of a partition that could not be read: no records, offsets -1."""
    aborted = b"\x01" if error in NOT_LOOKED_FOR else b"\0"
    return FIXED.pack(partition, error, -1, -1, -1) + aborted + _NO_REPLICA + b"\x01\0"


def empty_element(buffer: Octets, start: int) -> bytes:
    """The element at `start` without its records and tagged fields: see `fetch.empty_element`."""
    behind = start + FIXED.size
    return bytes(buffer[start:behind]) + (b"\x01" if buffer[behind] else b"\0") + _NO_REPLICA + b"\x01\0"


def record_bytes(element: Octets) -> int:
    """The size of the record set in an element of an answer."""
    return _skip_to_tags(Reader(element, FIXED.size))


def with_leader(element: Octets, leader: Leader | None) -> bytes:
    """An element that says who leads its partition, and nothing else in tagged fields."""
    reader = Reader(element, FIXED.size)
    _skip_to_tags(reader)
    return bytes(element[: reader.position]) + leader_tags(_LEADER_TAG, leader)


def without_leader(element: Octets) -> bytes:
    """An element without tagged fields."""
    return with_leader(element, None)


def of_v11(element: Octets) -> Octets:
    """An element of v11 as the flexible versions have it."""
    reader, writer = Reader(element, FIXED.size), Writer()
    writer.raw(element[: FIXED.size])
    aborted = reader.nullable_array(element_bytes=_ABORTED_BYTES)
    writer.array(aborted, True)
    for _ in range(max(0, aborted)):
        writer.raw(reader.raw(_ABORTED_BYTES))
        writer.tags(True)
    writer.raw(reader.raw(4))
    size = max(0, reader.i32())
    writer.uvarint(size + 1)
    writer.raw(element[reader.skip(size) : reader.position])
    writer.tags(True)
    return writer.out


def as_v11(element: Octets) -> bytes:
    """An element as v11 has it: without tagged fields."""
    reader, writer = Reader(element, FIXED.size), Writer()
    writer.raw(element[: FIXED.size])
    aborted = reader.nullable_array(True, element_bytes=_ABORTED_BYTES + 1)
    writer.array(aborted)
    for _ in range(max(0, aborted)):
        writer.raw(reader.raw(_ABORTED_BYTES))
        reader.skip_tags()
    writer.raw(reader.raw(4))
    size = max(0, reader.uvarint() - 1)
    writer.i32(size)
    writer.raw(element[reader.skip(size) : reader.position])
    return writer.finish()


def encode_answer(
    correlation_id: int,
    version: int,
    by_topic: Mapping[bytes, list[Octets]],
    throttle_ms: int,
    error: int,
    leaders: Iterable[Leader],
) -> list[Octets]:
    """An answer frame as parts; elements, by topic or its id, are not copied. `leaders`: whose addresses it has."""
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    writer.tags(True)
    writer.i32(throttle_ms)
    writer.i16(error)
    writer.i32(0)
    writer.array(len(by_topic), True)
    out: list[Octets] = []
    for topic, elements in by_topic.items():
        _write_topic(writer, version, topic)
        writer.array(len(elements), True)
        out += (writer.out, *elements)
        writer.out = bytearray()
        writer.tags(True)
    writer.raw(endpoint_tags(leaders))
    out.append(writer.out)
    first = out[0]
    assert isinstance(first, bytearray)
    I32.pack_into(first, 0, sum(map(len, out)) - 4)
    return out
