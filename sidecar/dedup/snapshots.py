"""The marks of a partition (PIP-6) as records of the snapshot topic, and as one value in Redis. Pure.

A snapshot is split into chunks below 900 KB, because a broker accepts 1 MB by default (message.max.bytes). Two copies
alternate under separate keys, so that one is always complete: compaction keeps only the newest record of each key, and
a node may die between two chunks.

`sidecar pipeline rebuild` writes its snapshots while a node serves the topic, without a fence. It uses a copy number of
its own, so that its chunks share no key with another writer's. A node's snapshot that it had not read is preferred
(`best`), so names that an operator had a node forget stay forgotten.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, NamedTuple, cast

from google.protobuf.message import DecodeError

from sidecar.changelog import RawRecord
from sidecar.dedup.marks import SLICE_NAMES, Mark, Marks
from sidecar.protocol.primitives import at_once
from sidecar.v1 import state_pb2 as state

CHUNK_BYTES: Final = 800_000
_ENTRY_BYTES: Final = 32
"""The maximum size of an entry without its name."""


_NODE_COPIES: Final = 2
_COPY_BITS: Final = 62


class ChunkMarks:
    """The marks in the chunks of a snapshot. Each one is created when it is used: that takes longer than reading the
    chunks.
    """

    def __init__(self, chunks: list[state.Snapshot]) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return sum(len(chunk.name) for chunk in self._chunks)

    def __iter__(self) -> Iterator[Mark]:
        for chunk in self._chunks:
            yield from map(Mark, chunk.name, chunk.id, chunk.offset, chunk.seen_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterable) and tuple(self) == tuple(cast("Iterable[object]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class Saved(NamedTuple):
    """A snapshot of every record before `covered`. `number` rises with each snapshot that a node writes. A snapshot
    that was `rebuilt` from the log has the highest number that the rebuild had read.
    """

    covered: int
    number: int
    marks: list[Mark] | Marks | ChunkMarks
    rebuilt: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """The order of snapshots: the higher one is newer."""
        return self.covered, self.number


class Found(NamedTuple):
    """A complete snapshot in the snapshot topic, its copy number, and the offset of its last chunk there."""

    saved: Saved
    copy: int
    position: int


def best(candidates: Iterable[Saved]) -> Saved | None:
    """Return the snapshot to continue from: the one that covers most, except those rebuilt without the best snapshot of
    a node.
    """
    found = list(candidates)
    own = max((each for each in found if not each.rebuilt), key=lambda saved: saved.order, default=None)
    known = -1 if own is None else own.number
    rest = [each for each in found if not each.rebuilt or each.number >= known]
    return max(rest, key=lambda saved: (*saved.order, not saved.rebuilt), default=None)


def new_copy() -> int:
    """Return a random copy number, which no other writer uses."""
    return _NODE_COPIES + secrets.randbits(_COPY_BITS)


def encode(topic_id: bytes, saved: Saved, now_ms: int) -> list[state.Snapshot]:
    """Return the chunks of a snapshot, at least one, in one call."""
    return at_once(encoding(topic_id, saved, now_ms))


def encoding(topic_id: bytes, saved: Saved, now_ms: int) -> Generator[None, None, list[state.Snapshot]]:
    """As `encode`, in slices (`sidecar.network.slices`): `saved` must not change meanwhile."""
    chunks = [state.Snapshot()]
    room = CHUNK_BYTES
    for number, mark in enumerate(saved.marks, 1):
        if room < len(mark.name) + _ENTRY_BYTES:
            chunks.append(state.Snapshot())
            room = CHUNK_BYTES
        chunk = chunks[-1]
        chunk.name.append(mark.name)
        chunk.id.append(mark.id)
        chunk.offset.append(mark.offset)
        chunk.seen_s.append(mark.seen)
        room -= len(mark.name) + _ENTRY_BYTES
        if not number % SLICE_NAMES:
            yield
    for index, chunk in enumerate(chunks):
        chunk.topic_id, chunk.covered, chunk.number, chunk.at_ms = topic_id, saved.covered, saved.number, now_ms
        chunk.chunk, chunk.chunks, chunk.rebuilt = index, len(chunks), saved.rebuilt
    return chunks


def to_records(
    topic: str, partition: int, chunks: Iterable[state.Snapshot], copy: int | None = None
) -> Iterator[RawRecord]:
    """Yield the chunks as records of the snapshot topic. `copy`: the copy number of a rebuilt snapshot; None: a node's,
    whose two copies alternate.
    """
    for chunk in chunks:
        its_copy = chunk.number % _NODE_COPIES if copy is None else copy
        yield RawRecord(_key(topic, partition, its_copy, chunk.chunk), chunk.SerializeToString(deterministic=True))


def _key(topic: str, partition: int, copy: int, chunk: int) -> bytes:
    return f"{topic}/{partition}/{copy}/{chunk}".encode()


def to_value(records: Iterable[RawRecord], position: int = 0) -> bytes:
    """Return all chunks as one value: protobuf merges concatenated chunks into one message. `position`: the offset of
    the last chunk in the snapshot topic.
    """
    rest = state.Snapshot(position=position).SerializeToString(deterministic=True)
    return b"".join([*(record.value or b"" for record in records), rest])


def of_value(value: bytes, topic_id: bytes) -> tuple[Saved, int] | None:
    """Read a value of `to_value` and its position; None if it is malformed or belongs to another topic."""
    message = state.Snapshot()
    try:
        message.ParseFromString(value)
    except DecodeError:
        return None
    saved = _saved([message]) if message.topic_id == topic_id else None
    return None if saved is None else (saved, message.position)


def _saved(chunks: list[state.Snapshot]) -> Saved | None:
    """None if the columns of a chunk have different lengths."""
    first = chunks[0]
    for chunk in chunks:
        if not len(chunk.name) == len(chunk.id) == len(chunk.offset) == len(chunk.seen_s):
            return None
    return Saved(first.covered, first.number, ChunkMarks(chunks), first.rebuilt)


class Collector:
    """Finds the newest complete snapshots of one topic among the records of the snapshot topic, added in log order."""

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self._topic = topic
        self._prefix = f"{topic}/".encode()
        self._topic_id = topic_id
        self._chunks: dict[tuple[int, int], dict[int, tuple[int, state.Snapshot]]] = {}

    def add(self, record: RawRecord, offset: int = 0) -> None:
        """Add one record; a record of another topic, or one that cannot be parsed, is ignored."""
        if not record.key.startswith(self._prefix):
            return
        parts = record.key[len(self._prefix) :].split(b"/")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            return
        partition, copy, chunk = map(int, parts)
        if record.value is None:
            self._chunks.get((partition, copy), {}).pop(chunk, None)
            return
        message = state.Snapshot()
        try:
            message.ParseFromString(record.value)
        except DecodeError:
            return
        if message.topic_id == self._topic_id:
            self._chunks.setdefault((partition, copy), {})[chunk] = offset, message

    def whole(self, partition: int) -> Iterator[Found]:
        """Yield every snapshot of a partition that has all its chunks."""
        for (index, copy), chunks in self._chunks.items():
            if index != partition or 0 not in chunks:
                continue
            _, first = chunks[0]
            found = [chunks[at] for at in range(first.chunks) if at in chunks]
            fitting = [chunk for _, chunk in found if (chunk.number, chunk.covered) == (first.number, first.covered)]
            if len(fitting) == first.chunks > 0 and (saved := _saved(fitting)) is not None:
                yield Found(saved, copy, max(at for at, _ in found))

    def newest(self, partition: int, is_usable: Callable[[int], bool] = lambda _: True) -> Saved | None:
        """Return the `best` complete snapshot whose covered offset `is_usable` accepts."""
        return best(found.saved for found in self.whole(partition) if is_usable(found.saved.covered))

    def last_number(self, partition: int) -> int:
        """Return the highest snapshot number of a partition among the chunks that are left; 0: there are none."""
        found = [
            chunk.number for (at, _), chunks in self._chunks.items() if at == partition for _, chunk in chunks.values()
        ]
        return max(found, default=0)

    def outdone(self, partition: int, by: Found) -> list[RawRecord]:
        """Return tombstones for the chunks of rebuilt snapshots that cover less than a complete rebuilt one. Of two
        that cover the same, the one with the lower copy number is deleted, so that two writers never delete each
        other's.
        """
        order = (*by.saved.order, by.copy)
        return [
            RawRecord(_key(self._topic, partition, copy, at), None)
            for (index, copy), chunks in self._chunks.items()
            if index == partition and copy >= _NODE_COPIES
            for at, (_, chunk) in sorted(chunks.items())
            if (chunk.covered, chunk.number, copy) < order
        ]
