"""Two nodes are one virtual cluster: both tell the same of it, and clients of one that dies go on at the other."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests import raw
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.passthrough.checked import GroupReading, LibrdkafkaWriting, check, log_of
from tests.kafka.passthrough.conftest import create_topic
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Unique
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.services import Services

LEASE_MS = 1_000
IDS = (21, 22)


@pytest.fixture(scope="module")
def module_nodes(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    create_internal_topics(services.kafka_bootstrap)
    cluster, directory = f"two-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("two-nodes")
    nodes = [
        NodeProcess(
            directory,
            services.kafka_bootstrap,
            services.redis_url,
            cluster=cluster,
            node_id=number,
            LEASE_MS=str(LEASE_MS),
            REDIS_TIMEOUT_MS="500",
        )
        for number in IDS
    ]
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.stop()
    for node in nodes:
        node.check_log()


@pytest.fixture
def nodes(module_nodes: list[NodeProcess]) -> list[NodeProcess]:
    """Two nodes that know each other."""
    for node in module_nodes:
        if not node.child.alive:
            node.start()
    for node in module_nodes:
        wait_for(lambda node=node: seen_by(node) == set(IDS), "the nodes to know each other", 20)
    return module_nodes


def seen_by(node: NodeProcess) -> set[int]:
    with RawClient(node.bootstrap) as client:
        return {int(broker.node_id) for broker in client.ask(raw.metadata([])).brokers}


@pytest.fixture(scope="module")
def wide_topic(services: Services) -> str:
    """A topic of 32 partitions that nobody writes to."""
    return create_topic(services.kafka_bootstrap, lambda prefix: f"{prefix}-{uuid.uuid4().hex[:10]}", partitions=32)


@pytest.mark.parametrize("version", range(10))
def test_both_nodes_tell_the_same_of_the_cluster(version: int, nodes: list[NodeProcess], wide_topic: str) -> None:
    name = wide_topic
    answers = []
    for node in nodes:
        with RawClient(node.bootstrap) as client:
            answers.append(client.ask(raw.metadata([name], version=version)))
    one, other = answers
    assert one == other
    addresses = {f"{broker.host}:{broker.port}": int(broker.node_id) for broker in one.brokers}
    assert addresses == {node.bootstrap: node.node_id for node in nodes}
    leaders = Counter(int(found.leader_id) for found in one.topics[0].partitions)
    assert set(leaders) == set(IDS)
    assert min(leaders.values()) >= 6, "leaders are spread"
    for found in one.topics[0].partitions:
        assert tuple(found.replica_nodes) == tuple(found.isr_nodes) == (found.leader_id,)
        assert version < 5 or found.offline_replicas == ()
    assert version < 1 or one.controller_id == min(IDS)


def test_the_cluster_has_the_id_that_kafka_has(nodes: list[NodeProcess], services: Services) -> None:
    with RawClient(nodes[0].bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        assert client.ask(raw.metadata([])).cluster_id == direct.ask(raw.metadata([])).cluster_id


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_tells_of_nodes(version: int, nodes: list[NodeProcess], services: Services) -> None:
    """Version 1 can ask for controllers (KIP-919), version 2 for fenced brokers (KIP-1073)."""
    kinds: list[dict[str, Any]] = [{}, {"endpoint_type": 1}, {"endpoint_type": 1, "include_fenced_brokers": True}]
    asked = request(60, version, **kinds[version])
    with RawClient(services.kafka_bootstrap) as direct:
        upstream = direct.ask(asked)
    for node in nodes:
        with RawClient(node.bootstrap) as client:
            answer = client.ask(asked)
            assert {(broker.broker_id, f"{broker.host}:{broker.port}") for broker in answer.brokers} == {
                (each.node_id, each.bootstrap) for each in nodes
            }
            assert (answer.controller_id, answer.cluster_id) == (min(IDS), upstream.cluster_id)
            assert not any(getattr(broker, "is_fenced", False) for broker in answer.brokers)
            if version:
                controllers = client.ask(request(60, version, endpoint_type=2))
                assert (raw.code(controllers), controllers.brokers) == (114, ())


def test_coordinators_are_nodes_and_both_tell_the_same(nodes: list[NodeProcess]) -> None:
    told: list[dict[str, int]] = []
    for node in nodes:
        with RawClient(node.bootstrap) as client:
            answers = {f"group-{number}": client.ask(raw.find_coordinator(f"group-{number}")) for number in range(40)}
        assert {f"{found.host}:{found.port}" for found in answers.values()} == {each.bootstrap for each in nodes}
        told.append({key: int(found.node_id) for key, found in answers.items()})
    assert told[0] == told[1]
    assert min(Counter(told[0].values()).values()) >= 8, "coordinators are spread"


def test_no_answer_holds_the_address_of_a_broker(
    nodes: list[NodeProcess], services: Services, topic: MakeTopic, unique: Unique
) -> None:
    """Looked for in the bytes, so that no field is missed: the broker's port as a number, host:port as text."""
    name = topic(partitions=4)
    port = int(services.kafka_bootstrap.rsplit(":", 1)[1]).to_bytes(4, "big")
    asked = [
        *(raw.metadata([name], version=version) for version in range(10)),
        *(raw.metadata([name, unique("nowhere")], version=version) for version in range(4, 10)),  # earlier ones create
        *(raw.find_coordinator("group", version=version, kind=kind) for version in range(4) for kind in (0, 1, 2)),
        request(60, 0),
        request(60, 1, endpoint_type=1),
        request(60, 1, endpoint_type=2),
        *(raw.produce({(name, 0): raw.batch()}, version=version) for version in range(3, 10)),
        *(raw.fetch({(name, 0): 0, (name, 9): 0}, version=version, max_wait=0) for version in range(4, 12)),
    ]
    with RawClient(services.kafka_bootstrap) as direct:
        direct.send_bytes(direct.frame(asked[0]))
        assert port in direct.receive_frame(), "Kafka itself tells it"
    for node in nodes:
        with RawClient(node.bootstrap) as client:
            for message in asked:
                client.send_bytes(client.frame(message))
                frame = client.receive_frame()
                assert port not in frame, f"{message}: {frame!r}"
                assert services.kafka_bootstrap.encode() not in frame


def test_any_node_carries_any_ungoverned_partition(nodes: list[NodeProcess], topic: MakeTopic) -> None:
    """Placement is a hint: a client that is late in learning of it loses nothing."""
    name = topic(partitions=8)
    for number, node in enumerate(nodes):
        with RawClient(node.bootstrap) as client:
            answer = raw.produced(client.ask(raw.produce({(name, index): raw.batch() for index in range(8)})))
            assert {(raw.code(found), found.base_offset) for found in answer.values()} == {(0, number)}


@pytest.mark.timeout(180)
def test_clients_of_a_node_that_dies_go_on_at_the_other(
    nodes: list[NodeProcess], services: Services, topic: MakeTopic, unique: Unique
) -> None:
    partitions = 6
    name, bootstrap = topic(partitions=partitions), ",".join(node.bootstrap for node in nodes)
    dying, staying = nodes
    with (
        LibrdkafkaWriting("rdkafka", bootstrap, name, partitions) as writer,
        GroupReading(bootstrap, name, unique("readers")) as readers,
    ):
        for one in (writer, readers):
            one.goes_on()
        with RawClient(staying.bootstrap) as client:

            def leaders() -> set[int]:
                return {int(found.leader_id) for found in client.ask(raw.metadata([name])).topics[0].partitions}

            wait_for(lambda: leaders() == set(IDS), "both nodes to carry some of the traffic")
        dying.kill()
        wait_for(lambda: seen_by(staying) == {staying.node_id}, "the node to be missed", 20)
        for one in (writer, readers):
            one.goes_on()
        dying.start()
        wait_for(lambda: seen_by(staying) == set(IDS), "the node to be seen again", 20)
        for one in (writer, readers):
            one.goes_on()
    log = log_of(services.kafka_bootstrap, name, partitions)
    assert len(writer.acked) == writer.sent >= 1_000
    check(log, writer)


def test_a_node_that_leaves_in_good_order_is_missed_at_once(nodes: list[NodeProcess]) -> None:
    leaving, staying = nodes
    assert leaving.stop() == 0
    with RawClient(staying.bootstrap) as client:
        answer = client.ask(raw.metadata([]))
        assert {int(broker.node_id) for broker in answer.brokers} <= set(IDS)
        wait_for(lambda: seen_by(staying) == {staying.node_id}, "it to be missed", LEASE_MS / 1000)
        assert client.ask(raw.metadata([])).controller_id == staying.node_id


def test_a_client_library_sees_nothing_but_nodes(nodes: list[NodeProcess], topic: MakeTopic) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    name = topic(partitions=4)
    admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap})
    found = admin.list_topics(name, timeout=20)
    assert {(broker.id, f"{broker.host}:{broker.port}") for broker in found.brokers.values()} == {
        (node.node_id, node.bootstrap) for node in nodes
    }
    described = admin.describe_cluster(request_timeout=20).result()
    assert {node.id for node in described.nodes} == set(IDS)
    assert described.controller is not None
    assert described.controller.id == min(IDS)
