"""Logs made by hand, record by record, their runs as the source makes them, and what a reader of every record finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from sidecar.pipeline.audit.facts import Facts, Writer
from sidecar.pipeline.audit.judge import Audit, Stretch, audit

RUNS = (
    "partition int, first_offset long, last_offset long, batches int, records long, bytes long, producer_id long,"
    " producer_epoch int, first_sequence int, last_sequence int, is_transactional boolean, control string,"
    " producer_name string, first_id long, last_id long, ids long, malformed long, id_gaps long,"
    " first_timestamp_ms long, last_timestamp_ms long"
)
RECORDS = (
    "partition int, offset long, producer_id long, producer_epoch int, base_offset long, sequence int, control string,"
    " sequence_id long, producer_name string, id_problem string"
)
MODULUS = 2**31


@dataclass(frozen=True)
class Record:
    """One record, or one marker (`control`). `base` is the offset of its batch."""

    partition: int
    offset: int
    base: int
    producer: tuple[int, int]
    sequence: int = -1
    id: int | None = None
    name: str | None = None
    control: str | None = None
    problem: str | None = None


class Log:
    """Partitions that batches are appended to."""

    def __init__(self, first: int = 0) -> None:
        self.records: list[Record] = []
        self.first = first
        self._ends: dict[int, int] = {}
        self._next: dict[tuple[int, tuple[int, int]], int] = {}

    def append(
        self,
        producer: tuple[int, int],
        *ids: int | None,
        partition: int = 0,
        sequence: int | None = None,
        names: Sequence[str | None] | str | None = None,
    ) -> int:
        """A batch with these ids (None: a record without one), stamped with the producer's next sequence unless told;
        its base offset.
        """
        base = self.end(partition)
        place = partition, producer
        first = -1 if producer[0] < 0 else self._next.get(place, 0) if sequence is None else sequence
        each = [names] * len(ids) if names is None or isinstance(names, str) else names
        for index, (its, name) in enumerate(zip(ids, each, strict=True)):
            stamped = -1 if first < 0 else (first + index) % MODULUS
            self.records.append(Record(partition, base + index, base, producer, stamped, its, name))
        if first >= 0:
            self._next[place] = (first + len(ids)) % MODULUS
        self._ends[partition] = base + len(ids)
        return base

    def mark(self, producer: tuple[int, int], partition: int = 0) -> int:
        """A fence's marker; its offset."""
        base = self.end(partition)
        self.records.append(Record(partition, base, base, producer, control="abort"))
        self._ends[partition] = base + 1
        return base

    def spoil(self, producer: tuple[int, int], problem: str = "no number", partition: int = 0) -> int:
        """A record with an id that is none."""
        base = self.append(producer, None, partition=partition)
        self.records[-1] = replace(self.records[-1], problem=problem)
        return base

    def end(self, partition: int) -> int:
        """Behind the last offset."""
        return self._ends.setdefault(partition, self.first)

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """All of it."""
        return {partition: (self.first, end) for partition, end in sorted(self._ends.items())}

    def cut(self, start: int, end: int | None = None) -> Log:
        """What lies between two offsets of every partition."""
        found = Log(start)
        found.records = [each for each in self.records if start <= each.offset and (end is None or each.offset < end)]
        found._ends = {index: its if end is None else min(its, end) for index, its in self._ends.items()}
        return found


def runs_of(records: Iterable[Record], split: int = 1_000_000) -> list[tuple[object, ...]]:
    """Runs as the source makes them, in splits of so many offsets."""
    in_order = sorted(records, key=lambda record: (record.partition, record.offset))
    begins: dict[tuple[int, int], int] = {}
    for each in in_order:
        begins.setdefault((each.partition, each.base), each.offset)
    writers: dict[tuple[int, int, tuple[int, int]], dict[str | None, list[Record]]] = {}
    newest: dict[tuple[int, int, tuple[int, int]], int] = {}
    done: list[list[Record]] = []
    for each in in_order:
        if each.control is not None:
            done.append([each])
            continue
        writer = each.partition, each.offset // split, each.producer
        runs = writers.setdefault(writer, {})
        if newest.get(writer, each.sequence) != each.sequence:
            done += runs.values()
            runs.clear()
        newest[writer] = each.sequence if each.sequence < 0 else (each.sequence + 1) % MODULUS
        run = runs.get(each.name)
        if run is not None and _continues(run, each):
            run.append(each)
        else:
            done += [] if run is None else [run]
            runs[each.name] = [each]
    ended = [*done, *(run for runs in writers.values() for run in runs.values())]
    return [_summed(run, begins) for run in sorted(ended, key=lambda run: (run[0].partition, run[0].offset))]


def _continues(run: list[Record], each: Record) -> bool:
    ids = [record.id for record in run if record.id is not None]
    if each.id is not None:
        return all(record.id is not None or record.problem for record in run) and (not ids or each.id > ids[-1])
    return not ids or each.problem is not None


def _summed(run: list[Record], begins: dict[tuple[int, int], int]) -> tuple[object, ...]:
    first, last = run[0], run[-1]
    ids = [each.id for each in run if each.id is not None]
    gaps = ids[-1] - ids[0] + 1 - len(ids) if ids else 0
    batches = sum(begins[each.partition, each.base] == each.offset for each in run)  # of its first record
    return (
        first.partition, first.offset, last.offset, batches, len(run), 100 * len(run), *first.producer,
        first.sequence, last.sequence, False, first.control, first.name, ids[0] if ids else None,
        ids[-1] if ids else None, len(ids), sum(each.problem is not None for each in run), gaps,
        1_000 + first.offset, 1_000 + last.offset,
    )  # fmt: skip


class Reader:
    """Reads records a second time, and remembers which."""

    def __init__(self, spark: SparkSession, log: Log) -> None:
        self._spark = spark
        self._log = log
        self.asked: list[Stretch] = []

    def __call__(self, stretches: Sequence[Stretch]) -> DataFrame:
        self.asked += stretches
        rows = [
            (each.partition, each.offset, *each.producer, each.base, each.sequence, each.control, each.id, each.name,
             each.problem)
            for each in self._log.records
            if any(s.partition == each.partition and s.first <= each.offset <= s.last for s in stretches)
        ]  # fmt: skip
        return self._spark.createDataFrame(rows, RECORDS)


def judged(spark: SparkSession, log: Log, facts: Facts, split: int = 1_000_000, reader: Reader | None = None) -> Audit:
    """The verdict over a log made by hand."""
    runs = spark.createDataFrame(runs_of(log.records, split), RUNS)
    found = audit(spark, "made", runs, log.bounds, facts, reader or Reader(spark, log))
    found.free()
    return found


def owner(
    producer_id: int,
    epoch: int,
    generation: int,
    *,
    name: str | None = "billing",
    opened_at: int | None = None,
    rank: int = 0,
) -> Writer:
    """An epoch of the slot of a topic's owner."""
    return Writer(
        producer_id, epoch, epoch, "0", rank, False, "pid:1", name, generation,
        opened_at=epoch if opened_at is None else opened_at, opened_ms=epoch, opened_epoch=epoch,
    )  # fmt: skip


def sharer(producer_id: int, epoch: int, slot: str, *, name: str | None, opened_at: int) -> Writer:
    """An epoch of a shared session's slot."""
    return Writer(
        producer_id, epoch, epoch, slot, 0, True, f"pid:{slot}", name, None,
        opened_at=opened_at, opened_ms=opened_at, opened_epoch=epoch,
    )  # fmt: skip


# What a reader of every record finds --------------------------------------------------------------------------------


def naive(log: Log, facts: Facts) -> dict[str, dict[int, int]]:
    """Violations by kind and partition, one record after the other, with everything in memory."""
    reader = _Naive(facts, log.first)
    for each in sorted(log.records, key=lambda record: (record.partition, record.offset)):
        reader.add(each)
    return reader.found


class _Naive:
    def __init__(self, facts: Facts, first: int) -> None:
        self.found: dict[str, dict[int, int]] = {}
        self._facts = facts
        self._first = first
        self._ids: dict[tuple[int, object], list[int]] = {}
        self._governed: set[int] = set()
        self._batches: set[tuple[int, int]] = set()
        self._stamped: dict[tuple[int, tuple[int, int]], int] = {}
        self._before: dict[int, list[tuple[Writer, Record]]] = {}

    def _count(self, kind: str, each: Record) -> None:
        by = self.found.setdefault(kind, {})
        by[each.partition] = by.get(each.partition, 0) + 1

    def add(self, each: Record) -> None:
        writer = _writer(each, self._facts)
        if writer is not None or each.offset >= self._facts.governed.get(each.partition, 2**62):
            self._governed.add(each.partition)
        if each.control is None:
            if (each.partition, each.base) not in self._batches:
                self._batches.add((each.partition, each.base))
                self._add_batch(each, writer)
            self._add_id(each, writer)
            self._add_sequence(each, writer)
        if writer is not None:
            self._before.setdefault(each.partition, []).append((writer, each))

    def _add_batch(self, each: Record, writer: Writer | None) -> None:
        if writer is None:
            if each.partition in self._governed:
                self._count("unowned", each)
        elif any(_fences(*earlier, writer, each) for earlier in self._before.get(each.partition, [])):
            self._count("interleaved", each)

    def _add_id(self, each: Record, writer: Writer | None) -> None:
        name = each.name or (writer.name if writer else None)
        identity = name if name is not None else each.producer if each.producer[0] >= 0 else None
        if each.id is None or identity is None:
            return
        known = self._ids.setdefault((each.partition, identity), [])
        if each.id in known:
            self._count("duplicates", each)
        elif known and each.id < max(known):
            self._count("regressions", each)
        known.append(each.id)

    def _add_sequence(self, each: Record, writer: Writer | None) -> None:
        if writer is None or each.sequence < 0:
            return
        place = each.partition, each.producer
        expected = each.sequence
        if place in self._stamped:
            expected = (self._stamped[place] + 1) % MODULUS
        elif self._first == 0 or any(
            earlier.slot == writer.slot and (earlier.rank, record.producer[1]) < (writer.rank, each.producer[1])
            for earlier, record in self._before.get(each.partition, [])
        ):
            expected = 0
        if 0 < (each.sequence - expected) % MODULUS < MODULUS // 2:
            self._count("missing", each)
        self._stamped[place] = each.sequence


def _writer(each: Record, facts: Facts) -> Writer | None:
    for writer in facts.writers:
        if writer.producer_id == each.producer[0] and writer.first_epoch <= each.producer[1] <= writer.last_epoch:
            return writer
    return None


def _fences(other: Writer, earlier: Record, writer: Writer, each: Record) -> bool:
    """Whether a batch or marker keeps a later batch out."""
    if other.producer_id == writer.producer_id:
        return earlier.producer[1] > each.producer[1]
    if earlier.control is not None:
        return False
    if other.slot == writer.slot and other.rank > writer.rank:
        return True
    return (
        other.opened_at is not None
        and writer.opened_at is not None
        and other.opened_at > writer.opened_at
        and not (other.shared and writer.shared)
    )
