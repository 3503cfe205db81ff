"""Runs the measurements of ownership one after the other and tells how far they are."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.ownership import measures, scenarios
from benchmarks.ownership.crowd import crowd
from benchmarks.rounds import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena

NODES: Final = 2


@dataclass(frozen=True, slots=True)
class Work:
    """How often each thing is done, and how many topics the crowd has."""

    changes: int = 100
    closes: int = 100
    client_kills: int = 20
    node_kills: int = 5
    crowd: int = 500


QUICK: Final = Work(changes=20, closes=20, client_kills=5, node_kills=2, crowd=100)


@dataclass(slots=True)
class Results:
    """Samples in milliseconds and the share of the machine that others took meanwhile (0 to 1), by key of a measure."""

    work: Work
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    neighbours: dict[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0


class _Progress:
    """A line now and then while a measurement takes its samples."""

    _EVERY_S: Final = 5.0

    def __init__(self, label: str, samples: int) -> None:
        self._label, self._samples = label, samples
        self._taken: list[float] = []
        self._told = 0.0

    def __call__(self, took_ms: float) -> None:
        if not self._taken:
            self._told = time.monotonic()
        self._taken.append(took_ms)
        if time.monotonic() - self._told > self._EVERY_S:
            self._told = time.monotonic()
            say(f"  {self._label}: {len(self._taken)} of {self._samples}, {statistics.median(self._taken):.0f} ms each")


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements; `started` is time.monotonic() when the run began.

    Raises RefusedError, OSError, and RuntimeError where a record is lost or there twice.
    """
    results = Results(work)
    for key, label, measurement in _plan(arena, work):
        clock, own = machine.Clock.now(), arena.cpu_seconds()
        found = results.samples[key] = measurement()
        results.neighbours[key] = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own)
        figures = measures.Figures.of(found)
        if figures is not None:
            told = f"p50 {figures.p50:.1f}, p99 {figures.p99:.1f}, most {figures.most:.1f} ms of {figures.samples}"
            say(f"[{time.monotonic() - started:4.0f} s] {label}: {told}")
    results.seconds = time.monotonic() - started
    return results


def _plan(arena: Arena, work: Work) -> list[tuple[str, str, Callable[[], list[float]]]]:
    """Key, label and what takes the samples."""
    labels = {measure.key: measure.label.format(samples=work.crowd) for measure in measures.MEASURES}
    steps: list[tuple[str, int, Callable[..., list[float]]]] = [
        *(
            (key, work.changes, partial(scenarios.change_of_owner, arena, partitions))
            for partitions, key in measures.CHANGES.items()
        ),
        (measures.CLOSE, work.closes, partial(scenarios.close, arena)),
        (measures.CLIENT_KILL, work.client_kills, partial(scenarios.client_kill, arena)),
        (measures.NODE_KILL, work.node_kills, partial(scenarios.node_kill, arena)),
    ]
    plan = [(key, labels[key], partial(step, times, _Progress(labels[key], times))) for key, times, step in steps]
    return [*plan, (measures.CROWD, labels[measures.CROWD], partial(crowd, arena, work.crowd, _tell))]


def _tell(text: str) -> None:
    say(f"  {text}")
