"""Sequence ids: duplicates and regressions, counted exactly, and the numbers left out. Pure.

A run may hold a duplicate or regression if it does not begin above all ids before it, or if another run of the same
name overlaps it. Only these runs, and the runs that may hold the same ids, are read record by record. There the highest
id before a record is found in two steps, over stretches of the log and within each. So no task has to go through all
records of one name.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit.writers import examples

NAME: Final = ("partition", "identity")
_STRETCH: Final = 65_536
"""Size of a stretch, in offsets."""
_WIDE: Final = "decimal(38,0)"
"""A type that holds any difference of two ids."""


def with_ids(runs: DataFrame) -> DataFrame:
    """Attributed runs that hold ids under a name, or, without a name, under one epoch."""
    return runs.where("ids > 0 AND identity IS NOT NULL")


def suspects(runs: DataFrame) -> DataFrame:
    """Runs with ids that may hold a duplicate or a regression; only ids from `lowest` to `highest` may be one."""
    in_order = Window.partitionBy(*NAME).orderBy("first_offset", "last_offset")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    judged = runs.withColumns(
        {
            "highest_before": F.max("last_id").over(before),
            "overlapped": (F.max("last_offset").over(before) >= F.col("first_offset"))
            | (F.lead("first_offset").over(in_order) <= F.col("last_offset")),
        }
    )
    overlaps = F.coalesce("overlapped", F.lit(False))
    found = judged.where(overlaps | (F.col("highest_before") >= F.col("first_id")))
    highest = F.when(overlaps, F.col("last_id")).otherwise(F.least("last_id", "highest_before"))
    return found.select(
        *NAME, "first_offset", "last_offset", F.col("first_id").alias("lowest"), highest.alias("highest")
    )


def ranges(runs: DataFrame, found: DataFrame, most: int = 1_000) -> DataFrame:
    """Offsets (`partition`, `first_offset`, `last_offset`) of every run whose ids the suspects `found` may repeat, and
    of the suspects themselves. For a name with more than `most` suspects, one span of ids replaces those of its
    suspects.
    """
    asked = found.groupBy(*NAME).agg(
        F.count("*").alias("count"), F.min("lowest").alias("lowest"), F.max("highest").alias("highest")
    )
    many = asked.where(F.col("count") > most).select(*NAME, "lowest", "highest")
    few = found.join(asked.where(F.col("count") <= most).select(*NAME), [*NAME], "left_semi")
    wanted = many.unionByName(few.select(*NAME, "lowest", "highest"))
    holds = runs.join(wanted, [*NAME]).where("first_id <= highest AND last_id >= lowest")
    places = holds.select("partition", "first_offset", "last_offset")
    return places.unionByName(found.select("partition", "first_offset", "last_offset")).distinct()


def violations(runs: DataFrame, found: DataFrame, records: DataFrame) -> DataFrame:
    """Each duplicate and regression among attributed `records` with ids: `kind`, `partition`, `identity`, `offset`,
    producer id and epoch, `name`, `sequence_id`, and `before`: the first offset of the id, or the highest id before it.
    `records` include those of all `ranges`; `found` are the suspects.
    """
    names = found.select(*NAME).distinct()
    columns = [*NAME, "offset", "producer_id", "producer_epoch", "name", "sequence_id"]
    single = records.where("sequence_id IS NOT NULL AND identity IS NOT NULL").join(names, [*NAME], "left_semi")
    single = single.select(*columns)
    first = Window.partitionBy(*NAME, "sequence_id").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    single = single.withColumn("first_at", F.min("offset").over(first))
    # Runs that are not read have one row: their last id at their last offset.
    ends = runs.join(names, [*NAME], "left_semi").select(
        *NAME, F.col("last_offset").alias("offset"), F.col("last_id").alias("sequence_id")
    )
    rows = single.unionByName(ends, allowMissingColumns=True)
    rows = rows.withColumn("stretch", F.floor(F.col("offset") / _STRETCH))
    peaks = rows.groupBy(*NAME, "stretch").agg(F.max("sequence_id").alias("peak"))
    earlier = Window.partitionBy(*NAME).orderBy("stretch").rowsBetween(Window.unboundedPreceding, -1)
    peaks = peaks.withColumn("earlier", F.max("peak").over(earlier)).drop("peak")
    is_end = F.col("first_at").isNull()
    inside = Window.partitionBy(*NAME, "stretch").orderBy("offset", is_end)
    inside = inside.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("nearer", F.max("sequence_id").over(inside)).join(peaks, [*NAME, "stretch"])
    rows = rows.where(~is_end).withColumn("highest", F.greatest("nearer", "earlier"))
    repeats = F.col("first_at") < F.col("offset")
    falls = F.col("highest") >= F.col("sequence_id")
    kind = F.when(repeats, F.lit("duplicates")).when(falls, F.lit("regressions"))
    rows = rows.withColumn("kind", kind).where("kind IS NOT NULL")
    return rows.select("kind", *columns, F.when(repeats, F.col("first_at")).otherwise(F.col("highest")).alias("before"))


def gaps(runs: DataFrame, duplicates: DataFrame) -> DataFrame:
    """How many numbers between the lowest and the highest id of each `identity` are in no record: `gaps`, and in how
    many `partitions` it has ids. `duplicates`: how many records repeat an id, as `partition`, `identity`, `count`.

    Ids in several partitions are assumed to come from one counter: a number in another partition is no gap. The result
    is then a lower bound, because an application that restarts may use an id in two partitions. If there are at least
    1.5 times as many ids as numbers, each partition is assumed to have its own counter.
    """
    its = runs.groupBy(*NAME).agg(
        F.min("first_id").cast(_WIDE).alias("lowest"), F.max("last_id").cast(_WIDE).alias("highest"),
        F.sum("ids").alias("ids"),
    )  # fmt: skip
    distinct = (F.col("ids") - F.coalesce("count", F.lit(0))).cast(_WIDE)
    its = its.join(duplicates, [*NAME], "left").withColumn("distinct", distinct)
    numbers = F.col("highest") - F.col("lowest") + 1
    whole = its.groupBy("identity").agg(
        F.min("lowest").alias("lowest"), F.max("highest").alias("highest"), F.sum("distinct").alias("distinct"),
        F.sum(numbers - F.col("distinct")).alias("apart"), F.count("*").alias("partitions"),
    )  # fmt: skip
    together = F.greatest(numbers - F.col("distinct"), F.lit(0))
    is_one = F.col("distinct") * 2 < numbers * 3
    return whole.select("identity", "partitions", F.when(is_one, together).otherwise(F.col("apart")).alias("gaps"))


def details(found: DataFrame) -> DataFrame:
    """The violations with the columns of `examples`."""
    detail = F.when(F.col("kind") == "duplicates", F.concat(F.lit("first at offset "), "before"))
    return examples(found, detail.otherwise(F.concat(F.lit("behind id "), "before")))
