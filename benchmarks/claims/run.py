"""Runs the measurements of claims one after the other and tells how far they are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks import machine, profiles
from benchmarks.claims import together, trips, waiting
from benchmarks.claims.waiting import Load
from benchmarks.ownership.measures import Figures
from benchmarks.rounds import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.arena import Arena
    from benchmarks.claims.trips import Samples

SETTINGS: Final[Mapping[str, str]] = {"SIDECAR_QUEUE_LIMIT": "20000"}
"""Of the node: more than its default of 1,000 shall wait for one string."""


@dataclass(frozen=True, slots=True)
class Work:
    """Blocks of ten round trips each; takeovers of a topic; requests of 1,000 strings; rounds of eight clients of so
    many seconds; the crowds, each as often as `repeats` says.
    """

    blocks: int = 60
    takeovers: int = 60
    thousands: int = 20
    rounds: int = 5
    seconds: float = 2.0
    repeats: int = 2
    loads: Sequence[Load] = (Load(10_000), Load(10_000, apart=True), Load(10_000, each=0))


_FEW: Final = Load(1_000, handovers=50, rest_s=5.0)
QUICK: Final = Work(
    blocks=15,
    takeovers=15,
    thousands=5,
    rounds=2,
    seconds=1.0,
    repeats=1,
    loads=(_FEW, Load(1_000, apart=True, handovers=50, rest_s=5.0), Load(1_000, each=0, handovers=50, rest_s=5.0)),
)


@dataclass(slots=True)
class Results:
    """Samples of the round trips in milliseconds by key of a row; the rounds of eight clients; what each crowd took;
    the share of the machine that others took meanwhile (0 to 1).
    """

    samples: Samples = field(default_factory=dict[str, list[float]])
    together: list[together.Round] = field(default_factory=list[together.Round])
    crowds: dict[Load, list[waiting.Found]] = field(default_factory=dict[Load, list[waiting.Found]])
    neighbours: list[float] = field(default_factory=list[float])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements; `started` is time.monotonic() when the run began.

    Raises RefusedError, NotAnsweredError, OSError, RuntimeError.
    """
    results = Results()
    steps: tuple[Callable[[], Samples], ...] = (
        lambda: trips.round_trips(arena, work.blocks),
        lambda: trips.takeovers(arena, work.takeovers),
        lambda: trips.thousand(arena, work.thousands),
    )
    clock, own = machine.Clock.now(), arena.cpu_seconds()
    for step in steps:
        found = step()
        results.samples |= found
        for key, values in found.items():
            _tell(started, key, values)
    results.together = together.measure(arena, work.rounds, work.seconds)
    claims = statistics.median(one.claims for one in results.together)
    say(f"[{time.monotonic() - started:4.0f} s] {together.CLIENTS} clients: {claims:.0f} claims/s")
    results.neighbours.append(machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own))
    for _ in range(work.repeats):
        for load in work.loads:
            one = waiting.measure(arena, load)
            results.crowds.setdefault(load, []).append(one)
            results.neighbours.append(one.neighbours)
            _tell(started, f"{load.label}: node {one.node_cpu:.2f} cores; hand-overs", one.passed.handovers)
    results.seconds = time.monotonic() - started
    return results


def _tell(started: float, what: str, values: list[float]) -> None:
    figures = Figures.of(values)
    if figures is not None:
        told = f"p50 {figures.p50:.1f}, p99 {figures.p99:.1f}, most {figures.most:.1f} ms of {figures.samples}"
        say(f"[{time.monotonic() - started:4.0f} s] {what}: {told}")


def profile(arena: Arena, work: Work) -> None:
    """Print a tree for each kind of measurement."""
    found: dict[str, Samples] = {}
    for what, step in (
        ("round trips", lambda: trips.round_trips(arena, work.blocks)),
        ("takeovers", lambda: trips.takeovers(arena, work.takeovers)),
        ("1,000 strings in one request", lambda: trips.thousand(arena, work.thousands)),
    ):
        seconds, tree = profiles.sampled(arena, lambda what=what, step=step: found.update({what: step()}))
        requests = sum(map(len, found[what].values()))
        profiles.show(what, seconds / requests * 1e6, "µs each", tree)
    rounds: list[together.Round] = []
    seconds, tree = profiles.sampled(arena, lambda: rounds.extend(together.measure(arena, work.rounds, work.seconds)))
    done = statistics.mean(one.claims for one in rounds) * (work.rounds + 1) * work.seconds
    profiles.show(f"{together.CLIENTS} clients", seconds / done * 1e6, "µs per claim", tree)
    for load in work.loads:
        waiting.start_afresh(arena)
        seconds, tree = profiles.sampled(arena, partial(waiting.with_crowd, arena, load))
        profiles.show(load.label, seconds / load.claims * 1e6, "µs per claim", tree)
