"""Runs the rounds: in each every target does the same work, in an order that moves on by one from round to round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import latency, machine, pair, perf_tools
from benchmarks.measures import Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

SIZE: Final = 1024
SMALL_SIZE: Final = 100
_LATENCY_CALLS: Final = 40
_PAIR_RECORDS: Final = 20

PARTS: Final = ("produce", "small", "consume", "latency", "pair")
"""What `--only` chooses from; consume reads what produce wrote, so the latter is done with it."""


_TIMED: Final = frozenset({"latency", "pair"})
"""Those that time one request, or one record, after the other."""


@dataclass(frozen=True, slots=True)
class Work:
    """How much is done: records of 1 KiB written and read, of 100 B written, blocks of latency; rounds and seconds."""

    records: int = 400_000
    small_records: int = 1_000_000
    blocks: int = 15
    rounds: int = 5
    limit_s: float = 450.0
    parts: frozenset[str] = frozenset(PARTS)
    targets: tuple[Target, ...] = tuple(Target)

    def warm_up(self) -> Work:
        """What is done once beforehand and thrown away, for the just-in-time compilers and the page cache."""
        return Work(
            records=max(1, self.records // 2),
            small_records=max(1, self.small_records // 4),
            blocks=min(self.blocks, 5),
            rounds=1,
            parts=self.parts,
            targets=self.targets,
        )


PROFILED: Final = Work(records=1_200_000, small_records=4_000_000)
"""The timer that samples ticks 250 times per second of CPU time: it needs some."""

QUICK: Final = Work(records=100_000, small_records=300_000, blocks=8, rounds=2, limit_s=90.0)


@dataclass(slots=True)
class Round:
    """The figures of one round: by target and key of a measure; which share of the machine others took meanwhile (by
    target, and "latency" or "pair", from 0 to 1); memory of the node.
    """

    figures: dict[Target, dict[str, float]]
    neighbours: dict[str, float] = field(default_factory=dict[str, float])
    memory: machine.Memory | None = None
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Results:
    """All rounds of a run, the node's memory before and after, what a reader has to know."""

    rounds: list[Round] = field(default_factory=list[Round])
    memory_before: machine.Memory | None = None
    memory_after: machine.Memory | None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list[str])


def say(text: str) -> None:
    """Tell what happens; the table alone goes to standard output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def run(arena: Arena, work: Work, started: float) -> Results:
    """All rounds, as many as the limit allows; `started` is time.monotonic() when the run began."""
    results = Results(memory_before=machine.memory(arena.pid("node")))
    say("warming up")
    longest = _round(arena, work.warm_up(), 0, "warm").seconds
    for number in range(work.rounds):
        used = time.monotonic() - started
        if results.rounds and used + longest > work.limit_s:
            results.notes.append(f"{number} of {work.rounds} rounds: the time of {work.limit_s:.0f} s was up")
            break
        found = _round(arena, work, number, str(number))
        longest = max(found.seconds, longest if results.rounds else 0.0)
        results.rounds.append(found)
        results.notes += [f"round {number + 1}, {failure}" for failure in found.failures]
        say(f"[{time.monotonic() - started:4.0f} s] round {number + 1} of {work.rounds}: {_brief(found)}")
    results.memory_after = machine.memory(arena.pid("node"))
    results.seconds = time.monotonic() - started
    return results


def _brief(found: Round) -> str:
    return "; ".join(
        f"{target.value} " + " ".join(f"{key}={value:.4g}" for key, value in figures.items())
        for target, figures in found.figures.items()
    )


def _round(arena: Arena, work: Work, number: int, name: str) -> Round:
    began = time.monotonic()
    found = Round({target: {} for target in work.targets})
    shift = number % len(work.targets)
    if work.parts - _TIMED:
        for target in work.targets[shift:] + work.targets[:shift]:
            if target is Target.FORWARDER:
                continue
            with _neighbours(arena, found, target.value):
                try:
                    _throughput(arena, work, target, name, found.figures[target])
                except perf_tools.ToolFailedError as error:  # on a starved machine; the other rounds still tell
                    found.failures.append(f"{target.label}: {error}")
                    say(found.failures[-1])
    for part, measure in (("latency", _latency), ("pair", _pair)):
        if part in work.parts:
            with _neighbours(arena, found, part), _timed_topics(arena, work, f"{name}-{part}") as topics:
                measure(topics, work, found.figures)
    found.memory = machine.memory(arena.pid("node"))
    found.seconds = time.monotonic() - began
    return found


@contextmanager
def _neighbours(arena: Arena, found: Round, what: str) -> Iterator[None]:
    """Note which share of the machine other programs took meanwhile."""
    clock, own = machine.Clock.now(), arena.cpu_seconds()
    yield
    found.neighbours[what] = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own)


def _throughput(arena: Arena, work: Work, target: Target, name: str, into: dict[str, float]) -> None:
    port, load = arena.port(target), arena.load
    if work.parts & {"produce", "consume"}:
        with _topic(arena, target, f"{name}-large") as topic:
            rate, cpu = _timed(arena, lambda: load.produce(port, topic, work.records, SIZE))
            if "produce" in work.parts:
                into["produce"] = rate.per_second * SIZE / 1e6
                _note_cpu(into, "cpu_produce", target, cpu, work.records * SIZE)
            if "consume" in work.parts:
                rate, cpu = _timed(arena, lambda: load.consume(port, topic, work.records))
                into["consume"] = rate.per_second * SIZE / 1e6
                _note_cpu(into, "cpu_consume", target, cpu, work.records * SIZE)
    if "small" in work.parts:
        with _topic(arena, target, f"{name}-small") as topic:
            rate, cpu = _timed(arena, lambda: load.produce(port, topic, work.small_records, SMALL_SIZE))
            into["small"] = rate.per_second / 1e3
            _note_cpu(into, "cpu_small", target, cpu, work.small_records * SMALL_SIZE)


def _timed(arena: Arena, work: Callable[[], perf_tools.Rate]) -> tuple[perf_tools.Rate, float]:
    """Do it; what it returns, and the CPU seconds that the node's processes took meanwhile."""
    before = machine.cpu_seconds(arena.pid("node"))
    rate = work()
    return rate, machine.cpu_seconds(arena.pid("node")) - before


def _note_cpu(into: dict[str, float], key: str, target: Target, cpu: float, size: int) -> None:
    if target is not Target.DIRECT:
        into[key] = cpu / (size / 1e9)


@contextmanager
def _timed_topics(arena: Arena, work: Work, name: str) -> Iterator[dict[Target, tuple[int, str]]]:
    """A new topic for each target, and the port at which its clients connect."""
    topics = {target: (arena.port(target), arena.topic(target, name)) for target in work.targets}
    for _, topic in topics.values():
        arena.create(topic)
    try:
        with arena.forwarder() if Target.FORWARDER in topics else nullcontext():
            yield topics
    finally:
        for _, topic in topics.values():
            arena.delete(topic)


def _latency(topics: dict[Target, tuple[int, str]], work: Work, into: dict[Target, dict[str, float]]) -> None:
    for target, times in latency.measure(topics, work.blocks, _LATENCY_CALLS).items():
        into[target]["produce_p10"] = latency.percentile(times.produce, 0.1)
        into[target]["produce_p50"] = latency.percentile(times.produce, 0.5)
        into[target]["produce_p99"] = latency.percentile(times.produce, 0.99)
        into[target]["list_offsets_p50"] = latency.percentile(times.list_offsets, 0.5)


def _pair(topics: dict[Target, tuple[int, str]], work: Work, into: dict[Target, dict[str, float]]) -> None:
    for target, times in pair.measure(topics, work.blocks, _PAIR_RECORDS).items():
        into[target]["pair_p10"] = latency.percentile(times, 0.1)
        into[target]["pair_p50"] = latency.percentile(times, 0.5)


@contextmanager
def _topic(arena: Arena, target: Target, name: str) -> Iterator[str]:
    topic = arena.topic(target, name)
    arena.create(topic)
    try:
        yield topic
    finally:
        arena.delete(topic)
