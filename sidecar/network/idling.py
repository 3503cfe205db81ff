"""Close client connections that are idle too long, as a broker does, and abort those whose peers are silent or have
disconnected (`sidecar.network.keepalive`).

There are two limits: `first_s` from the connection to its first request, and `idle_s` without a request, an answer or
a byte of an unfinished request (Kafka's `connections.max.idle.ms`). A client that waits for an answer is not idle.
Requests cost nothing extra: each look compares a connection's counters with those of the last look.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.network.client import ClientConnection
from sidecar.network.handling import Pause
from sidecar.network.keepalive import LOOK_S, SILENCE_LIMIT_S

_IDLE_LOOK_S: Final = 1.0
_SWEEPS: Final = 10
"""Looks at all connections within `idle_s`: an idle one is closed at most `idle_s / _SWEEPS` late."""
_AT_ONCE: Final = 500
_ASKED_AT_ONCE: Final = 200
"""Connections checked in one turn: `_AT_ONCE` by their counters, `_ASKED_AT_ONCE` with system calls."""


class IdleWatch:
    """Closes idle connections.

    `end(connection, has_requested)` closes one. `is_needed` returns whether the client would lose something by that,
    such as the ownership of a topic; then it is not closed. `first_s` and `idle_s`: 0 for no limit.
    """

    def __init__(
        self,
        connections: Callable[[], Iterable[ClientConnection]],
        end: Callable[[ClientConnection, bool], None],
        is_needed: Callable[[ClientConnection], bool],
        *,
        first_s: float,
        idle_s: float,
    ) -> None:
        self._connections = connections
        self._end = end
        self._is_needed = is_needed
        self._first_s = first_s
        self._idle_s = idle_s
        self._newcomers: deque[tuple[float, ClientConnection]] = deque()
        self._seen: dict[int, tuple[float, int, int, int]] = {}
        """By connection id: the time of the last look that found activity, and the counters of then."""

    def came(self, connection: ClientConnection) -> None:
        """Watch a new connection, which has to send a request within `first_s`."""
        if self._first_s:
            self._newcomers.append((asyncio.get_running_loop().time() + self._first_s, connection))

    async def run(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        every = max(self._idle_s / _SWEEPS, min(_IDLE_LOOK_S, self._idle_s)) if self._idle_s else 0.0
        swept = loop.time()
        while True:
            await asyncio.sleep(min(_IDLE_LOOK_S, every or _IDLE_LOOK_S, self._first_s or _IDLE_LOOK_S))
            self._look_at_newcomers(loop.time())
            if every and loop.time() - swept >= every:
                swept = loop.time()
                await self._sweep()

    def _look_at_newcomers(self, now: float) -> None:
        newcomers = self._newcomers
        while newcomers and newcomers[0][0] <= now:
            _, connection = newcomers.popleft()
            if not connection.closed and not connection.requests:
                self._end(connection, False)

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        before, self._seen = self._seen, {}
        for index, each in enumerate(list(self._connections())):
            if index % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if each.closed:
                continue
            counted = each.requests, each.bytes_out, each.unfinished_bytes
            seen = before.get(each.id)
            if seen is None or seen[1:] != counted or each.unanswered or self._is_needed(each):
                self._seen[each.id] = (now, *counted)
            elif now - seen[0] >= self._idle_s:
                self._end(each, True)
            else:
                self._seen[each.id] = seen


class ClientWatch:
    """Aborts connections whose peers are silent or have disconnected. Looks every two seconds, in several turns.

    Of a peer that has disconnected while it was over its quota, each look lets the waiting requests go on until one of
    them is over it again: the quota slows nobody down any more.
    """

    def __init__(
        self, connections: Callable[[], Iterable[ClientConnection]], limit_s: float = SILENCE_LIMIT_S - LOOK_S
    ) -> None:
        self._connections = connections
        self._limit_s = limit_s

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S, self._limit_s))
            for index, connection in enumerate(list(self._connections())):
                if connection.has_left or connection.is_silent(self._limit_s):
                    connection.abort()
                elif connection.has_left_muted:
                    connection.resume(Pause.THROTTLED)
                if index % _ASKED_AT_ONCE == _ASKED_AT_ONCE - 1:
                    await asyncio.sleep(0)
