"""The live nodes that clients see as brokers, and which of them leads which partition (rendezvous hashing). Also this
node's membership: one heartbeat to Redis every third of a lease, and the handling of its answer.

Placement is a hint for clients; no guarantee depends on it. Any node can handle any ungoverned partition, so it does no
harm if nodes see different sets for a moment. The node that serves a governed topic leads it (`governed` room above).

If Redis does not answer, the node continues with the last known set of nodes, and `available` is False. A node does not
start if another live process has its id. A node that loses its id while it runs (another process took it after a
rollback of Redis) keeps trying.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol
from zlib import crc32

from metadata import MetadataError, MetadataStore, MetadataUnavailable, NodeIdTaken
from metadata.nodes import Beat, ListenerAddress, LiveNodes, Node
from metadata.ownership import Ownership
from sidecar.network.tasks import Loops

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node with its address for clients of its first listener; `listeners` has the addresses of all listeners.

    Nodes of an older version publish no `listeners`: they have one listener, whose name is not known.
    """

    id: int
    host: str
    port: int
    listeners: tuple[ListenerAddress, ...] = ()

    def at(self, listener: str, first: str) -> NodeAddress | None:
        """Return the node with its address for clients of a listener; None if it has no listener of that name.

        `first` is the asking node's first listener: it is assumed to be the listener without a name.
        """
        if not self.listeners:
            return self if listener == first else None
        return next(
            (NodeAddress(self.id, each.host, each.port) for each in self.listeners if each.listener == listener), None
        )


def _weight(key: int, node: int) -> int:
    """Return the 64-bit weight of a key for a node (the finaliser of splitmix64)."""
    mixed = (key * 0x9E3779B97F4A7C15 + node * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


class Placement:
    """Which node of a fixed set of live nodes leads which topic or partition; a new set needs a new `Placement`.

    Rendezvous hashing: when a node joins or leaves, only its own share moves.
    """

    __slots__ = ("_ids", "nodes")

    def __init__(self, nodes: Iterable[NodeAddress]) -> None:
        self.nodes = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        self._ids = tuple(self.nodes)
        if not self._ids:
            raise ValueError("a placement needs at least one node")

    @property
    def controller(self) -> int:
        """The live node with the lowest number, which clients see as the controller."""
        return self._ids[0]

    def _choose(self, key: int) -> int:
        ids = self._ids
        if len(ids) == 1:
            return ids[0]
        best, found = -1, ids[0]
        for node in ids:
            weight = _weight(key, node)
            if weight > best:
                best, found = weight, node
        return found

    def of_topic(self, topic: bytes) -> int:
        """Return the node that leads a topic as a whole."""
        return self._choose(crc32(topic))

    def of_partition(self, topic: bytes, partition: int) -> int:
        """Return the node that leads one partition of an ungoverned topic."""
        return self._choose(crc32(topic) + partition * 0x1_0000_0001)

    def of_key(self, key: bytes) -> int:
        """Return the node that clients see as the coordinator of a group or a transactional id."""
        return self._choose(crc32(b"coordinator:" + key))

    def brokers_of(self, node_id: int, brokers: Iterable[int]) -> list[int]:
        """Return the upstream brokers for which a node answers requests that each broker answers for itself (lists,
        directories, configuration).

        Brokers are distributed evenly: with as many nodes as brokers each node has one; with more nodes some have none.
        """
        ids = self._ids
        return [broker for rank, broker in enumerate(sorted(brokers)) if ids[rank % len(ids)] == node_id]


class NodeDirectory:
    """The newest placement, and which node serves each governed topic; both are replaced when they change.

    `placement` has all live nodes: nodes divide their work by it. `at` has the nodes that clients of a listener see:
    those that have this listener.
    """

    __slots__ = ("_at", "_at_of", "me", "placement", "serving")

    def __init__(self, me: NodeAddress) -> None:
        self.me = me
        self.placement = Placement([me])
        self.serving: dict[bytes, int] = {}
        self._at: dict[str, Placement] = {}
        self._at_of = self.placement

    @property
    def first_listener(self) -> str:
        """The name of this node's first listener, "" if it has no name."""
        return self.me.listeners[0].listener if self.me.listeners else ""

    def at(self, listener: str) -> Placement:
        """Return the placement of the live nodes that have this listener, with its addresses. Other nodes are left out,
        as brokers do it (KIP-103).

        If no live node has it, this node alone, which is then shutting down.
        """
        if self._at_of is not self.placement:
            self._at, self._at_of = {}, self.placement
        found = self._at.get(listener)
        if found is None:
            first = self.first_listener
            there = (node.at(listener, first) for node in self.placement.nodes.values())
            nodes = [node for node in there if node is not None] or [self.me.at(listener, first) or self.me]
            found = self._at[listener] = Placement(nodes)
        return found

    def without(self, listener: str) -> list[int]:
        """Return the live nodes that do not have this listener."""
        return sorted(self.placement.nodes.keys() - self.at(listener).nodes.keys())

    def serve(self, serving: dict[bytes, int]) -> None:
        """Replace the map of which node serves each governed topic."""
        self.serving = serving

    def serves(self, topic: bytes) -> int:
        """Return the node that serves or should serve a governed topic, whichever listeners the node has."""
        serving = self.serving.get(topic)
        return serving if serving in self.placement.nodes else self.placement.of_topic(topic)


_TAKEN_MARGIN_S: Final = 2.0
_POLL_S: Final = 0.05
_READ_S: Final = 10.0
"""How long a live node may take to read others' records (seconds); two leases, if they are longer."""


class Asserted(Protocol):
    """What a heartbeat sends about governed topics, and the receiver of its answer."""

    def served_topics(self) -> Collection[str]: ...
    def owned(self) -> Collection[Ownership]: ...
    def heard(self, live: LiveNodes, lost: set[str]) -> None: ...
    async def refill(self) -> None: ...


@dataclass(eq=False)
class Membership:
    """The heartbeat of one node. `_describe` returns the node's state for each beat; `loops` restart the task."""

    _store: MetadataStore
    _nodes: NodeDirectory
    _describe: Callable[[], Node]
    _asserted: Asserted
    _: KW_ONLY
    failed: Callable[[MetadataError], None]
    restored: Callable[[], None] = lambda: None
    loops: Loops | None = None
    lacks_listener: Callable[[str, int], None] = lambda _listener, _node: None

    def __post_init__(self) -> None:
        self.available = False
        self.problem = "no heartbeat was answered yet"
        self.lease_until = 0.0
        """When this node's lease ends, in Unix seconds; 0.0 before the first lease."""
        self._missing: set[tuple[str, int]] = set()
        self._beating = asyncio.Lock()
        self._was_lost = False
        self._staying = True
        self._policy_version = -1
        self._others: Collection[Node] = ()
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Register this node and start its heartbeat. Waits until the lease of an earlier process with this id ends;
        raises `NodeIdTaken` if that process keeps sending heartbeats.

        If Redis does not answer, that is noted, not raised.
        """
        deadline = asyncio.get_running_loop().time() + self._store.lease_ms / 1000 + _TAKEN_MARGIN_S
        while True:
            try:
                await self._beat()
                break
            except NodeIdTaken:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(self._store.lease_ms / 10_000)
            except MetadataUnavailable as error:
                self._lost(error)
                break
        if self.loops is not None:
            self._task = self.loops.start("heartbeat", self._run)
        else:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def step_aside(self) -> None:
        """Direct clients to the other nodes from now on, if there are any; works without Redis."""
        self._staying = False
        self._place(list(self._nodes.placement.nodes.values()))

    async def leave(self) -> None:
        """Stop the heartbeat and deregister: the topics that this node served are free at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            node = self._describe()
            await self._store.leave(node.node_id, node.boot)
        except MetadataError as error:
            self.failed(error)

    async def beat_now(self) -> None:
        """Send a heartbeat now, for a change that other nodes should learn soon."""
        try:
            await self._beat()
        except MetadataError as error:
            self._lost(error)

    async def seen_by_all(self, offset: int) -> None:
        """Return once every other node has read the changelog up to an offset, or its lease has ended.

        Raises TimeoutError if a live node does not read, or Redis does not answer which nodes live: waiting longer does
        not prove that a node has read anything.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(_READ_S, 2 * self._store.lease_ms / 1000)
        await self.beat_now()
        while not self.available or any(node.position < offset for node in self._others):
            if loop.time() > deadline:
                raise TimeoutError(self._who_lags(offset))
            await asyncio.sleep(_POLL_S)
            await self.beat_now()

    def _who_lags(self, offset: int) -> str:
        if not self.available:
            return f"Redis does not say which nodes live: {self.problem}"
        numbers = ", ".join(str(node.node_id) for node in self._others if node.position < offset)
        return f"not every node knows of it yet: node {numbers} lives, and has not read it"

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._store.lease_ms / 3000)
            await self.beat_now()

    def _lost(self, error: MetadataError) -> None:
        if self.available or not self.problem:
            self.failed(error)
        self.available, self._was_lost = False, True
        self.problem = str(error)

    async def _beat(self) -> None:
        async with self._beating:  # an older answer never replaces a newer one
            began = time.time()
            beat = await self._store.heartbeat(self._describe(), self._asserted.served_topics(), self._asserted.owned())
            if self._was_lost and not self.available:
                self.restored()
            self.available, self.problem = True, ""
            self.lease_until = began + self._store.lease_ms / 1000
            await self._hear(beat)

    async def _hear(self, beat: Beat) -> None:
        addresses = [
            NodeAddress(node.node_id, node.host, node.port, node.listeners)
            for node in beat.live.nodes.values()
            if not node.draining
        ]
        self._place(addresses)
        self._others = [node for node in beat.live.nodes.values() if node.node_id != self._nodes.me.id]
        self._asserted.heard(beat.live, set(beat.lost))
        if beat.live.policy_version < self._policy_version or beat.restored:
            await self._asserted.refill()
        self._policy_version = beat.live.policy_version

    def _place(self, nodes: Collection[NodeAddress]) -> None:
        found = {node for node in nodes if node.id != self._nodes.me.id}
        if self._staying or not found:
            found.add(self._nodes.me)
        if found != set(self._nodes.placement.nodes.values()):
            self._nodes.placement = Placement(found)
            self._report_missing()

    def _report_missing(self) -> None:
        """Report, once each, the live nodes that lack a listener of this node."""
        missing = {
            (each.listener, node) for each in self._nodes.me.listeners for node in self._nodes.without(each.listener)
        }
        for listener, node in sorted(missing - self._missing):
            self.lacks_listener(listener, node)
        self._missing = missing
