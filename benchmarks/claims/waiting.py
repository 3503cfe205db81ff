"""Thousands of claims that wait: what a node spends on them, and how fast the next one owns what another lets go of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.claims.crowd import CONNECTED, RESTING, WAITING, Order, Passed
from benchmarks.event_loop import event_loop_lag, largest_lag, metrics
from benchmarks.measures import Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

_ROOT: Final = Path(__file__).resolve().parents[2]
_GONE_S: Final = 30.0
_SPARE: Final = 10
"""Listeners more than hand-overs: the last one to own has somebody behind it."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many claims on one string, or each on one of its own (`apart`). `each` of them share a connection, on which
    they are asked for again every 4 s; 0: every one has a connection and a call that waits.
    """

    claims: int
    apart: bool = False
    each: int = 20
    handovers: int = 200
    rest_s: float = 15.0

    @property
    def label(self) -> str:
        """For tables."""
        what = "a string each" if self.apart else "one string"
        how = f"{self.each} to a connection, asked every 4 s" if self.each else "a waiting call each"
        return f"{self.claims:,}, {what}, {how}"

    def order(self, port: int, prefix: str) -> Order:
        """For the process that claims."""
        listeners = min(self.claims, self.handovers + _SPARE) if self.each else self.claims
        connections = -(-(self.claims - listeners) // self.each) if self.each else 0
        return Order(port, prefix, self.claims, listeners, connections, self.apart)


@dataclass(slots=True)
class Found:
    """What a load took. Memory of the node in MiB: before, when all were connected, when all waited, after the
    hand-overs. CPU is the share of a core: of the node and the crowd while all waited, of the node during the
    hand-overs. Lag in seconds: no timer of the node's event loop was later, up to the bounds of its histogram, while
    places were taken, while all waited, during the hand-overs, when all connections ended at once.
    """

    passed: Passed
    memory_before: float = 0.0
    memory_connected: float = 0.0
    memory_waiting: float = 0.0
    memory_after: float = 0.0
    taking_s: float = 0.0
    node_cpu: float = 0.0
    crowd_cpu: float = 0.0
    handover_cpu: float = 0.0
    lag_taking_s: float = 0.0
    lag_waiting_s: float = 0.0
    lag_handover_s: float = 0.0
    lag_gone_s: float = 0.0
    neighbours: float = 0.0


def measure(arena: Arena, load: Load) -> Found:
    """With a node that was started for it, so that its memory tells. Raises OSError, RuntimeError."""
    start_afresh(arena)
    return with_crowd(arena, load)


def start_afresh(arena: Arena) -> None:
    """Another process in place of the node."""
    arena.kill_node(1)
    arena.start_node(1)
    arena.check_addresses()


def with_crowd(arena: Arena, load: Load) -> Found:
    """With the node as it is."""
    node = arena.pid("node")
    before = machine.memory(node).resident
    clock, own = machine.Clock.now(), arena.cpu_seconds()
    with _crowd(load.order(arena.port(Target.UNGOVERNED), f"{arena.run}-{time.monotonic_ns()}")) as crowd:
        found = _measure(arena, load, node, crowd)
        spent = arena.cpu_seconds() - own + machine.cpu_seconds(crowd.pid)
        lag = event_loop_lag(arena)
    _wait_until_gone(arena)
    _, found.lag_gone_s = _since(arena, lag)
    found.memory_before = before
    found.neighbours = machine.Clock.now().busy_share(clock, spent)
    if found.passed.faults:
        raise RuntimeError(f"{load.label}: {'; '.join(found.passed.faults[:5])}")
    return found


def _measure(arena: Arena, load: Load, node: int, crowd: subprocess.Popen[str]) -> Found:
    found = Found(Passed())
    found.memory_connected = machine.memory(node).resident
    lag = event_loop_lag(arena)
    found.taking_s = float(_ask(crowd, "wait").removeprefix(WAITING))
    lag, found.lag_taking_s = _since(arena, lag)
    _ask(crowd, "rest")
    cpu, of_crowd = machine.cpu_seconds(node), machine.cpu_seconds(crowd.pid)
    began = time.perf_counter()
    time.sleep(load.rest_s)
    took = time.perf_counter() - began
    found.node_cpu = (machine.cpu_seconds(node) - cpu) / took
    found.crowd_cpu = (machine.cpu_seconds(crowd.pid) - of_crowd) / took
    found.memory_waiting = machine.memory(node).resident
    lag, found.lag_waiting_s = _since(arena, lag)
    cpu, began = machine.cpu_seconds(node), time.perf_counter()
    found.passed = Passed(**json.loads(_ask(crowd, f"pass {load.handovers}")))
    found.handover_cpu = (machine.cpu_seconds(node) - cpu) / (time.perf_counter() - began)
    _, found.lag_handover_s = _since(arena, lag)
    found.memory_after = machine.memory(node).resident
    return found


def _wait_until_gone(arena: Arena) -> None:
    """The node has noticed that all connections ended, and nobody waits any more. Raises TimeoutError."""
    deadline = time.monotonic() + _GONE_S
    while waiting_of(metrics(arena)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"claims of connections that ended wait still after {_GONE_S:.0f} s")
        time.sleep(0.2)


def waiting_of(page: str) -> int:
    """How many places in queues are taken, by a page of metrics."""
    found = re.search(r"^sidecar_claims_waiting ([0-9.e+]+)$", page, re.MULTILINE)
    if found is None:
        raise ValueError("the metrics tell of no sidecar_claims_waiting")
    return round(float(found[1]))


def _since(arena: Arena, lag: dict[float, float]) -> tuple[dict[float, float], float]:
    """The histogram of the event loop's lag now, and the largest since the last look."""
    now = event_loop_lag(arena)
    return now, largest_lag(lag, now)


@contextmanager
def _crowd(order: Order) -> Iterator[subprocess.Popen[str]]:
    """The process of the claims, connected."""
    command = (sys.executable, "-m", "benchmarks.claims.crowd", json.dumps(asdict(order)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        try:
            _line(process, CONNECTED)
            yield process
        finally:
            process.kill()


def _ask(process: subprocess.Popen[str], step: str) -> str:
    assert process.stdin is not None
    process.stdin.write(step + "\n")
    process.stdin.flush()
    return _line(process, {"wait": WAITING, "rest": RESTING}.get(step, "{"))


def _line(process: subprocess.Popen[str], what: str) -> str:
    """What it says when a step is done. Raises RuntimeError where it ended before."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line.startswith(what):
        raise RuntimeError(f"the claims ended before they were {what}: see what they said above")
    return line
