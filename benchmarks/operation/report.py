"""A run for people and for later: the tables, the same as JSON, and their part of docs/operate/performance.md."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.operation.commands import HEALTHCHECK, IMPORT
from benchmarks.report import markdown, plain
from benchmarks.summary import Spread

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.operation.run import Results

BEGIN: Final = "<!-- operation: begin -->"
END: Final = "<!-- operation: end -->"
_AIM_START_MS: Final = 1_000
_AIM_COMMAND_MS: Final = 150
_AIM_REST_MB: Final = 60

Table = list[tuple[str, ...]]


def times(results: Results) -> Table:
    """How long starts and commands take, head first."""
    found: Table = [("ms", "p50", "least", "most", "times")]
    for name, taken in {"start of a node to ready": results.starts, **results.commands}.items():
        figures = (statistics.median(taken), min(taken), max(taken))
        found.append((name, *(f"{value:.0f}" for value in figures), str(len(taken))))
    return found


def counting(results: Results) -> Table:
    """CPU of a node with metrics and logs and without, head first; the ratio is taken in each round."""
    ours, bare = results.counting["with"], results.counting["without"]
    found: Table = [("exclusive topic", "with metrics and logs", "without", "ratio")]
    for text, unit, digits, of in (
        ("records of 1 KiB in batches", "s/GB", 2, lambda one: one.per_gb),
        ("a batch that comes alone", "µs", 0, lambda one: one.per_batch),
    ):
        sides = [_spread([of(one) for one in side], digits) for side in (ours, bare)]
        ratio = statistics.median(of(one) / of(other) for one, other in zip(ours, bare, strict=True))
        found.append((f"CPU, {text}, {unit}", *sides, f"{ratio:.2f}"))
    return found


def _spread(values: list[float], digits: int) -> str:
    found = Spread.of(values)
    assert found is not None
    return f"{found.median:.{digits}f} ({found.least:.{digits}f} to {found.most:.{digits}f})"


def aims(results: Results) -> Table:
    """The aims beside their figures, head first."""
    rest = results.resting
    assert rest is not None
    start = statistics.median(results.starts)
    health = statistics.median(results.commands[HEALTHCHECK])
    imported = statistics.median(results.commands[IMPORT])
    return [
        ("aim", "found", ""),
        ("start to ready ≤ 1 s", f"{start:.0f} ms", _said(met=start <= _AIM_START_MS)),
        ("`sidecar healthcheck` ≤ 150 ms", f"{health:.0f} ms", _said(met=health <= _AIM_COMMAND_MS)),
        ("import of the command line ≤ 150 ms", f"{imported:.0f} ms", _said(met=imported <= _AIM_COMMAND_MS)),
        ("memory at rest ≤ 60 MB", f"{rest.ready:.1f} MB", _said(met=rest.ready <= _AIM_REST_MB)),
        (
            f"memory with {rest.topics:,} governed topics, each owned",
            f"{rest.governed:.1f} MB, {(rest.governed - rest.ready) * 1000 / rest.topics:.1f} kB a topic",
            "",
        ),
        (f"a scrape of `/metrics` then ({rest.topics:,} topics)", f"{statistics.median(rest.scrapes):.0f} ms", ""),
    ]


def _said(*, met: bool) -> str:
    return "kept" if met else "missed"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    return (
        f"In {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), Kafka {around['kafka']}, Java "
        f"{around['java']}, Python {around['python']}; other programs took {results.neighbours:.0%} of the machine."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """For a terminal."""
    tables = (plain(each) for each in (times(results), counting(results), aims(results)))
    return "\n\n".join([*tables, _conditions(results, around)])


def document(results: Results, around: dict[str, Any]) -> str:
    """For docs/operate/performance.md."""
    tables = (markdown(each) for each in (times(results), counting(results), aims(results)))
    return "\n\n".join([*tables, _conditions(results, around)])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """All samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"around": around, **asdict(results)}, indent=1) + "\n")
