"""Cursors of a shadow and of its source stand beside each other in one group, and neither knows of the other."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests import raw
from tests.conftest import OwnKafka, StartNode, Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

RECORDS = 20
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNKNOWN_TOPIC_OR_PARTITION = 3


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def orders(services: Services) -> str:
    """A topic of two partitions with ten records in each."""
    create_internal_topics(services.kafka_bootstrap)
    topic = create_topic(services.kafka_bootstrap, 2)
    write(services.kafka_bootstrap, topic)
    return topic


@pytest.fixture
def audit(rest: Rest, orders: str, unique: Unique) -> str:
    """A shadow of it."""
    return shadow_of(rest, orders, unique)


def shadow_of(rest: Rest, topic: str, unique: Unique) -> str:
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": name})[0] == 201
    return name


def consumer(bootstrap: str, group: str) -> Consumer:
    wanted = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **wanted})


def take(reader: Consumer, count: int) -> dict[str, list[tuple[int, int, bytes]]]:
    """Partition, offset and value of so many records, by the name that they are read under."""
    found: dict[str, list[tuple[int, int, bytes]]] = {}
    for _ in range(count):
        message = reader.poll(30)
        assert message is not None, found
        assert not message.error(), message.error()
        seen = (message.partition() or 0, message.offset() or 0, message.value() or b"")
        found.setdefault(message.topic() or "", []).append(seen)
    return {topic: sorted(seen) for topic, seen in found.items()}


def cursors(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The group's offsets by topic and partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(place.topic, place.partition): place.offset for place in asked.result(30).topic_partitions or ()}


def commit(reader: Consumer, topic: str, *offsets: int) -> None:
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    reader.commit(offsets=places, asynchronous=False)


def delete_offsets(bootstrap: str, group: str, topic: str) -> set[int]:
    """OffsetDelete (KIP-496) for both partitions: the codes."""
    with RawClient(bootstrap) as client:
        asked = [{"name": topic, "partitions": [{"partition_index": index} for index in (0, 1)]}]
        answer = client.ask(request(47, 0, group_id=group, topics=asked))
    assert raw.code(answer) == 0
    return {raw.code(partition) for found in answer.topics for partition in found.partitions}


def test_one_consumer_reads_a_shadow_and_its_source_each_by_its_own_cursor(
    node: NodeProcess, services: Services, orders: str, audit: str, unique: Unique
) -> None:
    group = unique("both")
    reader = consumer(node.bootstrap, group)
    reader.subscribe([orders, audit])
    found = take(reader, 2 * RECORDS)
    assert found.keys() == {orders, audit}
    assert found[orders] == found[audit]
    assert len({*found[orders]}) == RECORDS
    commit(reader, audit, 7, 9)
    assert cursors(node.bootstrap, group) == {(audit, 0): 7, (audit, 1): 9}
    commit(reader, orders, 3)
    assert cursors(node.bootstrap, group) == {(audit, 0): 7, (audit, 1): 9, (orders, 0): 3}
    commit(reader, audit, 2)
    reader.close()
    expected = {(audit, 0): 2, (audit, 1): 9, (orders, 0): 3}
    assert cursors(node.bootstrap, group) == cursors(services.kafka_bootstrap, group) == expected
    again = consumer(node.bootstrap, group)
    again.subscribe([orders, audit])
    left = take(again, 8 + 1 + 7 + 10)
    again.close()
    firsts = {
        (topic, partition): min(offset for where, offset, _ in seen if where == partition)
        for topic, seen in left.items()
        for partition in (0, 1)
    }
    assert firsts == {**expected, (orders, 1): 0}


def test_offsets_of_a_shadow_are_deleted_as_those_of_any_topic(
    node: NodeProcess, services: Services, orders: str, audit: str, unique: Unique
) -> None:
    """Not while a member is subscribed to it; the source's stay, and the other way round."""
    group = unique("both")
    reader = consumer(node.bootstrap, group)
    reader.subscribe([audit])
    take(reader, 1)
    commit(reader, audit, 4, 5)
    commit(reader, orders, 6, 7)
    assert delete_offsets(node.bootstrap, group, audit) == {GROUP_SUBSCRIBED_TO_TOPIC}
    assert delete_offsets(node.bootstrap, group, orders) == {0}, "nobody is subscribed to the source"
    assert cursors(services.kafka_bootstrap, group) == {(audit, 0): 4, (audit, 1): 5}
    commit(reader, orders, 6, 7)
    reader.close()
    assert delete_offsets(node.bootstrap, group, audit) == {0}
    assert cursors(services.kafka_bootstrap, group) == {(orders, 0): 6, (orders, 1): 7}


def test_offsets_of_a_shadow_expire_by_themselves(own_kafka: OwnKafka, node_process: StartNode, unique: Unique) -> None:
    """Kafka's own rule, by the time that the commit names."""
    kafka = own_kafka(overrides={"offsets.retention.check.interval.ms": "300"})
    create_internal_topics(kafka.bootstrap)
    node = node_process(kafka=kafka.bootstrap)
    orders = create_topic(kafka.bootstrap, 2)
    audit, group = shadow_of(Rest(node.admin_url), orders, unique), unique("both")
    with RawClient(node.bootstrap) as client:
        for topic, retention in ((audit, 100), (orders, -1)):
            named = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            member = {"generation_id_or_member_epoch": -1, "retention_time": retention}
            answer = client.ask(request(8, 4, group_id=group, topics=named, **member))
            assert raw.code(answer.topics[0].partitions[0]) == 0
    wait_for(lambda: cursors(node.bootstrap, group) == {(orders, 0): 1}, "the shadow's cursor alone to go", 30)


def test_cursors_of_a_shadow_go_with_it(
    node: NodeProcess, services: Services, rest: Rest, orders: str, audit: str, unique: Unique
) -> None:
    """Those of the source stay; a shadow of the same name begins without any."""
    group = unique("both")
    reader = consumer(node.bootstrap, group)
    commit(reader, audit, 4, 5)
    commit(reader, orders, 6, 7)
    assert rest.call("DELETE", f"/v1/topics/{orders}/shadows/{audit}")[0] == 204
    expected = {(orders, 0): 6, (orders, 1): 7}
    wait_for(lambda: cursors(services.kafka_bootstrap, group) == expected, "its cursors to go", 30)
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": audit})[0] == 201
    again = consumer(node.bootstrap, group)
    again.subscribe([audit])
    assert len(take(again, RECORDS)[audit]) == RECORDS
    again.close()
    reader.close()
