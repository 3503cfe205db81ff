"""Runs the measurements of shadow topics one after the other and tells how far they are."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import profiles
from benchmarks.rounds import SIZE
from benchmarks.shadows import reading

if TYPE_CHECKING:
    from benchmarks.arena import Arena


@dataclass(frozen=True, slots=True)
class Work:
    """Records of 1 KiB that a consumer reads, and how often."""

    records: int = 400_000
    rounds: int = 6


QUICK = Work(records=100_000, rounds=2)


@dataclass(slots=True)
class Results:
    """The rounds of the one consumer."""

    rounds: list[reading.Round] = field(default_factory=list[reading.Round])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements; `started` is time.monotonic() when the run began.

    Raises RefusedError, OSError, RuntimeError.
    """
    results = Results(reading.measure(arena, work.records, work.rounds, started))
    results.seconds = time.monotonic() - started
    return results


def profile(arena: Arena, work: Work) -> None:
    """Print a tree for a consumer of the shadow."""
    log = reading.write(arena, work.records)
    seconds, tree = profiles.sampled(arena, lambda: reading.read(arena, log, reading.By.SHADOW))
    profiles.show("a consumer of a shadow", seconds / (work.records * SIZE / 1e9) * 1000, "ms/GB", tree)
