"""What the readers of one shadow may take of a node, so that no audience starves another one (PIP-180): places for
connections, and bytes of records per second of all of them together. Both off unless set.

- Beyond the bytes a reader gets what it asked for, and its next request is not read until its audience has paid back,
  as with Kafka's quotas (KIP-219).
- A connection without a place gets 6 NOT_LEADER_OR_FOLLOWER for the shadow: clients look for the leader and ask again,
  and the first one gets the place that is free by then. A place is given back at the end of the connection, or after
  a minute in which it did not read the shadow.

Readers of the source by its own name are no audience: nothing here concerns them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.gateway.client import Client
from sidecar.gateway.quotas import Mute, Rate
from sidecar.network.handling import Pause

PLACE_S: Final = 60.0
"""How long a connection that does not read the shadow any more keeps its place: longer than any wait of a Fetch by
default."""
_SHADOWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class AudienceLimits:
    """Of each shadow at one node, 0 for none: connections that read it, and bytes of records per second."""

    readers: int = 0
    byte_rate: int = 0


class Places:
    """Who reads a shadow. Pure; times are in seconds of any clock."""

    __slots__ = ("_last", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[bytes, dict[int, float]] = {}

    def takes(self, shadow: bytes, connection: int, now: float) -> bool:
        """Whether a connection that asks for the shadow has a place, or gets one."""
        places = self._last.get(shadow)
        if places is None:
            places = self._last[shadow] = {}
        if connection not in places and len(places) >= self._most:
            for gone in [each for each, last in places.items() if now - last >= PLACE_S]:
                del places[gone]
            if len(places) >= self._most:
                return False
        places[connection] = now
        return True

    def leaves(self, connection: int) -> None:
        """A connection has ended."""
        for shadow, places in list(self._last.items()):
            places.pop(connection, None)
            if not places:
                del self._last[shadow]


class Audiences:
    """Those of one node. `clients` are the connections that there are."""

    def __init__(
        self,
        limits: AudienceLimits,
        clients: Mapping[int, Client],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._places = Places(limits.readers) if limits.readers else None
        self._byte_rate = limits.byte_rate
        self._rates: dict[bytes, Rate] = {}
        self._muted: dict[int, Mute] = {}

    def admits(self, shadow: bytes, connection: int) -> bool:
        """Whether a connection may read a shadow now."""
        return self._places is None or self._places.takes(shadow, connection, self._clock())

    def took(self, shadow: bytes, connection: int, record_bytes: int) -> None:
        """A connection was given records of a shadow."""
        if not self._byte_rate or not record_bytes:
            return
        now = self._clock()
        rate = self._rates.get(shadow)
        if rate is None:
            if len(self._rates) >= _SHADOWS:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[shadow] = Rate(self._byte_rate, now)
        wait = rate.use(record_bytes, now)
        client = self._clients.get(connection)
        if wait and client is not None:
            self._muted.setdefault(connection, Mute()).extend(client.connection, Pause.AUDIENCE, wait)

    def client_closed(self, client: Client) -> None:
        """A client has gone."""
        muted = self._muted.pop(client.connection.id, None)
        if muted is not None:
            muted.end()
        if self._places is not None:
            self._places.leaves(client.connection.id)
