"""A run for people and for later: the tables, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import markdown, plain
from benchmarks.shadows.reading import By

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.shadows.run import Results

BEGIN: Final = "<!-- shadows: begin -->"
END: Final = "<!-- shadows: end -->"
_AIM_RATIO: Final = 0.65
_AIM_CPU: Final = 0.6

Table = list[tuple[str, ...]]


def readers(results: Results) -> Table:
    """One consumer, by where it reads: throughput, its share of direct Kafka's, the node's CPU; head first."""
    found: Table = [("one consumer at", "MB/s", "of direct", "CPU of the node, s/GB")]
    for by in By:
        reads = [one.reads[by] for one in results.rounds]
        if reads:
            rate = statistics.median(read.mb_per_s for read in reads)
            own = by is not By.DIRECT
            cpu = f"{statistics.median(read.cpu_per_gb for read in reads):.2f}" if own else ""
            found.append((by.value, f"{rate:.0f}", f"{ratio(results, by):.2f}" if own else "", cpu))
    return found


def ratio(results: Results, by: By) -> float:
    """Of direct Kafka's throughput: the median of the rounds' own ratios."""
    return statistics.median(one.reads[by].mb_per_s / one.reads[By.DIRECT].mb_per_s for one in results.rounds)


def aims(results: Results) -> Table:
    """The aims beside their figures, head first."""
    found: Table = [("aim", "found", "")]
    if results.rounds:
        share = ratio(results, By.SHADOW)
        cpu = statistics.median(one.reads[By.SHADOW].cpu_per_gb for one in results.rounds)
        found += [
            (f"a consumer of a shadow ≥ {_AIM_RATIO} of direct", f"{share:.2f}", _said(met=share >= _AIM_RATIO)),
            (f"CPU ≤ {_AIM_CPU:.2f} s/GB, a consumer of a shadow", f"{cpu:.2f}", _said(met=cpu <= _AIM_CPU)),
        ]
    return found


def _said(*, met: bool) -> str:
    return "kept" if met else "missed"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    shares = [one.neighbours for one in results.rounds]
    busy = f"; other programs took {min(shares):.0%} to {max(shares):.0%} of the machine" if shares else ""
    return (
        f"{len(results.rounds)} rounds in {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), "
        f"Kafka {around['kafka']}, Java {around['java']}, Python {around['python']}{busy}."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    return "\n\n".join([plain(readers(results)), _conditions(results, around), plain(aims(results))])


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    return "\n\n".join([markdown(readers(results)), _conditions(results, around), markdown(aims(results))])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every round and every crowd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "rounds": [
            {"neighbours": one.neighbours, "reads": {by.name.lower(): asdict(read) for by, read in one.reads.items()}}
            for one in results.rounds
        ],
        "aims": [dict(zip(("aim", "found", "met"), row, strict=True)) for row in aims(results)[1:]],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
