"""The few calls of aiokafka that most scenarios share. Settings are its defaults unless a scenario says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from aiokafka.structs import RecordMetadata

from ..records import Seen, Written
from ..runtime import Cell, Scenarios, check

scenarios = Scenarios("aiokafka")

WAIT_S = 20.0


@asynccontextmanager
async def admin(cell: Cell) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=cell.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def raise_errors(errors: Iterable[Sequence[Any]]) -> None:
    """The administration client hands out the answers as they are: rows of a name, an error code, perhaps a message."""
    for name, code, *message in errors:
        if code:
            raise for_code(code)(f"{name}: {message}")


async def create_topic(cell: Cell, suffix: str = "", partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until every partition's leader serves it.

    Without that, the first of several batches under way may be refused and the second accepted, which no idempotent
    producer gets over: Kafka takes any sequence from a producer id that the partition does not know. `config` is given
    with underscores for dots.
    """
    topic = cell.name(suffix)
    # The library has no word for the cluster's own replication factor; what goes with one replica has to be said too.
    settings = {"min.insync.replicas": "1", **{name.replace("_", "."): value for name, value in config.items()}}
    async with admin(cell) as client:
        answer = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
        raise_errors(answer.topic_errors)
    async with consumer(cell) as asking:
        # It asks again where a leader does not serve yet.
        await asking.end_offsets([TopicPartition(topic, partition) for partition in range(partitions)])
    return topic


@asynccontextmanager
async def producer(cell: Cell, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=cell.bootstrap, **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def send(client: AIOKafkaProducer, topic: str, records: Iterable[Written]) -> list[RecordMetadata]:
    """Write the records without waiting for one before the next; a failed one raises."""
    pending = [
        await client.send(
            topic,
            one.value,
            one.key,
            partition=one.partition,
            timestamp_ms=one.timestamp,
            headers=list(one.headers) or None,
        )
        for one in records
    ]
    return await asyncio.wait_for(asyncio.gather(*pending), WAIT_S)


async def write(cell: Cell, topic: str, records: Iterable[Written], **settings: Any) -> list[RecordMetadata]:
    """`send` with a producer of its own."""
    async with producer(cell, **settings) as client:
        return await send(client, topic, records)


@asynccontextmanager
async def consumer(
    cell: Cell, *topics: str, group: str | None = None, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that starts at the beginning and commits only when told; a member of `group`, or of none."""
    client = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=cell.bootstrap,
        group_id=group,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings},
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def seen(record: ConsumerRecord[Any, Any]) -> Seen:
    return Seen(record.partition, record.offset, record.value, record.key, tuple(record.headers), record.timestamp)


async def take(client: AIOKafkaConsumer, count: int) -> list[Seen]:
    """Exactly `count` records; the consumer's position is behind the last of them."""
    records: list[Seen] = []
    async with asyncio.timeout(WAIT_S):
        while len(records) < count:
            batches = await client.getmany(timeout_ms=500, max_records=count - len(records))
            records += [seen(record) for batch in batches.values() for record in batch]
    return records


async def read_to_end(
    cell: Cell, topic: str, *, isolation: str = "read_committed", partitions: Sequence[int] = (0,)
) -> list[Seen]:
    """All records of the partitions, up to what the isolation level lets a reader see now."""
    places = [TopicPartition(topic, partition) for partition in partitions]
    records: list[Seen] = []
    async with consumer(cell, isolation_level=isolation, fetch_max_wait_ms=20) as client:
        client.assign(places)
        # With read_committed these are the last stable offsets.
        ends = await client.end_offsets(places)
        async with asyncio.timeout(WAIT_S):
            while any([await client.position(place) < ends[place] for place in places]):
                batches = await client.getmany(timeout_ms=50)
                records += [seen(record) for batch in batches.values() for record in batch]
    check(
        all(one.offset < ends[TopicPartition(topic, one.partition)] for one in records),
        "a record behind the end was read",
    )
    return records
