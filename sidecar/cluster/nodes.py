"""The live nodes that clients see as brokers, and which of them leads what (rendezvous hashing). Pure.

Placement is a hint for clients, never a rule of safety: any node can carry any ungoverned partition, so nodes whose
pictures differ for a moment do no harm. A governed topic is led by the node that serves it (`governed` room above).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

from metadata.nodes import ListenerAddress

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node as clients of its first listener reach it; `listeners` has the address of each, the first included.

    Without `listeners` there is one, whose name is not known: an older version of the software publishes none.
    """

    id: int
    host: str
    port: int
    listeners: tuple[ListenerAddress, ...] = ()

    def at(self, listener: str, first: str) -> NodeAddress | None:
        """As clients of a listener reach it, None where it has none of that name.

        `first` is the first listener of the node that asks: it stands for the one without a name.
        """
        if not self.listeners:
            return self if listener == first else None
        return next(
            (NodeAddress(self.id, each.host, each.port) for each in self.listeners if each.listener == listener), None
        )


def _weight(key: int, node: int) -> int:
    """A well-mixed 64-bit weight of a key for a node (the finaliser of splitmix64)."""
    mixed = (key * 0x9E3779B97F4A7C15 + node * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


class Placement:
    """Who leads what among a fixed set of live nodes; a new set is a new `Placement`.

    Rendezvous hashing: when a node comes or goes only its own share moves.
    """

    __slots__ = ("_ids", "nodes")

    def __init__(self, nodes: Iterable[NodeAddress]) -> None:
        self.nodes = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        self._ids = tuple(self.nodes)
        if not self._ids:
            raise ValueError("a placement needs at least one node")

    @property
    def controller(self) -> int:
        """The lowest live node stands as controller."""
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
        """The node that leads a topic as a whole."""
        return self._choose(crc32(topic))

    def of_partition(self, topic: bytes, partition: int) -> int:
        """The node that leads one partition of an ungoverned topic."""
        return self._choose(crc32(topic) + partition * 0x1_0000_0001)

    def of_key(self, key: bytes) -> int:
        """The node that stands as coordinator for a group or a transactional id."""
        return self._choose(crc32(b"coordinator:" + key))

    def brokers_of(self, node_id: int, brokers: Iterable[int]) -> list[int]:
        """The brokers upstream for which a node answers where each answers for itself (lists, directories,
        configuration).

        Dealt out evenly, so that as many nodes as brokers show one each; with more nodes than brokers some have none.
        """
        ids = self._ids
        return [broker for rank, broker in enumerate(sorted(brokers)) if ids[rank % len(ids)] == node_id]


class NodeDirectory:
    """The newest placement, and who serves the governed topics. Replaced as leases and claims move.

    `placement` has all live nodes: by it nodes share out work among themselves. Clients see by `at` those that have
    their listener.
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
        """The name of this node's first listener, "" where it has no name."""
        return self.me.listeners[0].listener if self.me.listeners else ""

    def at(self, listener: str) -> Placement:
        """The live nodes that have this listener, at its addresses. Those without are left out, as a broker does it
        (KIP-103).

        This node alone where no live node has it, which is then shutting down.
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
        """The live nodes that this listener's clients cannot reach."""
        return sorted(self.placement.nodes.keys() - self.at(listener).nodes.keys())

    def serve(self, serving: dict[bytes, int]) -> None:
        """Who serves the governed topics now."""
        self.serving = serving

    def serves(self, topic: bytes) -> int:
        """The node that a governed topic belongs to, whichever listeners it has."""
        serving = self.serving.get(topic)
        return serving if serving in self.placement.nodes else self.placement.of_topic(topic)
