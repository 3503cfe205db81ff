"""Fetch, api key 1, versions 4 to 18: walk requests and answers without touching records, split and merge them.

Versions: 5 log_start_offset · 7 fetch sessions (KIP-227) · 9 current leader epoch (KIP-320) · 10 zstd · 11 rack id
(KIP-392). From 12 on they are flexible (`fetch_flexible`), from 13 on topics are named by id: where requests and
answers are written, `topic` is the id of 16 bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.protocol import fetch_flexible as flexible
from sidecar.protocol.batch import batch_end, batch_sizes
from sidecar.protocol.fetch_parts import NOT_LOOKED_FOR, FetchAnswer, FetchedPart, FetchPart, FetchRequest
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import I16, I32, MalformedFrameError, Octets, Reader, RequestReader, new_tuple
from sidecar.protocol.topic_ids import NO_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.protocol.leaders import Leader
    from sidecar.protocol.topic_ids import Names

_LIMITS: Final = Struct(">iiiib")
_SESSION: Final = Struct(">ii")
_ANSWER_PARTITION: Final = {4: Struct(">ihqq"), 5: Struct(">ihqqq")}
_ABORTED_BYTES: Final = 16
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0


def walk(buffer: Octets, body: int, end: int, version: int, names: Names = NO_NAMES) -> FetchRequest:
    """Find the partitions of a request whose body begins at `body`. `names`: topics by id. Raises
    `MalformedFrameError`.
    """
    if version >= flexible.FIRST:
        return flexible.walk(buffer, body, end, version, names)
    reader = RequestReader(buffer, body, end, BOUNDS.fetch)
    replica_id, max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(buffer, reader.skip(_LIMITS.size))
    session, session_id, session_epoch = -1, 0, FINAL_EPOCH
    if version >= 7:
        session = reader.skip(8)
        session_id, session_epoch = _SESSION.unpack_from(buffer, session)
    element = partition_bytes(version)
    parts: list[FetchPart] = []
    for _ in range(reader.array(element_bytes=6)):
        topic = reader.raw(reader.i16())
        for _ in range(reader.array(element_bytes=element)):
            start = reader.skip(element)
            parts.append(new_tuple(FetchPart, (topic, I32.unpack_from(buffer, start)[0], start, start + element)))
    if version >= 7:
        for _ in range(reader.array(element_bytes=6)):
            reader.skip(reader.i16())
            reader.skip(4 * reader.array(element_bytes=4))
    rack, has_rack = reader.position, False
    if version >= 11:
        has_rack = reader.i16() > 0
        reader.position = rack
        reader.skip(max(0, reader.i16()))
    if reader.position != end:
        raise MalformedFrameError(f"{end - reader.position} bytes behind the end of a Fetch request")
    return FetchRequest(
        max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch, session, replica_id, has_rack, parts
    )


def partition_bytes(version: int) -> int:
    """Size of one partition's element in a request of 4 to 11: index, (leader epoch), offset, (log start offset), max
    bytes.
    """
    return 16 + (4 if version >= 9 else 0) + (8 if version >= 5 else 0)


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
    """A sessionless request frame: see `write_body`."""
    out = bytearray(12)
    out[4:12] = Struct(">hhi").pack(1, version, correlation_id)
    out += Struct(">h").pack(len(client_id)) + client_id
    if version >= flexible.FIRST:
        out.append(0)
        flexible.write_body(out, version, limits, parts)
        I32.pack_into(out, 0, len(out) - 4)
        return bytes(out)
    write_body(out, version, limits, parts)
    I32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def write_body(
    out: bytearray, version: int, limits: tuple[int, int, int, int], parts: Iterable[tuple[bytes, Octets]]
) -> None:
    """Append the body of a sessionless request of 4 to 11. `limits` = max wait ms, min bytes, max bytes, isolation
    level; `parts` = (topic, element).
    """
    max_wait, min_bytes, max_bytes, isolation = limits
    out += _LIMITS.pack(-1, max_wait, min_bytes, max_bytes, isolation)
    if version >= 7:
        out += _SESSION.pack(0, FINAL_EPOCH)
    by_topic: dict[bytes, list[Octets]] = {}
    for topic, element in parts:
        by_topic.setdefault(topic, []).append(element)
    out += I32.pack(len(by_topic))
    for topic, elements in by_topic.items():
        out += Struct(">h").pack(len(topic)) + topic + I32.pack(len(elements))
        for element in elements:
            out += element
    if version >= 7:
        out += I32.pack(0)
    if version >= 11:
        out += b"\0\0"


def walk_answer(buffer: Octets, start: int, end: int, version: int, names: Names = NO_NAMES) -> FetchAnswer:
    """Find the partitions of an answer frame that begins with its length prefix at `start`. `names`: topics by id."""
    reader = Reader(buffer, start + 8, end)
    reader.tags(version >= flexible.FIRST)
    return walk_body(reader, version, names)


def walk_body(reader: Reader, version: int, names: Names = NO_NAMES) -> FetchAnswer:
    """Find the partitions of an answer, from after its header on."""
    if version >= flexible.FIRST:
        return flexible.walk_body(reader, version, names)
    buffer = reader.buffer
    throttle_ms, error = reader.i32(), 0
    if version >= 7:
        error = reader.i16()
        reader.skip(4)
    fixed = _ANSWER_PARTITION[5 if version >= 5 else 4]
    parts: list[FetchedPart] = []
    for _ in range(reader.array(element_bytes=6)):
        topic = reader.raw(reader.i16())
        for _ in range(reader.array(element_bytes=fixed.size)):
            at = reader.skip(fixed.size)
            fields = fixed.unpack_from(buffer, at)
            reader.skip(_ABORTED_BYTES * reader.array(element_bytes=_ABORTED_BYTES))
            if version >= 11:
                reader.skip(4)
            size = max(0, reader.i32())
            reader.skip(size)
            parts.append(FetchedPart(topic, fields[0], fields[1], at, reader.position, size))
    return FetchAnswer(throttle_ms, error, parts)


def with_first_topic(buffer: Octets, start: int, end: int, version: int, topic: bytes) -> tuple[bytes, int]:
    """The beginning of an answer frame with another name for its first topic, and where the rest of it begins."""
    if version >= flexible.FIRST:
        return flexible.with_first_topic(buffer, start, end, version, topic)
    at = start + 8 + 4 + (6 if version >= 7 else 0) + 4
    rest = at + 2 + I16.unpack_from(buffer, at)[0]
    head = bytearray(buffer[start:at]) + I16.pack(len(topic)) + topic
    I32.pack_into(head, 0, len(head) + end - rest - 4)
    return bytes(head), rest


def error_element(version: int, partition: int, error: int) -> bytes:
    """The element of a partition that could not be read: no records, offsets -1."""
    if version >= flexible.FIRST:
        return flexible.error_element(partition, error)
    fixed = _ANSWER_PARTITION[5 if version >= 5 else 4]
    head = fixed.pack(partition, error, -1, -1, -1) if version >= 5 else fixed.pack(partition, error, -1, -1)
    aborted = I32.pack(0 if error in NOT_LOOKED_FOR else -1)
    return head + aborted + (I32.pack(-1) if version >= 11 else b"") + I32.pack(0)


class Watermarks(NamedTuple):
    """What an element says of its log: the offsets up to which each isolation level may read, and where it begins."""

    high_watermark: int
    last_stable_offset: int
    log_start: int

    def end(self, isolation: int) -> int:
        """The offset at which a reader waits."""
        return self.last_stable_offset if isolation else self.high_watermark


def watermarks(buffer: Octets, start: int) -> Watermarks:
    """Of the element at `start`, in versions from 5 on."""
    return Watermarks(*_ANSWER_PARTITION[5].unpack_from(buffer, start)[2:])


def empty_element(buffer: Octets, start: int, version: int) -> bytes:
    """The element at `start` without its records: what it says of watermarks and the log's start stays, and whether
    it names aborted transactions.
    """
    if version >= flexible.FIRST:
        return flexible.empty_element(buffer, start)
    behind = start + _ANSWER_PARTITION[5 if version >= 5 else 4].size
    aborted = min(0, I32.unpack_from(buffer, behind)[0])
    return bytes(buffer[start:behind]) + I32.pack(aborted) + (I32.pack(-1) if version >= 11 else b"") + I32.pack(0)


def as_version(element: Octets, version: int) -> Octets:
    """An element of v11 as another version from 5 on has it; 10 and before are without the preferred read replica."""
    if version >= flexible.FIRST:
        return flexible.of_v11(element)
    if version == 11:
        return element
    behind = _ANSWER_PARTITION[5].size
    behind += 4 + _ABORTED_BYTES * max(0, I32.unpack_from(element, behind)[0])
    return bytes(element[:behind]) + element[behind + 4 :]


def as_v11(element: Octets, version: int) -> bytes:
    """An element of another version from 5 on as v11 has it; with no preferred read replica where that has none."""
    if version >= flexible.FIRST:
        return flexible.as_v11(element)
    if version == 11:
        return bytes(element)
    behind = _ANSWER_PARTITION[5].size
    behind += 4 + _ABORTED_BYTES * max(0, I32.unpack_from(element, behind)[0])
    return bytes(element[:behind]) + I32.pack(-1) + element[behind:]


def names_aborted(element: Octets) -> bool:
    """Whether an element of v11 names aborted transactions."""
    return I32.unpack_from(element, _ANSWER_PARTITION[5].size)[0] > 0


def offset_behind(element: Octets, record_bytes: int) -> int | None:
    """The offset after the last record of an element of v11; None where its last batch is cut off, or older than v2."""
    start = len(element) - record_bytes
    sizes = batch_sizes(element, start, len(element))
    if not sizes or sum(size for _, size in sizes) != record_bytes:
        return None
    return batch_end(element, sizes[-1][0])


def join(elements: list[tuple[Octets, int]]) -> bytes:
    """One element of v11 of several and the bytes of their records, each beginning where the one before it ends, none
    of which names aborted transactions. Its watermarks are those of the last one.
    """
    out = bytearray(empty_element(elements[-1][0], 0, 11))
    I32.pack_into(out, len(out) - 4, sum(size for _, size in elements))
    for element, size in elements:
        out += memoryview(element)[len(element) - size :]
    return bytes(out)


def record_bytes(element: Octets, version: int) -> int:
    """The size of the record set in an element of an answer."""
    if version >= flexible.FIRST:
        return flexible.record_bytes(element)
    fixed = _ANSWER_PARTITION[5 if version >= 5 else 4].size
    aborted = max(0, I32.unpack_from(element, fixed)[0])
    return len(element) - fixed - 4 - _ABORTED_BYTES * aborted - (4 if version >= 11 else 0) - 4


def encode_answer(
    correlation_id: int,
    version: int,
    parts: list[tuple[bytes, Octets]],
    throttle_ms: int = 0,
    error: int = 0,
    leaders: Iterable[Leader] = (),
) -> list[Octets]:
    """An answer frame of (topic, element) pairs as parts; elements are not copied, the session id is 0. `leaders`:
    whose addresses it has, from version 16 on.
    """
    by_topic: dict[bytes, list[Octets]] = {}
    for topic, element in parts:
        by_topic.setdefault(topic, []).append(element)
    if version >= flexible.FIRST:
        return flexible.encode_answer(correlation_id, version, by_topic, throttle_ms, error, leaders)
    head = bytearray(8)
    I32.pack_into(head, 4, correlation_id)
    head += I32.pack(throttle_ms)
    if version >= 7:
        head += Struct(">hi").pack(error, 0)
    head += I32.pack(len(by_topic))
    out: list[Octets] = []
    size = 0
    for topic, elements in by_topic.items():
        head += Struct(">h").pack(len(topic)) + topic + I32.pack(len(elements))
        out.append(head)
        size += len(head)
        head = bytearray()
        for element in elements:
            out.append(element)
            size += len(element)
    if head:
        out.append(head)
        size += len(head)
    first = out[0]
    assert isinstance(first, bytearray)
    I32.pack_into(first, 0, size - 4)
    return out
