"""A run for people and for later: the table, the same as JSON, the generated part of docs/operate/performance.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measures import BY_KEY, MEASURES, Against, Figure, Measure, Target
from benchmarks.summary import Cell, Spread, Summary, Verdict, judge, summarise

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rounds import Results

BEGIN: Final = "<!-- figures: begin -->"
END: Final = "<!-- figures: end -->"


def figure_text(measure: Measure, cell: Cell) -> str:
    """`median (least to most)` and, in brackets, how it stands to direct Kafka."""
    text = _spread(cell.value, measure.digits)
    if cell.against_direct is None:
        return text
    if measure.against is Against.RATIO:
        return f"{text} [×{cell.against_direct.median:.2f}]"
    return f"{text} [{cell.against_direct.median:+.{measure.digits}f}]"


def _spread(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f} ({spread.least:.{digits}f} to {spread.most:.{digits}f})"


def rows(summary: Summary) -> list[tuple[str, ...]]:
    """The table's rows, head first."""
    targets = [target for target in Target if any(target in cells for cells in summary.values())]
    found = [("", *(target.label for target in targets))]
    for measure in MEASURES:
        cells = summary.get(measure.key)
        if cells:
            texts = (figure_text(measure, cells[target]) if target in cells else "" for target in targets)
            found.append((f"{measure.label}, {measure.unit}", *texts))
    return found


def memory_text(results: Results) -> str:
    """The node's memory in one line."""
    if results.memory_before is None or results.memory_after is None:
        return ""
    return (
        f"Resident memory of the node: {results.memory_before.resident:.0f} MiB before, "
        f"{results.memory_after.peak:.0f} MiB at most, {results.memory_after.resident:.0f} MiB after."
    )


def conditions_text(results: Results, around: dict[str, Any]) -> str:
    """What the figures were taken on, and what disturbed them."""
    shares = [share for one in results.rounds for share in one.neighbours.values()]
    busy = f"; other programs took {min(shares):.0%} to {max(shares):.0%} of the machine" if shares else ""
    text = (
        f"{len(results.rounds)} rounds in {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), "
        f"Kafka {around['kafka']}, Java {around['java']}, Python {around['python']}{busy}."
    )
    return " ".join([text, *(f"{note}." for note in results.notes)])


def verdict_rows(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    """The aims beside their figures, head first."""
    found = [("aim", "target", "found", "")]
    for verdict in verdicts:
        aim, value = verdict.aim, verdict.value
        if value is None:
            said = "not measured"
        elif aim.figure is Figure.AGAINST_FORWARDER:
            said = f"×{value:.2f}"
        elif aim.key in BY_KEY:
            said = f"{value:.2f}" if BY_KEY[aim.key].against is not Against.DIFFERENCE else f"{value:+.0f} µs"
        else:
            said = f"{value:.1f} MiB"
        met = {True: "kept", False: "missed", None: ""}[verdict.met]
        found.append((aim.text, aim.target.label if aim.target else "node", said, met))
    return found


def plain(table: list[tuple[str, ...]]) -> str:
    """For a terminal: columns aligned."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def markdown(table: list[tuple[str, ...]]) -> str:
    """As a table of GitHub's Markdown."""
    head, *body = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([head, f"|{'---|' * len(table[0])}", *body])


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    summary, verdicts = _judged(results)
    parts = [
        "median (least to most over rounds) [against direct Kafka, median of the rounds' own ratios or differences]",
        plain(rows(summary)),
        memory_text(results),
        conditions_text(results, around),
        plain(verdict_rows(verdicts)),
    ]
    return "\n\n".join(part for part in parts if part)


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    summary, verdicts = _judged(results)
    parts = [
        markdown(rows(summary)),
        memory_text(results),
        conditions_text(results, around),
        markdown(verdict_rows(verdicts)),
    ]
    return "\n\n".join(part for part in parts if part)


def _judged(results: Results) -> tuple[Summary, list[Verdict]]:
    summary = summarise([one.figures for one in results.rounds])
    loaded = {"produce", "consume"} <= summary.keys()  # without load the peak says nothing
    peak = results.memory_after.peak if results.memory_after is not None and loaded else None
    return summary, judge(summary, peak)


def replace_between(text: str, new: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """`text` with what stands between the markers replaced. Raises ValueError unless each is there once."""
    opening, closing = markers
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end or opening in rest or closing in after:
        raise ValueError(f"no single {opening} … {closing}")
    return f"{before}{opening}\n\n{new}\n\n{closing}{after}"


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every figure of every round, medians beside them."""
    summary, verdicts = _judged(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "notes": results.notes,
        "summary": {
            key: {target.value: asdict(cell) for target, cell in cells.items()} for key, cells in summary.items()
        },
        "memory": {
            "before": asdict(results.memory_before) if results.memory_before else None,
            "after": asdict(results.memory_after) if results.memory_after else None,
        },
        "aims": [{"aim": verdict.aim.text, "value": verdict.value, "met": verdict.met} for verdict in verdicts],
        "rounds": [
            {
                "figures": {target.value: figures for target, figures in one.figures.items()},
                "neighbours": one.neighbours,
                "memory": asdict(one.memory) if one.memory else None,
                "seconds": one.seconds,
            }
            for one in results.rounds
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
