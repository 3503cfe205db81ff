"""The marks of one partition against a list as its log: batches of several writers under several names that land, fail,
or are given up and land later, until a fence; fences of one writer or of all, restarts from snapshots of any age.

The log is Kafka's of one page: a writer's batches get in by sequence, each once; a fence lets nothing of an earlier
epoch in. A writer is one idempotent session: what failed goes out again first, in order, under its old sequence, whole
or, as if it had been too large, in parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.dedup.marks import Judgement, Mark, Marks, Pushed, UnderWay
from sidecar.protocol.ids import ClientSequence as Client

NAMES = [b"a", b"b", b"c"]
WRITERS = [1, 2, 3]
AROUND = 4
"""As far below and above a name's highest id everything is looked at."""
NOW = 1_700_000_000
Ids = list[tuple[bytes, int]]


class Entry(NamedTuple):
    """A record in the log."""

    name: bytes
    id: int
    by: Batch


@dataclass(eq=False)
class Batch:
    """One try to append. `in_doubt`: it was given up, and no fence has told since what became of it."""

    writer: int
    epoch: int
    sequence: int
    ids: Ids
    under_way: UnderWay
    in_doubt: bool = False

    @property
    def behind(self) -> int:
        """The next sequence."""
        return self.sequence + len(self.ids)


class Answer(NamedTuple):
    """What the leader said: an offset (-1: not told), or None where the batch is refused."""

    batch: Batch
    offset: int | None


@dataclass
class Writer:
    """A session and its place at the leader. `again`: what failed and has to go first."""

    id: int
    epoch: int = 0
    expected: int = 0
    sent: int = 0
    again: list[Batch] = field(default_factory=list)


class Snapshot(NamedTuple):
    covered: int
    marks: list[Mark]


class Reading(NamedTuple):
    """A part of the log that is being read, behind a fence of these writers."""

    offset: int
    end: int
    fenced: frozenset[int]


def highest(ids: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for name, sequence_id in ids:
        found[name] = max(found.get(name, -1), sequence_id)
    return found


def rising(drawn: Ids) -> Ids:
    """Without the ids that do not rise, as a gate drops them."""
    found: Ids = []
    for name, sequence_id in drawn:
        if sequence_id > highest(found).get(name, -1):
            found.append((name, sequence_id))
    return found


writers = st.sampled_from(WRITERS)
drafts = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 0, 0, 1, -1, -2])), min_size=1, max_size=3)
"""Names, and how far behind the next id in a row each id is."""
choices = st.integers(0, 20)
seldom = st.integers(0, 4).map(lambda drawn: drawn == 4)


class Partition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.marks = Marks()
        self.log: list[Entry] = []
        self.writers = {number: Writer(number) for number in WRITERS}
        self.sent: list[Batch] = []
        self.network: list[Batch] = []
        self.answers: list[Answer] = []
        self.under_way: list[Batch] = []
        self.in_doubt: list[Batch] = []
        self.fenced: set[int] = set()
        self.reading: Reading | None = None
        self.snapshots: list[Snapshot] = [Snapshot(0, [])]

    @property
    def truth(self) -> dict[bytes, int]:
        return highest((entry.name, entry.id) for entry in self.log)

    def top(self, name: bytes) -> int:
        """The highest id that anybody has sent."""
        sent = [sequence_id for batch in self.sent for its_name, sequence_id in batch.ids if its_name == name]
        return max(sent, default=-1)

    def around(self, name: bytes) -> range:
        """The ids worth looking at."""
        return range(max(0, self.top(name) - AROUND), self.top(name) + AROUND)

    @property
    def is_ready(self) -> bool:
        return not self.fenced and self.reading is None

    # Writers ----------------------------------------------------------------------------------------------------------

    def _judged(self, writer: int, ids: Ids) -> set[Judgement] | None:
        """What a batch consists of; None where only a fence can tell."""
        if any(self.marks.doubtful(name, writer) for name, _ in ids):
            return None
        return {self.marks.judge(name, sequence_id) for name, sequence_id in ids}

    def _push(self, writer: Writer, sequence: int, ids: Ids) -> None:
        last = {name: index for index, (name, _) in enumerate(ids)}
        pushed = tuple(Pushed(name, ids[index][1], index) for name, index in last.items())
        under_way = self.marks.push(pushed, writer.id, Client(sequence), len(ids))
        batch = Batch(writer.id, writer.epoch, sequence, ids, under_way)
        self.sent.append(batch)
        self.network.append(batch)
        self.under_way.append(batch)

    @precondition(lambda self: self.is_ready)
    @rule(number=writers, draft=drafts)
    def send(self, number: int, draft: Ids) -> None:
        """A new batch; without the records that the log holds."""
        writer = self.writers[number]
        ids = rising([(name, max(0, self.top(name) + index + 1 + ahead)) for index, (name, ahead) in enumerate(draft)])
        judged = None if writer.again else self._judged(number, ids)
        if judged is None or Judgement.UNSETTLED in judged:
            return
        kept = [found for found in ids if self.marks.judge(*found) is Judgement.NEW]
        if kept:
            self._push(writer, writer.sent, kept)
            writer.sent += len(kept)

    @precondition(lambda self: self.is_ready)
    @rule(number=writers, cut=st.sampled_from([3, 3, 1, 2]))
    def send_again(self, number: int, cut: int) -> None:
        """The earliest one that failed, or so many of its records, the others being next (KIP-126). What became a
        duplicate meanwhile would shift sequences: not here.
        """
        writer = self.writers[number]
        if writer.again:
            batch = min(writer.again, key=lambda again: again.sequence)
            if self._judged(number, batch.ids) == {Judgement.NEW}:
                writer.again.remove(batch)
                if rest := batch.ids[cut:]:
                    writer.again.append(replace(batch, sequence=batch.sequence + cut, ids=rest))
                self._push(writer, batch.sequence, batch.ids[:cut])

    # The leader -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.network)
    @rule(choice=choices)
    def arrive(self, choice: int) -> None:
        """A batch is at the leader, given up or not."""
        batch = self.network.pop(choice % len(self.network))
        writer = self.writers[batch.writer]
        if batch.epoch != writer.epoch or batch.sequence > writer.expected:
            self.answers.append(Answer(batch, None))
        elif batch.sequence < writer.expected:
            self.answers.append(Answer(batch, -1 if self._is_repeat(batch) else None))
        else:
            self.answers.append(Answer(batch, len(self.log)))
            self.log += [Entry(name, sequence_id, batch) for name, sequence_id in batch.ids]
            writer.expected = batch.behind

    def _is_repeat(self, batch: Batch) -> bool:
        """Whether the log has this very batch: another cut of its sequences is out of order."""
        its = batch.writer, batch.epoch, batch.sequence, batch.behind
        return any(its == (by.writer, by.epoch, by.sequence, by.behind) for by in {entry.by for entry in self.log})

    @precondition(lambda self: self.network)
    @rule(choice=choices, happens=seldom)
    def refuse(self, choice: int, happens: bool) -> None:
        """The leader does not take a batch."""
        if happens:
            self.answers.append(Answer(self.network.pop(choice % len(self.network)), None))

    @precondition(lambda self: self.answers)
    @rule(choice=choices)
    def answer(self, choice: int) -> None:
        """An answer is here; nobody waits for that of a batch that was given up."""
        batch, offset = self.answers.pop(choice % len(self.answers))
        if batch not in self.under_way:
            return
        self.under_way.remove(batch)
        if offset is not None:
            self.marks.landed(batch.under_way, offset, len(batch.ids), NOW)
            self._settled(batch)
        else:
            self.marks.failed(batch.under_way, in_doubt=False)
            self._failed(batch)

    @precondition(lambda self: self.under_way)
    @rule(choice=choices)
    def give_up(self, choice: int) -> None:
        """The deadline of a batch is over; it may be in the log, or on its way there."""
        batch = self.under_way.pop(choice % len(self.under_way))
        batch.in_doubt = True
        self.in_doubt.append(batch)
        self.marks.failed(batch.under_way, in_doubt=True)
        self._failed(batch)

    def _failed(self, batch: Batch) -> None:
        writer = self.writers[batch.writer]
        if batch.epoch == writer.epoch:
            writer.again.append(batch)

    def _settled(self, batch: Batch) -> None:
        """By Kafka's sequences everything up to this batch is in the log, and no other cut of it gets there."""
        for doubt in self.in_doubt:
            if (doubt.writer, doubt.epoch) == (batch.writer, batch.epoch) and doubt.sequence < batch.behind:
                doubt.in_doubt = False
        self.in_doubt = [doubt for doubt in self.in_doubt if doubt.in_doubt]
        writer = self.writers[batch.writer]
        writer.again = [again for again in writer.again if again.sequence >= batch.behind]

    # Fences, reading, restarts ----------------------------------------------------------------------------------------

    @rule(number=writers, happens=seldom)
    def fence(self, number: int, happens: bool) -> None:
        """Nothing that a writer had under way gets in from now on; what is known of that is to be read."""
        if happens:
            self._fence(number)

    def _fence(self, number: int) -> None:
        writer = self.writers[number]
        self.writers[number] = Writer(number, writer.epoch + 1)
        self.network = [batch for batch in self.network if batch.writer != number]
        self.fenced.add(number)

    @precondition(lambda self: self.fenced and self.reading is None)
    @rule()
    def begin_to_read(self) -> None:
        self.reading = Reading(self.marks.covered, len(self.log), frozenset(self.fenced))

    @precondition(lambda self: self.reading is not None)
    @rule()
    def have_read(self) -> None:
        """Others may have written meanwhile; a writer may have been fenced again."""
        assert self.reading is not None
        reading, self.reading = self.reading, None
        self._read(self.marks, reading.offset, reading.end)
        self.marks.read_up_to(reading.end, lambda its: its in reading.fenced)
        self.fenced -= reading.fenced
        for batch in self.in_doubt:
            batch.in_doubt = batch.writer not in reading.fenced
        self.in_doubt = [batch for batch in self.in_doubt if batch.in_doubt]
        self.under_way = [batch for batch in self.under_way if batch.writer not in reading.fenced]
        if reading.fenced == set(WRITERS):
            assert highest((mark.name, mark.id) for mark in self.marks) == self.truth

    def _read(self, marks: Marks, offset: int, end: int) -> None:
        for at, entry in enumerate(self.log[offset:end], offset):
            marks.learn(Mark(entry.name, entry.id, at, NOW))

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append(Snapshot(self.marks.covered, list(self.marks)))

    @rule(choice=choices, happens=seldom)
    def restart(self, choice: int, happens: bool) -> None:
        """Another node takes over: it fences all, reads a snapshot, and the log behind it."""
        if not happens:
            return
        for number in WRITERS:
            self._fence(number)
        self.fenced.clear()
        self.reading = None
        self.answers, self.under_way, self.in_doubt = [], [], []
        saved = self.snapshots[choice % len(self.snapshots)]
        self.marks = self._restored(saved)
        self.marks.read_up_to(len(self.log), lambda its: True)
        assert self.marks.covered == len(self.log)

    def _restored(self, saved: Snapshot) -> Marks:
        marks = Marks()
        for mark in saved.marks:
            marks.learn(mark)
        self._read(marks, saved.covered, len(self.log))
        return marks

    # What must hold ---------------------------------------------------------------------------------------------------

    @invariant()
    def any_snapshot_and_the_log_behind_it_tell_all(self) -> None:
        for saved in (*self.snapshots, Snapshot(self.marks.covered, list(self.marks))):
            assert highest((mark.name, mark.id) for mark in self._restored(saved)) == self.truth

    @invariant()
    def nothing_is_a_duplicate_that_the_log_does_not_hold(self) -> None:
        truth = self.truth
        for name in NAMES:
            for sequence_id in self.around(name):
                if self.marks.judge(name, sequence_id) is Judgement.DUPLICATE:
                    assert sequence_id <= truth.get(name, -1), "dropped, acknowledged and lost"

    @invariant()
    def nothing_is_new_that_the_log_holds_or_that_may_still_get_there(self) -> None:
        """But by the writer itself, whose batch goes out again under the same sequence."""
        if not self.is_ready:
            return
        there = [(entry.name, entry.id, entry.by) for entry in self.log]
        coming = [
            (name, sequence_id, batch)
            for batch in self.network
            if batch.sequence >= self.writers[batch.writer].expected
            for name, sequence_id in batch.ids
        ]
        for name in NAMES:
            for sequence_id in self.around(name):
                if self.marks.judge(name, sequence_id) is not Judgement.NEW:
                    continue
                by = [its for its_name, its_id, its in (*there, *coming) if its_name == name and its_id >= sequence_id]
                for number in WRITERS:
                    if not self.marks.doubtful(name, number):
                        assert all(its.writer == number and its.in_doubt for its in by), "there would be two"

    @invariant()
    def offsets_are_those_of_the_records(self) -> None:
        for mark in self.marks:
            if mark.offset >= 0:
                assert self.log[mark.offset][:2] == (mark.name, mark.id)

    def check(self) -> None:
        self.any_snapshot_and_the_log_behind_it_tell_all()
        self.nothing_is_a_duplicate_that_the_log_does_not_hold()
        self.nothing_is_new_that_the_log_holds_or_that_may_still_get_there()
        self.offsets_are_those_of_the_records()


TestPartition = Partition.TestCase
TestPartition.settings = settings(stateful_step_count=60)


def menu(machine: Partition, dice: random.Random, patience: float) -> list[tuple[float, Callable[[], None]]]:
    """What may happen, and how often it does."""

    def choice() -> int:
        return dice.randrange(20)

    def writer() -> int:
        return dice.choice(WRITERS)

    def draft() -> Ids:
        names = dice.sample(NAMES, dice.choice([1, 1, 1, 2]))
        return [(dice.choice(names), dice.choice([0, 0, 0, 1, -1, -2])) for _ in range(dice.randint(1, 3))]

    found: list[tuple[float, Callable[[], None]]] = [
        (1, machine.snapshot),
        (0.5, lambda: machine.fence(writer(), happens=True)),
        (0.3, lambda: machine.restart(choice(), happens=True)),
    ]
    if machine.is_ready:
        found += [
            (10, lambda: machine.send(writer(), draft())),
            (8, lambda: machine.send_again(writer(), dice.choice([3, 3, 1, 2]))),
        ]
    elif machine.reading is None:
        found.append((10, machine.begin_to_read))
    else:
        found.append((5, machine.have_read))
    if machine.network:
        found += [(20, lambda: machine.arrive(choice())), (1, lambda: machine.refuse(choice(), happens=True))]
    if machine.answers:
        found.append((patience, lambda: machine.answer(choice())))
    if machine.under_way:
        found.append((3, lambda: machine.give_up(choice())))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_long_walks(seed: int) -> None:
    for walk in range(60):
        dice, machine = random.Random(f"{seed} {walk}"), Partition()
        for _ in range(60):
            weights, acts = zip(*menu(machine, dice, patience=[0.7, 3, 10][walk % 3]), strict=True)
            dice.choices(acts, weights)[0]()
            machine.check()
