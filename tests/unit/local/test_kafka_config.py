from pathlib import Path

import pytest

from sidecar.local.errors import LocalError
from sidecar.local.kafka_config import (
    BrokerSecurity,
    KafkaConfig,
    Ports,
    broker_properties,
    default_version,
    parse_version,
    render,
)

PORTS = {1: Ports(20001, 21001), 2: Ports(20002, 21002), 3: Ports(20003, 21003)}
DATA = Path("/data")


def one(**config) -> dict[str, str]:
    return broker_properties(KafkaConfig(**config), 1, {1: PORTS[1]}, DATA)


def test_a_single_broker_replicates_nothing() -> None:
    properties = one()
    factors = {name: value for name, value in properties.items() if name.endswith(("replication.factor", ".isr"))}
    assert len(factors) >= 5
    assert set(factors.values()) == {"1"}


def test_three_brokers_replicate_everything_and_need_two() -> None:
    properties = broker_properties(KafkaConfig(brokers=3), 2, PORTS, DATA)
    assert properties["node.id"] == "2"
    assert properties["default.replication.factor"] == "3"
    assert properties["min.insync.replicas"] == "2"
    assert properties["offsets.topic.replication.factor"] == "3"
    assert properties["transaction.state.log.min.isr"] == "2"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20002,CONTROLLER://127.0.0.1:21002"


def test_nothing_listens_beyond_loopback() -> None:
    properties = one()
    addresses = [listener.split("://")[1] for listener in properties["listeners"].split(",")]
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_overrides_win() -> None:
    assert one(overrides={"group.initial.rebalance.delay.ms": "7"})["group.initial.rebalance.delay.ms"] == "7"
    assert one(overrides={"producer.id.expiration.ms": "1000"})["producer.id.expiration.ms"] == "1000"


def test_topics_are_created_as_kafka_does_by_default() -> None:
    assert "auto.create.topics.enable" not in one()


def test_share_groups_are_only_configured_where_they_exist() -> None:
    def share(version: str) -> set[str]:
        return {name for name in one(version=version) if name.startswith("share.")}

    assert not share("3.9.1")
    assert share("4.1.1")


def test_the_version_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIDECAR_LOCAL_KAFKA_VERSION", raising=False)
    assert default_version() == KafkaConfig().version == "4.1.1"
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_VERSION", "3.9.1")
    assert default_version() == KafkaConfig().version == "3.9.1"


def test_versions_compare_as_numbers() -> None:
    assert parse_version("4.10.0") > parse_version("4.9.1")


@pytest.mark.parametrize("text", ["", "4.1", "4.1.x", "latest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="not a version of Apache Kafka"):
        KafkaConfig(version=text or "none")


def test_each_broker_needs_a_port() -> None:
    with pytest.raises(LocalError, match="2 ports for 3 brokers"):
        KafkaConfig(brokers=3, ports=(1, 2))


def test_a_properties_file_keeps_backslashes() -> None:
    assert render({"a": "1", "b": "c\\d"}) == "a=1\nb=c\\\\d\n"


def test_a_secured_broker_lets_nobody_in_without_a_login_or_its_own_certificate() -> None:
    security = BrokerSecurity(Path("/keys/kafka.pem"), Path("/keys/ca.pem"), ("User:sidecar", "User:CN=kafka"))
    properties = broker_properties(KafkaConfig(security=security), 1, {1: Ports(20001, 21001, 22001)}, DATA)
    listeners = "CLIENTS://127.0.0.1:20001,BROKER://127.0.0.1:22001"
    assert properties["listeners"] == f"{listeners},CONTROLLER://127.0.0.1:21001"
    assert properties["advertised.listeners"] == listeners
    assert properties["listener.security.protocol.map"] == "CLIENTS:SASL_SSL,BROKER:SSL,CONTROLLER:SSL"
    assert properties["inter.broker.listener.name"] == "BROKER"
    for listener in ("broker", "controller"):
        assert properties[f"listener.name.{listener}.ssl.client.auth"] == "required"
    assert properties["super.users"] == "User:sidecar;User:CN=kafka"
    assert properties["authorizer.class.name"].endswith("StandardAuthorizer")
