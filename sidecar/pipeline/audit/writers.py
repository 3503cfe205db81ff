"""Attributes runs to their writers, and determines the offset after which a writer may write nothing more. Pure.

Within one slot a higher rank fences all lower ones, and within one producer id a higher epoch does: Kafka refuses older
batches from the marker on. Between slots the order is that of the records that opened their epochs. Two shared sessions
may write at the same time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

STAMP: Final = ("partition", "producer_id", "producer_epoch")
UNKNOWN: Final = -1

is_data: Final = "control IS NULL"


def attributed(runs: DataFrame, writers: DataFrame) -> DataFrame:
    """Runs or records, with the columns of the writer whose epoch stamped them (null if there is none), with `name`
    (the header's, else the writer's), and with `identity`. Ids count together if `identity` is equal: the same name,
    else the same epoch; null without either.
    """
    known = F.broadcast(
        writers.select(
            F.col("producer_id").alias("_id"), "first_epoch", "last_epoch", "slot", "rank", "shared", "session",
            F.col("name").alias("_name"), "generation", "opened_at", "opened_ms",
            "opened_epoch",
        )
    )  # fmt: skip
    is_its = (F.col("producer_id") == F.col("_id")) & F.col("producer_epoch").between(
        F.col("first_epoch"), F.col("last_epoch")
    )
    name = F.coalesce("producer_name", "_name")
    stamp = F.concat_ws(":", F.lit("e"), "producer_id", "producer_epoch")
    identity = F.when(name.isNotNull(), F.concat(F.lit("n:"), name)).when(F.col("producer_id") >= 0, stamp)
    found = runs.join(known, is_its, "left")
    return found.withColumns({"name": name, "identity": identity}).drop("_id", "_name", "first_epoch", "last_epoch")


def stamps(runs: DataFrame) -> DataFrame:
    """Each epoch of a slot in each partition, from attributed runs: its first offset (`first_seen`, markers included),
    the offset of its first record (`first_data`), and the offset after which its batches are forbidden (`fenced_at`).
    """
    found = runs.where("slot IS NOT NULL").groupBy(*STAMP, "slot", "rank", "shared", "opened_at")
    seen = found.agg(
        F.min("first_offset").alias("first_seen"),
        F.min(F.when(F.expr(is_data), F.col("first_offset"))).alias("first_data"),
        F.max("last_offset").alias("last_seen"),
    )
    later_epochs = _behind("producer_id", order=F.col("producer_epoch"))
    later_ids = _behind("slot", order=F.col("rank"))
    opened = F.coalesce("opened_at", F.lit(UNKNOWN))
    later_slots = _behind(order=opened)
    is_known = F.col("opened_at").isNotNull()
    by_anybody = F.min(F.when(is_known, F.col("first_data"))).over(later_slots)
    by_owners = F.min(F.when(is_known & ~F.col("shared"), F.col("first_data"))).over(later_slots)
    fences = [
        F.min("first_seen").over(later_epochs),
        F.min("first_data").over(later_ids),
        F.when(is_known, F.when(F.col("shared"), by_owners).otherwise(by_anybody)),
    ]
    return seen.withColumn("fenced_at", F.least(*fences))


def _behind(*within: str, order: Column) -> WindowSpec:
    """The rows of a partition with a higher order."""
    return Window.partitionBy("partition", *within).orderBy(-order).rangeBetween(Window.unboundedPreceding, -1)


def examples(found: DataFrame, detail: Column, **others: Column) -> DataFrame:
    """Violations with the columns of all checks: `kind`, `partition`, `offset`, stamp, name, sequence id, and a
    `detail` for people. `others`: columns that `found` lacks.
    """
    columns = ("kind", "partition", "offset", "producer_id", "producer_epoch", "name", "sequence_id", "detail")
    return found.withColumns({"detail": detail, **others}).select(*columns)


def none(kind: str) -> Column:
    """A column that is null in every row."""
    return F.lit(None).cast(kind)
