"""What Pulsar's own tests of shadow topics show (PIP-180), of ours: see `tests/pulsar.toml`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

Receipt = tuple[int, int, bytes]
"""Partition, offset and value."""


def send(bootstrap: str, topic: str, values: list[bytes], partitions: int = 1) -> list[Receipt]:
    """Write one after the other, in turn to each partition; what their producer is told."""
    told: list[Receipt] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        told.append((message.partition() or 0, message.offset() or 0, message.value() or b""))

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
    assert producer.flush(30) == 0
    return told


def subscribed(bootstrap: str, topic: str, group: str) -> Consumer:
    """A consumer that has its partitions, and nothing read."""
    wanted = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **wanted})
    consumer.subscribe([topic])
    return consumer


def receive(consumer: Consumer, count: int) -> list[Receipt]:
    """In the order in which they come."""
    found: list[Receipt] = []
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        assert not message.error(), message.error()
        found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
    return found


def make(rest: Rest, source: str, name: str) -> str:
    status, answer = rest.call("POST", f"/v1/topics/{source}/shadows", {"name": name})
    assert status == 201, answer
    return name


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_shadow_has_its_source_still_when_every_node_was_started_again(
    services: Services, unique: Unique, tmp_path: Path, partitions: int
) -> None:
    orders = create_topic(services.kafka_bootstrap, partitions)
    node = NodeProcess(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=unique("one"))
    rest = Rest(node.start().admin_url)
    try:
        name = make(rest, orders, unique("audit"))
        before = rest.call("GET", f"/v1/shadows/{name}")
        told = send(services.kafka_bootstrap, orders, [b"a", b"b", b"c"], partitions)
        node.kill()
        node.start()
        assert rest.call("GET", f"/v1/shadows/{name}") == before
        consumer = subscribed(node.bootstrap, name, unique("g"))
        assert sorted(receive(consumer, 3)) == sorted(told)
        consumer.close()
    finally:
        node.stop()
    node.check_log()


def test_the_source_of_a_shadow_is_fixed_for_life(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique
) -> None:
    orders, other = create_topic(services.kafka_bootstrap, 1), create_topic(services.kafka_bootstrap, 1)
    name = make(rest, orders, unique("audit"))
    before = rest.call("GET", f"/v1/shadows/{name}")
    assert rest.call("POST", f"/v1/topics/{other}/shadows", {"name": name})[0] == 409
    assert rest.call("DELETE", f"/v1/topics/{other}/shadows/{name}")[0] == 404
    for body in ({"source": other}, {"source": None}):
        for method in ("PUT", "POST", "PATCH"):
            assert rest.call(method, f"/v1/shadows/{name}", body)[0] >= 400
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.incremental_alter_configs([resource])[resource].result(20)
    assert rest.call("GET", f"/v1/shadows/{name}") == before
    assert before[1]["source"] == orders


def by_rest(node: NodeProcess, _: Services, orders: str, name: str) -> None:
    assert Rest(node.admin_url).call("DELETE", f"/v1/topics/{orders}/shadows/{name}")[0] == 204


def by_a_client(node: NodeProcess, services: Services, orders: str, name: str) -> None:
    """Refused, so that it goes as it should."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics([name])[name].result(20)
    by_rest(node, services, orders, name)


def past_the_nodes(_: NodeProcess, services: Services, orders: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    admin.delete_topics([name])[name].result(20)


@pytest.mark.parametrize("delete", [by_rest, by_a_client, past_the_nodes])
def test_deleting_a_shadow_never_deletes_a_record_of_its_source(
    node: NodeProcess,
    services: Services,
    rest: Rest,
    unique: Unique,
    delete: Callable[[NodeProcess, Services, str, str], None],
) -> None:
    orders = create_topic(services.kafka_bootstrap, 2)
    send(services.kafka_bootstrap, orders, [b"a", b"b", b"c", b"d"], 2)
    name, other = make(rest, orders, unique("audit")), make(rest, orders, unique("copy"))
    delete(node, services, orders, name)
    wait_for(lambda: rest.call("GET", f"/v1/shadows/{name}")[0] == 404, "it to be gone", 20)
    for bootstrap, topic in ((services.kafka_bootstrap, orders), (node.bootstrap, orders), (node.bootstrap, other)):
        assert [read_log(bootstrap, topic, partition) for partition in (0, 1)] == [[b"a", b"c"], [b"b", b"d"]]
    told = send(node.bootstrap, orders, [b"e"])
    assert told == [(0, 2, b"e")]


def test_ten_records_of_three_partitions_arrive_with_the_ids_told_to_their_producer(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique
) -> None:
    orders = create_topic(services.kafka_bootstrap, 3)
    name = make(rest, orders, unique("audit"))
    consumer = subscribed(node.bootstrap, name, unique("g"))
    assert consumer.poll(1) is None
    told = send(node.bootstrap, orders, [b"msg-%d" % number for number in range(10)], 3)
    assert {partition for partition, _, _ in told} == {0, 1, 2}
    assert sorted(receive(consumer, 10)) == sorted(told)
    consumer.close()


@pytest.mark.parametrize("value", ["{}", '{{"x": {}, "y": 2}}', "Hello Shadow Topic{}"])
def test_records_arrive_in_the_order_in_which_they_were_written(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique, value: str
) -> None:
    """What they are made of is no matter: text, JSON, numbers."""
    orders = create_topic(services.kafka_bootstrap, 1)
    name = make(rest, orders, unique("audit"))
    consumer = subscribed(node.bootstrap, name, unique("g"))
    told = send(node.bootstrap, orders, [b"first"])
    assert receive(consumer, 1) == told
    told = send(node.bootstrap, orders, [value.format(number).encode() for number in range(10)])
    found = receive(consumer, 10)
    assert found == told
    if value.startswith("{{"):
        assert [json.loads(seen)["x"] for _, _, seen in found] == list(range(10))
    consumer.close()


def test_what_was_written_before_the_shadow_was_made_is_read_from_the_beginning(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique
) -> None:
    orders = create_topic(services.kafka_bootstrap, 1)
    told = send(services.kafka_bootstrap, orders, [b"%d" % number for number in range(11)])
    consumer = subscribed(node.bootstrap, make(rest, orders, unique("audit")), unique("g"))
    assert receive(consumer, 11) == told
    consumer.close()
