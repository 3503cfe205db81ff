"""The live nodes that clients see as brokers, and which of them leads what (rendezvous hashing). Pure.

Placement is a hint for clients, never a rule of safety: any node can carry any ungoverned partition, so nodes whose
pictures differ for a moment do no harm. A governed topic is led by the node that serves it (`governed` room above).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node as clients reach it."""

    id: int
    host: str
    port: int


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
    """The newest placement, and who serves the governed topics. Replaced as leases and claims move."""

    __slots__ = ("me", "placement", "serving")

    def __init__(self, me: NodeAddress) -> None:
        self.me = me
        self.placement = Placement([me])
        self.serving: dict[bytes, int] = {}

    def serve(self, serving: dict[bytes, int]) -> None:
        """Who serves the governed topics now."""
        self.serving = serving

    def leader(self, topic: bytes, partition: int, governed: bool) -> int:
        """The node that clients are led to for a partition."""
        if not governed:
            return self.placement.of_partition(topic, partition)
        serving = self.serving.get(topic)
        return serving if serving in self.placement.nodes else self.placement.of_topic(topic)
