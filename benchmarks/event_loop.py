"""How late the timers of a node's event loop were, by its own metrics."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from benchmarks.arena import Arena


def metrics(arena: Arena) -> str:
    """The node's page of metrics."""
    with urllib.request.urlopen(f"http://{HOST}:{arena.admin_port(1)}/metrics", timeout=30) as answer:
        return answer.read().decode()


def event_loop_lag(arena: Arena) -> dict[float, float]:
    """How many timers of the node were no later than each bound, in seconds."""
    return lag_of(metrics(arena))


def lag_of(page: str) -> dict[float, float]:
    """The histogram of the event loop's lag in a page of metrics."""
    found = re.findall(r'^sidecar_event_loop_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)$', page, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def largest_lag(before: dict[float, float], after: dict[float, float]) -> float:
    """The least bound that all timers between two looks kept."""
    counts = {bound: count - before[bound] for bound, count in after.items()}
    return min(bound for bound, count in counts.items() if count == max(counts.values()))
