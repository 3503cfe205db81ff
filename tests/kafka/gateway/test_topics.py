"""Topics created, grown and deleted through nodes; the sidecar's own and what names brokers are refused one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecar.protocol.errors import ErrorCode
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster

_OURS = "__sidecar_default"
_ASSIGNED = [{"partition_index": 0, "broker_ids": [1]}]


@pytest.fixture
def wire(three_nodes: VirtualCluster) -> Iterator[RawClient]:
    with RawClient(three_nodes.nodes[0].bootstrap) as opened:
        yield opened


@pytest.fixture
def direct(kafka_cluster: Kafka) -> Iterator[RawClient]:
    with RawClient(kafka_cluster.bootstrap) as opened:
        yield opened


def new(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 2, "replication_factor": 1} | values


def partitions_of(wire: RawClient, topic: str) -> int:
    (found,) = wire.ask(request(3, 4, topics=[{"name": topic}], allow_auto_topic_creation=False)).topics
    return len(found.partitions)


@pytest.mark.parametrize("version", range(2, 8))
def test_of_several_topics_those_that_may_be_are_created(
    version: int, wire: RawClient, direct: RawClient, unique: Unique
) -> None:
    plain, assigned, throttled = unique("plain"), unique("assigned"), unique("throttled")
    throttle = [{"name": "leader.replication.throttled.replicas", "value": "0:1"}]
    answer = wire.ask(
        request(
            19,
            version,
            topics=[
                new(_OURS),
                new(plain, replication_factor=3),
                new(assigned, num_partitions=-1, replication_factor=-1, assignments=_ASSIGNED),
                new(throttled, configs=throttle),
            ],
        )
    )
    assert {found.name: found.error_code.value for found in answer.topics} == {
        plain: 0,
        _OURS: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        assigned: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        throttled: ErrorCode.INVALID_CONFIG,
    }
    messages = {found.name: found.error_message for found in answer.topics}
    assert "clients of a sidecar see its nodes" in messages[assigned]
    wait_for(lambda: partitions_of(direct, plain) == 2, "the topic")
    assert [partitions_of(direct, name) for name in (_OURS, assigned, throttled)] == [0, 0, 0]


def test_a_topic_may_have_more_replicas_than_clients_see_nodes(
    kafka_cluster: Kafka, one_lonely_node: VirtualCluster, unique: Unique
) -> None:
    name = unique("orders")
    with RawClient(one_lonely_node.bootstrap) as wire, RawClient(kafka_cluster.bootstrap) as direct:
        answer = wire.ask(request(19, 7, topics=[new(name, replication_factor=3)]))
        assert (codes(answer), answer.topics[0].replication_factor) == ({0}, 3)
        (described,) = wait_for(lambda: _described(direct, name), "the topic")
        assert len(described.replica_nodes) == 3


def _described(wire: RawClient, name: str) -> Any:
    (found,) = wire.ask(request(3, 4, topics=[{"name": name}], allow_auto_topic_creation=False)).topics
    return found.partitions[:1]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_and_served_at_once(
    version: int, wire: RawClient, direct: RawClient, kafka_cluster: Kafka, unique: Unique
) -> None:
    name = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(name)
    wait_for(lambda: partitions_of(wire, name) == 1, "every broker to know the topic")
    answer = wire.ask(
        request(
            37,
            version,
            topics=[
                {"name": name, "count": 3},
                {"name": _OURS, "count": 3},
                {"name": "assigned", "count": 2, "assignments": [{"broker_ids": [1]}]},
            ],
        )
    )
    assert {found.name: found.error_code.value for found in answer.results} == {
        name: 0,
        _OURS: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "assigned": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }

    def latest(partition: int) -> set[int]:
        asked = [{"name": name, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        return codes(wire.ask(request(2, 1, replica_id=-1, topics=asked)))

    wait_for(lambda: latest(2) == {0}, "the third partition")


@pytest.mark.parametrize("version", range(1, 6))
async def test_of_several_topics_those_that_may_be_are_deleted(
    version: int, wire: RawClient, direct: RawClient, kafka_cluster: Kafka, unique: Unique
) -> None:
    name = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(name)
    answer = wire.ask(request(20, version, topic_names=[_OURS, name, f"{name}-unknown"]))
    assert {found.name: found.error_code.value for found in answer.responses} == {
        name: 0,
        f"{name}-unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        _OURS: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    wait_for(lambda: partitions_of(direct, name) == 0, "the topic to go")


async def test_a_topic_deleted_and_created_again_is_served_by_its_new_leaders(
    wire: RawClient, kafka_cluster: Kafka, unique: Unique
) -> None:
    name = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(name, partitions=6)
        wire.ask(request(3, 4, topics=[{"name": name}], allow_auto_topic_creation=False))
        assert codes(wire.ask(request(20, 5, topic_names=[name]))) == {0}

        def created() -> bool:
            return codes(wire.ask(request(19, 7, topics=[new(name, num_partitions=6)]))) == {0}

        wait_for(created, "the name to be free again")

        def all_led() -> bool:
            asked = [{"partition_index": index, "timestamp": -1} for index in range(6)]
            return codes(wire.ask(request(2, 1, replica_id=-1, topics=[{"name": name, "partitions": asked}]))) == {0}

        wait_for(all_led, "the leaders of the new topic")


async def test_a_client_finds_at_once_what_it_has_changed(
    wire: RawClient, three_nodes: VirtualCluster, unique: Unique
) -> None:
    """One connection upstream serves what a client changes and what it then asks, as long as any broker may answer."""
    wire.ask(request(18, 0))
    clients = three_nodes.nodes[0].gateway.clients
    client = clients[max(clients)]
    brokers: set[int | None] = set()
    for _ in range(8):
        wire.ask(request(32, 4, resources=[{"resource_type": 2, "resource_name": "orders"}]))
        brokers.add(client.links.recent)
    assert len(brokers) == 1
    wire.ask(request(19, 7, topics=[new(unique("orders"))]))
    changed = client.links.recent
    wire.ask(request(29, 3, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1))
    assert client.links.recent == changed
