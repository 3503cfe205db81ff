"""Runs the measurements of shadow topics one after the other and tells how far they are."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import profiles
from benchmarks.rounds import SIZE, say
from benchmarks.shadows import fanout, reading
from benchmarks.shadows.fanout import ALONE, Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena


@dataclass(frozen=True, slots=True)
class Work:
    """Records of 1 KiB that a consumer reads, how often; sizes of crowds, how long each waits at a time (ms), for how
    long records are written (s).
    """

    records: int = 400_000
    rounds: int = 6
    subscribers: Sequence[int] = (500, 5_000)
    waits_ms: Sequence[int] = (500, 1_000)
    seconds: float = 20.0

    @property
    def loads(self) -> list[Load]:
        """Every crowd with every wait; the smallest one also where nothing can be shared, and at the broker itself."""
        fewest, wait = min(self.subscribers), min(self.waits_ms)
        found = [Load(size, wait_ms, seconds=self.seconds) for size in self.subscribers for wait_ms in self.waits_ms]
        return [
            *found,
            Load(fewest, wait, ALONE, seconds=self.seconds),
            Load(fewest, wait, direct=True, seconds=self.seconds),
        ]


QUICK = Work(records=100_000, rounds=2, subscribers=(200, 1_000), waits_ms=(500,), seconds=5.0)


@dataclass(slots=True)
class Results:
    """The rounds of the one consumer, and what each crowd took."""

    rounds: list[reading.Round] = field(default_factory=list[reading.Round])
    crowds: dict[Load, fanout.Found] = field(default_factory=dict[Load, fanout.Found])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements; `started` is time.monotonic() when the run began.

    Raises RefusedError, OSError, RuntimeError.
    """
    results = Results(reading.measure(arena, work.records, work.rounds, started))
    for load in work.loads:
        found = results.crowds[load] = fanout.measure(arena, load)
        receipts = found.receipts
        told = f"{receipts.complete} have everything, p50 {receipts.p50_ms:.0f} ms, node {found.node_cpu:.2f} cores"
        say(f"[{time.monotonic() - started:4.0f} s] {load.label}: {told}")
        for fault in receipts.faults:
            say(f"  {fault}")
    results.seconds = time.monotonic() - started
    return results


def profile(arena: Arena, work: Work) -> None:
    """Print a tree for a consumer of the shadow, and one for each crowd at the node."""
    log = reading.write(arena, work.records)
    seconds, tree = profiles.sampled(arena, lambda: reading.read(arena, log, reading.By.SHADOW))
    profiles.show("a consumer of a shadow", seconds / (work.records * SIZE / 1e9) * 1000, "ms/GB", tree)
    for load in work.loads:
        if not load.direct:
            _profile_crowd(arena, load)


def _profile_crowd(arena: Arena, load: Load) -> None:
    answers: list[int] = []
    seconds, tree = profiles.sampled(arena, lambda: answers.append(fanout.measure(arena, load).receipts.answers))
    profiles.show(load.label, seconds / max(1, answers[0]) * 1e6, "µs per answer", tree)
