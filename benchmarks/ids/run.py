"""Runs the measurements of deduplication one after the other and tells how far they are."""

from __future__ import annotations

import gc
import re
import statistics
import time
import tracemalloc
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.ids.writer import CODECS, Load, build, write
from benchmarks.rounds import say
from sidecar.dedup.marks import Mark, Marks
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from benchmarks.arena import Arena

BATCHES: Final = {1: 6_000, 16: 4_000, 500: 600}
"""How many batches of each size."""
SIZES: Final = (100, 1_024)
_LARGE_BYTES: Final = 100_000
"""Of batches so large a quarter will do."""
NAMES, PARTITIONS = 10_000, 100


@dataclass(frozen=True, slots=True)
class Work:
    """How often each load is written, how much of it, and how many records a recovery reads."""

    rounds: int = 5
    share: float = 1.0
    recovered: int = 2_000_000


QUICK: Final = Work(rounds=2, share=0.25, recovered=500_000)


@dataclass(slots=True)
class Sample:
    """One round: records per second without and with ids, and the node's CPU seconds per million records."""

    without: float
    with_ids: float
    cpu_without: float
    cpu_with: float


@dataclass(slots=True)
class Results:
    """Samples by load; bytes per name and partition; records per second of a recovery."""

    samples: dict[Load, list[Sample]] = field(default_factory=dict[Load, list[Sample]])
    bytes_per_name: float = 0.0
    recovery: list[float] = field(default_factory=list[float])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements. Raises `RefusedError`, OSError."""
    results = Results(bytes_per_name=bytes_per_name())
    say(f"[{time.monotonic() - started:4.0f} s] {results.bytes_per_name:.0f} bytes per name and partition")
    for size in SIZES:
        for codec in CODECS:
            for records, batches in BATCHES.items():
                large = size * records > _LARGE_BYTES
                load = Load(size, codec, records, max(20, int(batches * work.share / (4 if large else 1))))
                found = results.samples[load] = _compare(arena, load, work.rounds)
                ratio = statistics.median(sample.with_ids / sample.without for sample in found)
                rate = statistics.median(sample.with_ids for sample in found)
                what = f"{size} B, {codec}, batches of {records}"
                say(f"[{time.monotonic() - started:4.0f} s] {what}: {rate:,.0f} records/s with ids, {ratio:.2f}")
    results.recovery = _recover(arena, work)
    say(f"[{time.monotonic() - started:4.0f} s] recovery: {statistics.median(results.recovery):,.0f} records/s")
    results.seconds = time.monotonic() - started
    return results


def _compare(arena: Arena, load: Load, rounds: int) -> list[Sample]:
    """The same bytes to a topic without and to one with deduplication, in turns."""
    batches = build(load)
    found: list[Sample] = []
    for turn in range(rounds):
        rates: dict[bool, tuple[float, float]] = {}
        for with_ids in (False, True) if turn % 2 else (True, False):
            rates[with_ids] = _write(arena, load, batches, with_ids=with_ids)
        found.append(Sample(rates[False][0], rates[True][0], rates[False][1], rates[True][1]))
    return found


def _write(arena: Arena, load: Load, batches: list[bytearray], *, with_ids: bool) -> tuple[float, float]:
    topic = f"ids-{time.monotonic_ns()}"
    arena.create(topic)
    arena.put_policy(topic, {"access_mode": "exclusive", "deduplication": with_ids})
    node = arena.pid("node")
    cpu = machine.cpu_seconds(node)
    seconds = write(arena.node_port(1), "writer", topic, batches, load)
    cpu = machine.cpu_seconds(node) - cpu
    arena.delete(topic)
    return load.total / seconds, cpu / load.total * 1e6


def bytes_per_name(names: int = NAMES, partitions: int = PARTITIONS) -> float:
    """What a known name takes in each partition, all names in all partitions, the names themselves shared."""
    known = [f"warehouse-{number:05d}".encode() for number in range(names)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [Marks(names) for _ in range(partitions)]
    for marks in kept:
        for number, name in enumerate(known):
            marks.learn(Mark(name, 1_700_000_000_000 + number, number * 1_000, 1_700_000_000))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / names / partitions


def _recover(arena: Arena, work: Work) -> list[float]:
    """Ids that were written before anybody asked for deduplication: the first batch behind that reads them all."""
    load = Load(100, "none", 500, max(1, work.recovered // 500))
    batches = build(load)
    found: list[float] = []
    for _ in range(min(3, work.rounds)):
        topic = f"ids-{time.monotonic_ns()}"
        arena.create(topic)
        arena.put_policy(topic, {"access_mode": "exclusive"})
        write(arena.node_port(1), "writer", topic, batches, load)
        records, seconds = _recovered(arena)
        arena.put_policy(topic, {"deduplication": True})
        more = Load(100, "none", 500, 1)
        write(arena.node_port(1), "another", topic, build(more), more)
        records_then, seconds_then = _recovered(arena)
        found.append((records_then - records) / (seconds_then - seconds))
        arena.delete(topic)
    return found


def _recovered(arena: Arena) -> tuple[float, float]:
    """Records read for recoveries so far, and the seconds that took, as the node counts them."""
    with urllib.request.urlopen(f"http://{HOST}:{arena.admin_port(1)}/metrics", timeout=10) as answer:
        page = answer.read().decode()

    def number(name: str) -> float:
        (value,) = re.findall(rf"^sidecar_{name} ([0-9.e+]+)$", page, re.MULTILINE)
        return float(value)

    return number("dedup_recovered_records_total"), number("dedup_recovery_duration_seconds_sum")
