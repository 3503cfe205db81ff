"""Connections that ask for nothing: which are closed, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from sidecar.network.idling import IdleWatch
from tests.sim.host import Host
from tests.sim.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@dataclass
class Quiet:
    """A connection that does what a test says."""

    id: int
    requests: int = 0
    bytes_out: int = 0
    closed: bool = False
    unanswered: int = 0
    unfinished_bytes: int = 0


@dataclass
class Watched:
    """A watch over connections, on a clock of its own."""

    first_s: float = 10.0
    idle_s: float = 600.0
    connections: list[Quiet] = field(default_factory=list)
    ended: list[tuple[int, bool]] = field(default_factory=list)
    needed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.watch = IdleWatch(
            lambda: cast("Any", self.connections),
            self._end,
            lambda connection: connection.id in self.needed,
            first_s=self.first_s,
            idle_s=self.idle_s,
        )

    def _end(self, connection: Any, spoke: bool) -> None:
        self.ended.append((connection.id, spoke))
        connection.closed = True

    def add(self, connection: Quiet) -> Quiet:
        self.connections.append(connection)
        self.watch.came(cast("Any", connection))
        return connection

    def play(self, story: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a story beside the watch, on a clock of its own."""
        loop = SimLoop()

        async def both() -> None:
            watching = asyncio.ensure_future(self.watch.run())
            await story()
            watching.cancel()

        loop.finish(both(), Host("node"), within=100_000)


def test_who_asks_for_nothing_after_connecting_is_closed_and_who_asked_is_not() -> None:
    watched = Watched()

    async def story() -> None:
        watched.add(Quiet(1))
        watched.add(Quiet(2)).requests = 1
        watched.add(Quiet(3, closed=True))
        await asyncio.sleep(9)
        assert watched.ended == []
        watched.add(Quiet(4))
        await asyncio.sleep(3)
        assert watched.ended == [(1, False)]

    watched.play(story)


def test_idle_is_who_sends_nothing_gets_nothing_and_waits_for_nothing() -> None:
    watched = Watched(idle_s=100)

    async def story() -> None:
        idle, asking, reading, sending, waiting = (watched.add(Quiet(number, requests=1)) for number in range(1, 6))
        waiting.unanswered = 1
        for _ in range(30):
            asking.requests += 1
            reading.bytes_out += 1
            sending.unfinished_bytes += 1
            await asyncio.sleep(5)
        assert watched.ended == [(idle.id, True)]

    watched.play(story)


def test_time_counts_from_the_end_of_traffic() -> None:
    watched = Watched(idle_s=100)

    async def story() -> None:
        client = watched.add(Quiet(1, requests=1))
        await asyncio.sleep(90)
        client.requests += 1
        await asyncio.sleep(90)
        assert watched.ended == []
        await asyncio.sleep(40)
        assert watched.ended == [(1, True)]

    watched.play(story)


def test_a_connection_whose_end_would_cost_its_client_something_stays() -> None:
    watched = Watched(idle_s=100, needed={1})

    async def story() -> None:
        watched.add(Quiet(1, requests=1))
        await asyncio.sleep(1_000)
        assert watched.ended == []

    watched.play(story)


def test_nothing_is_closed_where_no_time_is_set() -> None:
    watched = Watched(first_s=0, idle_s=0)

    async def story() -> None:
        watched.add(Quiet(1))
        await asyncio.sleep(10_000)
        assert watched.ended == []

    watched.play(story)
