"""Ends what readers have under way that lost their claims: closes their connections, a few hundred looked at per turn.

A claim that went to another holder costs the old one its connections at once (Kafka wiki "Single Reader/Writer"). A
long poll that is parked would still bring its client records that it may not read any more: whoever waits in one is
closed too, and hears on its next connection which partitions are refused. Decides nothing:
`sidecar.resources.readers` does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sidecar.gateway.passed_fetch import FetchExchange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.gateway.client import Client
    from sidecar.network.tasks import Tasks
    from sidecar.resources.readers import HandOver, ReaderClaims

_PER_TURN: Final = 256


class Severing:
    """Told of changes by `claims`, closes connections of `clients`. Closing twice is harmless."""

    def __init__(self, clients: Mapping[int, Client], claims: ReaderClaims, tasks: Tasks) -> None:
        self._clients = clients
        self._claims = claims
        self._tasks = tasks
        self._passed: set[HandOver] = set()
        self._narrowed: set[bytes] = set()
        self._is_under_way = False

    def follow(self) -> None:
        """Hear of changes from now on."""
        self._claims.handed_over = self._hand_over
        self._claims.narrowed = self._narrow

    def _hand_over(self, passed: HandOver) -> None:
        self._passed.add(passed)
        self._begin()

    def _narrow(self, topic: bytes) -> None:
        self._narrowed.add(topic)
        self._begin()

    def _begin(self) -> None:
        if not self._is_under_way:
            self._is_under_way = True
            self._tasks.start(self._sweep())

    async def _sweep(self) -> None:
        try:
            while self._passed or self._narrowed:
                passed, self._passed = self._passed, set()
                narrowed, self._narrowed = self._narrowed, set()
                for number, client in enumerate(list(self._clients.values()), 1):
                    if any(each.severs(client) for each in passed) or self._waits_in_vain(client, narrowed):
                        client.connection.abort()
                    if not number % _PER_TURN:
                        await asyncio.sleep(0)
        finally:
            self._is_under_way = False

    def _waits_in_vain(self, client: Client, topics: set[bytes]) -> bool:
        """Whether a client would be answered with records of these topics that it may not read."""
        return any(
            isinstance(exchange, FetchExchange)
            and self._claims.refuses([each for each in exchange.partitions() if each[0] in topics], client)
            for exchange in client.connection.pending
        )
