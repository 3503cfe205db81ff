"""The history is read forwards as it comes, and backwards for the newest of one topic, however long it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from sidecar.changelog import follow_events
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.protocol.caller import Channel, Upstream
from sidecar.protocol.calls.logs import ProduceBatch
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.conftest import Unique
from tests.kafka_calls import DeleteRecords, KafkaCalls

Told = AsyncGenerator[tuple[Offset, state.Event] | None]


def follow(kafka: KafkaCalls, partition: TopicPartition, newest: int, topic: str | None = None) -> aclosing[Told]:
    found = follow_events(kafka.upstream, partition, Channel("test-events"), None, newest, topic)
    return aclosing(cast(Told, found))


async def add(kafka: KafkaCalls, partition: TopicPartition, *topics: str) -> None:
    """An event of each, 1,000 in a batch."""
    leader = await kafka.leader(partition)
    for first in range(0, len(topics), 1_000):
        part = topics[first : first + 1_000]
        events = [(topic, state.Event(id=b"x", topic=topic, detail="." * 200)) for topic in part]
        records = [RawRecord(topic.encode(), event.SerializeToString()) for topic, event in events]
        request = ProduceBatch(partition, bytes(build_batch(records, None)), 10_000)
        assert (await kafka.upstream.call(leader, request)).error == ErrorCode.NONE


async def delete_before(kafka: KafkaCalls, partition: TopicPartition, offset: int) -> None:
    request = DeleteRecords(partition, Offset(offset))
    assert await kafka.upstream.call(await kafka.leader(partition), request) == ErrorCode.NONE


async def some(found: Told, number: int) -> list[tuple[int, str]]:
    """(offset, topic) of the next so many."""
    told: list[tuple[int, str]] = []
    while len(told) < number:
        if (each := await anext(found)) is not None:
            told.append((each[0], each[1].topic))
    return told


async def test_the_newest_of_a_quiet_topic_are_found_behind_thousands_of_others(
    kafka: KafkaCalls, unique: Unique
) -> None:
    partition = TopicPartition(await kafka.create(unique("events")), 0)
    await add(kafka, partition, *["quiet"] * 3, *["loud"] * 5_000, "quiet", *["loud"] * 4_999)
    for newest, offsets in ((1, [5_003]), (2, [2, 5_003]), (3, [1, 2, 5_003]), (9, [0, 1, 2, 5_003])):
        async with follow(kafka, partition, newest, "quiet") as found:
            assert await anext(found) is None
            assert await some(found, len(offsets)) == [(offset, "quiet") for offset in offsets]
    async with follow(kafka, partition, 1_000, "loud") as found:
        assert (await some(found, 1_000))[0] == (9_003, "loud")
        await add(kafka, partition, "quiet", "loud")
        assert await some(found, 1) == [(10_004, "loud")]
    async with follow(kafka, partition, 2) as found:
        assert await some(found, 2) == [(10_003, "quiet"), (10_004, "loud")]


async def test_a_reader_who_comes_again_is_answered_before_anything_is_asked():
    nobody = cast(Upstream, None)
    told = follow_events(nobody, TopicPartition("events", 0), Channel("test-events"), after=7)
    assert await anext(told) is None


async def test_what_retention_took_is_not_looked_for(kafka: KafkaCalls, unique: Unique) -> None:
    partition = TopicPartition(await kafka.create(unique("events")), 0)
    await add(kafka, partition, "a", "b", "a", "b")
    await delete_before(kafka, partition, 1)
    async with follow(kafka, partition, 9, "a") as found:
        assert await some(found, 1) == [(2, "a")]
    await delete_before(kafka, partition, 4)
    async with follow(kafka, partition, 9, "a") as found:
        assert await anext(found) is None
        await add(kafka, partition, "b", "a")
        assert await some(found, 1) == [(5, "a")]
