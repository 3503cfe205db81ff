"""HTML pages of the jobs: one file each that needs nothing else, with plots as SVG in it.

Templates are package data (`templates/`); what they are given is escaped. Plots take a few hundred points, which Spark
has added up before.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sidecar.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_SIZE: Final = (10.0, 3.2)
_DPI: Final = 72
_DAY_MS: Final = 86_400_000
"""matplotlib counts days."""

_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_10000_MS: Final = 253_402_300_800_000
_COLORS: Final = (
    "#2c6fbb", "#e07b39", "#3a9d5d", "#b5446e", "#7a5cc2", "#8f6b4a", "#c9a227", "#3aa6a6",
    "#777777",
)  # fmt: skip


def render(template: str, **values: Any) -> str:
    """A page out of `templates/<template>`; a name that the template asks for and is not given is an error."""
    environment = Environment(
        loader=PackageLoader("sidecar.pipeline"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["moment"] = moment
    return environment.get_template(template).render(**values)


def write(path: Path, text: str) -> None:
    """Write a page. Raises `PipelineError` where that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written ({error.strerror}): name another file") from None


def moment(at_ms: int) -> str:
    """Unix ms for people; the number itself where it is in no year that they count: records may bear any."""
    if not _YEAR_1_MS <= at_ms < _YEAR_10000_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def over_time(
    series: Mapping[str, Sequence[tuple[int, float]]], width_ms: int, label: str, marks: Mapping[int, str] | None = None
) -> Markup:
    """Stacked bars as inline SVG: of each series points (begin of the bar in Unix ms, height); all bars are `width_ms`
    wide. `marks`: moments that get a line, with what they are.
    """

    def draw(axes: Axes) -> None:
        heights: dict[int, float] = {}
        for index, (name, points) in enumerate(series.items()):
            bottoms = [heights.get(begin, 0.0) for begin, _ in points]
            days = [begin / _DAY_MS for begin, _ in points]
            color = _COLORS[index % len(_COLORS)]
            values = [value for _, value in points]
            axes.bar(days, values, width_ms / _DAY_MS, bottoms, align="edge", label=_shown(name), color=color)
            for begin, value in points:
                heights[begin] = heights.get(begin, 0.0) + value
        for at_ms, what in (marks or {}).items():
            axes.axvline(at_ms / _DAY_MS, color="#444444", linewidth=0.8, linestyle=":")
            place = (at_ms / _DAY_MS, 1)
            axes.annotate(what, place, xycoords=("data", "axes fraction"), fontsize=7, rotation=90, va="top")

    return _plot(draw, label)


def lines(series: Mapping[str, Sequence[tuple[int, float]]], label: str) -> Markup:
    """Lines as inline SVG: of each series points (Unix ms, value), oldest first."""

    def draw(axes: Axes) -> None:
        for index, (name, points) in enumerate(series.items()):
            days = [at / _DAY_MS for at, _ in points]
            values = [value for _, value in points]
            axes.plot(days, values, "o-", label=_shown(name), color=_COLORS[index % len(_COLORS)])

    return _plot(draw, label)


def _shown(name: str) -> str:
    """Plots leave names that begin with an underscore out of their legend otherwise."""
    return f"\u200b{name}" if name.startswith("_") else name


def _plot(draw: Callable[[Axes], None], label: str) -> Markup:
    """A plot over time as an element of a page, with no time of its making in it. Names may hold anything."""
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, and most jobs draw nothing
    from matplotlib.figure import Figure  # noqa: PLC0415

    out = io.StringIO()
    with (
        mpl.rc_context({"svg.hashsalt": "sidecar", "svg.fonttype": "none", "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", r"Glyph \d+")  # of a font that the reader of the page may have
        figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
        figure.set_facecolor("none")
        axes = figure.subplots()
        draw(axes)
        axes.xaxis_date(tz="UTC")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])  # noqa: S704 - matplotlib escapes what it draws
