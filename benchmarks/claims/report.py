"""A run for people and for later: the tables, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.claims.together import CLIENTS
from benchmarks.claims.trips import PARTITIONS, RESOURCES
from benchmarks.ownership.measures import Figures
from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.claims.run import Results
    from benchmarks.claims.waiting import Found, Load

BEGIN: Final = "<!-- claims: begin -->"
END: Final = "<!-- claims: end -->"
_KIB: Final = 1024
_FLOOR: Final = "append"
_ROWS: Final = {
    _FLOOR: "append of 100 B straight to Kafka, acks=all",
    "own": "Own of a free string",
    "release": "Release of it",
    "repeat": "Own again with the same token",
    "describe": "DescribeOwners of one string",
    "takeover": f"Own of a topic with {PARTITIONS} partitions: a takeover",
    "takeover_16": f"Own of {PARTITIONS} partitions of a topic: {PARTITIONS} takeovers",
    "own_1000": f"Own of {RESOURCES:,} strings",
    "release_1000": "Release of them",
    "describe_1000": "DescribeOwners of them",
}
"""By key, in the order of the table."""

Table = list[tuple[str, ...]]


def trips(results: Results) -> Table:
    """One request at a time, head first; `×`: of the median of a plain append in the same run."""
    found: Table = [("ms", "p50", "p99", "most", "samples", "p50, of an append's")]
    floor = Figures.of(results.samples.get(_FLOOR, ()))
    for key, label in _ROWS.items():
        figures = Figures.of(results.samples.get(key, ()))
        if figures is not None:
            values = [f"{value:.2f}" for value in (figures.p50, figures.p99, figures.most)]
            share = f"×{figures.p50 / floor.p50:.1f}" if floor is not None and key != _FLOOR else ""
            found.append((label, *values, str(figures.samples), share))
    return found


def together_text(results: Results) -> str:
    """Eight clients at once in one line."""
    if not results.together:
        return ""
    claims, appends, share = (
        statistics.median(values)
        for values in zip(
            *((one.claims, one.appends, one.claims / one.appends) for one in results.together), strict=True
        )
    )
    return (
        f"{CLIENTS} clients at once, each owns a string and lets go of it, again and again: {claims:,.0f} claims/s"
        f" (two appends each). As many producers straight to Kafka: {appends:,.0f} appends/s. Median of the rounds' own"
        f" ratios: {share:.2f}."
    )


def crowds(results: Results) -> Table:
    """One row per crowd: medians of its repeats, head first."""
    head = (
        "claims that wait", "places taken in, s", "node's memory per claim, KiB (connections)",
        "CPU of the node while they wait", "asked again, p50 / p99, ms",
        "Release → the next one hears, p50 / p99 / most, ms",
        "event loop late: taking, waiting, handing over, all hang up",
    )  # fmt: skip
    return [head, *(_crowd(load, found) for load, found in results.crowds.items())]


def _crowd(load: Load, found: list[Found]) -> tuple[str, ...]:
    def median(value: Callable[[Found], float]) -> float:
        return statistics.median(value(one) for one in found)

    handovers = Figures.of([took for one in found for took in one.passed.handovers])
    repeats = Figures.of([took for one in found for took in one.passed.repeats])
    lags = (
        max(one.lag_taking_s for one in found),
        max(one.lag_waiting_s for one in found),
        max(one.lag_handover_s for one in found),
        max(one.lag_gone_s for one in found),
    )
    whole = median(lambda one: each_kib(load, one.memory_waiting - one.memory_before))
    connected = median(lambda one: each_kib(load, one.memory_connected - one.memory_before))
    return (
        load.label,
        f"{median(lambda one: one.taking_s):.1f}",
        f"{whole:.1f} ({connected:.1f})",
        f"{median(lambda one: one.node_cpu):.2f}",
        f"{repeats.p50:.1f} / {repeats.p99:.1f}" if repeats is not None else "",
        f"{handovers.p50:.1f} / {handovers.p99:.1f} / {handovers.most:.1f}" if handovers is not None else "",
        ", ".join(f"≤ {lag * 1000:g} ms" for lag in lags),
    )


def each_kib(load: Load, mib: float) -> float:
    """What a claim took of this, in KiB."""
    return mib * _KIB / load.claims


def conditions_text(results: Results, around: dict[str, Any]) -> str:
    """What the figures were taken on, and what disturbed them."""
    shares = results.neighbours
    busy = f"; other programs took {min(shares):.0%} to {max(shares):.0%} of the machine" if shares else ""
    late = sum(one.passed.late for found in results.crowds.values() for one in found)
    times = max(map(len, results.crowds.values()), default=0)
    lost = f" {late:,} repeats came later than a place is kept for." if late else ""
    return (
        f"In {results.seconds:.0f} s, the crowds {times} times each, on {around['cores']} cores ({around['cpu']}), "
        f"Kafka {around['kafka']}, Java {around['java']}, Python {around['python']}{busy}.{lost}"
    )


def _parts(results: Results, around: dict[str, Any], table: Callable[[Table], str]) -> str:
    parts = [table(trips(results)), together_text(results), table(crowds(results)), conditions_text(results, around)]
    return "\n\n".join(part for part in parts if part)


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    return _parts(results, around, plain)


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    return _parts(results, around, markdown)


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "samples_ms": results.samples,
        "together": [asdict(one) for one in results.together],
        "crowds": [{**asdict(load), "found": [asdict(one) for one in found]} for load, found in results.crowds.items()],
        "neighbours": results.neighbours,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
