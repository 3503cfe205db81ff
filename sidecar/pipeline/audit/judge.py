"""Runs all checks: takes the runs of a log and what nodes know of it, and returns an `Audit` with counts and examples.

The log is read once as runs. `read` reads single records, only where runs are not enough. The driver gets counts by
partition and a few examples of each kind; the rows for tables stay in data frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit import batches, facts, ids, missing, writers
from sidecar.pipeline.audit.explained import KINDS, MALFORMED
from sidecar.pipeline.audit.facts import Facts, as_frame
from sidecar.pipeline.audit.writers import is_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLLECTED: Final = 20_000
_KEPT: Final = 16


class Stretch(NamedTuple):
    """Offsets `first` to `last` of a partition, both included."""

    partition: int
    first: int
    last: int


def collected(asked: DataFrame) -> list[Stretch]:
    """The stretches that cover all rows of a frame of `partition`, `first_offset`, `last_offset`. If there are too many
    rows for one process, one stretch per partition covers them.
    """
    columns = ("partition", "first_offset", "last_offset")
    rows = asked.select(*columns).coalesce(1).limit(_COLLECTED + 1).collect()
    if len(rows) > _COLLECTED:
        hull = asked.groupBy("partition").agg(F.min("first_offset"), F.max("last_offset"))
        rows = hull.collect()
    return merged(Stretch(*row) for row in rows)


def merged(asked: Iterable[Stretch], most: int = _KEPT) -> list[Stretch]:
    """The same offsets as at most `most` stretches per partition, which neither overlap nor touch. If there are more,
    the smallest gaps between them are included too.
    """
    by_partition: dict[int, list[Stretch]] = {}
    for each in sorted(asked):
        found = by_partition.setdefault(each.partition, [])
        if found and each.first <= found[-1].last + 1:
            found[-1] = found[-1]._replace(last=max(found[-1].last, each.last))
        else:
            found.append(each)
    return [each for found in by_partition.values() for each in _closed(found, most)]


def _closed(found: list[Stretch], most: int) -> list[Stretch]:
    widths = sorted(range(1, len(found)), key=lambda index: found[index].first - found[index - 1].last, reverse=True)
    kept = sorted(widths[: most - 1])
    starts, ends = [0, *kept], [*kept, len(found)]
    return [
        Stretch(found[start].partition, found[start].first, found[end - 1].last)
        for start, end in zip(starts, ends, strict=True)
    ]


_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def thrift(spark: SparkSession, *, is_due: bool) -> Iterator[None]:
    """Queries planned inside are interpreted in one task, also for `persist`. Has no effect unless `is_due`."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS} if is_due else {}
    try:
        for name in before:
            spark.conf.set(name, _SETTINGS[name])
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


ReadRecords: TypeAlias = "Callable[[Sequence[Stretch]], DataFrame]"
"""Reads the records of some stretches, with the columns of `view=records` of the source."""

Bounds: TypeAlias = "Mapping[int, tuple[int, int]]"
"""The range of each partition: its first offset, and the offset after its last."""

EXAMPLES: Final = 20
"""The most examples of each kind."""
_SAMPLED_RUNS: Final = 3
_FEW: Final = 200_000
"""Rows that one task handles."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result for the log of one topic. `counts` are by kind and partition, without zeros; `gaps` are numbers left
    out between ids, `spread` names with ids in several partitions, `malformed` records with an invalid id.

    `runs` (attributed) and `violations` (a row per stamp, run or record) are kept in Spark until `free`.
    """

    topic: str
    bounds: Bounds
    records: int
    counts: Mapping[str, Mapping[int, int]]
    gaps: int
    spread: int
    malformed: int
    examples: Sequence[Mapping[str, Any]]
    runs: DataFrame
    violations: DataFrame
    kept: Sequence[DataFrame]

    @property
    def totals(self) -> dict[str, int]:
        """How many violations of each kind there are."""
        return {kind: sum(self.counts.get(kind, {}).values()) for kind in KINDS}

    @property
    def passes(self) -> bool:
        """Whether there are no violations."""
        return not any(self.totals.values())

    def as_json(self) -> dict[str, Any]:
        """As `sidecar pipeline audit -o json` prints it."""
        return {
            "topic": self.topic,
            "records": self.records,
            "violations": self.totals,
            "gaps": self.gaps,
            "examples": [dict(example) for example in self.examples],
        }

    def free(self) -> None:
        """Let Spark drop the frames."""
        for frame in self.kept:
            frame.unpersist()


def audit(
    spark: SparkSession,
    topic: str,
    runs: DataFrame,
    bounds: Bounds,
    known: Facts,
    read: ReadRecords,
    *,
    is_few: bool = False,
) -> Audit:
    """Compare `runs` (the source's view of the range `bounds`) with what nodes know. `is_few`: there are few runs,
    already in memory; otherwise they are kept in Spark and counted.
    """
    kept = [] if is_few else [runs.persist()]
    case = _Case(spark, topic, bounds, known, read, kept, is_few=is_few or runs.count() <= _FEW)
    with thrift(spark, is_due=case.is_few):
        return case.judge(runs)


@dataclass(slots=True)
class _Case:
    """One running audit. `is_few`: there are so few runs that one task replaces a shuffle over several."""

    spark: SparkSession
    topic: str
    bounds: Bounds
    known: Facts
    read: ReadRecords
    kept: list[DataFrame]
    is_few: bool

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keep a frame in Spark until `Audit.free`, for several uses."""
        self.kept.append(frame.coalesce(1).persist() if self.is_few else frame.persist())
        return self.kept[-1]

    def judge(self, runs: DataFrame) -> Audit:
        """Run all checks."""
        its = as_frame(self.spark, self.known.writers, facts.WRITERS)
        found = self.keep(writers.attributed(runs.coalesce(1) if self.is_few else runs, its))
        stamps = self.keep(writers.stamps(found))
        misplaced = self.keep(self._misplaced(found, stamps))
        with_ids = ids.with_ids(found)
        doubtful = self.keep(ids.suspects(with_ids))
        absent = self.keep(self._absent(found, stamps))
        asked = collected(ids.ranges(with_ids, doubtful).unionByName(_parts(misplaced)))
        records = self._read_again(asked, its) if asked else None

        placed = self.keep(batches.placed(misplaced, records))
        counted = placed.select("kind", "partition", "count").unionByName(_by_kind(absent))
        violations = batches.violations(placed).unionByName(absent)
        repeats = with_ids.select(*ids.NAME, F.lit(0).cast("long").alias("count")).limit(0)
        if records is not None:
            wrong = self.keep(ids.violations(with_ids, doubtful, records))
            counted = counted.unionByName(_by_kind(wrong))
            violations = violations.unionByName(ids.details(wrong))
            repeats = wrong.where("kind = 'duplicates'").groupBy(*ids.NAME).agg(F.count("*").alias("count"))
        counts = _counts(counted)
        of_data = F.sum(F.when(F.expr(is_data), F.col("records")))
        sums = found.agg(of_data.alias("records"), F.sum(MALFORMED).alias(MALFORMED)).collect()[0]
        spread = F.count(F.when(F.col("partitions") > 1, True))
        gaps = ids.gaps(with_ids, repeats).agg(F.sum("gaps").alias("gaps"), spread.alias("spread")).collect()[0]
        malformed = int(sums[MALFORMED] or 0)
        return Audit(
            topic=self.topic,
            bounds=self.bounds,
            records=int(sums["records"] or 0),
            counts=counts,
            gaps=int(gaps["gaps"] or 0),
            spread=int(gaps["spread"]),
            malformed=malformed,
            examples=[*(_examples(violations) if counts else []), *(self._malformed(found, its) if malformed else [])],
            runs=found,
            violations=violations,
            kept=self.kept,
        )

    def _misplaced(self, found: DataFrame, stamps: DataFrame) -> DataFrame:
        stretches = batches.governed(
            found,
            as_frame(self.spark, sorted(self.known.governed.items()), facts.GOVERNED),
            as_frame(self.spark, self.known.ungoverned, facts.UNGOVERNED),
        )
        return batches.interleaved(found, stamps).drop("fenced_at").unionByName(batches.unowned(found, stretches))

    def _absent(self, found: DataFrame, stamps: DataFrame) -> DataFrame:
        limits = [(index, *span) for index, span in sorted(self.bounds.items())]
        whole = missing.whole(found, as_frame(self.spark, limits, facts.BOUNDS))
        last_ids = missing.last_ids(found, as_frame(self.spark, self.known.marks, facts.MARKS), whole)
        sequences = missing.lost_sequences(missing.sequences(found, stamps, whole))
        return sequences.unionByName(missing.lost_ids(last_ids))

    def _read_again(self, asked: Sequence[Stretch], its: DataFrame) -> DataFrame:
        """The records of these stretches, kept in Spark because there may be many."""
        found = writers.attributed(self.read(asked), its).persist()
        self.kept.append(found)
        return found

    def _malformed(self, runs: DataFrame, its: DataFrame) -> list[dict[str, Any]]:
        """Some records with an invalid id, and the reason why it is invalid."""
        size = F.col("last_offset") - F.col("first_offset")
        rows = runs.where(f"{MALFORMED} > 0").orderBy(size, "partition", "first_offset").limit(_SAMPLED_RUNS)
        asked = merged(Stretch(*row) for row in rows.select("partition", "first_offset", "last_offset").collect())
        found = writers.attributed(self.read(asked), its).where("id_problem IS NOT NULL")
        columns = ("partition", "offset", "producer_id", "producer_epoch", "name")
        sample = found.orderBy("partition", "offset").select(*columns, F.col("id_problem").alias("detail"))
        return [{"kind": MALFORMED, **row.asDict(), "sequence_id": None} for row in sample.limit(EXAMPLES).collect()]


def _parts(misplaced: DataFrame) -> DataFrame:
    """The parts of runs inside the stretches that they overlap."""
    return misplaced.where(f"NOT ({batches.is_whole()})").select(
        "partition", F.greatest("first_offset", "lo").alias("first_offset"),
        F.least("last_offset", "hi").alias("last_offset"),
    )  # fmt: skip


def _by_kind(found: DataFrame) -> DataFrame:
    return found.groupBy("kind", "partition").agg(F.count("*").alias("count"))


def _counts(counted: DataFrame) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in counted.coalesce(1).groupBy("kind", "partition").agg(F.sum("count").alias("count")).collect():
        if row["count"]:
            found.setdefault(row["kind"], {})[row["partition"]] = int(row["count"])
    return found


def _examples(violations: DataFrame) -> list[dict[str, Any]]:
    """The first violations of each kind, in the order of partitions and offsets."""
    number = F.row_number().over(Window.partitionBy("kind").orderBy("partition", "offset"))
    first = violations.withColumn("number", number).where(F.col("number") <= EXAMPLES).drop("number")
    found = [row.asDict() for row in first.collect()]
    return sorted(found, key=lambda each: (KINDS.index(each["kind"]), each["partition"], each["offset"]))
