"""A run for people and for later: the table, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.fanout.measure import Found, Load
    from benchmarks.fanout.run import Results

BEGIN: Final = "<!-- fanout: begin -->"
END: Final = "<!-- fanout: end -->"
_KIB: Final = 1024
_IDLE_EACH: Final = 0.05 / 5_000
"""Of a core, for an idle subscriber."""

Table = list[tuple[str, ...]]


def crowds(results: Results) -> Table:
    """One row per crowd, head first."""
    head = (
        "subscribers, at", "connected in", "have every record", "mean, p50 / p99 / most, ms", "CPU of nodes (idle)",
        "CPU of Kafka", "connections to Kafka", "memory each", "a neighbour's append, p50 / p99 (idle), ms",
        "event loop late",
    )  # fmt: skip
    return [head, *(_crowd(load, found) for load, found in results.crowds.items())]


def _crowd(load: Load, found: Found) -> tuple[str, ...]:
    waits, idle, busy = found.waits, found.neighbour_idle, found.neighbour
    own = not load.direct
    return (
        load.label,
        f"{found.connect_s:.1f} s",
        "all" if found.complete == load.subscribers else f"{found.complete} of {load.subscribers}",
        f"{found.mean_ms:.0f}, {waits.p50:.0f} / {waits.p99:.0f} / {waits.most:.0f}",
        f"{found.node_cpu:.2f} ({found.idle_cpu:.3f})" if own else "",
        f"{found.kafka_cpu:.2f}",
        f"{found.connections}" if own else "",
        f"{found.bytes_each / load.subscribers / _KIB:.1f} KiB" if own else "",
        f"{busy.p50:.2f} / {busy.p99:.2f} ({idle.p50:.2f} / {idle.p99:.2f})",
        f"≤ {found.lag_s * 1000:g} ms" if own else "",
    )


def aims(results: Results) -> Table:
    """The aims beside their figures, head first."""
    found: Table = [("aim", "found", "")]
    at_nodes = {load: one for load, one in results.crowds.items() if not load.direct}
    complete = all(one.complete == load.subscribers for load, one in results.crowds.items())
    found.append(("every subscriber gets every record once", "all" if complete else "not all", _said(met=complete)))
    for load, one in results.crowds.items():
        beside = next((two for other, two in at_nodes.items() if other.subscribers == load.subscribers), None)
        if load.direct and beside is not None:
            aim = f"{load.subscribers:,}: p50 below the broker's own, {one.waits.p50:.0f} ms"
            found.append((aim, f"{beside.waits.p50:.0f} ms", _said(met=beside.waits.p50 < one.waits.p50)))
    for load, one in at_nodes.items():
        least = _IDLE_EACH * load.subscribers
        aim = f"{load.subscribers:,}: idle ≤ {least:.2f} of a core"
        found.append((aim, f"{one.idle_cpu:.3f}", _said(met=one.idle_cpu <= least)))
        if load.subscribers >= 40_000:
            connect, mean = (60, 500) if load.subscribers < 100_000 else (120, 1_000)
            aim = f"{load.subscribers:,}: connected within {connect} s, mean < {mean} ms"
            met = one.connect_s < connect and one.mean_ms < mean
            found.append((aim, f"{one.connect_s:.0f} s, {one.mean_ms:.0f} ms", _said(met=met)))
    return found


def _said(*, met: bool) -> str:
    return "kept" if met else "missed"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    shares = [one.other_programs for one in results.crowds.values()]
    busy = f"; other programs took {min(shares):.0%} to {max(shares):.0%} of the machine" if shares else ""
    return (
        f"In {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), Kafka {around['kafka']}, "
        f"Java {around['java']}, Python {around['python']}{busy}."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    return "\n\n".join([plain(crowds(results)), _conditions(results, around), plain(aims(results))])


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    return "\n\n".join([markdown(crowds(results)), _conditions(results, around), markdown(aims(results))])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every crowd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "crowds": [{**asdict(load), "found": asdict(found)} for load, found in results.crowds.items()],
        "aims": [dict(zip(("aim", "found", "met"), row, strict=True)) for row in aims(results)[1:]],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
