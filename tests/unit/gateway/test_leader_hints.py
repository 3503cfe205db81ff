"""Who leads a partition, as a node says it of nodes (KIP-951)."""

from __future__ import annotations

from uuid import UUID

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.cluster.view import ClusterView
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Leader
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState

SOURCE_ID, SHADOW_ID = UUID(int=1), UUID(int=2)


def topic(name: str, topic_id: UUID, epoch: int) -> TopicState:
    return TopicState(name, 0, topic_id, False, (PartitionState(0, 0, 1, epoch),))


def test_a_shadow_has_the_leader_epoch_of_its_source_and_not_its_own() -> None:
    """A client keeps the highest epoch that it hears of, and every broker refuses it for one that the log never had."""
    view, resolver = ClusterView(), NameResolver()
    topics = topic("orders", SOURCE_ID, 3), topic("audit", SHADOW_ID, 9)
    view.apply(ClusterState(0, (Broker(1, "broker", 9092),), "cluster", 1, topics))
    resolver.set_shadows({b"audit": Source(b"orders", SOURCE_ID)})
    hints = LeaderHints(view, NodeDirectory(NodeAddress(5, "node", 19092)), resolver)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = hints.of("", [(b"orders", 0, moved), (b"audit", 0, moved), (b"audit", 1, moved), (b"orders", 0, 0)])
    assert found == {(name, 0): Leader(5, 3, "node", 19092) for name in (b"orders", b"audit")}
