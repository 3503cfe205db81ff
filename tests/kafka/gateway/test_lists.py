"""What each broker tells of itself, merged by nodes so that who asks all nodes sees everything once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.transactions import LIST_TRANSACTIONS
from tests.conftest import QUICK_RETURN
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.local import Kafka
    from tests.conftest import OwnKafka, Unique
    from tests.services import Services


@pytest.fixture(params=["three_nodes", "one_lonely_node"], ids=["a broker each", "three brokers behind one node"])
def nodes(request: pytest.FixtureRequest, kafka_cluster: Kafka) -> VirtualCluster:
    return request.getfixturevalue(request.param)


def ask_all(cluster: VirtualCluster, asked: Any) -> list[Any]:
    answers = []
    for node in cluster.nodes:
        with RawClient(node.bootstrap) as wire:
            answers.append(wire.ask(asked))
    return answers


def here_of(nodes: VirtualCluster, names: Iterable[str], here: list[set[str]]) -> dict[str, int]:
    """The node that lists each name."""
    listing = zip(nodes.nodes, here, strict=True)
    return {name: node.id for node, listed in listing for name in listed.intersection(names)}


def coordinators(nodes: VirtualCluster, names: Iterable[str], kind: int) -> dict[str, int]:
    """The node that FindCoordinator names for each of these, the same at every node."""
    found: list[dict[str, int]] = []
    for node in nodes.nodes:
        with RawClient(node.bootstrap) as wire:
            answer = wire.ask(request(10, 4, key_type=kind, coordinator_keys=[*names]))
            found.append({each.key: each.node_id for each in answer.coordinators})
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.parametrize("version", range(6))
async def test_all_nodes_together_list_every_group_once(
    version: int,
    nodes: VirtualCluster,
    kafka_cluster: Kafka,
    unique: Unique,
    groups_of_several_coordinators: Callable[[int], list[str]],
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    names = groups_of_several_coordinators(8)
    with RawClient(nodes.nodes[0].bootstrap) as wire:
        for name in names:
            asked = request(8, 2, **samples(topic, name)[8])
            wait_for(lambda asked=asked: 0 in codes(wire.ask(asked)), f"the offsets of {name}", 30)
    answers = ask_all(nodes, request(16, version))
    assert all(codes(answer) == {0} for answer in answers)
    listed = Counter(found.group_id for answer in answers for found in answer.groups)
    assert {name: listed[name] for name in names} == dict.fromkeys(names, 1)
    here = [{found.group_id for found in answer.groups} for answer in answers]
    assert here_of(nodes, names, here) == coordinators(nodes, names, 0)


@pytest.mark.parametrize("version", range(2))
def test_all_nodes_together_list_every_transactional_id_once(
    version: int, nodes: VirtualCluster, unique: Unique
) -> None:
    names = {unique("txn") for _ in range(8)}
    with RawClient(nodes.nodes[0].bootstrap) as wire:
        for name in names:
            init = request(22, 1, transactional_id=name, transaction_timeout=60_000)
            wait_for(lambda init=init: codes(wire.ask(init)) == {0}, name)
    listed: Counter[str] = Counter()
    here: list[set[str]] = []
    for node in nodes.nodes:
        with RawClient(node.bootstrap) as wire:
            asked = request(66, version, state_filters=["Empty", "Confused"], duration_filter=-1)
            answer = wire.ask_values(LIST_TRANSACTIONS, asked)
            assert (answer["error_code"], answer["unknown_state_filters"]) == (0, ["Confused"])
            here.append({found["transactional_id"] for found in answer["transaction_states"]})
            listed.update(found["transactional_id"] for found in answer["transaction_states"])
    assert {name: listed[name] for name in names} == dict.fromkeys(names, 1)
    assert here_of(nodes, names, here) == coordinators(nodes, names, 1)


@pytest.mark.parametrize("version", range(1, 5))
async def test_all_nodes_together_show_every_replica_once(
    version: int, nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, partitions=4, replicas=3)
    asked = request(35, version, topics=[{"topic": topic, "partitions": [0, 1, 2, 3]}])

    def replicas() -> Counter[int]:
        answers = ask_all(nodes, asked)
        assert all(codes(answer) == {0} for answer in answers)
        return sum(map(shown, answers), Counter[int]())

    # Followers make their replicas a moment after the leader serves.
    wait_for(lambda: replicas() == dict.fromkeys(range(4), 3), "every replica to be shown once")
    assert replicas() == dict.fromkeys(range(4), 3)


def shown(answer: Any) -> Counter[int]:
    """How many replicas of each partition DescribeLogDirs shows."""
    return Counter(
        partition.partition_index
        for directory in answer.results
        for found in directory.topics
        for partition in found.partitions
    )


def assert_each_shows_its_own(cluster: VirtualCluster, topic: str, replicas: int) -> None:
    """Each node shows all replicas of the partitions that Metadata places on it, and of no others."""
    with RawClient(cluster.bootstrap) as wire:
        (found,) = wire.ask(request(3, 12, topics=[{"name": topic}])).topics
    nodes = {each.partition_index: (*each.replica_nodes,) for each in found.partitions}
    assert len(set(nodes.values())) > 1
    asked = request(35, 4, topics=[{"topic": topic, "partitions": [*nodes]}])
    for node in cluster.nodes:
        here = Counter({index: replicas for index, placed in nodes.items() if placed == (node.id,)})
        with RawClient(node.bootstrap) as wire:

            def answered(wire: RawClient = wire) -> Any:
                return wire.ask(asked)

            wait_for(lambda ask=answered, here=here: shown(ask()) == here, f"what node {node.id} has")
            names = [directory.log_dir for directory in answered().results]
        assert len(names) == len(set(names)) > 0


async def test_named_partitions_are_shown_by_the_node_where_metadata_has_them(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    """There clients ask for them: franz-go's kadm, and `Admin.describeReplicaLogDirs` of the Java client."""
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, partitions=8, replicas=3)
    assert_each_shows_its_own(three_nodes, topic, 3)


def test_a_node_without_brokers_shows_named_partitions_too(
    more_nodes_than_brokers: VirtualCluster, services: Services
) -> None:
    assert_each_shows_its_own(more_nodes_than_brokers, create_topic(services.kafka_bootstrap, 16), 1)


async def test_directories_of_the_same_name_on_several_brokers_are_told_apart(
    one_lonely_node: VirtualCluster, kafka_cluster: Kafka
) -> None:
    with RawClient(one_lonely_node.bootstrap) as wire, RawClient(kafka_cluster.address(1)) as direct:
        answer = wire.ask(request(35, 4, topics=None))
        alone = direct.ask(request(35, 4, topics=None))
    names = [found.log_dir for found in answer.results]
    assert len(names) == len(set(names)) == 3 * len(alone.results)


def test_a_node_without_brokers_has_no_directories(more_nodes_than_brokers: VirtualCluster) -> None:
    idle = more_nodes_than_brokers.nodes[-1]
    with RawClient(idle.bootstrap) as wire:
        for topics in (None, [], [{"topic": "no-such-topic", "partitions": []}]):
            (directory,) = wire.ask(request(35, 4, topics=topics)).results
            assert (directory.log_dir, directory.topics) == ("(none)", ())
        # Its configuration is that of some broker all the same: tools look at every node.
        asked = [{"resource_type": 4, "resource_name": str(idle.id)}]
        (found,) = wire.ask(request(32, 4, resources=asked)).results
        assert (found.error_code.value, found.resource_name) == (0, str(idle.id))


async def test_producers_are_described_by_the_leaders_of_their_partitions(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic, other = unique("orders"), unique("other")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, partitions=6)
        await calls.create(other)
        leaders = (await calls.upstream.layout(topic)).leaders
    assert len(set(leaders.values())) == 3
    named = [
        {"name": topic, "partition_indexes": [*range(6), 99]},
        {"name": "no-such-topic", "partition_indexes": [0]},
        {"name": other, "partition_indexes": [0]},
    ]
    with RawClient(three_nodes.nodes[1].bootstrap) as wire:
        answer = wire.ask(request(61, 0, topics=named))
    found = {
        (described.name, partition.partition_index): partition.error_code.value
        for described in answer.topics
        for partition in described.partitions
    }
    assert found == {
        **{(topic, index): 0 for index in range(6)},
        (topic, 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): 0,
    }
    assert [described.name for described in answer.topics] == [topic, "no-such-topic", other]


async def test_lists_of_a_lost_broker_are_to_be_asked_again_and_come_back(own_kafka: OwnKafka, unique: Unique) -> None:
    kafka = own_kafka(overrides=QUICK_RETURN)
    create_internal_topics(kafka.bootstrap)
    group, topic = unique("group"), unique("orders")
    async with kafka_calls(kafka.bootstrap) as calls:
        await calls.create(topic)
    with VirtualCluster(kafka.bootstrap) as cluster, RawClient(cluster.bootstrap) as wire:
        wire.ask(request(8, 2, **samples(topic, group)[8]))
        kafka.kill()
        for _ in range(2):
            assert codes(wire.ask(request(16, 4))) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            assert codes(wire.ask(request(66, 0))) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        with RawClient(cluster.bootstrap) as closed, pytest.raises(ConnectionError):
            closed.ask(request(35, 4, topics=None))
        kafka.restart()
        wait_for(lambda: [found.group_id for found in wire.ask(request(16, 4)).groups] == [group], "the broker", 30)
        assert codes(wire.ask(request(16, 4))) == {0}
        assert cluster.events.crashed == []


def test_no_reassignment_is_ever_under_way(one_node: VirtualCluster) -> None:
    with RawClient(one_node.bootstrap) as wire:
        answer = wire.ask(request(46, 0, topics=[{"name": "orders", "partition_indexes": [0]}]))
    assert (codes(answer), answer.topics) == ({0}, ())
