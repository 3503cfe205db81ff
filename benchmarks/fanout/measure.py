"""Many subscribers at the end of one log, by the source's name and its shadows', at one node or several: what a writer
appends at the broker comes to all of them, while somebody else writes through the first node.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import crowd_process, machine
from benchmarks.crowd_process import heard
from benchmarks.event_loop import event_loop_lag, largest_lag
from benchmarks.fanout.crowd import READY, Appended, Order, Receipts
from benchmarks.fanout.subscriber import SHARING
from benchmarks.measures import Target
from benchmarks.ownership.measures import Figures
from benchmarks.raw_client import Connection, IdempotentProducer, RefusedError, new_producer
from sidecar.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MOST_FILES: Final = 17_000
"""Connections of one process."""
_NEIGHBOUR_EVERY_S: Final = 0.02
_TRIES: Final = 50
_AGAIN_S: Final = 0.1
_NOBODY: Final = Figures(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Load:
    """So many subscribers; a record of `value_bytes` every so often for so long, in seconds. `wait_ms`: how long each
    asks to wait. `nodes`: so many share them. `direct`: all at the broker, by the source's name. `shadows` there are
    beside the source; `led`: each subscriber is at the node that leads its name, as clients are.
    """

    subscribers: int
    nodes: int = 1
    direct: bool = False
    wait_ms: int = 500
    value_bytes: int = 1024
    every_s: float = 1.0
    seconds: float = 20.0
    idle_s: float = 10.0
    shadows: int = 2
    led: bool = False

    @property
    def label(self) -> str:
        """For tables."""
        at = "direct" if self.direct else f"{self.nodes} node{'s'[: self.nodes > 1]}"
        return f"{self.subscribers:,}, {at}" + (f", {self.shadows + 1} names" if self.led else "")


@dataclass(slots=True)
class Found:
    """What a load took. CPU is the share of a core while records were written, `idle_cpu` while none were; `node_cpu`
    of all nodes together. `waits`: milliseconds from a record's acknowledgement to its receipt; `mean_ms` of the same.
    `connect_s`: until all were connected. Memory in MiB. `connections` are the first node's to the broker. `lag_s`: no
    timer of its event loop was later, up to the bounds of its histogram. `neighbour`, `neighbour_idle`: milliseconds of
    an append by somebody else through the first node (at the broker where all subscribers are there).
    """

    complete: int = 0
    deliveries: int = 0
    faults: list[str] = field(default_factory=list[str])
    waits: Figures = _NOBODY
    mean_ms: float = 0.0
    connect_s: float = 0.0
    node_cpu: float = 0.0
    kafka_cpu: float = 0.0
    crowd_cpu: float = 0.0
    idle_cpu: float = 0.0
    memory_before: float = 0.0
    memory_waiting: float = 0.0
    connections: int = 0
    lag_s: float = 0.0
    neighbour: Figures = _NOBODY
    neighbour_idle: Figures = _NOBODY
    other_programs: float = 0.0

    @property
    def bytes_each(self) -> float:
        """What a subscriber took of the nodes' memory."""
        return max(0.0, self.memory_waiting - self.memory_before) * 1024 * 1024

    def take(self, parts: list[Receipts]) -> None:
        """What the processes of the crowd report."""
        self.complete = sum(part.complete for part in parts)
        self.deliveries = sum(part.deliveries for part in parts)
        self.faults = [fault for part in parts for fault in part.faults][:5]
        waits = [float(wait) for part in parts for wait, count in part.waits_ms.items() for _ in range(count)]
        self.waits = Figures.of(waits) or _NOBODY
        self.mean_ms = sum(waits) / max(1, len(waits))


def measure(arena: Arena, load: Load) -> Found:
    """Raises RefusedError, OSError, RuntimeError where the crowd fails."""
    source, other = (arena.topic(Target.UNGOVERNED, f"{name}-{time.monotonic_ns()}") for name in ("crowd", "other"))
    arena.create_all([source, other], 1)
    names = [source]
    if not load.direct:
        names += [f"{source}-{number}" for number in range(1, load.shadows + 1)]
        for name in names[1:]:
            arena.make_shadow(source, name)
    found = Found()
    with Connection(arena.port(Target.DIRECT)) as connection, ExitStack() as stack:
        writer = IdempotentProducer(new_producer(connection), source, load.value_bytes)
        _first(connection, writer)
        found.memory_before = _memory(arena, load)
        crowds = [
            stack.enter_context(crowd_process.running("benchmarks.fanout.crowd", order))
            for order in _orders(arena, load, names)
        ]
        found.connect_s = max(float(heard(crowd)) for crowd in crowds)
        for crowd in crowds:
            if heard(crowd) != READY:
                raise RuntimeError("the subscribers ended before they were ready: see what they said above")
        _measure_idle(arena, load, found, crowds)
        neighbour = stack.enter_context(_neighbour(arena, load, other))
        _measure(arena, load, found, connection, writer, crowds, neighbour)
    return found


def _first(connection: Connection, writer: IdempotentProducer) -> None:
    """A new topic's leader is known a moment before it leads. Raises RefusedError where it does not come to that."""
    for left in reversed(range(_TRIES)):
        try:
            writer.check(connection.exchange(writer.prepare()))
        except RefusedError as error:
            if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER or not left:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _measure_idle(arena: Arena, load: Load, found: Found, crowds: list[subprocess.Popen[str]]) -> None:
    found.memory_waiting = _memory(arena, load)
    before = _cpu(arena, load, crowds)
    time.sleep(load.idle_s)
    found.idle_cpu = (_cpu(arena, load, crowds)["node"] - before["node"]) / load.idle_s


def _measure(
    arena: Arena,
    load: Load,
    found: Found,
    connection: Connection,
    writer: IdempotentProducer,
    crowds: list[subprocess.Popen[str]],
    neighbour: list[float],
) -> None:
    time.sleep(load.idle_s / 2)
    found.neighbour_idle = Figures.of(neighbour) or _NOBODY
    neighbour.clear()
    lag, clock, own = event_loop_lag(arena), machine.Clock.now(), arena.cpu_seconds()
    spent, began = _cpu(arena, load, crowds), time.perf_counter()
    appended = Appended(1, _append(connection, writer, load))
    took = time.perf_counter() - began
    spent = {name: now - spent[name] for name, now in _cpu(arena, load, crowds).items()}
    found.other_programs = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own + spent["crowd"])
    found.neighbour = Figures.of(neighbour) or _NOBODY
    found.node_cpu, found.kafka_cpu, found.crowd_cpu = (spent[name] / took for name in ("node", "kafka", "crowd"))
    found.connections = machine.connections_to(arena.pid("node"), arena.port(Target.DIRECT))
    for crowd in crowds:
        crowd_process.tell(crowd, json.dumps(asdict(appended)))
    found.take([Receipts(**json.loads(heard(crowd))) for crowd in crowds])
    found.lag_s = largest_lag(lag, event_loop_lag(arena))


def _append(connection: Connection, writer: IdempotentProducer, load: Load) -> list[float]:
    """One record at a time; when each was acknowledged."""
    began, found = time.perf_counter(), list[float]()
    for number in range(round(load.seconds / load.every_s)):
        time.sleep(max(0.0, began + number * load.every_s - time.perf_counter()))
        writer.check(connection.exchange(writer.prepare()))
        found.append(time.perf_counter())
    return found


def _nodes(load: Load) -> list[str]:
    return ["node", *(f"node-{number}" for number in range(2, load.nodes + 1))]


def _cpu(arena: Arena, load: Load, crowds: list[subprocess.Popen[str]]) -> dict[str, float]:
    pids = {"node": map(arena.pid, _nodes(load)), "kafka": [arena.pid("kafka")], "crowd": [one.pid for one in crowds]}
    return {name: sum(map(machine.cpu_seconds, of_it)) for name, of_it in pids.items()}


def _memory(arena: Arena, load: Load) -> float:
    return sum(machine.memory(arena.pid(name)).resident for name in _nodes(load))


# Others -------------------------------------------------------------------------------------------------------------


def _orders(arena: Arena, load: Load, names: list[str]) -> Iterator[Order]:
    """An order for each process of the crowd: one for each node, or several where it takes too many files."""
    for port, here, read in _shares(arena, load, names):
        processes = -(-here // MOST_FILES)
        for index in range(processes):
            size = here // processes + (index < here % processes)
            yield Order(port, read, size, 1, load.wait_ms, SHARING)


def _shares(arena: Arena, load: Load, names: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Ports, how many subscribers each has, and the names that they read."""
    if load.direct:
        yield arena.port(Target.DIRECT), load.subscribers, names
        return
    numbers = range(1, load.nodes + 1)
    if not load.led:
        for number, here in zip(numbers, _parted(load.subscribers, load.nodes), strict=True):
            yield arena.node_port(number), here, names
        return
    leaders = arena.leaders(names)
    led = {number: [name for name in names if leaders[name] == number] for number in numbers}
    leading = [number for number in numbers if led[number]]  # as many at each: a node may open 20,000 files here
    for number, here in zip(leading, _parted(load.subscribers, len(leading)), strict=True):
        yield arena.node_port(number), here, led[number]


def _parted(whole: int, parts: int) -> list[int]:
    return [whole // parts + (index < whole % parts) for index in range(parts)]


@contextmanager
def _neighbour(arena: Arena, load: Load, topic: str) -> Iterator[list[float]]:
    """Somebody who appends to another topic meanwhile; how long each append takes, in milliseconds."""
    times, over = list[float](), threading.Event()

    def write() -> None:
        with Connection(arena.port(Target.DIRECT if load.direct else Target.UNGOVERNED)) as connection:
            writer = IdempotentProducer(new_producer(connection), topic, 100)
            _first(connection, writer)
            while not over.wait(_NEIGHBOUR_EVERY_S):
                frame, began = writer.prepare(), time.perf_counter()
                answer = connection.exchange(frame)
                times.append((time.perf_counter() - began) * 1000)
                writer.check(answer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()
