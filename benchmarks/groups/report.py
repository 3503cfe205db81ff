"""A run for people and for later: the table, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.groups.run import Found, Load, Results
    from benchmarks.ownership.measures import Figures

BEGIN: Final = "<!-- groups: begin -->"
END: Final = "<!-- groups: end -->"
_KIB: Final = 1024

Table = list[tuple[str, ...]]


def crowds(results: Results) -> Table:
    """One row per crowd, head first."""
    head = (
        "groups, at", "all in balance", "a join, p50 / p99, ms", "a heartbeat, p50 / p99, ms",
        "a commit, p50 / p99, ms", "CPU of the node, of Kafka", "connections to Kafka: joining, at rest, back",
        "memory each", "killed: all back after, joined again", "errors",
    )  # fmt: skip
    return [head, *(_crowd(load, found) for load, found in results.crowds.items())]


def _crowd(load: Load, found: Found) -> tuple[str, ...]:
    joining, resting, back = found.connections
    at_node = not load.direct
    return (
        load.label,
        f"{found.joined_s:.1f} s",
        _both(found.join),
        _both(found.heartbeat),
        _both(found.commit),
        f"{found.node_cpu:.2f}, {found.kafka_cpu:.2f}" if at_node else f"{found.kafka_cpu:.2f}",
        f"{joining}, {resting}, {back}" if at_node else f"{load.groups}",
        f"{found.memory / load.groups * _KIB:.1f} KiB" if at_node else "",
        f"{found.back_s:.1f} s, {found.joined_again}" if at_node else "",
        "; ".join(f"{count} × {what}" for what, count in found.refused.items()) or "none",
    )


def _both(figures: Figures) -> str:
    return f"{figures.p50:.1f} / {figures.p99:.1f}"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    shares = [one.other_programs for one in results.crowds.values()]
    return (
        f"In {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), Kafka {around['kafka']}, Java "
        f"{around['java']}, Python {around['python']}; other programs took {min(shares):.0%} to {max(shares):.0%} of "
        "the machine."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    return "\n\n".join([plain(crowds(results)), _conditions(results, around)])


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    return "\n\n".join([markdown(crowds(results)), _conditions(results, around)])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every crowd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    crowds = [{**asdict(load), "found": asdict(found)} for load, found in results.crowds.items()]
    path.write_text(json.dumps({"around": around, "seconds": results.seconds, "crowds": crowds}, indent=1) + "\n")
