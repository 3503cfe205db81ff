"""The page of an audit: verdict, counts, examples, and records over time by producer and by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.audit.writers import is_data
from sidecar.pipeline.page import over_time, render

if TYPE_CHECKING:
    from markupsafe import Markup
    from pyspark.sql import DataFrame

    from sidecar.pipeline.audit.facts import Takeover
    from sidecar.pipeline.audit.judge import Audit, Bounds

_BARS: Final = 120
_SERIES: Final = 8
_TAKEOVERS: Final = 200
_OTHERS: Final = "others"
_NOBODY: Final = "-"


@dataclass(frozen=True, slots=True)
class Shown:
    """One topic as the page shows it: data alone, with nothing left in Spark."""

    topic: str
    passes: bool
    records: int
    totals: Mapping[str, int]
    gaps: int
    malformed: int
    bounds: Bounds
    examples: Sequence[Mapping[str, Any]]
    takeovers: Sequence[Takeover]
    plots: Mapping[str, Markup]


def shown(found: Audit, takeovers: Sequence[Takeover]) -> Shown:
    """Gather what a page needs of an audit. Of many takeovers the newest."""
    newest = sorted(takeovers, key=lambda each: each.at_ms)[-_TAKEOVERS:]
    return Shown(
        found.topic, found.passes, found.records, found.totals, found.gaps, found.malformed, found.bounds,
        found.examples, newest, _plots(found, newest),
    )  # fmt: skip


def page(audits: Sequence[Shown], cluster_id: str, at_ms: int) -> str:
    """The whole page."""
    return render("audit.html", audits=audits, cluster_id=cluster_id, at_ms=at_ms)


def _plots(found: Audit, takeovers: Sequence[Takeover]) -> dict[str, Markup]:
    data = found.runs.where(is_data).where("first_timestamp_ms > 0 AND records > 0")
    span = data.agg(F.min(_earlier()).alias("first"), F.max(_later()).alias("last")).first()
    if span is None or span["first"] is None:
        return {}
    width = max(1, -(-(span["last"] - span["first"] + 1) // _BARS))
    by_producer = F.coalesce("name", F.lit(_NOBODY))
    by_generation = F.coalesce(F.concat(F.lit("generation "), F.col("generation").cast("string")), F.lit("no owner"))
    marks = {
        each.at_ms: f"{each.kind} {each.generation}" for each in takeovers if _shows(each, span["first"], span["last"])
    }
    return {
        "Records over time, by producer": over_time(
            bars(data.withColumn("series", by_producer), span["first"], width), width, "records"
        ),
        "Records over time, by generation": over_time(
            bars(data.withColumn("series", by_generation), span["first"], width), width, "records", marks
        ),
    }


def _shows(each: Takeover, first: int, last: int) -> bool:
    return each.kind in ("claimed", "failover") and first <= each.at_ms <= last


def _earlier() -> Any:
    return F.least("first_timestamp_ms", "last_timestamp_ms")


def _later() -> Any:
    return F.greatest("first_timestamp_ms", "last_timestamp_ms")


def bars(runs: DataFrame, first: int, width: int) -> dict[str, list[tuple[int, float]]]:
    """Records per series and bar of `width` ms from `first` on. A run's are spread evenly over its time. Beyond eight
    series the smallest are added up.
    """
    begins, ends = (F.floor((each - first) / width) for each in (_earlier(), _later()))
    spread = runs.withColumns({"begins": begins, "ends": ends})
    share = F.col("records") / (F.col("ends") - F.col("begins") + 1)
    each = spread.select("series", share.alias("records"), F.explode(F.sequence("begins", "ends")).alias("bar"))
    sums = each.groupBy("series").agg(F.sum("records").alias("records")).orderBy(F.desc("records"), "series")
    largest = [row["series"] for row in sums.limit(_SERIES + 1).collect()]
    kept = largest if len(largest) <= _SERIES else largest[: _SERIES - 1]
    name = F.when(F.col("series").isin(kept), F.col("series")).otherwise(F.lit(_OTHERS))
    rows = each.groupBy(name.alias("series"), "bar").agg(F.sum("records").alias("records")).collect()
    found: dict[str, list[tuple[int, float]]] = {}
    order = {series: index for index, series in enumerate([*kept, _OTHERS])}
    for row in sorted(rows, key=lambda row: (order[row["series"]], row["bar"])):
        found.setdefault(row["series"], []).append((first + int(row["bar"]) * width, float(row["records"])))
    return found
