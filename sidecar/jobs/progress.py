"""The progress of a rebuild: which offsets of each partition are left, which names are known, and up to where that is
saved. Pure: `rebuild` reads and writes.

A partition continues from the newest snapshot after which the whole log is still there, as in a node. Its ids are lost,
never guessed, if there is no such snapshot and retention deleted that part of the log, or if the writer of an id is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidecar.dedup.marks import Mark, Marks
from sidecar.dedup.recovery import Extent, IdsLostError, begin
from sidecar.dedup.snapshots import Saved
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.primitives import at_once

Range = tuple[int, int]
"""Offsets from the first one up to the second, exclusive."""


class Row(NamedTuple):
    """What a portion of the log holds under a name: its highest id, the offset of that record (-1: not found), and the
    offset of the last record under the name.
    """

    name: bytes
    id: int
    offset: int
    seen: int


class PortionIds(NamedTuple):
    """What a portion holds of a partition. `forgotten`: offset of the first id whose writer is forgotten. `offsets`:
    the number of offsets that still have a record or a marker, counted only in compacted topics.
    """

    records: int
    malformed: int
    forgotten: int | None
    rows: list[Row]
    offsets: int = 0


@dataclass
class Progress:
    """One partition. `until`: where the rebuild ends; `covered`: the offset before which `marks` include every record;
    `problem`: why its ids cannot be known; `began`: where reading began.
    """

    partition: int
    until: int
    limit: int
    covered: int = -1
    number: int = 0
    began: int = -1
    records: int = 0
    malformed: int = 0
    written: bool = False
    problem: str | None = None
    marks: dict[bytes, Mark] = field(default_factory=dict[bytes, Mark])
    _seen: dict[bytes, tuple[int, int]] = field(default_factory=dict[bytes, tuple[int, int]])

    def go_on_from(self, saved: Saved | None, extent: Extent, number: int, topic: str) -> None:
        """Begin with a snapshot, or with nothing. `number`: the highest known number of a snapshot."""
        self.number = number
        known = Marks()
        try:
            self.covered = at_once(begin(known, extent, saved, TopicPartition(topic, self.partition)))
        except IdsLostError as error:
            self.lose(error)
            return
        if self.began < 0:
            self.began = self.covered
        self.marks = {mark.name: mark for mark in known}
        self._seen = {mark.name: (0, mark.seen) for mark in known}

    def lose(self, reason: object) -> None:
        """Record that the ids cannot be known: nothing more is read or written."""
        self.problem = str(reason)

    @property
    def left(self) -> Range | None:
        """The offsets that are still to be read; None if there are none."""
        is_over = self.problem is not None or self.covered >= self.until
        return None if is_over else (self.covered, self.until)

    def learn(self, rows: Iterable[Row], behind: int, now: int) -> None:
        """Add what the log holds up to the offset `behind`. `now`: Unix seconds. Of two ids of a name the higher one
        counts.
        """
        for row in rows:
            known = self.marks.get(row.name)
            if known is None or row.id > known.id:
                self.marks[row.name] = Mark(row.name, row.id, row.offset, now)
            else:
                self.marks[row.name] = known._replace(seen=max(known.seen, now))
            self._seen[row.name] = (1, row.seen)
        for name in sorted(self.marks, key=self._seen.__getitem__, reverse=True)[self.limit :]:
            del self.marks[name], self._seen[name]
        self.covered = behind

    def to_save(self) -> Saved:
        """The snapshot to write."""
        return Saved(self.covered, self.number, list(self.marks.values()), rebuilt=True)

    @property
    def outcome(self) -> str:
        """The outcome: `lost`, `rebuilt`, or `known` if there was nothing to do."""
        if self.problem is not None:
            return "lost"
        return "rebuilt" if self.written else "known"

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "partition": self.partition,
            "outcome": self.outcome,
            "from": self.began,
            "until": self.until,
            "covered": self.covered,
            "records": self.records,
            "malformed": self.malformed,
            "names": len(self.marks),
            "problem": self.problem,
        }


def ranges(given: Mapping[str, Any] | None, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Where the rebuild of each partition ends: the offset in `given` (JSON object of partition to offset), else the
    log's end. Raises ValueError for offsets that a log does not have.
    """
    found = dict(ends)
    for key, offset in (given or {}).items():
        if not key.isascii() or not key.isdigit() or int(key) not in ends:
            raise ValueError(f"there is no partition {key}: it has {', '.join(map(str, sorted(ends)))}")
        partition = int(key)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise ValueError(f"partition {key}: {offset!r} is no offset")  # noqa: TRY004 - a user wrote it
        if offset > ends[partition]:
            raise ValueError(f"partition {key}: offset {offset} is behind the end of its log, {ends[partition]}")
        start = starts[partition]
        if offset < start:
            raise ValueError(f"partition {key}: offset {offset} is in front of its log, which begins at {start}")
        found[partition] = offset
    return found


def next_portion(todo: Mapping[int, Range], size: int, cuts: Mapping[int, int]) -> dict[int, Range]:
    """The next range to read of each partition: at most `size` offsets in all, but at least one of each partition. No
    range crosses its partition's cut.
    """
    share = max(1, size // max(1, len(todo)))
    found: dict[int, Range] = {}
    for partition, (first, behind) in todo.items():
        end = min(behind, first + share)
        cut = cuts.get(partition, first)
        found[partition] = (first, cut if first < cut < end else end)
    return found
