"""What a node holds in memory while nobody asks it anything: as it starts, and when it serves many governed topics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.measures import Target
from benchmarks.operation.counting import scrape
from benchmarks.raw_client import PASSING, Connection, IdempotentProducer, RefusedError, new_producer

if TYPE_CHECKING:
    from benchmarks.arena import Arena, Single

_VALUE_BYTES: Final = 100
_PATIENCE_S: Final = 30.0
_AT_ONCE: Final = 200
_MB: Final = 1.048576
"""In a MiB."""


@dataclass(frozen=True, slots=True)
class Resting:
    """Resident memory in MB (10⁶ bytes): ready, and with `topics` that have an owner each; the scrapes then in ms."""

    ready: float
    topics: int
    governed: float
    scrapes: list[float]


def measure(arena: Arena, topics: int, rest_s: float) -> Resting:
    """Of a node that has just started, `rest_s` seconds after it had something to do."""
    with arena.single("resting", {"SIDECAR_CLUSTER": "resting"}) as node:
        arena.put_policy(arena.topic(Target.EXCLUSIVE, "rest-*"), {"access_mode": "exclusive"}, node.admin)
        time.sleep(rest_s)
        ready = _resident(node)
        names = [arena.topic(Target.EXCLUSIVE, f"rest-{number}") for number in range(topics)]
        for start in range(0, topics, _AT_ONCE):
            arena.create_all(names[start : start + _AT_ONCE], 1)
        _own(node, names)
        time.sleep(rest_s)
        governed = _resident(node)
        scrapes = [scrape(node.admin) for _ in range(20)]
    for name in names:
        arena.delete(name)
    return Resting(ready, topics, governed, scrapes)


def _resident(node: Single) -> float:
    return machine.memory(node.pid).resident * _MB


def _own(node: Single, topics: list[str]) -> None:
    """One session writes a batch to each topic. Raises RefusedError, OSError."""
    with Connection(node.port) as connection:
        stamp = new_producer(connection)
        for topic in topics:
            producer = IdempotentProducer(stamp, topic, _VALUE_BYTES)
            deadline = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    producer.check(connection.exchange(producer.prepare()))
                    break
                except RefusedError as error:
                    if error.code not in PASSING or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
