"""Decides which clients' traffic is counted against quotas, and against which: those of the node's settings (`quotas`)
count all traffic of a principal, Kafka's (`kafka_quotas`) what brokers do not count as the client's.

A connection gets a meter when a quota holds for its client. Others cost nothing but a look-up when they connect, log in
or send another client id. Traffic before a login counts for nobody, as on a broker: else strangers could use up a quota
that all clients need to log in.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import Final

from sidecar.gateway.client import MOST_FETCHED, Client
from sidecar.gateway.kafka_quotas import ClientLimits, KafkaQuotas, SentAs
from sidecar.gateway.produce import MergedProduce
from sidecar.gateway.quotas import Quotas
from sidecar.gateway.throttling import SAYING, Mute, with_throttle
from sidecar.gateway.whole_fetch import FetchExchange
from sidecar.network.framing import Frame
from sidecar.network.handling import Pause
from sidecar.network.request import Exchange, Request
from sidecar.protocol.api import ApiKey
from sidecar.protocol.limits import SLICE
from sidecar.protocol.primitives import Octets
from sidecar.security.client_quotas import Limit

_PREFIX: Final = 4
"""Bytes of a frame that Kafka does not count: of a request the length prefix, of an answer the correlation id."""


class Metering:
    """The meters of a node's connections. `own`: the quotas of the settings; None: none are set."""

    def __init__(self, own: Quotas | None = None) -> None:
        self.own = own
        self.kafka: KafkaQuotas | None = None
        """Set before the first client connects, unless Kafka's quotas are not enforced."""

    def apply(self, client: Client) -> None:
        """Look up which quotas hold for a client, whose principal or client id is new, or when quotas have changed."""
        meter = client.connection.meter
        limits = None if self.kafka is None else self.kafka.limits(client)
        client.most_fetched = MOST_FETCHED if self.kafka is None or limits is None else self.kafka.most_fetched(limits)
        if isinstance(meter, ConnectionMeter):
            meter.limits = limits
        elif limits is not None or self.own is not None:
            client.connection.meter = ConnectionMeter(client, limits, self)

    def end(self, client: Client) -> None:
        """A client has disconnected."""
        if isinstance(client.connection.meter, ConnectionMeter):
            client.connection.meter.end()

    def apply_to_all(self, clients: Mapping[int, Client]) -> Generator[None, None, None]:
        """As `apply`, for all present clients, in slices."""
        for number, client in enumerate([*clients.values()], 1):
            self.apply(client)
            client.connection.repeating = None  # it has the limit of before
            if not number % SLICE:
                yield


class ConnectionMeter:
    """Counts the traffic of one client. Implements `sidecar.network.handling.Meter`."""

    __slots__ = ("_client", "_metering", "_mute", "_waits", "limits")

    def __init__(self, client: Client, limits: ClientLimits | None, metering: Metering) -> None:
        self._client = client
        self._metering = metering
        pause, resume = client.connection.pause, client.connection.resume
        self._mute = Mute(partial(pause, Pause.THROTTLED), partial(resume, Pause.THROTTLED))
        self._waits: dict[Exchange, int] = {}
        """The throttle times (ms) of batches without an answer."""
        self.limits = limits

    def expected(self, exchange: Exchange) -> None:
        """See `Meter`. Batches are counted before they are sent on, as clients pipeline them: a broker, too, takes up
        none behind one that is over.
        """
        if exchange.key == ApiKey.PRODUCE:
            as_node = exchange.as_node if isinstance(exchange, MergedProduce) else 0
            wait_ms = self._count_produced(exchange.request_bytes, as_node)
            if wait_ms:
                self._waits[exchange] = wait_ms

    def answered(self, exchange: Exchange) -> None:
        """See `Meter`."""
        wait_ms = self._count(exchange, exchange.answer_bytes)
        if wait_ms and exchange.key in SAYING and exchange.parts is not None:
            whole = b"".join(map(bytes, exchange.parts))
            exchange.replace_answer([with_throttle(whole, exchange.key, exchange.version, wait_ms)])

    def forwarded(self, exchange: Exchange, frame: Frame, head: Octets) -> Frame | None:
        """See `Meter`."""
        wait_ms = self._count(exchange, len(head) + frame.size)
        if not wait_ms or exchange.key not in SAYING:
            return None
        whole = bytes(head) + bytes(memoryview(frame.buffer)[frame.start : frame.end])
        amended = bytearray(with_throttle(whole, exchange.key, exchange.version, wait_ms))
        return Frame(amended, 0, len(amended), True)

    def unanswered(self, request: Request, as_node: int) -> None:
        """See `Meter`."""
        self._count_produced(request.frame.size, as_node)

    def end(self) -> None:
        """The connection has ended."""
        self._mute.end()

    def _count(self, exchange: Exchange, answer_bytes: int) -> int:
        """Count an answer; returns its throttle time in ms."""
        if exchange.key == ApiKey.PRODUCE:
            return self._waits.pop(exchange, 0)
        seconds = self._own(exchange.key, exchange.request_bytes, answer_bytes)
        if self.limits is not None and exchange.key == ApiKey.FETCH and isinstance(exchange, FetchExchange):
            limit = self.limits.consumer[exchange.sent_as]
            seconds = max(seconds, self._used(limit, answer_bytes - _PREFIX))
        return self._wait(seconds)

    def _count_produced(self, size: int, as_node: int) -> int:
        seconds = self._own(ApiKey.PRODUCE, size, 0)
        if self.limits is not None:
            producer = self.limits.producer
            sizes = {SentAs.NODE: max(0, as_node - _PREFIX), SentAs.CLIENT: max(0, size - max(as_node, _PREFIX))}
            seconds = max(seconds, *(self._used(producer[each], size) for each, size in sizes.items()))
        return self._wait(seconds)

    def _own(self, key: int, request_bytes: int, answer_bytes: int) -> float:
        own, client = self._metering.own, self._client
        return (
            0.0
            if own is None or not client.is_known
            else own.charge(client.principal, key, request_bytes, answer_bytes)
        )

    def _used(self, limit: Limit | None, size: int) -> float:
        kafka = self._metering.kafka
        return 0.0 if limit is None or kafka is None or not size else kafka.use(limit, size)

    def _wait(self, seconds: float) -> int:
        if seconds:
            self._mute.extend(seconds)
        return round(seconds * 1000)
