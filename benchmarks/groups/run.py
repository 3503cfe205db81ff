"""Many groups at a node and at the broker itself: until all have joined, at rest, and when the node is killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import crowd_process, machine, profiles
from benchmarks.crowd_process import heard
from benchmarks.groups.crowd import Counted, Order
from benchmarks.measures import Target
from benchmarks.ownership.measures import Figures
from benchmarks.rounds import say

if TYPE_CHECKING:
    from benchmarks.arena import Arena

_NOBODY: Final = Figures(0, 0.0, 0.0, 0.0)
_LOOK_S: Final = 0.5
_CROWD: Final = "benchmarks.groups.crowd"
SETTINGS: Final = {"SIDECAR_MAX_CONNECTION_CREATION_RATE": "100000", "SIDECAR_MAX_CONNECTIONS_PER_IP": "100000"}
"""All members have the same address here, and more of them connect at once than a node lets in by default."""


@dataclass(frozen=True, slots=True)
class Work:
    """Sizes of crowds, and for how long each rests (s); direct at the broker, too, up to a size."""

    subscribers: Sequence[int] = (1_000, 5_000, 10_000)
    rest_s: float = 20.0
    most_direct: int = 10_000


QUICK: Final = Work(subscribers=(1_000,), rest_s=10.0)


@dataclass(frozen=True, slots=True)
class Load:
    """So many groups of one member each, at the node or direct at the broker."""

    groups: int
    direct: bool

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.groups:,}, {'direct' if self.direct else '1 node'}"


@dataclass(slots=True)
class Found:
    """What a crowd took. Seconds until all were in balance, and until all were answered again after the node's end and
    new start (None at the broker); milliseconds of a join, a heartbeat, a commit; CPU in cores while all rest; the
    most connections to Kafka until all were in balance, at rest, and after the new start; errors by code. `memory`:
    MiB by which the node grew.
    """

    joined_s: float = 0.0
    join: Figures = _NOBODY
    heartbeat: Figures = _NOBODY
    commit: Figures = _NOBODY
    node_cpu: float = 0.0
    kafka_cpu: float = 0.0
    connections: tuple[int, int, int] = (0, 0, 0)
    memory: float = 0.0
    back_s: float | None = None
    back_kafka_cpu_s: float = 0.0
    joined_again: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])
    other_programs: float = 0.0


@dataclass(slots=True)
class Results:
    """What each crowd took."""

    crowds: dict[Load, Found] = field(default_factory=dict[Load, Found])
    seconds: float = 0.0


def run(arena: Arena, work: Work, started: float) -> Results:
    """All crowds; `started` is time.monotonic() when the run began. Raises OSError, RuntimeError."""
    results = Results()
    topic = arena.topic(Target.UNGOVERNED, "committed")
    arena.create(topic)
    with crowd_process.running(_CROWD, Order(arena.port(Target.DIRECT), "first", topic, 1)) as crowd:
        heard(crowd)  # the first group of all makes the broker create the topic of their offsets
    for size in work.subscribers:
        for direct in (False, True)[: 1 + (size <= work.most_direct)]:
            load = Load(size, direct)
            found = results.crowds[load] = _measure(arena, load, topic, work.rest_s)
            told = f"in balance after {found.joined_s:.1f} s, heartbeat p99 {found.heartbeat.p99:.1f} ms"
            again = "" if direct else f", back after {found.back_s:.1f} s, {found.joined_again} joined again"
            say(f"[{time.monotonic() - started:4.0f} s] {load.label}: {told}{again}; {found.refused or 'no errors'}")
    results.seconds = time.monotonic() - started
    return results


def profile(arena: Arena, work: Work) -> None:
    """Print a tree for each crowd at the node, by heartbeat and commit."""
    topic = arena.topic(Target.UNGOVERNED, "committed")
    arena.create(topic)
    for size in work.subscribers:
        order = Order(arena.port(Target.UNGOVERNED), f"p{time.monotonic_ns()}", topic, size)
        with crowd_process.running(_CROWD, order) as crowd:
            heard(crowd)
            _counted(crowd)
            seconds, tree = profiles.sampled(arena, lambda: time.sleep(work.rest_s))
            counted = _counted(crowd)
        done = len(counted.heartbeats) + len(counted.commits)
        profiles.show(f"{size:,} groups", seconds / max(1, done) * 1e6, "µs per heartbeat or commit", tree)


def _measure(arena: Arena, load: Load, topic: str, rest_s: float) -> Found:
    found = Found()
    port = arena.port(Target.DIRECT if load.direct else Target.UNGOVERNED)
    memory = machine.memory(arena.pid("node")).resident
    clock, own = machine.Clock.now(), arena.cpu_seconds()
    with (
        _most_connections(arena) as most,
        crowd_process.running(_CROWD, Order(port, f"g{time.monotonic_ns()}", topic, load.groups)) as crowd,
    ):
        found.joined_s = float(heard(crowd))
        joining = most[0]
        found.join = _figures(_counted(crowd).joins)
        spent, began = _cpu(arena), time.perf_counter()
        time.sleep(rest_s)
        took = time.perf_counter() - began
        found.node_cpu, found.kafka_cpu = ((now - then) / took for now, then in zip(_cpu(arena), spent, strict=True))
        counted = _counted(crowd)
        found.heartbeat, found.commit = _figures(counted.heartbeats), _figures(counted.commits)
        found.refused = dict(counted.refused)
        found.memory = machine.memory(arena.pid("node")).resident - memory
        resting = machine.connections_to(arena.pid("node"), arena.kafka_port)
        most[0] = 0
        if not load.direct:
            _start_anew(arena, found, crowd)
        found.connections = (joining, resting, most[0])
        ours = arena.cpu_seconds() - own + machine.cpu_seconds(crowd.pid)
        found.other_programs = machine.Clock.now().busy_share(clock, ours)
    return found


def _start_anew(arena: Arena, found: Found, crowd: subprocess.Popen[str]) -> None:
    """The node is killed, and another started in its place, as after a crash; what all do then."""
    arena.kill_node(1)
    kafka = _kafka_cpu(arena)
    began = time.perf_counter()
    arena.start_node(1)
    crowd_process.tell(crowd, "back")
    heard(crowd)
    found.back_s = time.perf_counter() - began
    found.back_kafka_cpu_s = _kafka_cpu(arena) - kafka
    counted = _counted(crowd)
    found.joined_again = len(counted.joins)
    for what, times in counted.refused.items():
        found.refused[what] = found.refused.get(what, 0) + times


def _cpu(arena: Arena) -> tuple[float, float]:
    return machine.cpu_seconds(arena.pid("node")), _kafka_cpu(arena)


def _kafka_cpu(arena: Arena) -> float:
    return machine.cpu_seconds(arena.pid("kafka"))


def _figures(values: Sequence[float]) -> Figures:
    return Figures.of(values) or _NOBODY


@contextmanager
def _most_connections(arena: Arena) -> Iterator[list[int]]:
    """The most connections that the node had to the broker at once, by a look twice a second."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            try:
                most[0] = max(most[0], machine.connections_to(arena.pid("node"), arena.kafka_port))
            except KeyError:
                continue  # there is no node between its end and its new start

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def _counted(crowd: subprocess.Popen[str]) -> Counted:
    crowd_process.tell(crowd, "rest")
    return Counted(**json.loads(heard(crowd)))
