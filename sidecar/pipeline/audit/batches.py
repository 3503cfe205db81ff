"""Batches where none may be: of an older generation after a newer one, and without an owner on a governed partition.
Pure.

Both are offsets of a stamp's batches that lie in a forbidden stretch. A run that lies in it whole counts by its number
of batches; of one that reaches into it the records there are read a second time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit.writers import STAMP, examples, is_data, none

END: Final = 2**63 - 1


def interleaved(runs: DataFrame, stamps: DataFrame) -> DataFrame:
    """Attributed runs that reach after the fence of their stamp: with the stretch `lo` to `hi` of offsets, both
    within, in which their batches may not lie.
    """
    fenced = stamps.where("fenced_at IS NOT NULL").select(*STAMP, "fenced_at")
    found = runs.where(is_data).join(fenced, [*STAMP]).where("last_offset > fenced_at")
    return found.withColumns({"kind": F.lit("interleaved"), "lo": F.col("fenced_at") + 1, "hi": F.lit(END)})


def unowned(runs: DataFrame, stretches: DataFrame) -> DataFrame:
    """Attributed runs without an owner that reach into a stretch in which their partition was governed."""
    nobodys = runs.where(is_data).where("slot IS NULL")
    found = nobodys.join(F.broadcast(stretches), "partition").where("last_offset >= lo AND first_offset <= hi")
    return found.withColumn("kind", F.lit("unowned"))


def governed(runs: DataFrame, known: DataFrame, ungoverned: DataFrame) -> DataFrame:
    """The stretches (`partition`, `lo`, `hi`) of offsets in which a topic was governed: from the first offset that
    nodes know of, or the first batch or marker of a slot, without the times between two policies.

    Such a time reaches from after what was written under the epochs before it to the first epoch after it. Keep-alives
    go on in the meantime, and fences under epochs that nobody opened: what is surely in front of it is what an epoch
    wrote whose own opening is known, and its first marker.
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
    """Whether a suspect run lies in its stretch with everything."""
    return "first_offset >= lo AND last_offset <= hi"


def placed(suspects: DataFrame, records: DataFrame | None) -> DataFrame:
    """Per suspect run that has batches in its stretch: `count` of them, and the `offset` of the first record there.
    `records` are those of the runs that reach into a stretch in part; None where none does.
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
    # A batch may have records of several names, and so of several runs: it counts in that of the first one.
    firsts = records.where(is_data).groupBy(*STAMP, "base_offset")
    firsts = firsts.agg(F.min("offset").alias("offset"), F.min_by("producer_name", "offset").alias("its_name"))
    named = firsts.join(parts, [*STAMP]).where("its_name <=> producer_name AND offset BETWEEN begin AND end")
    inside = named.groupBy(*kept, "producer_name", "begin")
    counted = inside.agg(F.min("offset").alias("offset"), F.count("*").alias("count"))
    return found.unionByName(counted.drop("producer_name", "begin"))


def violations(placed: DataFrame) -> DataFrame:
    """One row per run with batches out of place."""
    generation = F.coalesce(F.col("generation").cast("string"), F.lit("-"))
    number = F.col("count").cast("string")
    fenced = F.format_string(
        "batches here: %s, of generation %s, behind the fence at offset %s", number, generation,
        (F.col("lo") - 1).cast("string"),
    )  # fmt: skip
    nobodys = F.format_string("batches here: %s, which no epoch of a node's slot wrote", number)
    detail = F.when(F.col("kind") == "interleaved", fenced).otherwise(nobodys)
    return examples(placed, detail, sequence_id=none("long"))
