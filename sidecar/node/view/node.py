"""A node as its HTTP side sees it, put together from its parts. Changes nothing by itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from sidecar.changelog import follow_events
from sidecar.node import port
from sidecar.node.gauges import known_ids
from sidecar.node.parts import Rooms, Running
from sidecar.node.view.changes import Changes
from sidecar.node.view.clients import page_of
from sidecar.node.view.creation import Creation
from sidecar.node.view.ids import IdsView
from sidecar.node.view.logs import LogView
from sidecar.node.view.serving import rooms_of
from sidecar.node.view.shadows import ShadowView
from sidecar.node.view.topics import TopicsView
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.settings.loaded import Shown
from sidecar.v1 import state_pb2 as state

NO_CHANGE = "no topic can change its owner now"
_EVENT_STREAMS = 8


class NodeView:
    """What is asked of a node, and changed in it. All methods may raise `UnavailableError`."""

    def __init__(self, node: Running) -> None:
        self._node = node
        self.shadows = ShadowView(node)
        self.logs = LogView(node)
        topics = TopicsView(node, self.shadows)
        changes = Changes(node, topics)
        ids = IdsView(node, changes.check_serving)
        self.topic_names, self.topics = topics.names, topics.of
        self.catch_up, self.check_serving = changes.catch_up, changes.check_serving
        self.create_topic = Creation(node, changes).create
        self.merge_policy, self.delete_policy = changes.merge_policy, changes.delete_policy
        self.fence, self.release = changes.fence, changes.release
        self.producers, self.producer, self.forget_producer = ids.producers, ids.producer, ids.forget_producer
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
