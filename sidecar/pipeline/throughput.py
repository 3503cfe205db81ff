"""Records over time out of runs: what was written when, added up in Spark to the few hundred bars that a page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.plots import SERIES, bar_width, over_time

_BARS: Final = 120
_OTHERS: Final = "others"
_NOBODY: Final = "-"
_GENERATION: Final = "generation "
_BEHIND_MS: Final = 4_102_444_800_000
"""The year 2100: a producer that counts microseconds is far behind it."""


def by_producer() -> Column:
    """The series of a run: its producer's name."""
    return F.coalesce("name", F.lit(_NOBODY))


def by_generation() -> Column:
    """The series of a run: under which generation it was written."""
    return F.coalesce(F.concat(F.lit(_GENERATION), F.col("generation").cast("string")), F.lit("no owner"))


def _in_order(series: Sequence[str]) -> list[str]:
    """Generations as they rise; what is none stays where it is, behind them."""

    def place(name: str) -> tuple[bool, int]:
        number = name.removeprefix(_GENERATION)
        is_one = name != number and number.isascii() and number.isdigit()
        return not is_one, int(number) if is_one else 0

    return sorted(series, key=place)


def dated(runs: DataFrame) -> DataFrame:
    """Those with records whose timestamps are ones: clients may give any number, and -1 is none."""
    return runs.where("records > 0").where((earlier() > 0) & (later() < _BEHIND_MS))


def bounds_of(runs: DataFrame) -> tuple[int, int, int] | None:
    """From when to when they were written (Unix ms), and how wide a bar is, from multiples of which bars begin; None
    where there are none.
    """
    span = runs.agg(F.min(earlier()).alias("first"), F.max(later()).alias("last")).first()
    if span is None or span["first"] is None:
        return None
    width = bar_width(span["last"] - span["first"] + 1, _BARS)
    return span["first"] // width * width, span["last"], width


def earlier() -> Column:
    """When a run begins: clients may give times that fall."""
    return F.least("first_timestamp_ms", "last_timestamp_ms")


def later() -> Column:
    """When a run ends."""
    return F.greatest("first_timestamp_ms", "last_timestamp_ms")


def plots(runs: DataFrame, takeovers: Iterable[Mapping[str, Any]]) -> dict[str, Markup]:
    """Records over time, by title: by producer, and by generation with marks where the owner changed (`takeovers`:
    rows of that table). None where no run has a time.
    """
    data = dated(runs)
    span = bounds_of(data)
    if span is None:
        return {}
    first, last, width = span
    marks = {
        each["at_ms"]: f"{each['kind']} {each['generation']}"
        for each in takeovers
        if each["kind"] in ("claimed", "failover") and first <= each["at_ms"] <= last
    }
    found: dict[str, Markup] = {}
    for title, series, its in (("producer", by_producer(), {}), ("generation", by_generation(), marks)):
        heights = bars(data.withColumn("series", series), first, width)
        found[f"Records over time, by {title}"] = over_time(heights, width, "Records", its)
    return found


def bars(runs: DataFrame, first: int, width: int) -> dict[str, list[tuple[int, float]]]:
    """Records per series and bar of `width` ms from `first` on. A run's are spread evenly over its time. The largest
    series come first, generations as they rise; beyond nine series the smallest are added up.
    """
    begins, ends = (F.floor((each - first) / width) for each in (earlier(), later()))
    spread = runs.withColumns({"begins": begins, "ends": ends})
    share = F.col("records") / (F.col("ends") - F.col("begins") + 1)
    each = spread.select("series", share.alias("records"), F.explode(F.sequence("begins", "ends")).alias("bar"))
    sums = each.groupBy("series").agg(F.sum("records").alias("records")).orderBy(F.desc("records"), "series")
    largest = [row["series"] for row in sums.limit(SERIES + 1).collect()]
    kept = _in_order(largest if len(largest) <= SERIES else largest[: SERIES - 1])
    name = F.when(F.col("series").isin(kept), F.col("series")).otherwise(F.lit(_OTHERS))
    rows = each.groupBy(name.alias("series"), "bar").agg(F.sum("records").alias("records")).collect()
    found: dict[str, list[tuple[int, float]]] = {}
    order = {series: index for index, series in enumerate([*kept, _OTHERS])}
    for row in sorted(rows, key=lambda row: (order[row["series"]], row["bar"])):
        found.setdefault(row["series"], []).append((first + int(row["bar"]) * width, float(row["records"])))
    return found
