"""What configurations show of brokers: the node in their place, other addresses not at all."""

from __future__ import annotations

import pytest

from sidecar.cluster.nodes import NodeAddress
from sidecar.gateway.configs import lists_replicas, names_brokers, show_as
from sidecar.protocol.messages.admin import DESCRIBE_CONFIGS

NODE = NodeAddress(7, "sidecar.example", 19092)


def shown(name: str, value: str | None) -> str | None:
    config = {"name": name, "value": value, "synonyms": [{"name": name, "value": value}]}
    show_as(NODE, config)
    assert config["synonyms"] == [{"name": name, "value": config["value"]}]
    return str(config["value"]) if config["value"] is not None else None


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_the_brokers_id_is_the_nodes(name: str) -> None:
    assert shown(name, "3") == "7"


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners"])
def test_the_brokers_listeners_are_the_nodes(name: str) -> None:
    assert shown(name, "PLAINTEXT://10.0.0.3:9092,CONTROLLER://10.0.0.3:9093") == "PLAINTEXT://sidecar.example:19092"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("controller.quorum.voters", "1@10.0.0.3:9093"),
        ("controller.quorum.bootstrap.servers", "10.0.0.3:9093"),
        ("zookeeper.connect", "10.0.0.9:2181"),
        ("confluent.metrics.reporter.bootstrap.servers", "10.0.0.3:9092"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_other_addresses_and_ids_are_not_shown(name: str, value: str) -> None:
    assert shown(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "8"),
        ("log.dirs", "/data"),
        ("controller.listener.names", "CONTROLLER"),
        ("follower.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", ""),
        ("advertised.listeners", None),
    ],
)
def test_everything_else_is_shown_as_it_is(name: str, value: str | None) -> None:
    assert shown(name, value) == value


def test_a_configuration_without_synonyms_is_one_too() -> None:
    config = {"name": "node.id", "value": "3"}
    show_as(NODE, config)
    assert config == {"name": "node.id", "value": "7"}


@pytest.mark.parametrize(
    ("config", "value", "found"),
    [
        ("leader.replication.throttled.replicas", "0:1", True),
        ("follower.replication.throttled.replicas", "0:1", True),
        ("leader.replication.throttled.replicas", "*", False),
        ("leader.replication.throttled.replicas", "", False),
        ("leader.replication.throttled.replicas", None, False),
        ("retention.ms", "0:1", False),
    ],
)
def test_topic_configurations_that_list_replicas_name_brokers(config: str, value: str | None, found: bool) -> None:
    assert names_brokers(config, value) is found


_REPLICAS = "leader.replication.throttled.replicas"


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(
    ("value", "found"), [("0:1", True), ("0:1,1:2" * 40, True), ("*", False), ("", False), (None, False), ("**", True)]
)
def test_a_list_of_replicas_is_found_without_decoding(version: int, value: str | None, found: bool) -> None:
    synonym = {"name": _REPLICAS, "value": value, "source": 1}
    configs = [
        {"name": "retention.ms", "value": "0:1"},
        {"name": _REPLICAS, "value": value, "synonyms": [synonym], "documentation": "0:1 names broker 1"},
        {"name": "follower.replication.throttled.replicas", "value": ""},
    ]
    results = [{"resource_type": 2, "resource_name": "orders", "configs": configs}]
    frame = DESCRIBE_CONFIGS.encode_answer(version, 7, {"results": results})
    assert lists_replicas(frame, flexible=version >= 4) is found
