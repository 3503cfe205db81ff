"""Who leads a partition, in answers that refuse it: nodes, and under an epoch that is known (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from metadata.nodes import ListenerAddress
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.view import ClusterView
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Found, Leader
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.produce import ProduceResult
from sidecar.protocol.produce_upstream import FIRST_WITH_LEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.protocol.schema import Values

MOVED, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
BROKERS = (Broker(1, "kafka-1", 9_092), Broker(2, "kafka-2", 9_092))
INSIDE = ListenerAddress("INSIDE", "node-7", 19_092)
OUTSIDE = ListenerAddress("OUTSIDE", "example.org", 443)
BOTH, ONLY_INSIDE = (INSIDE, OUTSIDE), (ListenerAddress("INSIDE", "node-8", 19_092),)


@pytest.fixture
def view() -> ClusterView:
    found = ClusterView()
    topics = [
        TopicState(name, 0, UUID(int=number), False, (PartitionState(0, 0, 1, 5),))
        for number, name in enumerate(("plain", "owned"), 1)
    ]
    found.apply(ClusterState(0, BROKERS, "cluster", 1, tuple(topics)))
    return found


@pytest.fixture
def nodes() -> NodeDirectory:
    found = NodeDirectory(NodeAddress(7, "node-7", 19_092, BOTH))
    found.placement = Placement([found.me, NodeAddress(8, "node-8", 19_092, ONLY_INSIDE)])
    found.serve({b"owned": 8})
    return found


@pytest.fixture
def hints(view: ClusterView, nodes: NodeDirectory) -> LeaderHints:
    resolver = NameResolver()
    resolver.set_policies(["owned"], [])
    return LeaderHints(view, nodes, resolver.kinds)


def said(
    hints: LeaderHints, listener: str, errors: Iterable[tuple[bytes, int, int]]
) -> dict[tuple[bytes, int], Leader]:
    return hints.of(listener, errors)


def test_an_ordinary_partition_is_led_by_the_node_that_metadata_names(hints: LeaderHints, nodes: NodeDirectory) -> None:
    led = nodes.at("INSIDE").of_partition(b"plain", 0)
    for code in (MOVED, FENCED):
        assert said(hints, "INSIDE", [(b"plain", 0, code)]) == {(b"plain", 0): Leader(led, 5, f"node-{led}", 19_092)}


def test_a_governed_one_is_led_by_the_node_that_serves_it(hints: LeaderHints) -> None:
    assert said(hints, "INSIDE", [(b"owned", 0, MOVED)]) == {(b"owned", 0): Leader(8, 5, "node-8", 19_092)}


def test_a_node_is_named_at_the_listener_that_the_client_came_through_or_not_at_all(hints: LeaderHints) -> None:
    both = [(b"plain", 0, MOVED), (b"owned", 0, MOVED)]
    assert said(hints, "OUTSIDE", both) == {(b"plain", 0): Leader(7, 5, "example.org", 443)}


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_other_answers_name_no_leader(hints: LeaderHints, code: int) -> None:
    assert said(hints, "INSIDE", [(b"plain", 0, code)]) == {}


def test_of_what_nothing_is_known_no_leader_is_named(hints: LeaderHints) -> None:
    assert said(hints, "INSIDE", [(b"plain", 1, MOVED), (b"nowhere", 0, MOVED)]) == {}


def test_what_a_broker_says_is_learnt_and_told_of_nodes(hints: LeaderHints, view: ClusterView) -> None:
    hints.learn({(b"owned", 0): Found(2, 6)})
    assert view.leader(b"owned", 0) == 2
    assert said(hints, "INSIDE", [(b"owned", 0, MOVED)]) == {(b"owned", 0): Leader(8, 6, "node-8", 19_092)}


@pytest.mark.parametrize(("topic_id", "leader"), [(UUID(int=2), 2), (UUID(int=99), 1)])
def test_what_a_broker_says_of_the_topic_that_had_the_name_before_is_not_learnt(
    hints: LeaderHints, view: ClusterView, topic_id: UUID, leader: int
) -> None:
    """The request was by the old id, and the topic was created anew before the answer came."""
    hints.learn({(b"owned", 0): Found(2, 60)}, {b"owned": topic_id.bytes})
    assert view.leader(b"owned", 0) == leader


# Answers to ShareFetch and ShareAcknowledge --------------------------------------------------------------------------

NOBODYS = UUID(int=99)


def shared(*errors: tuple[UUID, int, int], leader: int = -1, epoch: int = -1) -> Values:
    """Topic id, partition, error code of each; a broker says who leads it."""
    return {
        "responses": [
            {
                "topic_id": topic_id.bytes,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": code,
                        "current_leader": {"leader_id": leader, "leader_epoch": epoch},
                    }
                ],
            }
            for topic_id, index, code in errors
        ],
        "node_endpoints": [],
    }


def told(answer: Values) -> tuple[list[tuple[int, int]], list[tuple[int, str, int]]]:
    leaders = [part["current_leader"] for topic in answer["responses"] for part in topic["partitions"]]
    return [(each["leader_id"], each["leader_epoch"]) for each in leaders], [
        (each["node_id"], each["host"], each["port"]) for each in answer["node_endpoints"]
    ]


def test_share_consumers_hear_of_nodes_where_they_ask_the_wrong_one(hints: LeaderHints) -> None:
    answer = shared((UUID(int=2), 0, MOVED), (UUID(int=2), 7, MOVED), (UUID(int=2), 0, 0), (NOBODYS, 0, FENCED))
    hints.share("INSIDE", answer)
    assert told(answer) == ([(8, 5), (-1, -1), (-1, -1), (-1, -1)], [(8, "node-8", 19_092)])
    elsewhere = shared((UUID(int=2), 0, MOVED))
    hints.share("OUTSIDE", elsewhere)
    assert told(elsewhere) == ([(-1, -1)], [])


@pytest.mark.parametrize(
    ("error", "epoch", "leader"), [(MOVED, 6, 2), (FENCED, 6, 2), (MOVED, 5, 1), (0, 6, 1), (MOVED, -1, 1)]
)
def test_what_a_broker_says_to_a_share_consumer_is_learnt(
    hints: LeaderHints, view: ClusterView, error: int, epoch: int, leader: int
) -> None:
    hints.learn_shared(shared((UUID(int=2), 0, error), (NOBODYS, 0, error), leader=2, epoch=epoch))
    assert view.leader(b"owned", 0) == leader


@pytest.mark.parametrize("version", [FIRST_WITH_LEADERS - 1, FIRST_WITH_LEADERS])
def test_an_answer_to_produce_names_leaders_in_versions_that_can(hints: LeaderHints, version: int) -> None:
    exchange: Any = SimpleNamespace(version=version, correlation_id=1)
    answer = hints.produced(exchange, "INSIDE", [ProduceResult(b"owned", 0, MOVED)], 0, None)
    assert (b"node-8" in answer) is (version >= FIRST_WITH_LEADERS)
