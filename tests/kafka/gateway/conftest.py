from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Unique
    from tests.services import Services


_SPREAD = 16
"""So many names reach every partition of the internal topics, which have four."""


def create_internal_topics(bootstrap: str) -> None:
    """Kafka makes the topics of offsets and transactions when first asked: wait until every coordinator serves."""
    with RawClient(bootstrap) as wire:
        for kind in (0, 1):
            for number in range(_SPREAD):
                asked = request(10, 1, key=f"tests-begin-{number}", key_type=kind)
                wait_for(lambda asked=asked: codes(wire.ask(asked)) == {0}, f"coordinators of kind {kind}", 30)
    init = request(22, 1, transaction_timeout=60_000)  # a broker has no producer ids until the controller gave it some
    for broker in bootstrap.split(","):
        with RawClient(broker) as wire:
            for asked in (request(16, 2), request(66, 0), init):
                wait_for(lambda asked=asked, wire=wire: codes(wire.ask(asked)) == {0}, f"{broker} to serve", 30)


_ELECTION_NOT_NEEDED = 84


@pytest.fixture
def groups_of_several_coordinators(kafka_cluster: Kafka, unique: Unique) -> Callable[[int], list[str]]:
    """Draws that many names of groups, of which not all belong to one broker.

    After a test that stopped a broker the others lead everything: each gets its own partitions back first.
    """
    elect = request(43, 2, topic_partitions=None)
    with RawClient(kafka_cluster.bootstrap) as wire:
        wait_for(lambda: codes(wire.ask(elect)) <= {0, _ELECTION_NOT_NEEDED}, "preferred leaders", 30)
    create_internal_topics(kafka_cluster.bootstrap)

    def draw(count: int) -> list[str]:
        names = {unique("group"): 0 for _ in range(count)}
        with RawClient(kafka_cluster.bootstrap) as direct:

            def several() -> bool:
                names.update((name, direct.ask(request(10, 2, key=name)).node_id) for name in names)
                if len(set(names.values())) > 1:
                    return True
                names.pop(next(iter(names)))
                names[unique("group")] = 0
                return False

            wait_for(several, "a group of another coordinator", 30)
        return list(names)

    return draw


@pytest.fixture(scope="session")
def newest_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker of the newest Kafka, which has groups of Kafka Streams and share groups switched on, and asks for
    descriptions of topologies (KIP-1331).
    """
    plugin = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
    config = KafkaConfig(version="4.4.0", overrides={"group.streams.topology.description.plugin.class": plugin})
    with Kafka(tmp_path_factory.mktemp("newest"), config) as kafka:
        create_internal_topics(kafka.bootstrap)
        yield kafka


@pytest.fixture(scope="module")
def newest(newest_kafka: Kafka) -> Iterator[VirtualCluster]:
    """A node in front of it, numbered 7."""
    with VirtualCluster(newest_kafka.bootstrap, first_id=7) as cluster:
        yield cluster
        assert cluster.events.rejected == cluster.events.failed == cluster.events.crashed == []


@pytest.fixture(scope="module")
def _one_node(services: Services) -> Iterator[VirtualCluster]:
    create_internal_topics(services.kafka_bootstrap)
    with VirtualCluster(services.kafka_bootstrap, first_id=7) as cluster:
        yield cluster


@pytest.fixture
def one_node(_one_node: VirtualCluster) -> Iterator[VirtualCluster]:
    """One node in front of the shared Kafka, numbered 7, as no broker is; nothing in it may crash."""
    yield _one_node
    assert _one_node.events.crashed == []


@pytest.fixture(scope="module")
def _three_nodes(kafka_cluster: Kafka) -> Iterator[VirtualCluster]:
    create_internal_topics(kafka_cluster.bootstrap)
    with VirtualCluster(kafka_cluster.bootstrap, nodes=3, first_id=11) as cluster:
        yield cluster


@pytest.fixture
def three_nodes(_three_nodes: VirtualCluster) -> Iterator[VirtualCluster]:
    """Three nodes, 11 to 13, in front of three brokers, 1 to 3."""
    yield _three_nodes
    assert _three_nodes.events.crashed == []


@pytest.fixture
def one_lonely_node(kafka_cluster: Kafka) -> Iterator[VirtualCluster]:
    """One node in front of three brokers."""
    with VirtualCluster(kafka_cluster.bootstrap, first_id=21) as cluster:
        yield cluster
        assert cluster.events.crashed == []


@pytest.fixture
def more_nodes_than_brokers(services: Services) -> Iterator[VirtualCluster]:
    """Two nodes more than there are brokers."""
    brokers = len(services.kafka_bootstrap.split(","))
    with VirtualCluster(services.kafka_bootstrap, nodes=brokers + 2, first_id=31) as cluster:
        yield cluster
        assert cluster.events.crashed == []
