"""Groups at work, for tests of cursors: what they commit, and what they are told that they have committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.rest import Rest
from tests.wait import wait_for

_NO_COORDINATOR = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def write(
    bootstrap: str, topic: str, count: int, partition: int = 0, *, keys: int = 0, first_key: int = 0, **settings: Any
) -> None:
    """So many records, in as few batches as it takes; `keys` different keys in turn, none for 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 50, **settings})
    for number in range(count):
        key = str(first_key + number % keys) if keys else None
        producer.produce(topic, f"record {number}", key=key, partition=partition)
    assert producer.flush(30) == 0


def write_transactions(bootstrap: str, topic: str, count: int) -> None:
    """So many transactions of one record, each with a marker behind it; every third is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, f"record {number}", partition=0)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)


def consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    wanted = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0, **settings}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **wanted})


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """As a group without members."""
    reader = consumer(bootstrap, group)
    try:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        reader.commit(offsets=wanted, asynchronous=False)
    finally:
        reader.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    """What a group is told, by partition; -1001 for nothing."""
    reader = consumer(bootstrap, group)
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = wait_for(lambda: _committed(reader, asked), "the group's coordinator", 20)
        return [each.offset for each in found]
    finally:
        reader.close()


def _committed(reader: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    try:
        return reader.committed(asked, timeout=20)
    except KafkaException as error:
        if error.args[0].code() not in _NO_COORDINATOR:
            raise
        return []  # a Kafka whose first group this is


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that has joined its group and got partitions."""
    reader = consumer(bootstrap, group, **settings)
    try:
        reader.subscribe([topic], on_assign=lambda _, given: reader.assign(given) or reader.pause(given))
        wait_for(lambda: reader.poll(0.2) is not None or reader.assignment(), "the group to be joined", 40)
        reader.resume(reader.assignment())  # no record was taken while it joined
        yield reader
    finally:
        reader.close()


def cursors(rest: Rest, shadow: str, *groups: str) -> dict[str, dict[str, Any]]:
    """All cursors of a shadow by group, once these are among them: a node remembers what it saw for five seconds."""

    items: dict[str, dict[str, Any]] = {}

    def found() -> bool:
        status, page = rest.call("GET", f"/v1/shadows/{shadow}/cursors")
        assert status == 200, page
        assert page["next_page_token"] is None
        items.clear()
        items.update({item["group"]: item for item in page["items"]})
        return items.keys() >= set(groups)

    wait_for(found, f"the cursors of {groups}", 15)
    return items


def shadow_of(rest: Rest, topic: str, name: str, **more: Any) -> str:
    """A shadow of a topic by this name."""
    status, made = rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": name, **more})
    assert status == 201, made
    return name
