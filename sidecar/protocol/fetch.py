"""Fetch, api key 1, versions 4 to 18: walk requests and answers without touching records, split and merge them.

Versions: 5 log_start_offset · 7 fetch sessions (KIP-227) · 9 current leader epoch (KIP-320) · 10 zstd · 11 rack id
(KIP-392) · 12 flexible (KIP-482); last fetched epoch, diverging epochs and new leaders as tagged fields · 13 topics by
id (KIP-516): functions that write requests and answers then take the id of 16 bytes as `topic` · 14 an error of tiered
storage · 15 the replica in a tagged field · 16 the addresses of new leaders (KIP-951) · 17 and 18 tagged fields of
followers.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from sidecar.protocol.api import ApiKey
from sidecar.protocol.batch import batch_end, batch_sizes
from sidecar.protocol.fetch_parts import NOT_LOOKED_FOR, FetchAnswer, FetchedPart, FetchPart, FetchRequest, Watermarks
from sidecar.protocol.fetch_tags import FIRST_WITH_STATE, read_replica, skip_partition_tags
from sidecar.protocol.leaders import Leader, endpoint_tags, leader_tags, read_leader
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import (
    I32,
    Octets,
    Reader,
    RequestReader,
    Writer,
    answer_frame,
    new_tuple,
    request_frame,
)
from sidecar.protocol.topic_ids import ID_BYTES, NO_NAMES, Ids, Names, named

FIRST_FLEXIBLE: Final = 12
FIRST_BY_ID: Final = 13
FIRST_WITH_LEADERS: Final = 16
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_RACKS: Final = 11
_LEADER_TAG: Final = 1
_ADDRESSES_TAG: Final = 0
_LIMITS: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_LAST_EPOCH_AT: Final = 16
"""Position of the last fetched epoch in a partition's element of a request: after index, leader epoch and offset."""
_FIXED: Final = Struct(">ihqqq")
_FIXED_V4: Final = Struct(">ihqq")
_ABORTED_BYTES: Final = 16
_NONE: Final = I32.pack(-1)
"""-1: no replica, no epoch, or a null list."""
_CONSUMER: Final = -1
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0


# Requests -------------------------------------------------------------------------------------------------------------


def walk(buffer: Octets, body: int, end: int, version: int, names: Names = NO_NAMES) -> FetchRequest:
    """Find the partitions of a request whose body begins at `body`. `names`: topics by id. Raises
    `MalformedFrameError`.
    """
    flexible = version >= FIRST_FLEXIBLE
    reader = RequestReader(buffer, body, end, BOUNDS.fetch)
    reader.tags(flexible)
    replica_id = reader.i32() if version < FIRST_WITH_STATE else _CONSUMER
    max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(buffer, reader.skip(_LIMITS.size))
    session, session_id, session_epoch = -1, 0, FINAL_EPOCH
    if version >= _FIRST_WITH_SESSIONS:
        session = reader.skip(_SESSION.size)
        session_id, session_epoch = _SESSION.unpack_from(buffer, session)
    element = partition_bytes(version)
    ids: Ids | None = None if version < FIRST_BY_ID else {}
    parts: list[FetchPart] = []
    for _ in range(reader.array(flexible, element_bytes=3)):
        topic = reader.name(flexible) if ids is None else named(reader.raw(ID_BYTES), names, ids)
        for _ in range(reader.array(flexible, element_bytes=element)):
            start = reader.skip(element)
            if flexible:
                skip_partition_tags(reader)
            index = I32.unpack_from(buffer, start)[0]
            parts.append(new_tuple(FetchPart, (topic, index, start, reader.position)))
        reader.tags(flexible)
    if version >= _FIRST_WITH_SESSIONS:  # partitions to remove from the session
        for _ in range(reader.array(flexible, element_bytes=3)):
            _read_topic(reader, version)
            reader.skip(4 * reader.array(flexible, element_bytes=4))
            reader.tags(flexible)
    rack = _size(reader, flexible, short=True) if version >= _FIRST_WITH_RACKS else 0
    reader.skip(rack)
    if flexible:
        replica_id = read_replica(reader, replica_id, version)
    if replica_id >= 0:  # a follower's request is refused as a whole, so its tagged fields do not matter
        reader.tagged.clear()
    reader.finish()
    return FetchRequest(
        max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch, session, replica_id, rack > 0, parts, ids
    )


def _size(reader: Reader, flexible: bool, *, short: bool = False) -> int:
    """The length of a text (`short`) or of bytes; 0 if it is null."""
    return max(0, reader.uvarint() - 1 if flexible else reader.i16() if short else reader.i32())


def _read_topic(reader: Reader, version: int) -> bytes:
    return reader.name(version >= FIRST_FLEXIBLE) if version < FIRST_BY_ID else reader.raw(ID_BYTES)


def _write_topic(writer: Writer, version: int, topic: bytes) -> None:
    if version < FIRST_BY_ID:
        writer.name(topic, version >= FIRST_FLEXIBLE)
    else:
        writer.raw(topic)


def partition_bytes(version: int) -> int:
    """Size of one partition's element in a request, without tagged fields: index, (leader epoch), offset, (last
    fetched epoch), (log start offset), max bytes.
    """
    return 16 + (4 if version >= 9 else 0) + (4 if version >= FIRST_FLEXIBLE else 0) + (8 if version >= 5 else 0)


def plain_element(element: Octets) -> bytes | None:
    """Convert a partition of a flexible request to the form of v9 to v11. None if it has more: a follower's fields, or
    a last fetched epoch (to detect a diverged log).
    """
    behind, end = _LAST_EPOCH_AT + I32.size, partition_bytes(FIRST_FLEXIBLE)
    if len(element) != end + 1 or element[_LAST_EPOCH_AT:behind] != _NONE:
        return None
    return bytes(element[:_LAST_EPOCH_AT]) + bytes(element[behind:end])


def flexible_element(plain: bytes) -> bytes:
    """Convert a partition of a request of v9 to v11 to the form of the flexible versions."""
    return plain[:_LAST_EPOCH_AT] + _NONE + plain[_LAST_EPOCH_AT:] + b"\0"


def decline_session(buffer: bytearray, request: FetchRequest) -> None:
    """Make the request sessionless, in place: fetch sessions end at the node."""
    if request.session >= 0:
        _SESSION.pack_into(buffer, request.session, 0, FINAL_EPOCH)


def encode_request(
    correlation_id: int,
    client_id: bytes,
    version: int,
    limits: tuple[int, int, int, int],
    parts: list[tuple[bytes, Octets]],
) -> bytes:
    """Return a sessionless request frame: see `write_body`."""
    writer = request_frame(ApiKey.FETCH, version, correlation_id, client_id, version >= FIRST_FLEXIBLE)
    write_body(writer, version, limits, parts)
    return writer.frame()


def write_body(
    writer: Writer, version: int, limits: tuple[int, int, int, int], parts: Iterable[tuple[bytes, Octets]]
) -> None:
    """Append the body of a sessionless request of a consumer. `limits` = max wait ms, min bytes, max bytes, isolation
    level; `parts` = (topic, element).
    """
    flexible = version >= FIRST_FLEXIBLE
    if version < FIRST_WITH_STATE:
        writer.i32(_CONSUMER)
    writer.raw(_LIMITS.pack(*limits))
    if version >= _FIRST_WITH_SESSIONS:
        writer.raw(_SESSION.pack(0, FINAL_EPOCH))
    by_topic: dict[bytes, list[Octets]] = {}
    for topic, element in parts:
        by_topic.setdefault(topic, []).append(element)
    writer.array(len(by_topic), flexible)
    for topic, elements in by_topic.items():
        _write_topic(writer, version, topic)
        writer.array(len(elements), flexible)
        writer.raw(b"".join(elements))
        writer.tags(flexible)
    if version >= _FIRST_WITH_SESSIONS:
        writer.array(0, flexible)
    if version >= _FIRST_WITH_RACKS:
        writer.text("", flexible)
    writer.tags(flexible)


# Answers --------------------------------------------------------------------------------------------------------------


def walk_answer(buffer: Octets, start: int, end: int, version: int, names: Names = NO_NAMES) -> FetchAnswer:
    """Find the partitions of an answer frame that begins with its length prefix at `start`. `names`: topics by id."""
    reader = Reader(buffer, start + 8, end)
    reader.tags(version >= FIRST_FLEXIBLE)
    return walk_body(reader, version, names)


def walk_body(reader: Reader, version: int, names: Names = NO_NAMES) -> FetchAnswer:
    """Find the partitions of an answer, from after its header on."""
    flexible, buffer, fixed = version >= FIRST_FLEXIBLE, reader.buffer, _fixed(version)
    throttle_ms, error, leader = reader.i32(), 0, None
    if version >= _FIRST_WITH_SESSIONS:
        error = reader.i16()
        reader.skip(4)
    parts: list[FetchedPart] = []
    for _ in range(reader.array(flexible, element_bytes=3)):
        topic = _read_topic(reader, version)
        if version >= FIRST_BY_ID:
            topic = names.get(topic, topic)
        for _ in range(reader.array(flexible, element_bytes=fixed.size)):
            at = reader.skip(fixed.size)
            fields = fixed.unpack_from(buffer, at)
            size = _skip_to_tags(reader, version)
            if flexible:
                leader = read_leader(reader, _LEADER_TAG)
            parts.append(new_tuple(FetchedPart, (topic, fields[0], fields[1], at, reader.position, size, leader)))
        reader.tags(flexible)
    has_addresses = False
    for _ in range(reader.array_of_tags() if flexible else 0):
        has_addresses |= reader.uvarint() == _ADDRESSES_TAG
        reader.skip(reader.uvarint())
    return FetchAnswer(throttle_ms, error, parts, has_addresses)


def _fixed(version: int) -> Struct:
    """The fixed fields at the beginning of a partition's element in an answer."""
    return _FIXED if version >= 5 else _FIXED_V4


def _skip_to_tags(reader: Reader, version: int) -> int:
    """Step over a partition's aborted transactions, preferred replica and records; return the size of the records."""
    flexible = version >= FIRST_FLEXIBLE
    if aborted := reader.array(flexible, element_bytes=_ABORTED_BYTES):
        for _ in range(aborted):
            reader.skip(_ABORTED_BYTES)
            reader.tags(flexible)
    if version >= _FIRST_WITH_RACKS:
        reader.skip(4)
    size = _size(reader, flexible)
    reader.skip(size)
    return size


def with_first_topic(buffer: Octets, start: int, end: int, version: int, topic: bytes) -> tuple[bytes, int]:
    """Return the beginning of an answer frame, with another name for its first topic, and where the rest begins."""
    flexible = version >= FIRST_FLEXIBLE
    reader, writer = Reader(buffer, start + 8, end), Writer()
    reader.tags(flexible)
    reader.skip(10 if version >= _FIRST_WITH_SESSIONS else 4)
    reader.array(flexible)
    writer.raw(buffer[start : reader.position])
    _read_topic(reader, version)
    _write_topic(writer, version, topic)
    I32.pack_into(writer.out, 0, len(writer.out) + end - reader.position - 4)
    return writer.finish(), reader.position


def encode_answer(
    correlation_id: int,
    version: int,
    parts: list[tuple[bytes, Octets]],
    throttle_ms: int = 0,
    error: int = 0,
    leaders: Iterable[Leader] = (),
) -> list[Octets]:
    """Return an answer frame of (topic, element) pairs as parts. Elements are not copied; the session id is 0.
    `leaders`: new leaders, whose addresses the answer has from version 16 on.
    """
    flexible = version >= FIRST_FLEXIBLE
    by_topic: dict[bytes, list[Octets]] = {}
    for topic, element in parts:
        by_topic.setdefault(topic, []).append(element)
    first = writer = answer_frame(correlation_id, flexible)
    writer.i32(throttle_ms)
    if version >= _FIRST_WITH_SESSIONS:
        writer.i16(error)
        writer.i32(0)
    writer.array(len(by_topic), flexible)
    out: list[Octets] = []
    for topic, elements in by_topic.items():
        _write_topic(writer, version, topic)
        writer.array(len(elements), flexible)
        out += (writer.out, *elements)
        writer = Writer()
        writer.tags(flexible)
    if flexible:
        writer.raw(endpoint_tags(leaders))
    if writer.out:
        out.append(writer.out)
    I32.pack_into(first.out, 0, sum(map(len, out)) - 4)
    return out


# A partition's element of an answer -----------------------------------------------------------------------------------


def watermarks(buffer: Octets, start: int) -> Watermarks:
    """The watermarks in the element at `start`, in versions from 5 on."""
    return Watermarks(*_FIXED.unpack_from(buffer, start)[2:])


def error_element(version: int, partition: int, error: int) -> bytes:
    """The element of a partition that could not be read: no records, offsets -1."""
    head = _FIXED.pack(partition, error, -1, -1, -1)[: _fixed(version).size]
    return _without_records(version, head, is_null=error not in NOT_LOOKED_FOR)


def empty_element(buffer: Octets, start: int, version: int) -> bytes:
    """Return the element at `start` without records and tagged fields. Its watermarks and the log's start stay, and
    whether its list of aborted transactions is null.
    """
    behind = start + _fixed(version).size
    is_null = not buffer[behind] if version >= FIRST_FLEXIBLE else I32.unpack_from(buffer, behind)[0] < 0
    return _without_records(version, bytes(buffer[start:behind]), is_null=is_null)


def _without_records(version: int, head: bytes, *, is_null: bool) -> bytes:
    """An element that begins with `head`. `is_null`: whether its list of aborted transactions is null."""
    if version >= FIRST_FLEXIBLE:
        return head + (b"\0" if is_null else b"\x01") + _NONE + b"\x01\0"
    return head + (_NONE if is_null else bytes(4)) + (_NONE if version >= _FIRST_WITH_RACKS else b"") + bytes(4)


def converted(element: Octets, version: int, to: int) -> Octets:
    """Convert an element of one version (5 or later) to another: without tagged fields, and with no preferred read
    replica if either version has none.
    """
    source, target = version >= FIRST_FLEXIBLE, to >= FIRST_FLEXIBLE
    if not source and not target and (version >= _FIRST_WITH_RACKS) == (to >= _FIRST_WITH_RACKS):
        return element
    reader, writer = Reader(element, _FIXED.size), Writer()
    writer.raw(element[: _FIXED.size])
    aborted = reader.nullable_array(source, element_bytes=_ABORTED_BYTES)
    writer.array(aborted, target)
    for _ in range(max(0, aborted)):
        writer.raw(reader.raw(_ABORTED_BYTES))
        reader.tags(source)
        writer.tags(target)
    replica = reader.raw(4) if version >= _FIRST_WITH_RACKS else _NONE
    if to >= _FIRST_WITH_RACKS:
        writer.raw(replica)
    size = _size(reader, source)
    writer.array(size, target)
    start = reader.skip(size)
    writer.raw(memoryview(element)[start : start + size])
    writer.tags(target)
    return writer.out


def record_bytes(element: Octets, version: int) -> int:
    """The size of the record set in an element of an answer."""
    return _skip_to_tags(Reader(element, _fixed(version).size), version)


def with_leader(element: Octets, leader: Leader | None) -> bytes:
    """Return a flexible element whose tagged fields have the partition's leader, if any, and nothing else."""
    reader = Reader(element, _FIXED.size)
    _skip_to_tags(reader, FIRST_FLEXIBLE)
    return bytes(element[: reader.position]) + leader_tags(_LEADER_TAG, leader)


def names_aborted(element: Octets) -> bool:
    """Whether an element of v11 names aborted transactions."""
    return I32.unpack_from(element, _FIXED.size)[0] > 0


def offset_behind(element: Octets, record_bytes: int) -> int | None:
    """The offset after the last record of an element of v11; None if its last batch is cut off or older than v2."""
    start = len(element) - record_bytes
    sizes = batch_sizes(element, start, len(element))
    if not sizes or sum(size for _, size in sizes) != record_bytes:
        return None
    return batch_end(element, sizes[-1][0])


def join(elements: list[tuple[Octets, int]]) -> bytes:
    """Join elements of v11, each with the size of its records, into one. Each begins at the offset where the one before
    ends, and none has aborted transactions. The result has the watermarks of the last one.
    """
    out = bytearray(empty_element(elements[-1][0], 0, 11))
    I32.pack_into(out, len(out) - 4, sum(size for _, size in elements))
    for element, size in elements:
        out += memoryview(element)[len(element) - size :]
    return bytes(out)
