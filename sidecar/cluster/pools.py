"""Connections to one broker that many clients share; a connection carries one request at a time.

For requests that a broker may answer late: requests behind them on the same connection would wait as long. A connection
is used again once its answer has come. If none is idle, a request waits a moment for one: if all are slow, one new
connection per request would make it worse. Connections that stay idle for a while are closed.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from sidecar.network.unread import AnswerMemory
from sidecar.network.upstream import Owner, UpstreamConnection
from sidecar.protocol.caller import DisconnectedError

LEAST: Final = 32
"""The number of connections that are opened without waiting, and that stay open when idle."""
PATIENCE_S: Final = 0.25
"""How long a request waits for a connection in use before a new one is opened (seconds)."""
KEPT_S: Final = 10.0
"""How long a connection beyond `LEAST` stays open when idle (seconds)."""


class Counted(Protocol):
    """The client for which a connection is opened, and which counts its connections."""

    def may_open(self) -> bool:
        """Return whether it may have one more connection."""
        ...

    def upstream_opened(self) -> None: ...
    def upstream_closed(self) -> None: ...


class Source(Protocol):
    """Opens connections, and knows which brokers are in backoff. Implemented by `Brokers`."""

    def address(self, broker_id: int) -> tuple[str, int]: ...
    def may_connect(self, broker_id: int) -> bool: ...
    def connect_succeeded(self, broker_id: int) -> None: ...
    def connect_failed(self, broker_id: int, reason: str) -> None: ...
    def open(
        self, owner: Owner, address: tuple[str, int], answers: AnswerMemory | None = None
    ) -> UpstreamConnection: ...


class Pool:
    """The connections to one broker. Implements `sidecar.network.upstream.Owner`."""

    def __init__(self, source: Source, broker_id: int) -> None:
        self._source = source
        self._broker_id = broker_id
        self._open: dict[UpstreamConnection, Counted] = {}
        self._resting: dict[UpstreamConnection, float] = {}
        """The idle connections, each with the loop's time since when it is idle; the last one was used last."""
        self._waiting: dict[asyncio.Future[UpstreamConnection], None] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def take(
        self, counted: Counted, answers: AnswerMemory | None, *, at_once: bool = False
    ) -> UpstreamConnection:
        """Return a connection for one request; it may still be connecting. Call `give_back` after the answer.
        `at_once`: if none is idle, open a new one without waiting. Raises `DisconnectedError`.
        """
        address = self._source.address(self._broker_id)
        while self._resting:
            connection, _ = self._resting.popitem()
            if connection.address == address:
                return connection
            connection.close("the broker moved")
        if not at_once and len(self._open) >= LEAST:
            found = await self._one_of_others()
            if found is not None and not found.closed:
                self._resting[found] = asyncio.get_running_loop().time()
            return await self.take(counted, answers, at_once=True)
        if not self._source.may_connect(self._broker_id):
            raise DisconnectedError(f"broker {self._broker_id} failed a moment ago", sent=False)
        if not counted.may_open():
            raise DisconnectedError("too many files are open for another connection to a broker", sent=False)
        connection = self._source.open(self, address, answers)
        self._open[connection] = counted
        counted.upstream_opened()
        return connection

    async def _one_of_others(self) -> UpstreamConnection | None:
        """Return the next connection that is given back within `PATIENCE_S`, else None."""
        future: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await asyncio.wait([future], timeout=PATIENCE_S)
        except asyncio.CancelledError:
            if future.done():
                self.give_back(future.result())
            raise
        finally:
            self._waiting.pop(future, None)
        return future.result() if future.done() else None

    def give_back(self, connection: UpstreamConnection) -> None:
        """Return a connection to the pool after its answer; close it if the answer is no longer awaited."""
        if connection.unanswered:
            connection.close("nobody waits for its answer any more")
        if connection.closed:
            return
        if self._waiting:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.set_result(connection)
            return
        loop = asyncio.get_running_loop()
        self._resting[connection] = loop.time()
        if self._sweep is None and len(self._open) > LEAST:
            self._sweep = loop.call_later(KEPT_S, self._close_unneeded)

    def _close_unneeded(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        long_ago = loop.time() - KEPT_S
        for connection in [each for each, since in self._resting.items() if since <= long_ago]:
            if len(self._open) <= LEAST:
                return
            connection.close("not needed any more")
        if len(self._open) > LEAST:
            self._sweep = loop.call_later(KEPT_S, self._close_unneeded)

    def close(self) -> None:
        """Close all connections; requests under way fail with `DisconnectedError`."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.close()

    # Owner ----------------------------------------------------------------------------------------------------------

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self._source.connect_succeeded(self._broker_id)

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        """Do nothing: with one request at a time there is nothing to hold back."""

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        self._resting.pop(connection, None)
        counted = self._open.pop(connection, None)
        if counted is not None:
            counted.upstream_closed()
        if connection.failure is not None and not connection.stood:
            self._source.connect_failed(self._broker_id, connection.failure)
