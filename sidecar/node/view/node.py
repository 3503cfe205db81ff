"""A node as its HTTP side sees it, put together from its parts, and what the node calls of that. Changes nothing by
itself.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Final, Protocol

from sidecar.changelog import follow_events
from sidecar.exclusive.identity import shown_name
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
    """What is asked of a node, and changed in it. All methods may raise `UnavailableError`."""

    def __init__(self, node: Parts) -> None:
        super().__init__(node)
        self.logs = LogView(node)
        self._event_channels = [Channel(f"events-{number}") for number in range(_EVENT_STREAMS)]

    async def checks(self) -> Sequence[port.Check]:
        """Readiness as known now; at least `kafka`, `redis` and `changelog`. Quick: no round trip of its own."""
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
        """The node and what it sees now."""
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
        """The clients connected to this node, oldest first: `most` of them after the place `after` (0: the beginning),
        and the place to go on after, None at the end.
        """
        return await page_of(rooms_of(self._node).gateway.clients, self._node.settings.node_id, after, most)

    def refusals(self, topic: str | None = None) -> Sequence[port.Refusal]:
        """What this node refused its clients lately, of one topic or of all, what happened last first: a thousand
        entries at most. Quick.
        """
        kept = rooms_of(self._node).gateway.refusals.newest()
        return [each for each in kept if topic in {None, each.topic}]

    def settings(self) -> Sequence[Shown]:
        """The node's settings, secrets masked."""
        return self._node.loaded.shown

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[tuple[int, state.Event] | None]:
        """What happens, each with its position, with one topic or at all: from now on, with the `newest` so many of
        before, or after a position, for ever.

        None at first, unless it is refused, and every second while nothing happens.
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
    """Whether Kafka answers: the node reads from it all the time."""
    if not known:
        return False, "no broker is known"
    silent = isinstance(tail_error, UpstreamError)
    return not silent, str(tail_error) if silent else ""


_AT_ONCE: Final = 100
"""Clients that are looked at before the loop may do something else."""


async def page_of(
    clients: Mapping[int, Client], node_id: int, after: int, most: int
) -> tuple[list[ClientFacts], int | None]:
    """`most` clients whose connections have ids above `after`, the oldest first, and the last id looked at where there
    are more. Ids rise and are never used again: a client that stays connected is on exactly one page of several.
    """
    ids = sorted(clients)
    start = bisect_right(ids, after)
    chosen = ids[start : start + most]
    found: list[ClientFacts] = []
    for number, each in enumerate(chosen):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        client = clients.get(each)  # it may have gone meanwhile
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
    """Whose it is; before its login nobody's."""
    return shown_name(client.principal) if client.login is None or client.login.done else None


def _shown(text: str) -> str | None:
    return shown_name(text) or None


class AdminService(Protocol):
    """The HTTP side as the node sees it."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        ...

    async def stop(self) -> None:
        """Close; calls under way get a moment to end. Repeating it is harmless."""
        ...

    def take(self, settings: Settings) -> None:
        """From now on these hold, as far as they may change while it runs."""
        ...


AdminFactory = Callable[[NodeView, NodeMetrics, Settings], AdminService]
"""How the node is given its HTTP side: `sidecar.admin.server.AdminServer` is one."""
