"""Nodes as far as shadows go: each reads the ownership topic by itself and has its own connections to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from sidecar.changelog import Changelog, follow_events
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.cluster.resolver import NameResolver
from sidecar.fencing.record_writer import RecordWriter
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import Channel
from sidecar.shadow.catalog import ShadowCatalog
from sidecar.shadow.cursor_room import CursorRoom
from sidecar.shadow.keeper import ShadowKeeper
from sidecar.shadow.records import SHADOW_SLOT, ShadowRecords
from sidecar.v1 import state_pb2 as state
from tests.sim.kafka.direct import DirectUpstream, SimulatedKafka


class Hooks:
    """Keeps what was reported: a name and its arguments."""

    def __init__(self) -> None:
        self.reported: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.reported.append((name, *arguments))

    @property
    def names(self) -> list[str]:
        return [report[0] for report in self.reported]


class Node:
    """Call `start` of `Nodes`."""

    def __init__(self, nodes: Nodes, upstream: DirectUpstream, log: Changelog, number: int) -> None:
        self.upstream, self.log = upstream, log
        self.hooks, self.tasks, self.resolver = Hooks(), Tasks(nodes.failures.append), NameResolver()
        self.directory = NodeDirectory(NodeAddress(number, "node", 9092))
        writer = RecordWriter(upstream, "c", log, SHADOW_SLOT)
        self.records = ShadowRecords(log, writer, self.directory, nodes)
        self.catalog = ShadowCatalog(upstream, log, self.resolver, self.records)
        self.keeper = ShadowKeeper(upstream, self.records, self.directory, cast(Any, self.hooks))
        self.cursors = CursorRoom(
            upstream, self.resolver, self.directory, self.catalog, self.records, self.tasks, cast(Any, self.hooks)
        )
        self.catalog.start()

    def record(self, name: str) -> state.Shadow:
        """A shadow's record, as this node knows it."""
        entry = self.records.get(name)
        assert entry is not None
        return entry.value

    async def look(self, times: int = 2) -> None:
        """Let the keeper look so often: it acts on the second of two equal answers."""
        for _ in range(times):
            await self.keeper.look()


class Nodes:
    """All nodes of the cluster. They are waited for, as `Membership` does it; `waited`: up to which offsets."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self.kafka = kafka
        self.failures: list[BaseException] = []
        self.waited: list[int] = []
        self._nodes: list[Node] = []

    async def start(self) -> Node:
        """Start another node; the nodes know of each other."""
        upstream = self.kafka.node()
        log = await Changelog.open(upstream, "c", clock=self.kafka.clock())
        await log.tailer.read_to_end(10)
        self._nodes.append(Node(self, upstream, log, len(self._nodes) + 1))
        for node in self._nodes:
            node.directory.placement = Placement([each.directory.me for each in self._nodes])
        return self._nodes[-1]

    async def seen_by_all(self, offset: int) -> None:
        self.waited.append(offset)
        for node in self._nodes:
            await node.log.tailer.reached(cast(Any, offset), timeout=10)

    async def events(self, *topics: str) -> list[state.Event]:
        """The history of these topics, or all of it, to its end."""
        first, found, nothing = self._nodes[0], list[state.Event](), 0
        async for event in follow_events(first.upstream, first.log.events, Channel("events"), after=-1):
            nothing += event is None
            if event is not None:
                found.append(event[1])
            elif nothing > 1:
                break
        return [event for event in found if not topics or event.topic in topics]

    def partitions(self, topic: str) -> int:
        """How many partitions Kafka has of a topic, 0: there is none."""
        known = self.kafka.cluster.controller.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    async def close(self) -> None:
        """End all of it. No background task has failed."""
        for node in self._nodes:
            await node.cursors.close()
            await node.tasks.cancel()
            await node.log.close()
        await self.kafka.close()
        assert self.failures == []
