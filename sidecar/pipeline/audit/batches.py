"""Batches in a forbidden stretch: of an older generation after a newer one, or without an owner on a governed
partition. Pure.

A run that is wholly inside its stretch counts with its number of batches. Of a run that is partly inside, the records
in the stretch are read a second time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit.writers import STAMP, examples, is_data, none

END: Final = 2**63 - 1


def interleaved(runs: DataFrame, stamps: DataFrame) -> DataFrame:
    """Attributed runs that continue after the fence of their stamp. `lo` to `hi`, both included, is the stretch of
    offsets in which their batches are forbidden.
    """
    fenced = stamps.where("fenced_at IS NOT NULL").select(*STAMP, "fenced_at")
    found = runs.where(is_data).join(fenced, [*STAMP]).where("last_offset > fenced_at")
    return found.withColumns({"kind": F.lit("interleaved"), "lo": F.col("fenced_at") + 1, "hi": F.lit(END)})


def unowned(runs: DataFrame, stretches: DataFrame) -> DataFrame:
    """Attributed runs without an owner that overlap a stretch in which their partition was governed."""
    nobodys = runs.where(is_data).where("slot IS NULL")
    found = nobodys.join(F.broadcast(stretches), "partition").where("last_offset >= lo AND first_offset <= hi")
    return found.withColumn("kind", F.lit("unowned"))


def governed(runs: DataFrame, known: DataFrame, ungoverned: DataFrame) -> DataFrame:
    """The stretches (`partition`, `lo`, `hi`) of offsets in which a topic was governed. They begin with the first
    offset that nodes know of, or the first batch or marker of a slot. Times without a policy are left out.

    Such a time begins after the last offset written under epochs opened before it, and ends at the first epoch opened
    after it. Keep-alives continue meanwhile, and so do fences with epochs that nobody opened. So only this counts as
    written before it: the batches of an epoch whose own opening is known, and its first marker.
    """
    slots = runs.where("slot IS NOT NULL")
    first = known.select("partition", F.col("offset").alias("lo"))
    first = first.unionByName(slots.select("partition", F.col("first_offset").alias("lo")))
    first = first.groupBy("partition").agg(F.min("lo").alias("lo"))
    moments = ungoverned.select("from_ms", F.coalesce("to_ms", F.lit(END)).alias("to_ms"))
    times = first.select("partition").crossJoin(F.broadcast(moments))
    is_opened = "producer_epoch = opened_epoch"
    written = F.max(F.when(F.expr(f"{is_opened} AND {is_data}"), F.col("last_offset")))
    fence = F.min(F.when(F.expr(f"{is_opened} AND NOT {is_data}"), F.col("first_offset")))
    seen = slots.groupBy("partition", "opened_ms").agg(
        F.min("first_offset").alias("first_offset"), F.greatest(written, fence).alias("last_offset")
    )
    holes = times.join(seen, "partition", "left").groupBy("partition", "from_ms", "to_ms")
    holes = holes.agg(
        F.coalesce(F.max(F.when(F.expr("opened_ms < from_ms"), F.col("last_offset"))), F.lit(-1)).alias("before"),
        F.coalesce(F.min(F.when(F.expr("opened_ms >= to_ms"), F.col("first_offset"))), F.lit(END)).alias("behind"),
    )
    holes = holes.groupBy("partition").agg(F.array_sort(F.collect_list(F.struct("before", "behind"))).alias("holes"))
    found = first.join(holes, "partition", "left")
    begins = F.concat(F.array("lo"), F.coalesce(F.col("holes.behind"), F.array().cast("array<bigint>")))
    ends = F.concat(F.coalesce(F.col("holes.before"), F.array().cast("array<bigint>")), F.array(F.lit(END)))
    each = found.select("partition", "lo", F.explode(F.arrays_zip(begins.alias("begin"), ends.alias("end"))).alias("s"))
    stretch = each.select("partition", F.greatest("lo", "s.begin").alias("lo"), F.col("s.end").alias("hi"))
    return stretch.where("lo <= hi")


def is_whole() -> str:
    """SQL: whether a suspect run is wholly inside its stretch."""
    return "first_offset >= lo AND last_offset <= hi"


def placed(suspects: DataFrame, records: DataFrame | None) -> DataFrame:
    """Per suspect run with batches in its stretch: their `count`, and the `offset` of the first record there. `records`
    are those of the runs that are partly inside; None if there are no such runs.
    """
    kept = ("kind", *STAMP, "name", "generation", "lo")
    found = suspects.where(is_whole()).select(
        *kept, F.col("first_offset").alias("offset"), F.col("batches").alias("count")
    )
    if records is None:
        return found
    parts = suspects.where(f"NOT ({is_whole()})").select(
        *kept,
        "producer_name",
        F.greatest("lo", "first_offset").alias("begin"),
        F.least("hi", "last_offset").alias("end"),
    )
    # A batch may have records of several names, and so of several runs: it counts in the run of the first record.
    firsts = records.where(is_data).groupBy(*STAMP, "base_offset")
    firsts = firsts.agg(F.min("offset").alias("offset"), F.min_by("producer_name", "offset").alias("its_name"))
    named = firsts.join(parts, [*STAMP]).where("its_name <=> producer_name AND offset BETWEEN begin AND end")
    inside = named.groupBy(*kept, "producer_name", "begin")
    counted = inside.agg(F.min("offset").alias("offset"), F.count("*").alias("count"))
    return found.unionByName(counted.drop("producer_name", "begin"))


def violations(placed: DataFrame) -> DataFrame:
    """One row per run with batches in a forbidden stretch."""
    generation = F.coalesce(F.col("generation").cast("string"), F.lit("-"))
    number = F.col("count").cast("string")
    fenced = F.format_string(
        "batches here: %s, of generation %s, behind the fence at offset %s", number, generation,
        (F.col("lo") - 1).cast("string"),
    )  # fmt: skip
    nobodys = F.format_string("batches here: %s, which no epoch of a node's slot wrote", number)
    detail = F.when(F.col("kind") == "interleaved", fenced).otherwise(nobodys)
    return examples(placed, detail, sequence_id=none("long"))
