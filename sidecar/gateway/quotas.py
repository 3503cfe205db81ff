"""Quotas that a node's settings give each principal, per node as Kafka's are per broker: bytes of Produce, bytes of
answers to Fetch, requests, each per second. Off unless set. Kafka's own are in `kafka_quotas`; `metering` charges both.

Audiences limit the readers of one shadow at a node, so that no audience starves another one (PIP-180): the number of
connections (places), and the bytes of records per second of all together. Both are off unless set.

- Above the byte limit a reader gets its records, but its next request is not read until the rate of its audience is
  within the limit again, as with Kafka's quotas (KIP-219).
- A connection without a place gets 6 NOT_LEADER_OR_FOLLOWER for the shadow. Clients then look the leader up and retry,
  and the first one gets a place that is free by then. A place is freed when its connection ends, or after a minute
  without a read of the shadow.

Readers that use the source's name are no audience and have no such limits.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from sidecar.gateway.client import Client
from sidecar.gateway.throttling import Mute
from sidecar.network.handling import Pause
from sidecar.protocol.api import ApiKey

WINDOW_S: Final = 1.0
"""The unused quota of this many seconds may be used at once (Kafka's `quota.window.size.seconds`)."""
MOST_S: Final = 11.0
"""The longest time that a client has to wait: Kafka's window times its `quota.window.num`."""
_PRINCIPALS: Final = 10_000


class Rate:
    """A rate limit of `per_second`; `left` is negative if more was used."""

    __slots__ = ("_at", "left", "per_second")

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self.left = per_second * WINDOW_S
        self._at = now

    def use(self, amount: float, now: float) -> float:
        """Use an amount; returns by how many seconds the user is over the quota then."""
        self.left = min(self.per_second * WINDOW_S, self.left + (now - self._at) * self.per_second) - amount
        self._at = now
        return min(MOST_S, max(0.0, -self.left / self.per_second))


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Limits per second and principal, 0: none. `producer` and `consumer` in bytes, `requests` a number."""

    producer: int = 0
    consumer: int = 0
    requests: int = 0

    @property
    def any(self) -> bool:
        """Whether any quota is set."""
        return bool(self.producer or self.consumer or self.requests)


class _Used:
    """The rates of one principal."""

    __slots__ = ("consumer", "producer", "requests")

    def __init__(self, limits: QuotaLimits, now: float) -> None:
        self.producer = Rate(limits.producer, now) if limits.producer else None
        self.consumer = Rate(limits.consumer, now) if limits.consumer else None
        self.requests = Rate(limits.requests, now) if limits.requests else None


class Quotas:
    """The rates of all principals. `throttled` is called with each throttle time in seconds."""

    def __init__(
        self,
        limits: QuotaLimits,
        throttled: Callable[[int, float], None] = lambda _key, _seconds: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self._throttled = throttled
        self._clock = clock or time.monotonic
        self._used: dict[str, _Used] = {}

    def charge(self, principal: str, key: int, request_bytes: int, answer_bytes: int) -> float:
        """Count an answered request; returns by how many seconds the principal is over its quotas."""
        now = self._clock()
        used = self._used.get(principal)
        if used is None:
            if len(self._used) >= _PRINCIPALS:
                del self._used[next(iter(self._used))]
            used = self._used[principal] = _Used(self.limits, now)
        wait = used.requests.use(1, now) if used.requests is not None else 0.0
        if key == ApiKey.PRODUCE and used.producer is not None:
            wait = max(wait, used.producer.use(request_bytes, now))
        elif key == ApiKey.FETCH and used.consumer is not None:
            wait = max(wait, used.consumer.use(answer_bytes, now))
        if wait:
            self._throttled(key, wait)
        return wait


# Audiences ------------------------------------------------------------------------------------------------------------

PLACE_S: Final = 60.0
"""How long a connection keeps its place after its last read of the shadow, in seconds: longer than a Fetch waits by
default.
"""
_SHADOWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class AudienceLimits:
    """Limits of each shadow at one node, 0: none. Connections that read it, and bytes of records per second."""

    readers: int = 0
    byte_rate: int = 0


class Places:
    """The connections that have a place to read a shadow. Pure; times are in seconds of any clock."""

    __slots__ = ("_last", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[bytes, dict[int, float]] = {}

    def takes(self, shadow: bytes, connection: int, now: float) -> bool:
        """Whether a connection that reads the shadow has a place, or gets one."""
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
        """Free the places of a connection that has ended."""
        for shadow, places in list(self._last.items()):
            places.pop(connection, None)
            if not places:
                del self._last[shadow]


class Audiences:
    """The audiences of one node. `clients`: the present connections."""

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
        """Count records of a shadow that a connection got."""
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
            muted = self._muted.get(connection)
            if muted is None:
                pause, resume = client.connection.pause, client.connection.resume
                muted = self._muted[connection] = Mute(partial(pause, Pause.AUDIENCE), partial(resume, Pause.AUDIENCE))
            muted.extend(wait)

    def client_closed(self, client: Client) -> None:
        """Free the places of a client that has disconnected."""
        muted = self._muted.pop(client.connection.id, None)
        if muted is not None:
            muted.end()
        if self._places is not None:
            self._places.leaves(client.connection.id)
