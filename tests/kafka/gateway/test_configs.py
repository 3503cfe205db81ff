"""Configurations through nodes: a node stands for a broker, topics pass, what cannot be meant is refused."""

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

_TOPIC, _BROKER, _BROKER_LOGGER = 2, 4, 8


@pytest.fixture
def wire(three_nodes: VirtualCluster) -> Iterator[RawClient]:
    with RawClient(three_nodes.nodes[0].bootstrap) as opened:
        yield opened


def resource(kind: int, name: str | int, **values: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": str(name)} | values


def described(answer: Any) -> dict[tuple[int, str], dict[str, str | None]]:
    """Values by resource."""
    assert codes(answer) == {0}
    return {
        (found.resource_type, found.resource_name): {config.name: config.value for config in found.configs}
        for found in answer.results
    }


def soon_described(wire: RawClient, asked: Any) -> dict[tuple[int, str], dict[str, str | None]]:
    """As `described`, once every broker that is asked knows of a topic made a moment ago."""
    wait_for(lambda: codes(wire.ask(asked)) == {0}, "the description")
    return described(wire.ask(asked))


@pytest.mark.parametrize("version", range(1, 5))
def test_every_node_is_described_as_a_broker_of_its_own_address(
    version: int, wire: RawClient, three_nodes: VirtualCluster, kafka_cluster: Kafka
) -> None:
    asked = [resource(_BROKER, node.id) for node in three_nodes.nodes]
    answer = wire.ask(request(32, version, resources=asked, include_synonyms=True))
    found = described(answer)
    directories = set()
    for node in three_nodes.nodes:
        configs = found[_BROKER, str(node.id)]
        assert len(configs) > 200
        assert configs["node.id"] == str(node.id)
        assert configs["advertised.listeners"] == configs["listeners"] == f"PLAINTEXT://{node.bootstrap}"
        assert configs["controller.quorum.voters"] is None
        assert configs["num.io.threads"] == "4"
        directories.add(configs["log.dirs"])
    assert len(directories) == 3, "each node shows another broker"
    text = repr(answer)
    for broker in kafka_cluster.config.numbers:
        assert kafka_cluster.address(broker) not in text


@pytest.mark.parametrize("version", range(1, 5))
def test_a_described_broker_comes_with_the_message_of_kafka(
    version: int, wire: RawClient, three_nodes: VirtualCluster, kafka_cluster: Kafka
) -> None:
    """It is empty, not null: Sarama takes any other one for an error."""
    node, broker = three_nodes.nodes[0].id, kafka_cluster.config.numbers[0]
    with RawClient(kafka_cluster.address(broker)) as direct:
        for kind in (_BROKER, _BROKER_LOGGER):
            (here,) = wire.ask(request(32, version, resources=[resource(kind, node)])).results
            (there,) = direct.ask(request(32, version, resources=[resource(kind, broker)])).results
            assert (here.error_code, here.error_message) == (there.error_code, there.error_message)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_found_coordinator_comes_with_the_message_of_kafka(
    version: int, wire: RawClient, kafka_cluster: Kafka
) -> None:
    key = {"coordinator_keys": ["a group"]} if version >= 4 else {"key": "a group"}
    asked = request(10, version, key_type=0, **key)
    with RawClient(kafka_cluster.bootstrap) as direct:
        here, there = [_message(wait_for(lambda one=one: _found(one.ask(asked)), "it")) for one in (wire, direct)]
    assert here == there


def _found(answer: Any) -> Any:
    return answer if codes(answer) == {0} else None


def _message(answer: Any) -> str | None:
    (found,) = getattr(answer, "coordinators", None) or [answer]
    return found.error_message


def test_a_mixed_request_is_answered_from_everywhere_at_once(wire: RawClient, unique: Unique) -> None:
    topic = unique("orders")
    assert codes(wire.ask(request(19, 2, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}]))) == {
        0
    }
    asked = [
        resource(_TOPIC, topic, configuration_keys=["retention.ms"]),
        resource(_BROKER, "", configuration_keys=None),
        resource(_BROKER, 12, configuration_keys=["node.id", "num.io.threads"]),
        resource(_BROKER_LOGGER, 13, configuration_keys=["root"]),
    ]
    found = soon_described(wire, request(32, 4, resources=asked))
    assert found[_TOPIC, topic] == {"retention.ms": "604800000"}
    assert found[_BROKER, "12"] == {"node.id": "12", "num.io.threads": "4"}
    assert set(found) == {(_TOPIC, topic), (_BROKER, ""), (_BROKER, "12"), (_BROKER_LOGGER, "13")}


def test_a_resource_that_is_named_again_is_described_once(
    wire: RawClient, three_nodes: VirtualCluster, unique: Unique
) -> None:
    """Beside a broker each was asked of Kafka, and read here: thousands of times the same for a few bytes each."""
    topic = unique("orders")
    wire.ask(request(19, 2, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}]))
    asked = request(32, 4, resources=[*[resource(_TOPIC, topic)] * 3, resource(_BROKER, three_nodes.nodes[0].id)])
    soon_described(wire, asked)
    assert sorted(found.resource_type for found in wire.ask(asked).results) == [_TOPIC, _BROKER]


def test_a_broker_that_clients_do_not_see_is_not_described(wire: RawClient) -> None:
    answer = wire.ask(request(32, 4, resources=[resource(_BROKER, 1), resource(_BROKER, "eleven")]))
    assert codes(answer) == {ErrorCode.INVALID_REQUEST}
    assert {found.error_message for found in answer.results} == {
        "there is no broker 1 here, only 11, 12, 13",
        "there is no broker eleven here, only 11, 12, 13",
    }


def set_retention(key: int, version: int, *resources: dict[str, Any]) -> Any:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "86400000"}]
    return request(key, version, resources=[found | {"configs": found.get("configs", configs)} for found in resources])


@pytest.mark.parametrize(("key", "version"), [(33, 0), (33, 1), (33, 2), (44, 0), (44, 1)])
async def test_of_several_resources_those_that_may_be_are_altered(
    key: int, version: int, wire: RawClient, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic, throttled = unique("orders"), unique("throttled")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    by_broker = [{"name": "follower.replication.throttled.replicas", "config_operation": 0, "value": "0:1"}]
    answer = wire.ask(
        set_retention(
            key,
            version,
            resource(_TOPIC, "__sidecar_default"),
            resource(_TOPIC, topic),
            resource(_BROKER, 11),
            resource(_BROKER_LOGGER, 12),
            resource(_TOPIC, throttled, configs=by_broker),
        )
    )
    assert {(found.resource_type, found.resource_name): found.error_code.value for found in answer.responses} == {
        (_TOPIC, topic): 0,
        (_TOPIC, "__sidecar_default"): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        (_BROKER, "11"): ErrorCode.INVALID_REQUEST,
        (_BROKER_LOGGER, "12"): ErrorCode.INVALID_REQUEST,
        (_TOPIC, throttled): ErrorCode.INVALID_CONFIG,
    }

    def retention() -> str | None:
        asked = request(32, 4, resources=[resource(_TOPIC, topic, configuration_keys=["retention.ms"])])
        return soon_described(wire, asked)[_TOPIC, topic]["retention.ms"]

    wait_for(lambda: retention() == "86400000", "the configuration")


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(("value", "expected"), [("0:1,0:2", None), ("*", "*")])
async def test_replicas_listed_by_broker_are_not_shown(
    version: int, value: str, expected: str | None, wire: RawClient, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    configs = [{"name": "leader.replication.throttled.replicas", "config_operation": 0, "value": value}]
    with RawClient(kafka_cluster.bootstrap) as direct:
        assert codes(direct.ask(request(44, 1, resources=[resource(_TOPIC, topic, configs=configs)]))) == {0}
    asked = request(32, version, resources=[resource(_TOPIC, topic)], include_synonyms=True)

    def shown() -> bool:
        found = soon_described(wire, asked)[_TOPIC, topic]
        assert "0:1" not in repr(found)
        return found["leader.replication.throttled.replicas"] == expected

    wait_for(shown, "the configuration")


def test_the_clusters_defaults_are_altered(wire: RawClient) -> None:
    def alter(value: str | None) -> set[int]:
        configs = [{"name": "log.cleaner.backoff.ms", "config_operation": 0 if value else 1, "value": value}]
        return codes(wire.ask(request(44, 1, resources=[resource(_BROKER, "", configs=configs)])))

    def default() -> str | None:
        found = described(wire.ask(request(32, 4, resources=[resource(_BROKER, "")])))
        return found[_BROKER, ""].get("log.cleaner.backoff.ms")

    assert alter("16000") == {0}
    wait_for(lambda: default() == "16000", "the new default")
    assert alter(None) == {0}
    wait_for(lambda: default() is None, "the old default")


def test_internal_topics_may_be_described(wire: RawClient, direct_creator: RawClient) -> None:
    answer = direct_creator.ask(
        request(19, 2, topics=[{"name": "__sidecar_shown", "num_partitions": 1, "replication_factor": 1}])
    )
    assert codes(answer) <= {0, ErrorCode.TOPIC_ALREADY_EXISTS}
    asked = request(32, 4, resources=[resource(_TOPIC, "__sidecar_shown", configuration_keys=["retention.ms"])])
    wait_for(lambda: codes(wire.ask(asked)) == {0}, "the topic")


@pytest.fixture
def direct_creator(kafka_cluster: Kafka) -> Iterator[RawClient]:
    with RawClient(kafka_cluster.bootstrap) as opened:
        yield opened
