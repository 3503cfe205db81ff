"""HTML pages of the jobs: one self-contained file each, with plots over time as stacked bars and lines.

Templates are package data (`templates/`); their values are escaped, because names may hold anything. Only the shapes
are SVG, which stretches with the page. Labels are HTML around it, so they have the same size on a phone and on a
screen. Colours come from the page's style sheet (`--series-0` to `--series-8`, see `templates/base.html`), which
defines them for light and dark. Spark adds up records over time to the few hundred bars that a page shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.errors import PipelineError

Points: TypeAlias = "Sequence[tuple[int, float]]"
"""Times (Unix ms) and values, oldest first."""

SERIES: Final = 9
"""The number of colours in the style sheet."""

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_STEPS: Final = (
    *(number * scale for scale in (1, 10, 100) for number in (1, 2, 5)),
    *(number * _SECOND for number in (1, 2, 5, 10, 15, 30)),
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)),
)
"""Common lengths of time, in ms."""
_UNITS: Final = ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (_SECOND, "second"), (1, "ms"))
_X_TICKS: Final = 7
_Y_TICKS: Final = 5
_WIDTH: Final = 1_000
_HEIGHT: Final = 200

_FIGURE: Final = Markup(
    '<figure class="plot"><figcaption>{}<span class="quiet"> {}</span></figcaption>{}<div class="area">'
    '<div class="up" style="width:{}ch">{}</div>'
    '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    '<div class="along">{}</div></div></figure>'
)
_NAME: Final = Markup('<li><i class="{}"></i>{}</li>')
_UP: Final = Markup('<span style="bottom:{:.2f}%">{}</span>')
_ALONG: Final = Markup('<span style="left:{:.2f}%">{}</span>')
_GRID: Final = Markup('<path class="grid" d="M0 {:.2f}H{}"/>')
_BAR: Final = Markup('<rect class="s{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>')
_MARK: Final = Markup('<path class="mark" d="M{:.2f} 0V{}"><title>{}</title></path>')
_LINE: Final = Markup('<polyline class="s{}" points="{}"/>')
_DOT: Final = Markup('<path class="dot s{}" d="M{:.2f} {:.2f}h0"><title>{}</title></path>')


def bar_width(span_ms: int, most: int) -> int:
    """The smallest common length of time with which about `most` bars or fewer cover `span_ms`."""
    return next((step for step in _STEPS if step * most >= span_ms), max(1, -(-span_ms // most)))


def duration(width_ms: int) -> str:
    """A length of time as text: `5 seconds`, `1 hour`."""
    size, unit = next((size, unit) for size, unit in _UNITS if width_ms % size == 0)
    number = width_ms // size
    return f"{number:,} {unit}{'s' if number > 1 and unit != 'ms' else ''}"


def over_time(
    series: Mapping[str, Points], width_ms: int, label: str, marks: Mapping[int, str] | None = None
) -> Markup:
    """Stacked bars. Each series has points (begin of the bar, height); all bars are `width_ms` wide. `marks`: times
    that get a line, with their labels.
    """
    begins = [at for points in series.values() for at, _ in points]
    heights: dict[int, float] = {}
    shapes: list[Markup] = []
    axes = _Axes(min(begins), max(begins) + width_ms, max(_sums(series).values()))
    for index, (name, points) in enumerate(series.items()):
        for begin, value in points:
            bottom = heights.get(begin, 0.0)
            heights[begin] = bottom + value
            left, right = axes.x(begin), axes.x(begin + width_ms)
            top = axes.y(bottom + value)
            what = f"{_clock(begin, width_ms)}, {name}: {_number(value)}"
            height = axes.y(bottom) - top
            shapes.append(_BAR.format(index % SERIES, left, top, right - left, height, what))
    for at, what in (marks or {}).items():
        shapes.append(_MARK.format(axes.x(at), _HEIGHT, f"{what}, {_clock(at, 1)}"))
    legend = _legend(series, "change of owner" if marks else None)
    return axes.figure(f"{label} per {duration(width_ms)}", legend, shapes)


def lines(series: Mapping[str, Points], label: str) -> Markup:
    """A line with dots for each series."""
    times = [at for points in series.values() for at, _ in points]
    first, last = min(times), max(times)
    if first == last:  # a single audit: its point is drawn between whole minutes
        first = first // _MINUTE * _MINUTE - _MINUTE
        last = first + 3 * _MINUTE
    axes = _Axes(first, last, max(value for points in series.values() for _, value in points))
    shapes: list[Markup] = []
    for index, (name, points) in enumerate(series.items()):
        path = " ".join(f"{axes.x(at):.2f},{axes.y(value):.2f}" for at, value in points)
        shapes.append(_LINE.format(index % SERIES, path))
        for at, value in points:
            what = f"{_clock(at, 1)}, {name}: {_number(value)}"
            shapes.append(_DOT.format(index % SERIES, axes.x(at), axes.y(value), what))
    return axes.figure(label, _legend(series), shapes)


class _Axes:
    """The range of time (Unix ms) and of values: positions in the drawing, and the labels around it."""

    def __init__(self, first: int, last: int, most: float) -> None:
        self._first, self._last = first, max(last, first + 1)
        steps = (number * 10.0**power for power in range(-3, 19) for number in (1, 2, 5))
        self._step = next((step for step in steps if most <= step * _Y_TICKS), most)
        self._top = self._step * max(1, -(-most // self._step))

    def x(self, at: int) -> float:
        return (at - self._first) / (self._last - self._first) * _WIDTH

    def y(self, value: float) -> float:
        return _HEIGHT - value / self._top * _HEIGHT

    def figure(self, label: str, legend: Markup, shapes: Sequence[Markup]) -> Markup:
        """The whole figure element."""
        whole = f"{_date(self._first)} {_clock(self._first, 1)} to {_date(self._last)} {_clock(self._last, 1)} UTC"
        heights = [self._step * number for number in range(round(self._top / self._step) + 1)]
        up = Markup().join(_UP.format(height / self._top * 100, _number(height)) for height in heights)
        grid = Markup().join(_GRID.format(self.y(height), _WIDTH) for height in heights)
        along = Markup().join(_ALONG.format(self.x(at) / _WIDTH * 100, text) for at, text in self._times())
        width = max(len(_number(height)) for height in heights) + 1
        drawing = grid + Markup().join(shapes)
        return _FIGURE.format(label, whole, legend, width, up, _WIDTH, _HEIGHT, label, drawing, along)

    def _times(self) -> Iterator[tuple[int, str]]:
        step = bar_width(self._last - self._first, _X_TICKS)
        for at in range(-(-self._first // step) * step, self._last + 1, step):
            yield at, _date(at) if at % _DAY == 0 else _clock(at, step)


def _sums(series: Mapping[str, Points]) -> dict[int, float]:
    found: dict[int, float] = {}
    for points in series.values():
        for begin, value in points:
            found[begin] = found.get(begin, 0.0) + value
    return found


def _legend(series: Mapping[str, Points], mark: str | None = None) -> Markup:
    found = [_NAME.format(f"s{index % SERIES}", name) for index, name in enumerate(series)]
    if mark is not None:
        found.append(_NAME.format("mark", mark))
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(found))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.3g}"


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // _SECOND, UTC).strftime("%Y-%m-%d")


def _clock(at_ms: int, step_ms: int) -> str:
    """The time of day, as precise as steps of `step_ms` need."""
    moment = datetime.fromtimestamp(at_ms // _SECOND, UTC)
    if step_ms % _MINUTE == 0 and at_ms % _MINUTE == 0:
        return moment.strftime("%H:%M")
    return moment.strftime("%H:%M:%S") + ("" if at_ms % _SECOND == 0 else f".{at_ms % _SECOND:03d}")


_BARS: Final = 120
_OTHERS: Final = "others"
_GENERATION: Final = "generation "
_BEHIND_MS: Final = 4_102_444_800_000
"""The year 2100. Later timestamps are ignored: those of a producer that counts microseconds are far later."""


def _in_order(series: Sequence[str]) -> list[str]:
    """Generations in ascending order; other series follow in their order."""

    def place(name: str) -> tuple[bool, int]:
        number = name.removeprefix(_GENERATION)
        is_one = name != number and number.isascii() and number.isdigit()
        return not is_one, int(number) if is_one else 0

    return sorted(series, key=place)


def dated(runs: DataFrame) -> DataFrame:
    """Runs with records and valid timestamps: clients may set any number, and -1 means none."""
    return runs.where("records > 0").where((earlier() > 0) & (later() < _BEHIND_MS))


def bounds_of(runs: DataFrame) -> tuple[int, int, int] | None:
    """The first and the last time of the runs (Unix ms), and the width of a bar; the first is rounded down to a
    multiple of it. None if there are no runs.
    """
    span = runs.agg(F.min(earlier()).alias("first"), F.max(later()).alias("last")).first()
    if span is None or span["first"] is None:
        return None
    width = bar_width(span["last"] - span["first"] + 1, _BARS)
    return span["first"] // width * width, span["last"], width


def earlier() -> Column:
    """The earlier of a run's first and last timestamp, which is taken as its begin: clients may set times that fall."""
    return F.least("first_timestamp_ms", "last_timestamp_ms")


def later() -> Column:
    """The later of a run's first and last timestamp, which is taken as its end."""
    return F.greatest("first_timestamp_ms", "last_timestamp_ms")


def plots(runs: DataFrame, takeovers: Iterable[Mapping[str, Any]]) -> dict[str, Markup]:
    """Plots of records over time, by title: by producer, and by generation with marks where the owner changed
    (`takeovers`: rows of that table). Empty if no run has a valid time.
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
    producer = F.coalesce("name", F.lit("-"))
    generation = F.coalesce(F.concat(F.lit(_GENERATION), F.col("generation").cast("string")), F.lit("no owner"))
    for title, series, its in (("producer", producer, {}), ("generation", generation, marks)):
        heights = bars(data.withColumn("series", series), first, width)
        found[f"Records over time, by {title}"] = over_time(heights, width, "Records", its)
    return found


def bars(runs: DataFrame, first: int, width: int) -> dict[str, list[tuple[int, float]]]:
    """Records per series and bar of `width` ms from `first` on. The records of a run are spread evenly over its time.
    The largest series come first, generations in ascending order; beyond nine series the smallest are added up.
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


_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_10000_MS: Final = 253_402_300_800_000


def render(template: str, **values: Any) -> str:
    """A page from `templates/<template>`; a missing value that the template uses is an error."""
    environment = Environment(
        loader=PackageLoader("sidecar.pipeline"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["moment"] = moment
    return environment.get_template(template).render(**values)


def write(path: Path, text: str) -> None:
    """Write a page. Raises `PipelineError` if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written ({error.strerror}): name another file") from None


def moment(at_ms: int) -> str:
    """Unix ms as readable text; the number itself if it is out of range: records may have any."""
    if not _YEAR_1_MS <= at_ms < _YEAR_10000_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
