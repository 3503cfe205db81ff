"""HTML pages of the jobs: one file each that needs nothing else, with plots as SVG in it.

Templates are package data (`templates/`); what they are given is escaped. Plots take a few hundred points, which Spark
has added up before.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sidecar.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

_SIZE: Final = (10.0, 3.2)
_DPI: Final = 72
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
    """Unix ms for people."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def over_time(
    series: Mapping[str, Sequence[tuple[int, float]]], width_ms: int, label: str, marks: Mapping[int, str] | None = None
) -> Markup:
    """Stacked bars as inline SVG: of each series points (begin of the bar in Unix ms, height); all bars are `width_ms`
    wide. `marks`: moments that get a line, with what they are.
    """
    figure = _figure()
    axes = figure.subplots()
    heights: dict[int, float] = {}
    width = width_ms / 86_400_000  # matplotlib counts days
    for index, (name, points) in enumerate(series.items()):
        at = [begin for begin, _ in points]
        bottoms = [heights.get(begin, 0.0) for begin in at]
        days = [begin / 86_400_000 for begin in at]
        color = _COLORS[index % len(_COLORS)]
        axes.bar(days, [value for _, value in points], width, bottoms, align="edge", label=name, color=color)
        for begin, value in points:
            heights[begin] = heights.get(begin, 0.0) + value
    for at_ms, what in (marks or {}).items():
        axes.axvline(at_ms / 86_400_000, color="#444444", linewidth=0.8, linestyle=":")
        axes.annotate(
            what, (at_ms / 86_400_000, 1), xycoords=("data", "axes fraction"), fontsize=7, rotation=90, va="top"
        )
    axes.xaxis_date(tz="UTC")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    if series:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return svg(figure)


def _figure() -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second, and most jobs draw nothing

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    figure.set_facecolor("none")
    return figure


def svg(figure: Figure) -> Markup:
    """A figure as an element of a page, with no time of its making in it."""
    import matplotlib as mpl  # noqa: PLC0415

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "sidecar", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])  # noqa: S704 - matplotlib escapes what it draws
