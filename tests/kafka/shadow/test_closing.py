"""Shadows whose source goes: what is told of them, where, how often."""

from __future__ import annotations

import contextlib
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from sidecar.protocol.errors import ErrorCode
from tests.conftest import Unique
from tests.kafka.gateway.test_shared_reads import Limits, ask
from tests.kafka.node_log import events
from tests.kafka.shadow.conftest import without_stats
from tests.kafka.shadow.history import history
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


def delete(services: Services, topic: str) -> None:
    """Past the nodes."""
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    client.delete_topics([topic])[topic].result(20)


def create(services: Services, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)


@contextmanager
def nodes_of_one_cluster(
    services: Services, directory: Path, unique: Unique, count: int
) -> Iterator[list[NodeProcess]]:
    cluster = unique("c")
    found = [
        NodeProcess(directory, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=number)
        for number in range(1, count + 1)
    ]
    try:
        for process in found:
            process.start()
        yield found
    finally:
        for process in found:
            process.stop()
    for process in found:
        process.check_log()


def gauge(node: NodeProcess) -> int:
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
        found = re.search(r"^sidecar_shadows_closed (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def logged(nodes: list[NodeProcess]) -> list[str]:
    """What was closed, as the nodes' logs have it."""
    return [event["shadow"] for node in nodes for event in events(node, "shadow_closed")]


def shadow(node: NodeProcess, name: str) -> dict[str, Any]:
    status, found = without_stats(Rest(node.admin_url).call("GET", f"/v1/shadows/{name}"))
    assert status == 200, found
    return found


@pytest.mark.slow
def test_a_shadow_is_closed_with_its_source_and_told_once_by_one_node(
    services: Services, unique: Unique, tmp_path: Path
) -> None:
    """Every node says so: by REST, in its metrics, and after a start too. What else there is stays open."""
    orders, payments, name, other = (
        create_topic(services.kafka_bootstrap),
        create_topic(services.kafka_bootstrap),
        unique("audit"),
        unique("copy"),
    )
    with nodes_of_one_cluster(services, tmp_path, unique, 2) as nodes:
        rest = Rest(nodes[0].admin_url)
        assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[1]["state"] == "open"
        assert rest.call("POST", f"/v1/topics/{payments}/shadows", {"name": other})[1]["reason"] is None
        assert [gauge(node) for node in nodes] == [0, 0]
        delete(services, orders)
        for node in nodes:
            wait_for(lambda: shadow(node, name)["state"] == "closed", "it to be closed", 30)  # noqa: B023
            assert f"its source {orders} was deleted" in shadow(node, name)["reason"]
            assert shadow(node, other)["state"] == "open"
            assert gauge(node) == 1
            assert Rest(node.admin_url).call("GET", f"/v1/topics/{orders}/shadows")[1]["items"] == [shadow(node, name)]
        create(services, orders)
        wait_for(lambda: "anew" in shadow(nodes[1], name)["reason"], "the reason to be another", 30)
        assert rest.call("GET", f"/v1/topics/{orders}/shadows")[1]["items"] == [shadow(nodes[1], name)]
        wait_for(lambda: len(logged(nodes)) == 2, "both to be logged")
        for node in nodes:
            node.stop()
            node.start()
        assert [shadow(node, name)["state"] for node in nodes] == ["closed", "closed"]
        wait_for(lambda: [gauge(node) for node in nodes] == [1, 1], "the gauge of the new processes")
        events = history(nodes[0], name)
        told = [event["detail"].partition(":")[0] for event in events]
        assert told == [f"of {orders}", "closed", "closed"]
        assert events[0]["details"] == {"source": orders, "allow": ["User:*"], "auto_reset_backlog_entries": 0}
        assert [f"closed: {event['details']['closed']}" for event in events[1:]] == [e["detail"] for e in events[1:]]
        assert logged(nodes) == [name, name]
        assert rest.call("DELETE", f"/v1/topics/{orders}/shadows/{name}")[0] == 204
        wait_for(lambda: [gauge(node) for node in nodes] == [0, 0], "the gauge to fall")


def test_a_node_that_asked_nothing_meanwhile_reads_no_other_topic_under_its_name(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    """The source is created anew while no Fetch waits: brokers take names, so no error tells this node of it."""
    with nodes_of_one_cluster(services, tmp_path, unique, 2) as nodes, contextlib.ExitStack() as stack:
        source, name = create_topic(services.kafka_bootstrap, 2), unique("audit")
        put(services, source, "old")
        rest = Rest(nodes[0].admin_url)
        assert rest.call("POST", f"/v1/topics/{source}/shadows", {"name": name})[0] == 201
        wires = [stack.enter_context(RawClient(node.bootstrap)) for node in nodes]
        for wire in wires:
            assert b"old" in ask(wire, [(name, 0, 0)], Limits(300))[name, 0].records
        delete(services, source)
        wait_for(lambda: not there(services, source), "the source is gone")
        create(services, source)
        put(services, source, "another topic's")
        for node, wire in zip(nodes, wires, strict=True):
            its = Rest(node.admin_url)
            wait_for(lambda its=its: its.call("GET", f"/v1/shadows/{name}")[1]["state"] == "closed", "closed", 30)
            found = ask(wire, [(name, 0, 0)], Limits(300))[name, 0]
            assert (found.error, found.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")


def put(services: Services, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    producer.produce(topic, value, partition=0)
    producer.flush(20)


def there(services: Services, topic: str) -> bool:
    client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    return topic in client.list_topics(timeout=20).topics
