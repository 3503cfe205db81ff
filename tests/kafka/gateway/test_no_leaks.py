"""Nothing that a client is answered leads it past the nodes: no broker's address, in any API and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.apis.table import APIS
from sidecar.local.ports import HOST
from tests.kafka.gateway.answers import fields
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.test_same_as_kafka import versions_of
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster
    from tests.services import Services

_NOT_FOR_BROKERS = {45, 46}
"""Answered by the node alone."""

COLD = sorted(APIS.keys() - {0, 1, 2, 18, 21, 23} - _NOT_FOR_BROKERS)


def describing(topic: str, group: str, nodes: list[int]) -> dict[int, dict[str, Any]]:
    """As `samples`, asking for everything that could name a broker."""
    everything = [{"resource_type": kind, "resource_name": str(node)} for kind in (4, 8) for node in nodes]
    return samples(topic, group) | {
        3: {"topics": [{"name": topic}]},
        10: {"key": group, "coordinator_keys": [group]},
        22: {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1},
        32: {
            "resources": [*everything, {"resource_type": 2, "resource_name": topic}],
            "include_synonyms": True,
            "include_documentation": True,
        },
        60: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    }


def of_clients(bootstrap: str) -> set[int]:
    return {int(address.rsplit(":", 1)[1]) for address in bootstrap.split(",")}


def names_a_port(answer: bytes, ports: set[int]) -> bool:
    """As text, or as the number behind a host, which is how all answers carry addresses."""
    return any(f":{port}".encode() in answer or HOST.encode() + port.to_bytes(4, "big") in answer for port in ports)


@pytest.mark.parametrize("key", COLD, ids=[APIS[key].name for key in COLD])
async def test_no_answer_names_a_brokers_address(
    key: int, one_node: VirtualCluster, services: Services, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic)
    contents = describing(topic, group, sorted(one_node.ids))
    ports = of_clients(services.kafka_bootstrap)
    with RawClient(one_node.nodes[0].bootstrap) as wire:
        wire.ask(request(8, 2, **contents[8]))
        for version in versions_of(wire).get(key, range(0)):
            if kio.has(key, version):
                answer = wire.ask_bytes(request(key, version, **contents[key]))
                assert not names_a_port(answer, ports), f"version {version}"


async def test_the_same_search_finds_addresses_in_kafkas_own_answers(services: Services, unique: Unique) -> None:
    ports = of_clients(services.kafka_bootstrap)
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic)
    contents = describing(topic, group, [1])
    with RawClient(services.kafka_bootstrap.split(",")[0]) as wire:
        for key in (3, 10, 32, 60):
            asked = request(key, APIS[key].last, **contents[key])
            wait_for(lambda asked=asked: names_a_port(wire.ask_bytes(asked), ports), f"a port in {APIS[key].name}")


@pytest.mark.parametrize("version", range(APIS[3].last + 1))
async def test_every_broker_id_in_metadata_is_a_nodes(
    version: int, three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, partitions=6, replicas=3)
    with RawClient(three_nodes.nodes[2].bootstrap) as wire:
        answer = wire.ask(request(3, version, topics=[{"name": topic}]))
    of_brokers = {"node_id", "leader_id", "replica_nodes", "isr_nodes", "offline_replicas", "controller_id"}
    named = [value for name, value in fields(answer) if name in of_brokers]
    assert set(named) == three_nodes.ids
    assert {value for name, value in fields(answer) if name == "port"} == {node.port for node in three_nodes.nodes}
