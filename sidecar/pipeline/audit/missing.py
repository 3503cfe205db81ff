"""What a log should hold and does not: stamped sequences of an epoch, and the last ids that nodes know. Pure.

Nodes stamp each epoch of a slot from 0 on without holes, in every partition: Kafka refuses anything else from a writer
that it knows, and records that are dropped as duplicates take no sequence. What retention deleted is before the range.
If compaction deleted records, offsets are missing too, and that partition is not judged.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit.writers import STAMP, examples, is_data, none

_MODULUS: Final = 2**31


def whole(runs: DataFrame, bounds: DataFrame) -> DataFrame:
    """The partitions (with `start` and `end`) whose log holds every offset of the range."""
    size = F.when(F.expr(is_data), F.col("records")).otherwise(F.col("last_offset") - F.col("first_offset") + 1)
    held = runs.groupBy("partition").agg(F.sum(size).alias("held"))
    return bounds.join(held, "partition").where("held = end - start").drop("held")


def sequences(runs: DataFrame, stamps: DataFrame, whole: DataFrame) -> DataFrame:
    """The places, in attributed runs, where stamped sequences of an epoch are missing: `expected` and `found` there.
    Either the epoch began within the range but not at sequence 0, or it leaves sequences out.

    Runs of one epoch under several names may overlap; if sequences are left out, all of them end there.
    """
    ours = runs.where(is_data).where("slot IS NOT NULL AND first_sequence >= 0").join(F.broadcast(whole), "partition")
    before = Window.partitionBy(*STAMP).orderBy("first_offset", "last_offset")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    newest = F.max(F.struct("last_offset", "last_sequence")).over(before)
    placed = ours.withColumn("newest", newest).where("newest IS NULL OR newest.last_offset < first_offset")
    is_first = F.col("newest").isNull()
    expected = F.when(is_first, F.lit(0)).otherwise((F.col("newest.last_sequence").cast("long") + 1) % _MODULUS)
    ahead = (F.col("first_sequence") - expected + _MODULUS) % _MODULUS
    lower = Window.partitionBy("partition", "slot").orderBy("rank", "producer_epoch")
    lower = lower.rowsBetween(Window.unboundedPreceding, -1)
    begun = stamps.withColumn("begun", F.min("first_seen").over(lower) < F.col("first_seen")).select(*STAMP, "begun")
    placed = placed.join(begun, [*STAMP]).withColumns({"expected": expected, "ahead": ahead})
    is_known = ~is_first | (F.col("start") == 0) | F.coalesce("begun", F.lit(False))
    return placed.where(is_known & (F.col("ahead") > 0) & (F.col("ahead") < _MODULUS // 2)).select(
        *STAMP, "name", F.col("first_offset").alias("offset"), "expected", F.col("first_sequence").alias("found")
    )


def last_ids(runs: DataFrame, marks: DataFrame, whole: DataFrame) -> DataFrame:
    """Marks whose record should be in the range while no run of that name contains the id. `found` is the highest id
    there. A mark is left out if records without a known name may hold its id.

    An id below the highest may be missing too: a log that lost its end receives new records.
    """
    spans = runs.where("ids > 0").select("partition", "name", "first_id", "last_id")
    highest = spans.groupBy("partition", "name").agg(F.max("last_id").alias("found"))
    inside = (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("end"))
    unplaced = (F.col("offset") < 0) & (F.col("start") == 0) & (F.col("covered") <= F.col("end"))
    absent = marks.join(F.broadcast(whole), "partition").where(inside | unplaced).alias("mark")
    spans_it = F.expr("mark.partition = run.partition AND mark.id BETWEEN run.first_id AND run.last_id")
    absent = absent.join(spans.alias("run"), spans_it & F.expr("mark.name = run.name"), "left_anti")
    absent = absent.join(spans.where("name IS NULL").alias("run"), spans_it, "left_anti")
    found = absent.join(highest, ["partition", "name"], "left")
    return found.select("partition", "name", "id", "offset", "found")


def lost_sequences(found: DataFrame) -> DataFrame:
    """The result of `sequences` with the columns of `examples`."""
    detail = F.format_string("stamped sequence %s where %s was next", "found", "expected")
    return examples(found, detail, kind=F.lit("missing"), sequence_id=none("long"))


def lost_ids(found: DataFrame) -> DataFrame:
    """The result of `last_ids` with the columns of `examples`."""
    there = F.coalesce(F.col("found").cast("string"), F.lit("no id"))
    at_most = F.concat(F.lit("the log holds "), there, F.lit(" at most"))
    without = F.concat(F.lit("the log goes on to "), there, F.lit(" without it"))
    more = F.when(F.col("found") > F.col("id"), without).otherwise(at_most)
    stamp = {"producer_id": none("long"), "producer_epoch": none("int")}
    detail = F.concat(F.lit("nodes remember this id; "), more)
    return examples(found, detail, kind=F.lit("missing"), sequence_id=F.col("id"), **stamp)
