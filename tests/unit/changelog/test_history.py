"""The history is read forwards as it comes, and backwards for the newest of one topic, however long it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest

from sidecar.changelog import follow_events
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.protocol.caller import Channel, Upstream
from sidecar.protocol.calls.logs import ProduceBatch
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.kafka_calls import DeleteRecords
from tests.sim.kafka.direct import SimulatedKafka

FETCH, LIST_OFFSETS = 1, 2
Told = AsyncGenerator[tuple[Offset, state.Event] | None]


def follow(
    kafka: SimulatedKafka,
    partition: TopicPartition,
    newest: int = 0,
    topic: str | None = None,
    after: int | None = None,
) -> aclosing[Told]:
    found = follow_events(kafka.upstream, partition, Channel("test-events"), after, newest, topic)
    return aclosing(cast(Told, found))


async def add(kafka: SimulatedKafka, partition: TopicPartition, *topics: str) -> None:
    """An event of each, 1,000 in a batch."""
    leader = await kafka.leader(partition)
    for first in range(0, len(topics), 1_000):
        part = topics[first : first + 1_000]
        events = [(topic, state.Event(id=b"x", topic=topic, detail="." * 200)) for topic in part]
        records = [RawRecord(topic.encode(), event.SerializeToString()) for topic, event in events]
        request = ProduceBatch(partition, bytes(build_batch(records, None)), 10_000)
        assert (await kafka.upstream.call(leader, request)).error == ErrorCode.NONE


async def delete_before(kafka: SimulatedKafka, partition: TopicPartition, offset: int) -> None:
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
    kafka: SimulatedKafka,
) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, *["quiet"] * 3, *["loud"] * 5_000, "quiet", *["loud"] * 4_999)
    for newest, offsets in ((1, [5_003]), (2, [2, 5_003]), (3, [1, 2, 5_003]), (9, [0, 1, 2, 5_003])):
        async with follow(kafka, partition, newest, "quiet") as found:
            assert await anext(found) is None
            assert await some(found, len(offsets)) == [(offset, "quiet") for offset in offsets]
    async with follow(kafka, partition, 9, "quiet") as found:
        nothing = 0
        while await anext(found) is None:
            nothing += 1
        assert nothing == 4, "once the end is known, and behind each part of the search"
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


async def test_what_retention_took_is_not_looked_for(kafka: SimulatedKafka) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a", "b", "a", "b")
    await delete_before(kafka, partition, 1)
    async with follow(kafka, partition, 9, "a") as found:
        assert await some(found, 1) == [(2, "a")]
    await delete_before(kafka, partition, 4)
    async with follow(kafka, partition, 9, "a") as found:
        assert await anext(found) is None
        await add(kafka, partition, "b", "a")
        assert await some(found, 1) == [(5, "a")]


async def none_for(kafka: SimulatedKafka, found: Told) -> float:
    """How long the next item takes, in seconds, which is None."""
    began = kafka.now()
    assert await anext(found) is None
    return kafka.now() - began


async def test_a_reader_goes_on_behind_its_last_event_and_is_answered_each_second(kafka: SimulatedKafka) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a", "b", "a", "a")
    async with follow(kafka, partition, after=0) as found:
        assert await none_for(kafka, found) == 0
        assert await some(found, 3) == [(1, "b"), (2, "a"), (3, "a")]
        assert await none_for(kafka, found) == pytest.approx(1, abs=0.1)
        await add(kafka, partition, "b")
        assert await some(found, 1) == [(4, "b")]
    for after, first in ((-9, 0), (2, 3)):
        async with follow(kafka, partition, topic="a", after=after) as found:
            assert (await some(found, 1))[0] == (first, "a")


async def test_without_a_number_only_later_events_are_told(kafka: SimulatedKafka) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a")
    for topic in (None, "a"):
        async with follow(kafka, partition, topic=topic) as found:
            assert await none_for(kafka, found) < 0.5
            await add(kafka, partition, "a")
            (event,) = await some(found, 1)
            assert event[0] == await kafka.latest(partition) - 1


async def test_who_asks_for_more_than_there_is_gets_all(kafka: SimulatedKafka) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a", "b")
    async with follow(kafka, partition, newest=9) as found:
        assert await some(found, 2) == [(0, "a"), (1, "b")]


async def test_a_reader_whose_place_is_gone_goes_on_at_the_next_there_is(kafka: SimulatedKafka) -> None:
    """What it read is deleted, or the log was lost behind it."""
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, *"abcde")
    await kafka.delete_records(partition, Offset(3))
    async with follow(kafka, partition, after=0) as found:
        assert await some(found, 2) == [(3, "d"), (4, "e")]
    async with follow(kafka, partition, after=100) as found:
        for _ in range(2):
            assert await anext(found) is None
        await add(kafka, partition, "f")
        assert await some(found, 1) == [(5, "f")]


@pytest.mark.parametrize("topic", [None, "a"])
@pytest.mark.parametrize("api", [FETCH, LIST_OFFSETS])
async def test_while_kafka_does_not_answer_a_reader_is_answered_and_goes_on_later(
    kafka: SimulatedKafka, api: int, topic: str | None
) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a", "b")
    kafka.refuse(api, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    async with follow(kafka, partition, newest=2, topic=topic) as found:
        assert (await some(found, 1 if topic else 2))[0] == (0, "a")
        assert kafka.now() == pytest.approx(2, abs=0.3), "a second behind each failure"
        for broker in kafka.cluster.brokers.values():
            broker.kill()
        while await none_for(kafka, found) < 0.9:
            pass
        for broker in kafka.cluster.brokers.values():
            broker.start()
        await kafka.pause(10)
        await add(kafka, partition, "a")
        assert await some(found, 1) == [(2, "a")]


async def test_empty_answers_in_front_of_a_known_end_are_asked_for_again_then_begun_anew(kafka: SimulatedKafka) -> None:
    partition = TopicPartition(await kafka.create("events"), 0)
    await add(kafka, partition, "a", "b", "a")
    for empty, seconds in ((2, 0), (3, 1)):
        began = kafka.now()
        kafka.cluster.brokers[kafka.cluster.leader(*partition)].empty_fetches(empty)
        async with follow(kafka, partition, newest=2, topic="a") as found:
            assert await some(found, 2) == [(0, "a"), (2, "a")]
        assert kafka.now() - began == pytest.approx(seconds, abs=0.3)


async def test_an_event_that_cannot_be_read_is_left_out(kafka: SimulatedKafka) -> None:
    """A newer node wrote it, or it has no id."""
    partition = TopicPartition(await kafka.create("events"), 0)
    nameless, good = (state.Event(id=found, topic="a").SerializeToString() for found in (b"", b"x"))
    leader = await kafka.leader(partition)
    for values in ([b"\xff", None, nameless, good],):
        batch = build_batch([RawRecord(b"a", value) for value in values], None)
        await kafka.upstream.call(leader, ProduceBatch(partition, bytes(batch), 10_000))
    async with follow(kafka, partition, after=-1) as found:
        assert await some(found, 1) == [(3, "a")]
