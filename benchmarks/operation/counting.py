"""What metrics and logs cost on the path of records: the CPU time of a node with them, and of one without.

Both are nodes of the same Kafka, of clusters of their own, and take turns. The one with them is as it comes, and is
scraped every second, more often than any Prometheus would; the other counts nothing and logs errors alone.
"""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import latency, machine
from benchmarks.measures import Target
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena, Single

_SIZE: Final = 1024
_SCRAPE_S: Final = 1.0
_WITHOUT: Final = {
    "BENCH_UNMETERED": "1",
    "PYTHONPATH": str(Path(__file__).with_name("unmetered")),
    "SIDECAR_LOG_LEVEL": "error",
}


@dataclass(frozen=True, slots=True)
class Round:
    """CPU of one node: seconds per GB of records of 1 KiB in batches, microseconds per batch that comes alone."""

    per_gb: float
    per_batch: float


def measure(arena: Arena, rounds: int, records: int, batches: int) -> dict[str, list[Round]]:
    """Rounds by `with` and `without`; the first of each is thrown away."""
    found: dict[str, list[Round]] = {"with": [], "without": []}
    with (
        arena.single("metered", {"SIDECAR_CLUSTER": "metered"}) as metered,
        arena.single("unmetered", {"SIDECAR_CLUSTER": "unmetered", **_WITHOUT}) as unmetered,
    ):
        nodes = {"with": metered, "without": unmetered}
        for node in nodes.values():
            arena.put_policy(arena.topic(Target.EXCLUSIVE, "*"), {"access_mode": "exclusive"}, node.admin)
        for turn in range(rounds + 1):
            for name in list(nodes)[:: 1 if turn % 2 else -1]:
                node = nodes[name]
                topic = arena.topic(Target.EXCLUSIVE, f"{name}-{turn}")
                with _Scraper(node.admin if name == "with" else None):
                    one = _round(arena, node, topic, records, batches)
                if turn:
                    found[name].append(one)
    return found


def _round(arena: Arena, node: Single, topic: str, records: int, batches: int) -> Round:
    arena.create(topic)
    alone = f"{topic}-alone"
    arena.create(alone)
    try:
        many = _cpu(node, lambda: arena.load.produce(node.port, topic, records, _SIZE))
        few = _cpu(
            node,
            lambda: latency.measure({Target.EXCLUSIVE: (node.port, alone)}, 1, batches, list_offsets=False),
        )
    finally:
        arena.delete(topic)
        arena.delete(alone)
    return Round(many / (records * _SIZE / 1e9), few / batches * 1e6)


def _cpu(node: Single, work: Callable[[], object]) -> float:
    before = machine.cpu_seconds(node.pid)
    work()
    return machine.cpu_seconds(node.pid) - before


class _Scraper:
    """Asks a node for its metrics every second, as a Prometheus does; a context manager. None: asks nobody."""

    def __init__(self, admin: int | None) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(admin,)) if admin is not None else None

    def __enter__(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, admin: int) -> None:
        while not self._ended.wait(_SCRAPE_S):
            with suppress(OSError, http.client.HTTPException):
                scrape(admin)


def scrape(admin: int) -> float:
    """One scrape in milliseconds."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, admin, timeout=10)
    try:
        connection.request("GET", "/metrics")
        connection.getresponse().read()
    finally:
        connection.close()
    return (time.perf_counter() - began) * 1000
