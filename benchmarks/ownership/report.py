"""A run for people and for later: the table, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.ownership.measures import CROWD, MEASURES, Figures, Measure, Verdict, judge, summarise
from benchmarks.ownership.run import Work
from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.ownership.run import Results

BEGIN: Final = "<!-- ownership: begin -->"
END: Final = "<!-- ownership: end -->"

Table = list[tuple[str, ...]]


def rows(summary: dict[str, Figures]) -> Table:
    """The table's rows, head first."""
    head = ("ms", "p50", "p99", "most", "samples")
    return [head, *(_row(measure, summary[measure.key]) for measure in MEASURES if measure.key in summary)]


def _row(measure: Measure, figures: Figures) -> tuple[str, ...]:
    values = [f"{value:.{0 if value >= 1_000 else 1}f}" for value in (figures.p50, figures.p99, figures.most)]
    times = "once" if measure.once else str(figures.samples)
    return (measure.label.format(samples=figures.samples), *values, times)


def verdict_rows(verdicts: list[Verdict]) -> Table:
    """The aims beside their figures, head first."""
    said = {True: "kept", False: "missed", None: ""}
    found = [
        (
            verdict.aim.text,
            "not measured" if verdict.value is None else f"{verdict.value:.0f} ms",
            said[verdict.met],
        )
        for verdict in verdicts
    ]
    return [("aim", "found", ""), *found]


def conditions_text(results: Results, around: dict[str, Any]) -> str:
    """What the figures were taken on, and what disturbed them."""
    shares = results.neighbours.values()
    busy = f"; other programs took {min(shares):.0%} to {max(shares):.0%} of the machine" if shares else ""
    return (
        f"In {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), Kafka {around['kafka']}, "
        f"Java {around['java']}, Python {around['python']}{busy}."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    summary, verdicts = _judged(results)
    return "\n\n".join([plain(rows(summary)), conditions_text(results, around), plain(verdict_rows(verdicts))])


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    summary, verdicts = _judged(results)
    return "\n\n".join([markdown(rows(summary)), conditions_text(results, around), markdown(verdict_rows(verdicts))])


def _judged(results: Results) -> tuple[dict[str, Figures], list[Verdict]]:
    summary = summarise(results.samples)
    return summary, judge(summary, whole=len(results.samples.get(CROWD, ())) >= Work().crowd)


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every sample, figures beside them."""
    summary, verdicts = _judged(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "summary_ms": {key: asdict(figures) for key, figures in summary.items()},
        "aims": [{"aim": verdict.aim.text, "value": verdict.value, "met": verdict.met} for verdict in verdicts],
        "neighbours": results.neighbours,
        "samples_ms": results.samples,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
