"""The highest sequence ids by producer name in one partition: in its log, and in flight. Pure.

An id is judged by two numbers (PIP-6): `persisted`, the highest id known to be in the log, and `pushed`, the highest id
that was sent. At or below `persisted` it is a duplicate. Above `pushed` it is new; gaps are allowed. Between the two it
is undecided until those appends have an outcome: a guess could lose a record or duplicate it. `pushed` is computed from
the appends in flight, so it falls when an append fails. In Pulsar it did not, so the retry of a failed append was
dropped as a duplicate (apache/pulsar#5218).

`covered` is the offset before which these marks include every record. An append in flight can only be written behind
the records that were in the log when it was sent.

With 10,000 names, each name takes some 90 bytes (docs/operate/performance.md); the names themselves are shared by
partitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sidecar.forwarder.sequences import MODULUS
from sidecar.protocol.ids import NO_SEQUENCE, ClientSequence

_HALF: Final = MODULUS // 2
NO_ID: Final = -1
NAMES_LIMIT: Final = 10_000
"""The default number of names that a partition remembers."""

CROWDED: Final = 0.8
"""The share of the limit from which on a partition counts as crowded: before any name is forgotten."""

SLICE_NAMES: Final = 500
"""The number of names that are worked on in one turn of the loop: about 0.5 ms."""

_ROOM: Final = 0.05
"""The share of names that is forgotten at once when there is no room for a new one."""


class Judgement(Enum):
    """Whether a sequence id is new."""

    NEW = "above everything that was sent"
    DUPLICATE = "the log holds it, or a higher one"
    UNSETTLED = "known when the appends that are under way have an outcome"


class Pushed(NamedTuple):
    """The highest id of a name in a batch, and the offset of its record relative to the batch's first record."""

    name: bytes
    id: int
    delta: int


class Mark(NamedTuple):
    """What is known of a name: its highest id, the offset of that record (-1: unknown), and when an id was last
    received (Unix seconds).
    """

    name: bytes
    id: int
    offset: int
    seen: int


@dataclass(slots=True, eq=False)
class UnderWay:
    """A batch that was sent and has no outcome yet. It is stamped with `producer_id`. `sequence` is the client's base
    sequence, -1 for a plain session, and `records` the number of records that the client counted from there.
    """

    marks: tuple[Pushed, ...]
    floor: int
    producer_id: int
    sequence: ClientSequence
    records: int
    is_over: bool = False

    def follows(self, other: UnderWay) -> bool:
        """Whether it can be in the log only behind all of another batch, which then is in the log too."""
        return (
            self.producer_id == other.producer_id
            and min(self.sequence, other.sequence) >= 0
            and (self.sequence - other.sequence - other.records) % MODULUS < _HALF
        )

    def replaces(self, other: UnderWay) -> bool:
        """Whether it shares sequences with another batch. If this one is in the log, the other is not and never will
        be, unless they are the same batch. The parts of a batch that was too large are sent under the sequences of that
        batch (KIP-126).
        """
        return (
            self.producer_id == other.producer_id
            and min(self.sequence, other.sequence) >= 0
            and not (self.follows(other) or other.follows(self))
        )


class _Batches:
    """Batches in order of arrival, and by the names in them, with the highest id of each name."""

    __slots__ = ("all", "by_name")

    def __init__(self) -> None:
        self.all: dict[UnderWay, None] = {}
        self.by_name: dict[bytes, dict[UnderWay, int]] = {}

    def has_others(self, name: bytes, producer_id: int) -> bool:
        """Whether a batch with this name is stamped with another producer id."""
        found = self.by_name.get(name)
        return found is not None and any(batch.producer_id != producer_id for batch in found)

    def add(self, batch: UnderWay) -> None:
        self.all[batch] = None
        for name, sequence_id, _ in batch.marks:
            self.by_name.setdefault(name, {})[batch] = sequence_id

    def remove(self, batch: UnderWay) -> None:
        del self.all[batch]
        for name, _, _ in batch.marks:
            found = self.by_name[name]
            del found[batch]
            if not found:
                del self.by_name[name]


class Marks:
    """The marks of one partition. `now` arguments are Unix seconds, from 0 to 2^32."""

    def __init__(self, limit: int = NAMES_LIMIT, *, covered: int = 0) -> None:
        self.evicted = 0
        """The number of names that were ever forgotten to make room."""
        self.limit = limit
        """The maximum number of remembered names."""
        self._rows: dict[bytes, int] = {}
        self._ids = array("q")
        self._offsets = array("q")
        self._seen = array("I")
        self._free: list[int] = []
        self._sent = _Batches()
        self._doubts = _Batches()
        self._reached = covered

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mark]:
        for name, row in self._rows.items():
            yield Mark(name, self._ids[row], self._offsets[row], self._seen[row])

    def copy(self, without: Iterable[bytes] = ()) -> Marks:
        """Return a copy without some names and without the batches that are sent: it does not change while work on it
        runs in slices. Takes less than 0.1 ms for 10,000 names.
        """
        found = Marks(self.limit, covered=self.covered)
        found._rows = self._rows.copy()
        found._ids, found._offsets, found._seen = self._ids[:], self._offsets[:], self._seen[:]
        for name in without:
            found.forget(name)
        return found

    # What is known ------------------------------------------------------------------------------------------------

    def persisted(self, name: bytes) -> int:
        """Return the highest id in the log; `NO_ID` if none is known."""
        row = self._rows.get(name)
        return NO_ID if row is None else self._ids[row]

    def pushed(self, name: bytes) -> int:
        """Return the highest id that was sent and has not failed."""
        return self.bounds(name)[1]

    def mark(self, name: bytes) -> Mark | None:
        """Return everything that is known of a name."""
        row = self._rows.get(name)
        return None if row is None else Mark(name, self._ids[row], self._offsets[row], self._seen[row])

    def judge(self, name: bytes, sequence_id: int) -> Judgement:
        """Judge an id by the present marks."""
        known, sent = self.bounds(name)
        if sequence_id <= known:
            return Judgement.DUPLICATE
        return Judgement.UNSETTLED if sequence_id <= sent else Judgement.NEW

    def bounds(self, name: bytes) -> tuple[int, int]:
        """Return two ids: those up to the first are in the log, those up to the second may be in flight, higher ones
        are new.
        """
        known, sent = self.persisted(name), self._sent.by_name.get(name)
        return known, known if sent is None else max(known, *sent.values())

    def doubtful(self, name: bytes, producer_id: int) -> bool:
        """Whether a batch of *another* producer id was given up and may still write ids of this name. Only a fence
        decides that. A batch of the same producer id is sent again under its sequence, and then Kafka decides.
        """
        return self._doubts.has_others(name, producer_id)

    def is_elsewhere(self, name: bytes, producer_id: int) -> bool:
        """Whether ids of a name are in flight under another producer id."""
        return self._sent.has_others(name, producer_id)

    @property
    def covered(self) -> int:
        """The offset before which these marks include every record."""
        first = next(iter(self._sent.all), None)
        floors = [doubt.floor for doubt in self._doubts.all]
        return min([self._reached, *floors] if first is None else [self._reached, first.floor, *floors])

    def doubts_of(self, producer_id: int) -> list[UnderWay]:
        """Return the batches of a producer id that were given up and may still be in the log."""
        return [found for found in self._doubts.all if found.producer_id == producer_id]

    def knows(self, name: bytes) -> bool:
        """Whether any record under a name is known to be in the log."""
        return name in self._rows

    @property
    def has_doubts(self) -> bool:
        """Whether some batches were given up and may still be in the log."""
        return bool(self._doubts.all)

    @property
    def is_at_rest(self) -> bool:
        """Whether no batch is in flight or in doubt."""
        return not self._sent.all and not self._doubts.all

    def is_quiet(self, producer_id: int) -> bool:
        """Whether no batch stamped with a producer id can still change these marks."""
        return not any(found.producer_id == producer_id for found in (*self._sent.all, *self._doubts.all))

    def is_busy(self, name: bytes) -> bool:
        """Whether ids of a name are in flight."""
        return name in self._sent.by_name

    # What happens -------------------------------------------------------------------------------------------------

    def push(
        self, marks: tuple[Pushed, ...], producer_id: int, sequence: ClientSequence = NO_SEQUENCE, records: int = 1
    ) -> UnderWay:
        """Register a batch that is sent. Its ids were judged new, or it was in doubt and is sent again."""
        found = UnderWay(marks, self._reached, producer_id, sequence, records)
        self._sent.add(found)
        return found

    def landed(self, batch: UnderWay, offset: int, records: int, now: int) -> None:
        """Handle a batch that is in the log, its first record at `offset` (-1: Kafka did not return it). The batches in
        doubt that it follows are in the log too; those that it replaces are not.
        """
        if not self._settle(batch):
            return
        if self._doubts.all:
            self._end_doubts(batch, now)
        for name, sequence_id, delta in batch.marks:
            self.learn(Mark(name, sequence_id, offset + delta if offset >= 0 else NO_ID, now))
        if offset + records > self._reached and offset >= 0:
            self._reached = offset + records

    def _end_doubts(self, batch: UnderWay, now: int) -> None:
        """Settle the batches in doubt that a batch in the log decides."""
        for doubt in [found for found in self._doubts.all if batch.replaces(found)]:
            self._doubts.remove(doubt)
        for doubt in [found for found in self._doubts.all if batch.follows(found)]:
            self._doubts.remove(doubt)
            for name, sequence_id, _ in doubt.marks:
                self.learn(Mark(name, sequence_id, NO_ID, now))

    def failed(self, batch: UnderWay, *, in_doubt: bool) -> None:
        """Handle a batch that was given up; `in_doubt`: it may still get into the log."""
        if self._settle(batch) and in_doubt:
            self._doubts.add(batch)

    def learn(self, mark: Mark) -> None:
        """Take over a mark from the log or a snapshot: the higher id counts, not the newer one."""
        row = self._rows.get(mark.name)
        if row is None:
            row = self._new_row(mark.name)
        elif mark.id <= self._ids[row]:
            self._seen[row] = max(self._seen[row], mark.seen)
            return
        self._ids[row], self._offsets[row] = mark.id, mark.offset
        self._seen[row] = max(self._seen[row], mark.seen)

    def read_up_to(self, offset: int, fenced: Callable[[int], bool]) -> None:
        """Record that the log was read up to `offset` after a fence. That settles the batches of every producer id for
        which `fenced` returns True.
        """
        for batch in [found for found in self._sent.all if fenced(found.producer_id)]:
            self._settle(batch)
        for batch in [found for found in self._doubts.all if fenced(found.producer_id)]:
            self._doubts.remove(batch)
        self._reached = max(self._reached, offset)

    def _settle(self, batch: UnderWay) -> bool:
        if batch.is_over:
            return False
        batch.is_over = True
        self._sent.remove(batch)
        return True

    # Bounds ---------------------------------------------------------------------------------------------------------

    def _new_row(self, name: bytes) -> int:
        if self._free:
            row = self._free.pop()
            self._seen[row] = 0
        else:
            row = len(self._ids)
            self._ids.append(NO_ID)
            self._offsets.append(NO_ID)
            self._seen.append(0)
        self._rows[name] = row
        return row

    def make_room(self, names: Iterable[bytes], is_live: Callable[[bytes], bool]) -> bool:
        """Make room for names that a session is about to use: forget the least recently used names, but none that
        `is_live`. False if too few can be forgotten.
        """
        wanted = set(names)
        lacks = len(self._rows) + sum(name not in self._rows for name in wanted) - self.limit
        if lacks <= 0:
            return True
        rest = [
            (self._seen[row], name)
            for name, row in self._rows.items()
            if name not in self._sent.by_name and name not in wanted and not is_live(name)
        ]
        if len(rest) < lacks:
            return False
        rest.sort()
        for _, name in rest[: max(lacks, int(self.limit * _ROOM))]:
            self.forget(name)
            self.evicted += 1
        return True

    def note_live(self, now: int, is_live: Callable[[bytes], bool]) -> Generator[None, None, None]:
        """Count names of connected sessions, and those in flight, as used now: names are forgotten by their last use,
        never by time alone. Works in slices (`sidecar.network.slices`).
        """
        for number, name in enumerate(list(self._rows), 1):
            row = self._rows.get(name)
            if row is not None and (name in self._sent.by_name or is_live(name)):
                self._seen[row] = now
            if not number % SLICE_NAMES:
                yield

    @property
    def is_crowded(self) -> bool:
        """Whether there is little room for more names: soon the longest unused one is forgotten."""
        return len(self._rows) >= CROWDED * self.limit

    def clear(self) -> None:
        """Forget everything: these marks belong to another log."""
        for batch in list(self._sent.all):
            self._settle(batch)
        self._doubts = _Batches()
        self._rows, self._free = {}, []
        self._ids, self._offsets, self._seen = array("q"), array("q"), array("I")
        self._reached = 0

    def forget(self, name: bytes) -> bool:
        """Forget one name; returns whether it was known."""
        row = self._rows.pop(name, None)
        if row is None:
            return False
        self._ids[row] = self._offsets[row] = NO_ID
        self._free.append(row)
        return True
