"""The marks of a partition as records of the snapshot topic, and as one value in Redis. Pure.

In chunks below 900 KB, as a broker takes a megabyte at most. Two copies take turns under keys of their own, so that one
is always whole: compaction keeps the newest record of each key, and a node may die between two chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from sidecar.changelog import RawRecord
from sidecar.dedup.marks import Mark
from sidecar.v1 import state_pb2 as state

CHUNK_BYTES: Final = 800_000
_ENTRY_BYTES: Final = 32
"""What an entry takes beside its name, at most."""


class Saved(NamedTuple):
    """A snapshot: every record in front of `covered` is in it. Of two the higher one tells more."""

    covered: int
    number: int
    marks: list[Mark]


def encode(topic_id: bytes, saved: Saved, now_ms: int) -> list[state.Snapshot]:
    """The chunks of a snapshot, one at least."""
    chunks = [_columns(part) for part in _parts(saved.marks)]
    for index, chunk in enumerate(chunks):
        chunk.topic_id, chunk.covered, chunk.number, chunk.at_ms = topic_id, saved.covered, saved.number, now_ms
        chunk.chunk, chunk.chunks = index, len(chunks)
    return chunks


def _parts(marks: Iterable[Mark]) -> Iterator[list[Mark]]:
    part: list[Mark] = []
    room = CHUNK_BYTES
    for mark in marks:
        if room < len(mark.name) + _ENTRY_BYTES:
            yield part
            part, room = [], CHUNK_BYTES
        part.append(mark)
        room -= len(mark.name) + _ENTRY_BYTES
    yield part


def _columns(marks: list[Mark]) -> state.Snapshot:
    return state.Snapshot(
        name=[mark.name for mark in marks],
        id=[mark.id for mark in marks],
        offset=[mark.offset for mark in marks],
        seen_s=[mark.seen for mark in marks],
    )


def to_records(topic: str, partition: int, chunks: list[state.Snapshot]) -> list[RawRecord]:
    """As they lie in the snapshot topic."""
    return [
        RawRecord(
            f"{topic}/{partition}/{chunk.number % 2}/{chunk.chunk}".encode(),
            chunk.SerializeToString(deterministic=True),
        )
        for chunk in chunks
    ]


def to_value(chunks: list[state.Snapshot], position: int = 0) -> bytes:
    """As one value: all chunks in a row are one message, as protobuf merges them. `position`: offset of the last chunk
    in the snapshot topic.
    """
    rest = state.Snapshot(position=position)
    return b"".join(chunk.SerializeToString(deterministic=True) for chunk in (*chunks, rest))


def of_value(value: bytes, topic_id: bytes) -> tuple[Saved, int] | None:
    """Read what `to_value` made, with its position; None where it is none, or another topic's."""
    message = state.Snapshot()
    try:
        message.ParseFromString(value)
    except DecodeError:
        return None
    saved = _saved([message]) if message.topic_id == topic_id else None
    return None if saved is None else (saved, message.position)


def _saved(chunks: list[state.Snapshot]) -> Saved | None:
    marks: list[Mark] = []
    try:
        for chunk in chunks:
            columns = zip(chunk.name, chunk.id, chunk.offset, chunk.seen_s, strict=True)
            marks += [Mark(*row) for row in columns]
    except ValueError:
        return None
    return Saved(chunks[0].covered, chunks[0].number, marks)


class Collector:
    """Finds the newest whole snapshots of one topic among the records of the snapshot topic, fed in log order."""

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self._prefix = f"{topic}/".encode()
        self._topic_id = topic_id
        self._chunks: dict[tuple[int, int], dict[int, state.Snapshot]] = {}

    def add(self, record: RawRecord) -> None:
        """Take one record; another topic's, or one that cannot be read, counts for nothing."""
        if not record.key.startswith(self._prefix) or record.value is None:
            return
        parts = record.key[len(self._prefix) :].split(b"/")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            return
        partition, copy, chunk = map(int, parts)
        message = state.Snapshot()
        try:
            message.ParseFromString(record.value)
        except DecodeError:
            return
        if message.topic_id == self._topic_id:
            self._chunks.setdefault((partition, copy), {})[chunk] = message

    def newest(self, partition: int, is_usable: Callable[[int], bool] = lambda _: True) -> Saved | None:
        """The one that is whole and covers most, as far as `is_usable` says of what it covers."""
        whole: list[Saved] = []
        for copy in (0, 1):
            chunks = self._chunks.get((partition, copy), {})
            if 0 not in chunks:
                continue
            first = chunks[0]
            found = [chunks.get(index) for index in range(first.chunks)]
            fitting = [chunk for chunk in found if chunk is not None and chunk.number == first.number]
            if len(fitting) == first.chunks > 0 and is_usable(first.covered) and (saved := _saved(fitting)) is not None:
                whole.append(saved)
        return max(whole, key=lambda saved: (saved.covered, saved.number), default=None)

    def last_number(self, partition: int) -> int:
        """The highest number that a snapshot of a partition ever had, as far as its chunks are left; 0: none."""
        found = [chunk.number for copy in (0, 1) for chunk in self._chunks.get((partition, copy), {}).values()]
        return max(found, default=0)
