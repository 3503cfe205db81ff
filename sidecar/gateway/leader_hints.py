"""Names the current leader of a partition in answers to Produce, Fetch, ShareFetch and ShareAcknowledge that refuse it
(KIP-951, KIP-932): as a node, where clients see the brokers. What a broker answers about leaders is stored in the view
and never passed on: its addresses would lead clients past the nodes.

A client accepts only a newer leader epoch, and sends its request again at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import Kinds, TopicKind
from sidecar.cluster.view import ClusterView
from sidecar.network.request import Exchange
from sidecar.protocol.leaders import LEADER_ERRORS, Found, Leader
from sidecar.protocol.produce import FIRST_WITH_LEADERS, ProduceResult, encode_answer
from sidecar.protocol.schema import Values
from sidecar.protocol.topic_ids import Ids

_UNKNOWN: Final = -1


class LeaderHints:
    """The leaders that a node names to its clients."""

    def __init__(self, view: ClusterView, nodes: NodeDirectory, kinds: Kinds) -> None:
        self._view = view
        self._nodes = nodes
        self._kinds = kinds

    def learn(self, found: Mapping[tuple[bytes, int], Found], ids: Ids | None = None) -> None:
        """Store the leaders that a broker named; `ids`: the topic ids of the request. A topic that was created again in
        the meantime has new leader epochs: a higher epoch of the old topic would keep its leader in the view.
        """
        if found and ids is not None:
            names = self._view.names
            found = {of: leader for of, leader in found.items() if names.get(ids.get(of[0], b"")) == of[0]}
        if found:
            self._view.learn(found)

    def of(self, listener: str, errors: Iterable[tuple[bytes, int, int]]) -> dict[tuple[bytes, int], Leader]:
        """Returns the leader, if known, of each partition (topic, index, error code) whose error says that another
        broker leads it. Never of a shadow: the leader epochs that clients see are its source's.
        """
        found: dict[tuple[bytes, int], Leader] = {}
        for topic, partition, error in errors:
            if error in LEADER_ERRORS:
                leader = self._leader(listener, topic, partition)
                if leader is not None:
                    found[topic, partition] = leader
        return found

    def produced(
        self, exchange: Exchange, listener: str, results: list[ProduceResult], throttle_ms: int, ids: Ids | None
    ) -> bytes:
        """An answer to Produce."""
        leaders = None
        if exchange.version >= FIRST_WITH_LEADERS:
            leaders = self.of(listener, (result[:3] for result in results))
        return encode_answer(exchange.correlation_id, exchange.version, results, throttle_ms, ids, leaders)

    def learn_shared(self, answer: Values) -> None:
        """Store the leaders that a broker named in an answer to ShareFetch or ShareAcknowledge."""
        for name, found in self._shared(answer):
            leader = found["current_leader"]
            self.learn({(name, found["partition_index"]): Found(leader["leader_id"], leader["leader_epoch"])})

    def share(self, listener: str, answer: Values) -> None:
        """Name leaders in an answer to ShareFetch or ShareAcknowledge that names none."""
        nodes: dict[int, Leader] = {}
        for name, found in self._shared(answer):
            leader = self._leader(listener, name, found["partition_index"])
            if leader is not None:
                nodes[leader.node] = leader
                found["current_leader"] = {"leader_id": leader.node, "leader_epoch": leader.epoch}
        answer["node_endpoints"] = [
            {"node_id": each.node, "host": each.host, "port": each.port} for each in nodes.values()
        ]

    def _shared(self, answer: Values) -> list[tuple[bytes, Values]]:
        """The partitions of an answer by topic ids whose request went to a broker that does not lead them."""
        names = self._view.names
        return [
            (name, found)
            for topic in answer["responses"]
            if (name := names.get(topic["topic_id"])) is not None
            for found in topic["partitions"]
            if found["error_code"] in LEADER_ERRORS
        ]

    def _leader(self, listener: str, topic: bytes, partition: int) -> Leader | None:
        placement, kind = self._nodes.at(listener), self._kinds[topic]
        epoch = _UNKNOWN if kind is TopicKind.SHADOW else self._view.leader_epoch(topic, partition)
        if kind is TopicKind.GOVERNED:
            node = placement.nodes.get(self._nodes.serves(topic))
        else:
            node = placement.nodes[placement.of_partition(topic, partition)]
        return None if epoch == _UNKNOWN or node is None else Leader(node.id, epoch, node.host, node.port)
