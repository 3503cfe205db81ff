"""The whole view of a node for its HTTP side, and the interface by which the node starts and stops the HTTP side."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Final, Protocol

from sidecar.changelog import follow_events
from sidecar.dedup.names import shown_name
from sidecar.gateway.client import Client
from sidecar.node import port
from sidecar.node.gauges import known_ids
from sidecar.node.parts import Parts, Rooms, rooms_of
from sidecar.node.port import ClientFacts
from sidecar.node.view.changes import Changes
from sidecar.node.view.logs import LogView
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.settings import Settings
from sidecar.settings.loaded import Shown
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.v1 import state_pb2 as state

NO_CHANGE = "no topic can change its owner now"
_EVENT_STREAMS = 8


class NodeView(Changes):
    """All queries and changes of a node. All methods may raise `UnavailableError`."""

    def __init__(self, node: Parts) -> None:
        super().__init__(node)
        self.logs = LogView(node)
        self._event_channels = [Channel(f"events-{number}") for number in range(_EVENT_STREAMS)]

    async def checks(self) -> Sequence[port.Check]:
        """Return the checks of readiness: at least `kafka`, `redis` and `changelog`. Quick: no round trip."""
        node, rooms = self._node, self._node.rooms
        failing = rooms.loops.failing() if rooms is not None else {}
        stands = ", ".join(f"{name} keeps failing: {problem}" for name, problem in failing.items())
        is_serving = node.state is port.NodeState.SERVING
        serving = port.Check("node", is_serving and not failing, node.problem or stands)
        if rooms is None:
            waiting = "not reached yet"
            return [serving, *[port.Check(name, ok=False, detail=waiting) for name in ("kafka", "redis", "changelog")]]
        tail_error = rooms.changelog.tailer.last_error
        known = bool(node.upstream.view.brokers)
        return [
            serving,
            port.Check("kafka", *_kafka(known, tail_error)),
            port.Check("redis", *self._redis(rooms)),
            port.Check("changelog", tail_error is None, str(tail_error or "")),
        ]

    def _redis(self, rooms: Rooms) -> tuple[bool, str]:
        one, membership = self._node.one_redis, rooms.membership
        if one is not None and one.problem:
            return False, one.problem
        return membership.available, "" if membership.available else f"{membership.problem}; {NO_CHANGE}"

    async def status(self) -> port.Status:
        """Return the node's state and its view of the cluster."""
        node = self._node
        view = node.upstream.view
        rooms = node.rooms
        return port.Status(
            node_id=node.settings.node_id,
            cluster=node.settings.cluster,
            state=node.state,
            started_ms=node.started_ms,
            advertise=(node.nodes.me.host, node.nodes.me.port),
            listeners=node.listeners,
            kafka_cluster_id=view.cluster_id,
            nodes=list(node.nodes.at(node.nodes.first_listener).nodes.values()),
            brokers=list(view.brokers.values()),
            client_connections=node.metrics.client_connections,
            governed_topics=len(rooms.governed.known_topics()) if rooms else 0,
            checks=await self.checks(),
            deduplication=known_ids(rooms.governed) if rooms else port.Deduplicated(),
        )

    async def clients(self, after: int, most: int) -> tuple[Sequence[port.ClientFacts], int | None]:
        """Return the clients connected to this node, oldest first: at most `most` after the id `after` (0: from the
        first), and the `after` of the next page, None at the end.
        """
        return await page_of(rooms_of(self._node).gateway.clients, self._node.settings.node_id, after, most)

    def refusals(self, topic: str | None = None) -> Sequence[port.Refusal]:
        """Return this node's latest refusals to clients, of one topic or of all, the newest first: at most a thousand.
        Quick.
        """
        kept = rooms_of(self._node).gateway.refusals.newest()
        return [each for each in kept if topic in {None, each.topic}]

    def settings(self) -> Sequence[Shown]:
        """Return the node's settings, with secrets masked."""
        return self._node.loaded.shown

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[tuple[int, state.Event] | None]:
        """Yield the events of one topic or of all, each with its offset, without end: those after offset `after`, or
        from now on, preceded by the last `newest` events.

        Yields None at first, unless the stream is refused, and after each second without an event.
        """
        rooms = rooms_of(self._node)
        if not self._event_channels:
            raise port.UnavailableError(f"{_EVENT_STREAMS} streams of events are open already; close one first")
        channel = self._event_channels.pop()
        try:
            partition = rooms.changelog.events
            async for found in follow_events(self._node.upstream, partition, channel, after, newest, topic):
                yield found
        finally:
            self._event_channels.append(channel)


def _kafka(known: bool, tail_error: Exception | None) -> tuple[bool, str]:
    """Return whether Kafka answers, by the constant reading of the changelog."""
    if not known:
        return False, "no broker is known"
    silent = isinstance(tail_error, UpstreamError)
    return not silent, str(tail_error) if silent else ""


_AT_ONCE: Final = 100
"""The number of clients examined before other tasks run."""


async def page_of(
    clients: Mapping[int, Client], node_id: int, after: int, most: int
) -> tuple[list[ClientFacts], int | None]:
    """Return at most `most` clients whose connections have ids above `after`, the oldest first, and the last examined
    id if there are more. Ids rise and are never reused: a client that stays connected is on exactly one page.
    """
    ids = sorted(clients)
    start = bisect_right(ids, after)
    chosen = ids[start : start + most]
    found: list[ClientFacts] = []
    for number, each in enumerate(chosen):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        client = clients.get(each)  # it may have disconnected meanwhile
        if client is not None:
            found.append(_facts(client, node_id))
    return found, chosen[-1] if start + most < len(ids) else None


def _facts(client: Client, node_id: int) -> ClientFacts:
    identity, connection = client.identity, client.connection
    return ClientFacts(
        node_id=node_id,
        client_id="" if identity is None else shown_name(identity.raw.decode(errors="replace")),
        name="" if identity is None else identity.shown,
        mode=None if identity is None else identity.mode,
        software=(_shown(client.software.name), _shown(client.software.version)),
        principal=_principal(client),
        listener=client.listener,
        address=connection.peer,
        since_ms=connection.since_ms,
        requests=connection.requests,
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        in_flight=connection.unanswered,
    )


def _principal(client: Client) -> str | None:
    """Return the client's principal; None before its login."""
    return shown_name(client.principal) if client.login is None or client.login.done else None


def _shown(text: str) -> str | None:
    return shown_name(text) or None


class AdminService(Protocol):
    """The HTTP side as the node sees it."""

    async def start(self) -> None:
        """Listen. Raises OSError if the address is in use."""
        ...

    async def stop(self) -> None:
        """Close; calls under way get a moment to end. May be repeated."""
        ...

    def take(self, settings: Settings) -> None:
        """Apply those settings that may change at run time."""
        ...


AdminFactory = Callable[[NodeView, NodeMetrics, Settings], AdminService]
"""Creates the HTTP side of a node: `sidecar.admin.server.AdminServer` is one."""
