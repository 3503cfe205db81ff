"""Metrics of clients (KIP-714) through two nodes, in front of two brokers that collect them."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest

from sidecar.local import Kafka, KafkaConfig
from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.clients import javabuild
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Unique

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).with_name("Collector.java")
NONE = 0
CLIENT_METRICS = 16


class Pushed(NamedTuple):
    """A line of the collector."""

    broker: int
    instance: UUID
    client_id: str
    software: str
    size: int
    terminating: bool


class Collecting(NamedTuple):
    kafka: Kafka
    nodes: VirtualCluster
    file: Path

    def pushed(self) -> list[Pushed]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [_read(*line.split()) for line in lines]


def _read(broker: str, instance: str, client_id: str, software: str, size: str, terminating: str) -> Pushed:
    number = UUID(bytes=base64.urlsafe_b64decode(instance + "=="))
    return Pushed(int(broker), number, client_id, software, int(size), terminating == "true")


@pytest.fixture(scope="module")
def collecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collecting]:
    home = tmp_path_factory.mktemp("collecting")
    settings = {"metric.reporters": "collector.Collector", "collector.file": str(home / "pushed")}
    kafka = Kafka(home / "kafka", KafkaConfig(version="4.4.0", brokers=2, overrides=settings))
    jar = javabuild.compiled(kafka.tools.java, kafka.tools.jars, [SOURCE], "collector")
    tools = replace(kafka.tools, jars=replace(kafka.tools.jars, paths=(*kafka.tools.jars.paths, jar)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sidecar.local.kafka.find_tools", lambda *_: tools)
        kafka.start()
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        create_internal_topics(kafka.bootstrap)
        with RawClient(kafka.bootstrap.split(",")[0]) as wire:
            configs = [
                {"name": name, "config_operation": 0, "value": value}
                for name, value in (("metrics", "*"), ("interval.ms", "1000"))
            ]
            resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": configs}
            assert raw.code(wire.ask(request(44, 1, resources=[resource])).responses[0]) == NONE
        with VirtualCluster(kafka.bootstrap, 2, first_id=7) as nodes:
            yield Collecting(kafka, nodes, home / "pushed")
            assert nodes.events.failed == nodes.events.crashed == []


def subscriptions(wire: RawClient, instance: UUID | None) -> Any:
    return wire.ask(request(71, 0, client_instance_id=instance))


def test_every_request_about_a_client_instance_goes_to_one_broker(collecting: Collecting) -> None:
    """Whichever node it asks: a broker that knows it refuses a second request before its interval, another does not."""
    one, other = collecting.nodes.nodes
    with RawClient(one.bootstrap) as here, RawClient(other.bootstrap) as there:
        wait_for(lambda: "*" in subscriptions(here, None).requested_metrics, "brokers that know what to collect", 20)
        instances = [subscriptions(here, None) for _ in range(12)]
        assert {raw.code(found) for found in instances} == {NONE}
        assert len({found.client_instance_id for found in instances}) == len(instances)
        again = [subscriptions(there, found.client_instance_id) for found in instances]
        assert {raw.code(found) for found in again} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        for found in instances:
            whose = {"client_instance_id": found.client_instance_id, "subscription_id": found.subscription_id}
            assert raw.code(there.ask(request(72, 0, **whose, metrics=b"metrics"))) == NONE
            assert raw.code(here.ask(request(72, 0, **whose, metrics=b"more"))) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    pushed = collecting.pushed()
    assert {found.instance for found in pushed} >= {found.client_instance_id for found in instances}
    assert {(found.client_id, found.size) for found in pushed} == {("raw", len(b"metrics"))}
    assert {found.broker for found in pushed} == {1, 2}
    assert {found.software for found in pushed} == {"unknown"}


def test_javas_producer_pushes_its_metrics_through_nodes(collecting: Collecting, unique: Unique) -> None:
    topic, name = unique("orders"), unique("java")
    with RawClient(collecting.nodes.nodes[0].bootstrap) as wire:
        made = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        assert raw.code(wire.ask(request(19, 5, topics=[made], timeout=20_000)).topics[0]) == NONE
    properties = ("--producer-property", f"client.id={name}")
    where = ("--bootstrap-server", collecting.nodes.bootstrap, "--topic", topic)
    tool = "org.apache.kafka.tools.ConsoleProducer"
    collecting.kafka.tools.run(tool, *where, *properties, stdin="one\ntwo\n", timeout=60)
    found = [each for each in collecting.pushed() if each.client_id == name]
    assert len({(each.broker, each.instance) for each in found}) == 1
    assert found[-1].terminating
    assert found[-1].size > 0
