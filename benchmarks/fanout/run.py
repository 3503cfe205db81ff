"""Runs the crowds one after the other and says how far they are."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks import profiles
from benchmarks.fanout import measure
from benchmarks.fanout.measure import MOST_FILES, Load
from benchmarks.rounds import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena


_SHADOWS: Final = 23
"""Beside the source, where names are spread over several nodes; each takes two seconds to be known to all of them."""
SETTINGS: Final = {"SIDECAR_MAX_CONNECTION_CREATION_RATE": "100000", "SIDECAR_MAX_CONNECTIONS_PER_IP": "100000"}
"""By default a node refuses what connects beyond 1,000 a second, and more than half of its places to one address: all
subscribers have the same one here, and do not try again.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """Sizes of crowds, for how long records are written (s), and up to which size the broker gets them itself, too.
    `every_s`: seconds from one record to the next. `workers`: so many nodes instead of as few as can carry a crowd,
    each subscriber at the node that leads its name.
    """

    subscribers: Sequence[int] = (1_000, 5_000, 10_000, 40_000)
    seconds: float = 20.0
    most_direct: int = 5_000
    workers: int = 0
    every_s: float = 1.0

    @property
    def loads(self) -> list[Load]:
        """Every crowd at as few nodes as can carry it, and at the broker."""
        load = partial(Load, every_s=self.every_s, seconds=self.seconds)
        if self.workers:
            return [load(size, self.workers, shadows=_SHADOWS, led=True) for size in self.subscribers]
        found = list[Load]()
        for size in self.subscribers:
            found.append(load(size, -(-size // MOST_FILES)))
            if size <= self.most_direct:
                found.append(load(size, direct=True))
        return found

    @property
    def nodes(self) -> int:
        """So many have to be there."""
        return max(load.nodes for load in self.loads)


QUICK = Work(subscribers=(1_000,), seconds=5.0)


@dataclass(slots=True)
class Results:
    """What each crowd took."""

    crowds: dict[Load, measure.Found] = field(default_factory=dict[Load, measure.Found])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All of them; `started` is time.monotonic() when the run began. Raises RefusedError, OSError, RuntimeError."""
    results = Results()
    for load in work.loads:
        found = results.crowds[load] = measure.measure(arena, load)
        told = f"{found.complete} have everything, p50 {found.waits.p50:.0f} ms, nodes {found.node_cpu:.2f} cores"
        say(f"[{time.monotonic() - started:4.0f} s] {load.label}: {told}, idle {found.idle_cpu:.3f}")
        for fault in found.faults:
            say(f"  {fault}")
    results.seconds = time.monotonic() - started
    return results


def profile(arena: Arena, work: Work) -> None:
    """Print a tree for each crowd at one node."""
    for load in work.loads:
        if load.nodes == 1 and not load.direct:
            _profile(arena, load)


def _profile(arena: Arena, load: Load) -> None:
    found = list[measure.Found]()
    seconds, tree = profiles.sampled(arena, lambda: found.append(measure.measure(arena, load)))
    profiles.show(load.label, seconds / max(1, found[0].deliveries) * 1e6, "µs per delivery", tree)
