"""The checks together: from the runs of a log and what nodes know of it to a verdict with counts and examples.

The log is read once as runs; single records are read through `read`, and only where runs cannot judge. Counts come to
the driver by partition, examples a few of each kind; what is kept for tables stays a data frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit import batches, facts, ids, missing, writers
from sidecar.pipeline.audit.facts import Facts, as_frame
from sidecar.pipeline.audit.stretches import Stretch, collected, merged
from sidecar.pipeline.audit.writers import is_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadRecords: TypeAlias = "Callable[[Sequence[Stretch]], DataFrame]"
"""Reads the records of some stretches: the columns of `view=records` of the source."""

Bounds: TypeAlias = "Mapping[int, tuple[int, int]]"
"""The range of each partition: first offset and the one behind the last."""

KINDS: Final = ("duplicates", "regressions", "interleaved", "unowned", "missing")
MALFORMED: Final = "malformed"
EXAMPLES: Final = 20
"""Of each kind."""
_SAMPLED_RUNS: Final = 3


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found in the log of one topic. `counts` are by kind and partition, without zeros; `gaps` are numbers
    left out between ids, `malformed` records with an id that is none.

    `runs` (attributed) and `violations` (one row each, of stamps and runs as of single records) are kept in Spark
    until `free`.
    """

    topic: str
    bounds: Bounds
    records: int
    counts: Mapping[str, Mapping[int, int]]
    gaps: int
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
        """Whether there is no violation."""
        return not any(self.totals.values())

    def as_json(self) -> dict[str, Any]:
        """As `sidecar pipeline audit -o json` tells it."""
        return {
            "topic": self.topic,
            "records": self.records,
            "violations": self.totals,
            "gaps": self.gaps,
            "examples": [dict(example) for example in self.examples],
        }

    def free(self) -> None:
        """Let Spark forget the frames."""
        for frame in self.kept:
            frame.unpersist()


def audit(spark: SparkSession, topic: str, runs: DataFrame, bounds: Bounds, known: Facts, read: ReadRecords) -> Audit:
    """Judge `runs` (the source's view of the range `bounds`) by what nodes know."""
    its = as_frame(spark, known.writers, facts.WRITERS)
    limits = as_frame(spark, [(index, *span) for index, span in sorted(bounds.items())], facts.BOUNDS)
    found = writers.attributed(runs, its).persist()
    stamps = writers.stamps(found).persist()
    stretches = batches.governed(
        found,
        as_frame(spark, sorted(known.governed.items()), facts.GOVERNED),
        as_frame(spark, known.ungoverned, facts.UNGOVERNED),
    )
    misplaced = batches.interleaved(found, stamps).drop("fenced_at")
    misplaced = misplaced.unionByName(batches.unowned(found, stretches)).persist()
    with_ids = ids.with_ids(found)
    doubtful = ids.suspects(with_ids).persist()
    kept = [found, stamps, misplaced, doubtful]

    asked = merged([*collected(ids.ranges(with_ids, doubtful)), *collected(_parts(misplaced))])
    records = None
    if asked:
        records = writers.attributed(read(asked), its).persist()
        kept.append(records)
    whole = missing.whole(found, limits)
    marks = as_frame(spark, known.marks, facts.MARKS)
    absent = missing.examples_of_sequences(missing.sequences(found, stamps, whole))
    absent = absent.unionByName(missing.examples_of_ids(missing.last_ids(found, marks, whole))).persist()
    kept.append(absent)

    placed = batches.placed(misplaced, records).persist()
    kept.append(placed)
    counted = [placed.select("kind", "partition", "count"), _by_kind(absent)]
    violations = [batches.examples(placed), absent]
    repeats = None
    if records is not None:
        wrong = ids.violations(with_ids, doubtful, records).persist()
        kept.append(wrong)
        counted.append(_by_kind(wrong))
        violations.append(ids.examples(wrong))
        repeats = wrong.where("kind = 'duplicates'").groupBy(*ids.NAME).agg(F.count("*").alias("count"))
    if repeats is None:
        repeats = with_ids.select(*ids.NAME, F.lit(0).alias("count")).limit(0)

    told = reduce(type(absent).unionByName, violations)
    sums = found.agg(
        F.sum(F.when(F.expr(is_data), F.col("records"))).alias("records"), F.sum(MALFORMED).alias(MALFORMED)
    ).first()
    gaps = ids.gaps(with_ids, repeats).agg(F.sum("gaps").alias("gaps")).first()
    malformed = int(sums[MALFORMED] or 0) if sums else 0
    return Audit(
        topic=topic,
        bounds=bounds,
        records=int(sums["records"] or 0) if sums else 0,
        counts=_counts(reduce(type(absent).unionByName, counted)),
        gaps=int(gaps["gaps"] or 0) if gaps else 0,
        malformed=malformed,
        examples=[*_examples(told), *(_malformed(found, its, read) if malformed else [])],
        runs=found,
        violations=told,
        kept=kept,
    )


def _parts(misplaced: DataFrame) -> DataFrame:
    """The part that lies in its stretch, of runs that reach into one."""
    return misplaced.where(f"NOT ({batches.is_whole()})").select(
        "partition", F.greatest("first_offset", "lo").alias("first_offset"),
        F.least("last_offset", "hi").alias("last_offset"),
    )  # fmt: skip


def _by_kind(found: DataFrame) -> DataFrame:
    return found.groupBy("kind", "partition").agg(F.count("*").alias("count"))


def _counts(counted: DataFrame) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in counted.groupBy("kind", "partition").agg(F.sum("count").alias("count")).collect():
        if row["count"]:
            found.setdefault(row["kind"], {})[row["partition"]] = int(row["count"])
    return found


def _examples(told: DataFrame) -> list[dict[str, Any]]:
    """The first of each kind in the order of partitions and offsets."""
    first = [told.where(F.col("kind") == kind).orderBy("partition", "offset").limit(EXAMPLES) for kind in KINDS]
    found = [row.asDict() for row in reduce(type(told).unionByName, first).collect()]
    return sorted(found, key=lambda each: (KINDS.index(each["kind"]), each["partition"], each["offset"]))


def _malformed(runs: DataFrame, its: DataFrame, read: ReadRecords) -> list[dict[str, Any]]:
    """Some records whose id is none, with what is wrong."""
    size = F.col("last_offset") - F.col("first_offset")
    rows = runs.where(f"{MALFORMED} > 0").orderBy(size, "partition", "first_offset").limit(_SAMPLED_RUNS)
    asked = merged(Stretch(*row) for row in rows.select("partition", "first_offset", "last_offset").collect())
    found = writers.attributed(read(asked), its).where("id_problem IS NOT NULL").orderBy("partition", "offset")
    columns = ("partition", "offset", "producer_id", "producer_epoch", "name")
    rows = found.select(*columns, F.col("id_problem").alias("detail")).limit(EXAMPLES).collect()
    return [{"kind": MALFORMED, **row.asDict(), "sequence_id": None} for row in rows]
