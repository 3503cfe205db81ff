"""Requests whose body is a table topic → partition → a few fixed fields: ListOffsets, OffsetForLeaderEpoch,
DeleteRecords.

A layout has the size of each part of a version, in bytes, computed from its table. So requests of the three are walked
and split by leader, and their answers merged, without an object for each field (ListOffsets 1-11, OffsetForLeaderEpoch
2-4, DeleteRecords 0-2).
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final, NamedTuple

from sidecar.protocol.kinds import Fixed, Kind
from sidecar.protocol.limits import BOUNDS, PORTION
from sidecar.protocol.messages.logs import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from sidecar.protocol.primitives import (
    I16,
    I32,
    Octets,
    Reader,
    RequestReader,
    Writer,
    answer_frame,
    at_once,
    new_tuple,
    request_frame,
)
from sidecar.protocol.schema import Array, Record


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of one version.

    `prefix`/`suffix` surround the table in the request; `element` is a partition in the request, its index first. In
    the answer a partition has `answer` bytes, its index at `index_at` and its error code at `error_at`; if
    `throttled`, a throttle time precedes the table. `refusal` is the rest of an element that carries only an error.
    """

    flexible: bool
    prefix: int
    element: int
    suffix: int
    throttled: bool
    answer: int
    index_at: int
    error_at: int
    fill: bytes


TABLES: Final = {message.key: message for message in (LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH)}
_INDEXES: Final = frozenset({"partition", "partition_index"})
_ERROR: Final = "error_code"


@cache
def layout_of(key: int, version: int) -> Layout:
    """The layout of ListOffsets, DeleteRecords or OffsetForLeaderEpoch in one version, from its table."""
    message = TABLES[key]
    prefix, asked, suffix = _split_fields(message.request, version)
    throttle, answered, _ = _split_fields(message.answer, version)
    ends = dict(zip(answered, accumulate(answered.values()), strict=True))
    (index,) = _INDEXES & answered.keys()
    fill = ((b"\0" if name in (index, _ERROR) else b"\xff") * size for name, size in answered.items())
    return Layout(
        flexible=version >= message.flexible,
        prefix=prefix,
        element=sum(asked.values()),
        suffix=suffix,
        throttled=bool(throttle),
        answer=sum(answered.values()),
        index_at=ends[index] - answered[index],
        error_at=ends[_ERROR] - answered[_ERROR],
        fill=b"".join(fill),
    )


def _split_fields(record: Record, version: int) -> tuple[int, dict[str, int], int]:
    """Return sizes in bytes: of all before the topics, of each field of a partition, and of all after the topics."""
    fields = record.of(version)
    at = [*fields].index("topics")
    partitions = _elements(_elements(fields["topics"]).of(version)["partitions"]).of(version)
    sizes = [0 if name == "topics" else _size(kind) for name, kind in fields.items()]
    return sum(sizes[:at]), {name: _size(kind) for name, kind in partitions.items()}, sum(sizes[at:])


def _size(kind: Kind) -> int:
    assert isinstance(kind, Fixed)
    return kind.struct.size


def _elements(kind: Kind) -> Record:
    assert isinstance(kind, Array)
    assert isinstance(kind.element, Record)
    return kind.element


class TablePart(NamedTuple):
    """One partition's element, `start` to `end` in the buffer, with its empty section of tagged fields."""

    topic: bytes
    partition: int
    start: int
    end: int


class Table(NamedTuple):
    """A walked request: positions of the prefix and the suffix, and the partitions."""

    prefix: int
    suffix: int
    parts: list[TablePart]


def walk(buffer: Octets, body: int, end: int, layout: Layout) -> Table:
    """Walk a request whose body begins at `body` (after the client id). Raises `MalformedFrameError`."""
    return at_once(walk_steps(buffer, body, end, layout))


def walk_steps(buffer: Octets, body: int, end: int, layout: Layout) -> Generator[None, None, Table]:
    """As `walk`, in slices."""
    reader = RequestReader(buffer, body, end, BOUNDS.partitions)
    reader.tags(layout.flexible)
    prefix = reader.skip(layout.prefix)
    parts: list[TablePart] = []
    sliced = 0
    for _ in range(reader.array(layout.flexible, element_bytes=2)):
        topic = reader.name(layout.flexible)
        left = reader.array(layout.flexible, element_bytes=layout.element)
        while left:
            some = min(left, BOUNDS.turn)
            _walk_some(reader, buffer, topic, some, layout, parts)
            left -= some
            sliced += some
            if sliced >= BOUNDS.turn:
                sliced = 0
                yield
        reader.tags(layout.flexible)
        sliced += 1
    suffix = reader.skip(layout.suffix)
    reader.tags(layout.flexible)
    reader.finish()
    return Table(prefix, suffix, parts)


def _walk_some(
    reader: Reader, buffer: Octets, topic: bytes, count: int, layout: Layout, parts: list[TablePart]
) -> None:
    for _ in range(count):
        start = reader.skip(layout.element)
        index = I32.unpack_from(buffer, start)[0]
        reader.tags(layout.flexible)
        parts.append(new_tuple(TablePart, (topic, index, start, reader.position)))


def _write_table(writer: Writer, flexible: bool, parts: Iterable[tuple[bytes, Octets]]) -> Generator[None, None, None]:
    by_topic: dict[bytes, list[Octets]] = {}
    for number, (topic, element) in enumerate(parts, 1):
        if not number % PORTION:
            yield
        found = by_topic.get(topic)
        if found is None:
            by_topic[topic] = [element]
        else:
            found.append(element)
    writer.array(len(by_topic), flexible)
    for topic, elements in by_topic.items():
        writer.name(topic, flexible)
        writer.array(len(elements), flexible)
        writer.raw(b"".join(elements))
        writer.tags(flexible)


def request_steps(
    key: int,
    version: int,
    correlation_id: int,
    client_id: bytes,
    layout: Layout,
    buffer: Octets,
    table: Table,
    parts: list[TablePart],
) -> Generator[None, None, bytes]:
    """Build a request frame for some partitions of a walked request, in slices."""
    view = memoryview(buffer)
    writer = request_frame(key, version, correlation_id, client_id, layout.flexible)
    writer.raw(view[table.prefix : table.prefix + layout.prefix])
    yield from _write_table(writer, layout.flexible, ((part.topic, buffer[part.start : part.end]) for part in parts))
    writer.raw(view[table.suffix : table.suffix + layout.suffix])
    writer.tags(layout.flexible)
    return writer.frame()


class TableResult(NamedTuple):
    """One partition of an answer: its error code and its element with tags."""

    topic: bytes
    partition: int
    error: int
    element: bytes


def decode_answer(buffer: Octets, start: int, end: int, layout: Layout) -> tuple[list[TableResult], int]:
    """Return the partitions and the throttle time (ms, 0 if the version has none) of an answer frame."""
    return at_once(answer_steps(buffer, start, end, layout))


def answer_steps(
    buffer: Octets, start: int, end: int, layout: Layout
) -> Generator[None, None, tuple[list[TableResult], int]]:
    """As `decode_answer`, in slices."""
    reader = Reader(buffer, start + 8, end)
    reader.tags(layout.flexible)
    throttle_ms = reader.i32() if layout.throttled else 0
    results: list[TableResult] = []
    for _ in range(reader.array(layout.flexible, element_bytes=2)):
        topic = reader.name(layout.flexible)
        for _ in range(reader.array(layout.flexible, element_bytes=layout.answer)):
            at = reader.skip(layout.answer)
            index = I32.unpack_from(buffer, at + layout.index_at)[0]
            error = I16.unpack_from(buffer, at + layout.error_at)[0]
            reader.tags(layout.flexible)
            results.append(new_tuple(TableResult, (topic, index, error, bytes(buffer[at : reader.position]))))
            if not len(results) % BOUNDS.turn:
                yield
        reader.tags(layout.flexible)
    return results, throttle_ms


def refusal(layout: Layout, topic: bytes, partition: int, error: int) -> TableResult:
    """Return a partition's answer that has only an error."""
    element = bytearray(layout.fill)
    I32.pack_into(element, layout.index_at, partition)
    I16.pack_into(element, layout.error_at, error)
    return TableResult(topic, partition, error, bytes(element) + (b"\0" if layout.flexible else b""))


def encode_steps(
    correlation_id: int, layout: Layout, results: Iterable[TableResult], throttle_ms: int = 0
) -> Generator[None, None, bytes]:
    """A whole answer frame, in slices."""
    writer = answer_frame(correlation_id, layout.flexible)
    if layout.throttled:
        writer.i32(throttle_ms)
    yield from _write_table(writer, layout.flexible, ((result.topic, result.element) for result in results))
    writer.tags(layout.flexible)
    return writer.frame()
