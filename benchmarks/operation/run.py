"""Runs the measurements of operation one after the other and tells how far they are."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.operation import commands, counting, resting
from benchmarks.rounds import say

if TYPE_CHECKING:
    from benchmarks.arena import Arena


@dataclass(frozen=True, slots=True)
class Work:
    """Starts of a node; runs of each command; governed topics, and seconds of rest before memory is read; rounds of
    so many records of 1 KiB and batches that come alone, with metrics and logs and without.
    """

    starts: int = 10
    commands: int = 20
    topics: int = 1_000
    rest_s: float = 10.0
    rounds: int = 6
    records: int = 400_000
    batches: int = 10_000


QUICK: Final = Work(starts=3, commands=5, topics=200, rest_s=3.0, rounds=2, records=100_000, batches=3_000)


@dataclass(slots=True)
class Results:
    """Milliseconds of each start and command; memory; CPU with metrics and logs and without; the share of the machine
    that others took meanwhile (0 to 1).
    """

    starts: list[float] = field(default_factory=list[float])
    commands: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    resting: resting.Resting | None = None
    counting: dict[str, list[counting.Round]] = field(default_factory=dict[str, list[counting.Round]])
    neighbours: float = 0.0
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements; `started` is time.monotonic() when the run began.

    Raises StartError, RefusedError, ToolFailedError, CalledProcessError, OSError.
    """
    results = Results()
    clock, own = machine.Clock.now(), arena.cpu_seconds()
    for number in range(work.starts + 1):
        with arena.single("started", {"SIDECAR_CLUSTER": "started"}) as node:
            if number:  # the first one of a cluster creates the internal topics
                results.starts.append(node.seconds * 1000)
    _tell(started, f"start to ready {statistics.median(results.starts):.0f} ms")
    results.commands = commands.measure(arena, work.commands)
    for name, taken in results.commands.items():
        _tell(started, f"{name} {statistics.median(taken):.0f} ms")
    results.resting = resting.measure(arena, work.topics, work.rest_s)
    _tell(started, f"at rest {results.resting.ready:.1f} MB, {work.topics} topics {results.resting.governed:.1f} MB")
    results.counting = counting.measure(arena, work.rounds, work.records, work.batches)
    for name, rounds in results.counting.items():
        per_gb = statistics.median(one.per_gb for one in rounds)
        per_batch = statistics.median(one.per_batch for one in rounds)
        _tell(started, f"{name} metrics and logs {per_gb:.2f} s/GB, {per_batch:.0f} µs a batch")
    results.neighbours = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own)
    results.seconds = time.monotonic() - started
    return results


def _tell(started: float, text: str) -> None:
    say(f"[{time.monotonic() - started:4.0f} s] {text}")
