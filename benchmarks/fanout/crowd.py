"""A process that is many subscribers: `python -m benchmarks.fanout.crowd ORDER`, the order a JSON of `Order`.

Prints how many seconds it took to connect all, then `ready` once everybody was answered. Then it is told on standard
input which offsets were appended and when (`Appended` as JSON), waits until everybody has them, and prints `Receipts`
as JSON. Times are those of time.perf_counter(), which on Linux all processes share.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from array import array
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.fanout.subscriber import Limits, Subscriber
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

READY: Final = "ready"
_AT_ONCE: Final = 200
_READY_S: Final = 120.0
_LAST_S: Final = 30.0
_LOOK_S: Final = 0.05
_SPARE_FILES: Final = 100


@dataclass(frozen=True, slots=True)
class Order:
    """So many connections to a port, the names in turns, each from an offset on."""

    port: int
    names: list[str]
    size: int
    offset: int
    wait_ms: int
    version: int


@dataclass(frozen=True, slots=True)
class Appended:
    """When each batch of one record was acknowledged, from the first offset on, in seconds."""

    first: int
    at: list[float]


@dataclass(slots=True)
class Receipts:
    """What came: subscribers that got every record once and in order, deliveries, seconds from the first
    acknowledgement to the last receipt, CPU seconds of this process; by milliseconds from a record's
    acknowledgement to its receipt how many deliveries took so long; faults in words, a few of them.
    """

    complete: int = 0
    deliveries: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    answers: int = 0
    waits_ms: dict[str, int] = field(default_factory=dict[str, int])
    faults: list[str] = field(default_factory=list[str])


class Crowd:
    """All subscribers, and when each offset came to each of them."""

    def __init__(self, order: Order) -> None:
        self.times: list[array[float]] = []
        self._order = order
        limits = Limits(order.wait_ms, order.version)
        names = order.names
        self.subscribers = [
            Subscriber(names[number % len(names)], order.offset, limits, self._received) for number in range(order.size)
        ]

    def _received(self, base: int, after: int) -> None:
        now, times, first = time.perf_counter(), self.times, self._order.offset
        while len(times) < after - first:
            times.append(array("d"))
        for offset in range(base, after):
            times[offset - first].append(now)

    async def connect(self) -> None:
        """All, a few at a time. Raises OSError."""
        limit, loop = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop()

        async def one(subscriber: Subscriber) -> None:
            async with limit:
                await loop.create_connection(lambda: subscriber, HOST, self._order.port)

        await asyncio.gather(*map(one, self.subscribers))

    async def settled(self, answers: int) -> None:
        """Everybody was answered so often. Raises TimeoutError."""
        if not await _until(lambda: all(one.answers >= answers for one in self.subscribers), _READY_S):
            raise TimeoutError(f"not all were answered {answers} times within {_READY_S:.0f} s")

    async def arrived(self, end: int) -> None:
        """Everybody has got so far, or the time is up."""
        await _until(lambda: all(one.offset >= end for one in self.subscribers), _LAST_S)

    def receipts(self, appended: Appended) -> Receipts:
        """What came of what was appended."""
        found, end = Receipts(), appended.first + len(appended.at)
        found.answers = sum(subscriber.answers for subscriber in self.subscribers)
        faulty = [subscriber for subscriber in self.subscribers if subscriber.faults or not subscriber.connected]
        found.complete = sum(subscriber.offset == end for subscriber in self.subscribers if subscriber not in faulty)
        found.faults = [fault for subscriber in faulty[:5] for fault in subscriber.faults[:2] or ["disconnected"]]
        found.deliveries = sum(map(len, self.times))
        waits = [
            max(0.0, time - at) * 1000 for times, at in zip(self.times, appended.at, strict=False) for time in times
        ]
        found.waits_ms = dict(Counter(str(round(wait)) for wait in waits))
        if waits:
            found.seconds = max(map(max, filter(None, self.times))) - appended.at[0]
        return found


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look now and then whether it holds: looking more often would take from what is measured."""
    for _ in range(round(seconds / _LOOK_S)):
        if condition():
            return True
        await asyncio.sleep(_LOOK_S)
    return False


async def _run(order: Order) -> Receipts:
    crowd = Crowd(order)
    began = time.perf_counter()
    await crowd.connect()
    print(time.perf_counter() - began, flush=True)
    await crowd.settled(1)
    print(READY, flush=True)
    cpu = time.process_time()
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    appended = Appended(**json.loads(line))
    await crowd.arrived(appended.first + len(appended.at))
    cpu = time.process_time() - cpu
    found = crowd.receipts(appended)
    found.cpu_s = cpu
    return found


def main() -> int:
    """Run the order of the command line; 1 where this process may not open so many connections."""
    order = Order(**json.loads(sys.argv[1]))
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if order.size + _SPARE_FILES > most:
        sys.stderr.write(f"{order.size} subscribers need as many open files: ulimit -n is {most}, raise it\n")
        return 1
    print(json.dumps(asdict(uvloop.run(_run(order)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
