"""The few calls of kafka-python that most scenarios share. Settings are the library's defaults unless a scenario says
so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic, OffsetSpec
from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError

from ..records import DEFAULT_REPLICATION, Seen, Written
from ..runtime import Cell, Scenarios, check, until

scenarios = Scenarios("kafka-python")

WAIT_S = 20.0

JOINING_MS = 3000
"""How long a member polls at a time. When a poll's time is over while kafka-python 3.0.12 waits for its assignment, the
answer is never applied and the member holds nothing for ever, whatever the brokers do; so this has to be longer than a
join takes."""


@contextmanager
def admin(cell: Cell) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cell.bootstrap)
    try:
        yield client
    finally:
        client.close()


def create_topic(cell: Cell, suffix: str = "", partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until every partition's leader serves it.

    Without that, the first of several batches under way may be refused and the second accepted, which no idempotent
    producer gets over: Kafka takes any sequence from a producer id that the partition does not know. `config` is given
    with underscores for dots.
    """
    topic = cell.name(suffix)
    settings = {name.replace("_", "."): value for name, value in config.items()}
    latest = {TopicPartition(topic, partition): OffsetSpec.LATEST for partition in range(partitions)}
    with admin(cell) as client:
        topics = [NewTopic(topic, partitions, DEFAULT_REPLICATION, topic_configs=settings)]
        client.create_topics(topics, wait_for_metadata=True)

        def served() -> bool:
            try:
                return len(client.list_partition_offsets(latest)) == partitions
            except (NotLeaderForPartitionError, UnknownTopicOrPartitionError):
                return False

        until(f"{topic} is served", served)
    return topic


@contextmanager
def producer(cell: Cell, **settings: Any) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=cell.bootstrap, **settings)
    try:
        yield client
    finally:
        client.close(timeout=WAIT_S)


def send(client: KafkaProducer, topic: str, records: Iterable[Written]) -> list[int]:
    """Write the records without waiting for one before the next and return their offsets; a failed one raises."""
    pending = [
        client.send(
            topic, one.value, one.key, list(one.headers) or None, partition=one.partition, timestamp_ms=one.timestamp
        )
        for one in records
    ]
    client.flush(timeout=WAIT_S)
    return [future.get(timeout=WAIT_S).offset for future in pending]


def write(cell: Cell, topic: str, records: Iterable[Written], **settings: Any) -> list[int]:
    """`send` with a producer of its own."""
    with producer(cell, **settings) as client:
        return send(client, topic, records)


@contextmanager
def consumer(cell: Cell, *topics: str, group: str | None = None, **settings: Any) -> Iterator[KafkaConsumer]:
    """A consumer that starts at the beginning and commits only when told; a member of `group`, or of none."""
    client = KafkaConsumer(
        *topics,
        bootstrap_servers=cell.bootstrap,
        group_id=group,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings},
    )
    try:
        yield client
    finally:
        client.close()


def seen(record: Any) -> Seen:
    return Seen(record.partition, record.offset, record.value, record.key, tuple(record.headers), record.timestamp)


def take(client: KafkaConsumer, count: int) -> list[Seen]:
    """Exactly `count` records; the consumer's position is behind the last of them."""
    records: list[Seen] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        check(time.monotonic() < deadline, f"{len(records)} of {count} records within {WAIT_S:g} s: {records[-3:]}")
        for batch in client.poll(timeout_ms=JOINING_MS, max_records=count - len(records)).values():
            records += [seen(record) for record in batch]
    return records


def read_to_end(
    cell: Cell, topic: str, *, isolation: str = "read_committed", partitions: Sequence[int] = (0,)
) -> list[Seen]:
    """All records of the partitions, up to what the isolation level lets a reader see now."""
    places = [TopicPartition(topic, partition) for partition in partitions]
    records: list[Seen] = []
    with consumer(cell, isolation_level=isolation, fetch_max_wait_ms=20) as client:
        client.assign(places)
        # With read_committed these are the last stable offsets.
        ends = client.end_offsets(places)
        deadline = time.monotonic() + WAIT_S
        while any(client.position(place) < ends[place] for place in places):
            check(time.monotonic() < deadline, f"the ends {ends} were not reached within {WAIT_S:g} s")
            for batch in client.poll(timeout_ms=50).values():
                records += [seen(record) for record in batch]
    return records
