"""One consumer at a time reads the same log: at the broker, through the node by the source's name, by a shadow's."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from benchmarks import machine, perf_tools
from benchmarks.measures import Target
from benchmarks.rounds import SIZE, say

if TYPE_CHECKING:
    from benchmarks.arena import Arena


class By(Enum):
    """Where a consumer connects, and which name it reads."""

    DIRECT = "direct Kafka"
    SOURCE = "node, the source"
    SHADOW = "node, a shadow"


@dataclass(frozen=True, slots=True)
class Read:
    """MB (10⁶ bytes) of record values per second; CPU seconds of the node per GB (10⁹)."""

    mb_per_s: float
    cpu_per_gb: float


@dataclass(slots=True)
class Round:
    """What each way brought in one round, and which share of the machine others took meanwhile (0 to 1)."""

    reads: dict[By, Read] = field(default_factory=dict[By, Read])
    neighbours: float = 0.0


@dataclass(frozen=True, slots=True)
class Log:
    """A topic and its shadow."""

    source: str
    shadow: str
    records: int

    def name(self, by: By) -> str:
        """What a consumer calls it."""
        return self.shadow if by is By.SHADOW else self.source


def write(arena: Arena, records: int) -> Log:
    """The log that all of them read."""
    log = Log(arena.topic(Target.UNGOVERNED, "read"), arena.topic(Target.UNGOVERNED, "read-shadow"), records)
    arena.create(log.source)
    arena.make_shadow(log.source, log.shadow)
    arena.load.produce(arena.port(Target.DIRECT), log.source, records, SIZE)
    return log


def read(arena: Arena, log: Log, by: By) -> Read:
    """All of it, by one consumer. Raises ToolFailedError, BypassError."""
    port = arena.port(Target.DIRECT if by is By.DIRECT else Target.UNGOVERNED)
    before = machine.cpu_seconds(arena.pid("node"))
    rate = arena.load.consume(port, log.name(by), log.records)
    cpu = machine.cpu_seconds(arena.pid("node")) - before
    return Read(rate.per_second * SIZE / 1e6, cpu / (log.records * SIZE / 1e9))


def measure(arena: Arena, records: int, rounds: int, started: float) -> list[Round]:
    """Rounds in which the order moves on by one; one beforehand is thrown away."""
    log, found = write(arena, records), list[Round]()
    ways = list(By)
    for number in range(-1, rounds):
        shift = number % len(ways)
        clock, own = machine.Clock.now(), arena.cpu_seconds()
        of_round = Round()
        try:
            of_round.reads = {by: read(arena, log, by) for by in ways[shift:] + ways[:shift]}
        except perf_tools.ToolFailedError as error:  # on a starved machine; the other rounds still tell
            say(f"round {number + 1}: {error}")
            continue
        of_round.neighbours = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own)
        if number >= 0:
            found.append(of_round)
            told = ", ".join(f"{by.value} {got.mb_per_s:.0f} MB/s" for by, got in of_round.reads.items())
            say(f"[{time.monotonic() - started:4.0f} s] round {number + 1} of {rounds}: {told}")
    return found
