"""What a log and its writers' histories must say to each other, whatever went wrong meanwhile. Pure.

A record is a (partition, producer name, id). Of each attempt to write one its writer notes what it was told: `OK`,
`FAIL` (it is not in the log, said somebody who knows), or `INFO`: no answer, or one that says nothing. A timeout is
`INFO`, never `FAIL`. A run that has seen too little shows nothing, so that is a violation too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple


class Told(Enum):
    """What a writer knows of one attempt."""

    OK = "acknowledged"
    FAIL = "refused for good"
    INFO = "unknown"


class Key(NamedTuple):
    """One record, as its writer means it."""

    partition: int
    name: str
    id: int

    def __str__(self) -> str:
        return f"{self.name}:{self.id} in partition {self.partition}"


class Attempt(NamedTuple):
    """One attempt to write a record. `offset` -1: none was told."""

    key: Key
    told: Told
    offset: int = -1


class Logged(NamedTuple):
    """One record of a log."""

    key: Key
    offset: int


class Kind(Enum):
    """What can be wrong."""

    LOST = "acknowledged, and not in the log"
    TWICE = "in the log more than once"
    FALLING = "an id behind a higher or equal one of its name"
    PHANTOM = "in the log, and never sent"
    REFUSED = "in the log, though every attempt was refused for good"
    MISPLACED = "told another offset than it has"
    UNFINISHED = "never acknowledged, though its writer tried until its patience ended"
    TOO_LITTLE = "too little was seen to show anything"


class Violation(NamedTuple):
    """Something that must not be."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.what}"


@dataclass(frozen=True, slots=True)
class Floors:
    """The least that a run must have seen: records acknowledged, and faults that happened."""

    acknowledged: int = 1
    faults: int = 0


def check(
    log: Iterable[Logged],
    history: Sequence[Attempt],
    floors: Floors,
    *,
    faults: int = 0,
    unfinished: Iterable[Key] = (),
    since: int = 0,
) -> list[Violation]:
    """Everything that is wrong with a log.

    `unfinished`: what writers gave up without an answer when nothing was wrong any more. `since`: the offset behind
    which ids count; what lies in front of it was written without anybody looking, and still must not be repeated behind
    it.
    """
    found = sorted(log, key=lambda record: (record.key.partition, record.offset))
    acknowledged = {attempt.key for attempt in history if attempt.told is Told.OK}
    return [
        *_too_little(len(acknowledged), faults, floors),
        *_lost(acknowledged, found),
        *_twice(found, since),
        *_falling(found, since),
        *_unsent(found, history),
        *_misplaced(found, history),
        *[Violation(Kind.UNFINISHED, str(key)) for key in unfinished],
    ]


def _too_little(acknowledged: int, faults: int, floors: Floors) -> list[Violation]:
    found: list[Violation] = []
    if acknowledged < floors.acknowledged:
        found.append(Violation(Kind.TOO_LITTLE, f"{acknowledged} of {floors.acknowledged} records acknowledged"))
    if faults < floors.faults:
        found.append(Violation(Kind.TOO_LITTLE, f"{faults} of {floors.faults} faults happened"))
    return found


def _lost(acknowledged: set[Key], log: list[Logged]) -> list[Violation]:
    missing = acknowledged - {record.key for record in log}
    return [Violation(Kind.LOST, str(key)) for key in sorted(missing)]


def _twice(log: list[Logged], since: int) -> list[Violation]:
    offsets: dict[Key, list[int]] = defaultdict(list)
    for record in log:
        offsets[record.key].append(record.offset)
    return [
        Violation(Kind.TWICE, f"{key} at offsets {places}")
        for key, places in offsets.items()
        if len(places) > 1 and places[-1] >= since
    ]


def _falling(log: list[Logged], since: int) -> list[Violation]:
    by_name: dict[tuple[int, str], list[Logged]] = defaultdict(list)
    for record in log:
        if record.offset >= since:
            by_name[record.key.partition, record.key.name].append(record)
    return [
        Violation(Kind.FALLING, f"{after.key} at offset {after.offset}, behind {before.key} at {before.offset}")
        for records in by_name.values()
        for before, after in pairwise(records)
        if after.key.id <= before.key.id
    ]


def _unsent(log: list[Logged], history: Sequence[Attempt]) -> list[Violation]:
    told: dict[Key, set[Told]] = defaultdict(set)
    for attempt in history:
        told[attempt.key].add(attempt.told)
    found: list[Violation] = []
    for key in sorted({record.key for record in log}):
        if key not in told:
            found.append(Violation(Kind.PHANTOM, str(key)))
        elif told[key] == {Told.FAIL}:
            found.append(Violation(Kind.REFUSED, str(key)))
    return found


def _misplaced(log: list[Logged], history: Sequence[Attempt]) -> list[Violation]:
    places: dict[Key, set[int]] = defaultdict(set)
    for record in log:
        places[record.key].add(record.offset)
    return [
        Violation(Kind.MISPLACED, f"{attempt.key} was told {attempt.offset} and is at {sorted(places[attempt.key])}")
        for attempt in history
        if attempt.told is Told.OK and attempt.offset >= 0 and places[attempt.key]
        if attempt.offset not in places[attempt.key]
    ]


def summary(violations: Sequence[Violation], most: int = 20) -> str:
    """For a failing test: how many of each kind, and the first ones."""
    counts = Counter(violation.kind.name for violation in violations)
    told = [str(violation) for violation in violations[:most]]
    return "\n".join([", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())), *told])
