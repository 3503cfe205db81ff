"""Plots over time as HTML and SVG, for one page that needs nothing else: stacked bars and lines. Pure.

Only what is drawn is SVG, which stretches with the page. Labels are HTML around it, so that they are as large on a
phone as on a screen, and colours come from the page's style sheet (`--series-0` to `--series-8`, see
`templates/base.html`), which has them for light and dark. Names may hold anything: all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from markupsafe import Markup

Points: TypeAlias = "Sequence[tuple[int, float]]"
"""Unix ms and a value, oldest first."""

SERIES: Final = 9
"""As many colours as the style sheet has."""

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
"""Lengths of time that people count in, in ms."""
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
    """The least length of time in which people count, of which at most about `most` bars cover `span_ms`."""
    return next((step for step in _STEPS if step * most >= span_ms), max(1, -(-span_ms // most)))


def duration(width_ms: int) -> str:
    """`5 seconds`, `1 hour`."""
    size, unit = next((size, unit) for size, unit in _UNITS if width_ms % size == 0)
    number = width_ms // size
    return f"{number:,} {unit}{'s' if number > 1 and unit != 'ms' else ''}"


def over_time(
    series: Mapping[str, Points], width_ms: int, label: str, marks: Mapping[int, str] | None = None
) -> Markup:
    """Stacked bars: of each series points (begin of the bar, height); all bars are `width_ms` wide. `marks`: moments
    that get a line, with what they are.
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
    if first == last:  # of one audit: its point stands between whole minutes
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
    """From when to when (Unix ms), and from 0 to what: places in the drawing, and the labels around it."""

    def __init__(self, first: int, last: int, most: float) -> None:
        self._first, self._last = first, max(last, first + 1)
        self._step = next((step for step in _magnitudes() if most <= step * _Y_TICKS), most)
        self._top = self._step * max(1, -(-most // self._step))

    def x(self, at: int) -> float:
        return (at - self._first) / (self._last - self._first) * _WIDTH

    def y(self, value: float) -> float:
        return _HEIGHT - value / self._top * _HEIGHT

    def figure(self, label: str, legend: Markup, shapes: Sequence[Markup]) -> Markup:
        """The whole element."""
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


def _magnitudes() -> Iterator[float]:
    """Steps of an axis: 1, 2, 5, 10 …"""
    return (number * 10.0**power for power in range(-3, 19) for number in (1, 2, 5))


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
    """The time of day as exact as steps of `step_ms` are."""
    moment = datetime.fromtimestamp(at_ms // _SECOND, UTC)
    if step_ms % _MINUTE == 0 and at_ms % _MINUTE == 0:
        return moment.strftime("%H:%M")
    return moment.strftime("%H:%M:%S") + ("" if at_ms % _SECOND == 0 else f".{at_ms % _SECOND:03d}")
