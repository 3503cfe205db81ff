"""Many subscribers at the end of one log, a third each by the source's name and two shadows': what a writer appends at
the broker comes to all of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.measures import Target
from benchmarks.raw_client import Connection, IdempotentProducer, new_producer
from benchmarks.shadows.crowd import READY, Appended, Order, Receipts
from benchmarks.shadows.subscriber import SHARING
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from benchmarks.arena import Arena

_ROOT: Final = Path(__file__).resolve().parents[2]
_VALUE_BYTES: Final = 100
ALONE: Final = SHARING - 1


@dataclass(frozen=True, slots=True)
class Load:
    """So many subscribers that wait so long at a time; a record every so often for so long, in seconds.

    `version` of Fetch. `direct`: at the broker, all by the source's name.
    """

    subscribers: int
    wait_ms: int = 500
    version: int = SHARING
    direct: bool = False
    every_s: float = 0.1
    seconds: float = 20.0
    idle_s: float = 5.0

    @property
    def label(self) -> str:
        """For tables."""
        where = "direct" if self.direct else "node" if self.version == SHARING else f"node, Fetch v{self.version}"
        return f"{self.subscribers:,}, {self.wait_ms} ms, {where}"


@dataclass(slots=True)
class Found:
    """What a load took. CPU is the share of a core that somebody took while records were written; `idle_cpu` the
    node's while none were. Memory in MiB. `connections` are the node's to the broker. `lag_s`: no timer of the node's
    event loop was later, up to the bounds of its histogram.
    """

    receipts: Receipts
    records: int = 0
    node_cpu: float = 0.0
    kafka_cpu: float = 0.0
    crowd_cpu: float = 0.0
    idle_cpu: float = 0.0
    memory_before: float = 0.0
    memory_waiting: float = 0.0
    memory_after: float = 0.0
    connections: int = 0
    connections_waiting: int = 0
    lag_s: float = 0.0
    neighbours: float = 0.0

    @property
    def memory_steps(self) -> tuple[float, float, float]:
        """Before, what came until all waited, what came until the last record."""
        return (
            self.memory_before,
            self.memory_waiting - self.memory_before,
            self.memory_after - self.memory_waiting,
        )

    @property
    def per_second(self) -> float:
        """Deliveries per second."""
        return self.receipts.deliveries / self.receipts.seconds if self.receipts.seconds else 0.0


def measure(arena: Arena, load: Load) -> Found:
    """Raises RefusedError, OSError, RuntimeError where the crowd fails."""
    source = arena.topic(Target.UNGOVERNED, f"crowd-{time.monotonic_ns()}")
    arena.create_all([source], 1)
    names = [source]
    if not load.direct:
        names += [f"{source}-{number}" for number in (1, 2)]
        for name in names[1:]:
            arena.make_shadow(source, name)
    with Connection(arena.port(Target.DIRECT)) as connection:
        writer = IdempotentProducer(new_producer(connection), source, _VALUE_BYTES)
        writer.check(connection.exchange(writer.prepare()))
        before = machine.memory(arena.pid("node")).resident
        with _crowd(arena, load, names, offset=1) as crowd:
            found = _measure(arena, load, connection, writer, crowd)
    found.memory_before = before
    return found


def _measure(
    arena: Arena, load: Load, connection: Connection, writer: IdempotentProducer, crowd: subprocess.Popen[str]
) -> Found:
    node, kafka_port = arena.pid("node"), arena.port(Target.DIRECT)
    waiting, connections = machine.memory(node).resident, machine.connections_to(node, kafka_port)
    cpu = machine.cpu_seconds(node)
    time.sleep(load.idle_s)
    idle = (machine.cpu_seconds(node) - cpu) / load.idle_s
    lag, clock, own, spent = event_loop_lag(arena), machine.Clock.now(), arena.cpu_seconds(), _cpu(arena, crowd)
    began = time.perf_counter()
    appended = Appended(1, _append(connection, writer, load))
    took, spent = time.perf_counter() - began, {name: now - spent[name] for name, now in _cpu(arena, crowd).items()}
    of_others = machine.Clock.now().busy_share(clock, arena.cpu_seconds() - own + spent["crowd"])
    found = Found(Receipts(), len(appended.at), idle_cpu=idle, memory_waiting=waiting)
    found.connections_waiting, found.connections = connections, machine.connections_to(node, kafka_port)
    found.receipts = _receipts(crowd, appended)
    found.lag_s = largest_lag(lag, event_loop_lag(arena))
    found.node_cpu, found.kafka_cpu, found.crowd_cpu = (spent[name] / took for name in ("node", "kafka", "crowd"))
    found.memory_after = machine.memory(node).resident
    found.neighbours = of_others
    return found


def _append(connection: Connection, writer: IdempotentProducer, load: Load) -> list[float]:
    """One record at a time; when each was acknowledged."""
    began, found = time.perf_counter(), list[float]()
    for number in range(round(load.seconds / load.every_s)):
        time.sleep(max(0.0, began + number * load.every_s - time.perf_counter()))
        writer.check(connection.exchange(writer.prepare()))
        found.append(time.perf_counter())
    return found


def _cpu(arena: Arena, crowd: subprocess.Popen[str]) -> dict[str, float]:
    pids = {"node": arena.pid("node"), "kafka": arena.pid("kafka"), "crowd": crowd.pid}
    return {name: machine.cpu_seconds(pid) for name, pid in pids.items()}


# The crowd ----------------------------------------------------------------------------------------------------------


@contextmanager
def _crowd(arena: Arena, load: Load, names: list[str], offset: int) -> Iterator[subprocess.Popen[str]]:
    """The process of the subscribers, all of which wait at the log's end."""
    port = arena.port(Target.DIRECT if load.direct else Target.UNGOVERNED)
    order = Order(port, names, load.subscribers, offset, load.wait_ms, load.version)
    command = (sys.executable, "-m", "benchmarks.shadows.crowd", json.dumps(asdict(order)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        try:
            _line(process, READY)
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line or (what == READY and line != READY):
        raise RuntimeError(f"the subscribers ended before they were {what}: see what they said above")
    return line


def _receipts(process: subprocess.Popen[str], appended: Appended) -> Receipts:
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(appended)) + "\n")
    process.stdin.flush()
    return Receipts(**json.loads(_line(process, "done")))


# The event loop -----------------------------------------------------------------------------------------------------


def metrics(arena: Arena) -> str:
    """The node's page of metrics."""
    with urllib.request.urlopen(f"http://{HOST}:{arena.admin_port(1)}/metrics", timeout=30) as answer:
        return answer.read().decode()


def event_loop_lag(arena: Arena) -> dict[float, float]:
    """How many timers of the node were no later than each bound, in seconds."""
    return lag_of(metrics(arena))


def lag_of(page: str) -> dict[float, float]:
    """The histogram of the event loop's lag in a page of metrics."""
    found = re.findall(r'^sidecar_event_loop_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)$', page, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def largest_lag(before: dict[float, float], after: dict[float, float]) -> float:
    """The least bound that all timers between two looks kept."""
    counts = {bound: count - before[bound] for bound, count in after.items()}
    return min(bound for bound, count in counts.items() if count == max(counts.values()))
