"""Which calls attend to which request: while one does, and 5 s longer, its place or promotion is kept."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sidecar.access.rules import KEPT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.gateway.client import Client
    from sidecar.gateway.own.tickets import Ticket


class Attendance:
    """The calls of Own and Watch that are under way, and the requests that nobody calls for."""

    def __init__(self) -> None:
        self._parked: dict[int, set[asyncio.Future[None]]] = {}
        self._unattended: dict[bytes, Ticket] = {}

    @contextmanager
    def attended(self, ticket: Ticket, *, by_own: bool = False) -> Iterator[None]:
        """A call for a request is under way: what it waits for, or was promoted to, is kept."""
        ticket.calls += 1
        ticket.own_calls += by_own
        self._unattended.pop(ticket.asked.token, None)
        try:
            yield
        finally:
            ticket.calls -= 1
            ticket.own_calls -= by_own
            self.left_alone(ticket)

    def left_alone(self, ticket: Ticket) -> None:
        """Nobody calls for a request for the time being."""
        if ticket.calls == 0 and ticket.lapses:
            ticket.kept_until = asyncio.get_running_loop().time() + KEPT_S
            self._unattended[ticket.asked.token] = ticket

    def waits(self, ticket: Ticket) -> None:
        """A request took its places, or keeps them: without a call, not for longer than before."""
        if ticket.asked.token not in self._unattended:
            self.left_alone(ticket)

    async def park(self, client: Client, ticket: Ticket, seconds: float | None) -> None:
        """Until something happens to a request, its client is gone, or so many seconds have passed."""
        listener = ticket.listen()
        parked = self._parked.setdefault(client.connection_id, set())
        parked.add(listener)
        alarm = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _rouse, listener)
        client.connection.park()
        try:
            await listener  # nothing around it: thousands wait here
        finally:
            if alarm is not None:
                alarm.cancel()
            ticket.listeners.discard(listener)
            parked.discard(listener)
            if not parked:
                self._parked.pop(client.connection_id, None)

    def gone(self, client: Client) -> None:
        """Its calls end."""
        for listener in self._parked.pop(client.connection_id, ()):
            _rouse(listener)

    def forget(self, ticket: Ticket) -> None:
        """Nothing of it is kept for anybody."""
        self._unattended.pop(ticket.asked.token, None)

    def lapsed(self) -> Iterator[Ticket]:
        """The requests that nobody has called for too long, each once; others may be called for in between."""
        now = asyncio.get_running_loop().time()
        for token, ticket in list(self._unattended.items()):
            if self._unattended.get(token) is not ticket:
                continue  # it was called for meanwhile
            if not ticket.lapses:
                del self._unattended[token]
            elif now > ticket.kept_until:
                del self._unattended[token]
                yield ticket


def _rouse(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)
