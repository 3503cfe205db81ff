"""The few calls of confluent-kafka that most scenarios share. Settings are the library's defaults unless a scenario
says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ..records import DEFAULT_REPLICATION, Seen, Written
from ..runtime import Cell, MismatchError, Scenarios, check, until

scenarios = Scenarios("confluent-kafka")

WAIT_S = 20.0

_NOT_YET = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION)


@lru_cache(maxsize=1)
def _admin(bootstrap: str, _: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def admin(cell: Cell) -> AdminClient:
    """The administration client of the cell; it has to outlive the calls made on it, so the cell's last one is kept."""
    return _admin(cell.bootstrap, cell.prefix)


def create_topic(cell: Cell, suffix: str = "", partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until every partition's leader serves it.

    Without that, the first of several batches under way may be refused and the second accepted, which no idempotent
    producer gets over: Kafka takes any sequence from a producer id that the partition does not know.
    """
    topic = cell.name(suffix)
    created = admin(cell).create_topics(
        [NewTopic(topic, partitions, DEFAULT_REPLICATION, config=setting_names(config))], request_timeout=WAIT_S
    )
    created[topic].result(WAIT_S)
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}

    def served() -> bool:
        # Metadata first: librdkafka would keep an answer that lacks a leader, and never find it for the offsets.
        told = admin(cell).list_topics(topic, timeout=WAIT_S).topics[topic]
        leaders = [partition.leader for partition in told.partitions.values()]
        if told.error is not None or len(leaders) < partitions or min(leaders) < 0:
            return False
        try:
            return all(one.result(WAIT_S) for one in admin(cell).list_offsets(latest).values())
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return False

    until(f"{topic} is served", served)
    return topic


def setting_names(settings: dict[str, Any]) -> dict[str, Any]:
    """`linger_ms=5` as librdkafka spells it: `linger.ms`. Callbacks keep their names."""
    return {name if callable(value) else name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def producer(cell: Cell, **settings: Any) -> Iterator[Producer]:
    """A producer that is flushed at the end; `settings` with underscores for dots."""
    client = Producer({"bootstrap.servers": cell.bootstrap, **setting_names(settings)})
    try:
        yield client
    finally:
        client.flush(WAIT_S)
        client.purge()


def send(client: Producer, topic: str, records: Iterable[Written]) -> list[Message]:
    """Write the records, wait for their reports and return those in the order of writing; a failed one raises."""
    reports: dict[int, Message] = {}
    wanted = 0

    def reported(place: int):
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            reports[place] = message

        return on_delivery

    for place, record in enumerate(records):
        optional: dict[str, Any] = {}
        if record.timestamp is not None:
            optional["timestamp"] = record.timestamp
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.headers:
            optional["headers"] = list(record.headers)
        client.produce(topic, record.value, record.key, on_delivery=reported(place), **optional)
        client.poll(0)
        wanted += 1
    left = client.flush(WAIT_S)
    check(
        left == 0 and len(reports) == wanted,
        f"{len(reports)} of {wanted} records reported as delivered, {left} still queued",
    )
    return [reports[place] for place in range(wanted)]


def write(cell: Cell, topic: str, records: Iterable[Written], **settings: Any) -> list[Message]:
    """`send` with a producer of its own."""
    with producer(cell, **settings) as client:
        return send(client, topic, records)


@contextmanager
def consumer(cell: Cell, group: str | None = None, **settings: Any) -> Iterator[Consumer]:
    """A consumer that starts at the beginning and commits only when told; closed at the end."""
    client = Consumer(
        {
            "bootstrap.servers": cell.bootstrap,
            "group.id": group or cell.name("reader"),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300,
            **setting_names(settings),
        }
    )
    try:
        yield client
    finally:
        client.close()


def seen(message: Message) -> Seen:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    kind, timestamp = message.timestamp()
    return Seen(
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        tuple((name, value) for name, value in message.headers() or ()),
        timestamp if kind else None,
    )


def take(client: Consumer, count: int, within_s: float = WAIT_S) -> list[Seen]:
    """Exactly `count` records, one poll each, so that the consumer's position is behind the last of them."""
    records: list[Seen] = []
    deadline = time.monotonic() + within_s
    while len(records) < count:
        message = client.poll(0.2)
        if message is not None:
            records.append(seen(message))
        elif time.monotonic() > deadline:
            raise MismatchError(
                f"{len(records)} of {count} records within {within_s:g} s: {[r.value for r in records][-5:]}"
            )
    return records


def read_to_end(
    cell: Cell, topic: str, *, isolation: str = "read_committed", partitions: Sequence[int] = (0,)
) -> list[Seen]:
    """All records of the partitions, up to what the isolation level lets a reader see now."""
    records: list[Seen] = []
    left = set(partitions)
    deadline = time.monotonic() + WAIT_S
    with consumer(cell, isolation_level=isolation, enable_partition_eof=True, fetch_wait_max_ms=20) as client:
        client.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while left:
            message = client.poll(0.2)
            if message is None:
                check(
                    time.monotonic() < deadline, f"no end of partitions {sorted(left)} of {topic} within {WAIT_S:g} s"
                )
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                records.append(seen(message))
    return records
