"""Whole topics: every slot, every partition, also those that appear meanwhile; producer ids that changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing.expiry import read_keep_alives
from sidecar.fencing.slot import ROTATE_AT, WriterSlot
from sidecar.fencing.topic import FencedTopic, fence_topic, retire_producer
from sidecar.protocol.caller import CoordinatorKind, DisconnectedError
from sidecar.protocol.calls.admin import CreatePartitions
from sidecar.protocol.calls.transactions import NO_STAMP, InitProducerId
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerId, TopicPartition
from tests.conftest import OwnKafka, Unique
from tests.kafka.fencing.conftest import NewSlot
from tests.kafka_calls import DescribeTransactions, KafkaCalls, kafka_calls
from tests.services import Services
from tests.wait import wait_for_async

SHARED_PARTITION = 0
TRANSACTIONAL_ID_NOT_FOUND = 105


class Eventful(KafkaUpstream):
    """A real upstream where something happens once a pair of calls was answered, before the caller hears of it."""

    async def call_pair(self, *arguments: Any, **options: Any) -> Any:
        answers = await super().call_pair(*arguments, **options)
        happening, self.happening = self.happening, None
        if happening is not None:
            await happening()
        return answers

    happening: Any = None


def eventful(services: Services) -> Eventful:
    host, port = services.kafka_bootstrap.split(",")[0].rsplit(":", 1)
    return Eventful([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)


async def test_a_partition_that_appears_while_the_topic_is_fenced_is_fenced_too(
    services: Services, kafka: KafkaCalls, unique: Unique
) -> None:
    topic = await kafka.create(unique("orders"), 2)
    shared = await kafka.create(unique("ownership"))
    upstream = eventful(services)
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    stale = await slot.open()

    async def grow() -> None:
        outcome = await upstream.call(None, CreatePartitions(topic, 4, 30_000))
        assert outcome.error == 0
        await wait_for_async(lambda: _knows(upstream, topic, 4), "the new partitions")

    upstream.happening = grow
    await slot.open()
    fenced = await fence_topic(upstream, [slot], topic, also={shared: [SHARED_PARTITION]})
    assert fenced.partitions == (0, 1, 2, 3)
    assert fenced.topic_id == (await upstream.layout(topic)).topic_id
    await kafka.upstream.layout(topic, refresh=True)
    for partition in [*(TopicPartition(topic, index) for index in range(4)), TopicPartition(shared, 0)]:
        assert (await kafka.produce(partition, stale)).error == ErrorCode.INVALID_PRODUCER_EPOCH
    await upstream.close()


async def _knows(upstream: KafkaUpstream, topic: str, partitions: int) -> bool:
    leaders = (await upstream.layout(topic, refresh=True)).leaders
    return len(leaders) == partitions and min(leaders.values()) >= 0


async def test_a_fence_whose_answers_are_lost_is_sent_again_until_it_stands(
    services: Services, kafka: KafkaCalls, unique: Unique
) -> None:
    topic = await kafka.create(unique("orders"), 3)
    upstream = eventful(services)
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    stale = await slot.open()
    losses = 0

    async def lose() -> None:
        nonlocal losses
        losses += 1
        upstream.happening = lose if losses < 3 else None
        raise DisconnectedError("the answer was lost on its way")

    upstream.happening = lose
    await slot.open()
    await slot.fence({topic: range(3)})
    assert losses == 3
    for index in range(3):
        partition = TopicPartition(topic, index)
        assert (await kafka.produce(partition, stale)).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await kafka.produce(partition, slot.stamp)).error == ErrorCode.NONE
    await upstream.close()


async def test_all_slots_of_a_topic_are_fenced_together(kafka: KafkaCalls, new_slot: NewSlot, unique: Unique) -> None:
    topic = await kafka.create(unique("orders"), 2)
    shared = await kafka.create(unique("ownership"))
    names = [topic, f"{topic}/1", f"{topic}/2"]
    stale = [await new_slot(name).open() for name in names]
    slots = [new_slot(name) for name in names]
    for slot in slots:
        await slot.open()
    fenced = await fence_topic(kafka.upstream, slots, topic, also={shared: [0]})
    assert fenced == FencedTopic((await kafka.upstream.layout(topic)).topic_id, (0, 1))
    for old, slot in zip(stale, slots, strict=True):
        for partition in (TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(shared, 0)):
            assert (await kafka.produce(partition, old)).error == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await kafka.produce(partition, slot.stamp)).error == ErrorCode.NONE


async def test_many_topics_are_taken_over_side_by_side(kafka: KafkaCalls, new_slot: NewSlot, unique: Unique) -> None:
    shared = await kafka.create(unique("ownership"))
    topics = [await kafka.create(unique("t"), 2) for _ in range(20)]
    stale = {topic: await new_slot(topic).open() for topic in topics}

    async def take(topic: str) -> WriterSlot:
        slot = new_slot(topic)
        await slot.open()
        await fence_topic(kafka.upstream, [slot], topic, also={shared: [0]})
        return slot

    slots = await asyncio.gather(*map(take, topics))
    for topic, slot in zip(topics, slots, strict=True):
        for partition in (TopicPartition(topic, 1), TopicPartition(shared, 0)):
            assert (await kafka.produce(partition, stale[topic])).error == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await kafka.produce(partition, slot.stamp)).error == ErrorCode.NONE


async def test_a_producer_id_that_kafka_replaced_is_fenced_by_itself(own_kafka: OwnKafka) -> None:
    """An expired transactional id comes back with another producer id, and the old one's batches are welcome again."""
    broker = own_kafka(
        overrides={
            "transactional.id.expiration.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
        }
    )
    async with kafka_calls(broker.bootstrap) as kafka:
        topic = await kafka.create("orders", 3)
        slot = WriterSlot(kafka.upstream, "sidecar.test.orders")
        old = await slot.open()
        await slot.fence({topic: range(3)})
        assert (await kafka.produce(TopicPartition(topic, 0), old)).error == ErrorCode.NONE

        coordinator = await kafka.upstream.coordinator(slot.transactional_id, CoordinatorKind.TRANSACTION)

        async def expired() -> bool:
            request = DescribeTransactions((slot.transactional_id,))
            (description,) = await kafka.upstream.call(coordinator, request)
            return description["error_code"] == TRANSACTIONAL_ID_NOT_FOUND

        await wait_for_async(expired, "the transactional id to expire", timeout=30)
        assert (await slot.open()).producer_id != old.producer_id
        await slot.fence({topic: range(3)})
        assert (await kafka.produce(TopicPartition(topic, 0), old, 1)).error == ErrorCode.NONE
        await fence_topic(kafka.upstream, [slot], topic, also={}, former={slot.transactional_id: old.producer_id})
        for index, sequence in ((0, 2), (1, 0), (2, 0)):
            answer = await kafka.produce(TopicPartition(topic, index), old, sequence)
            assert answer.error == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await kafka.produce(TopicPartition(topic, index), slot.stamp)).error == ErrorCode.NONE


async def test_retiring_a_producer_id_again_is_harmless(kafka: KafkaCalls, new_slot: NewSlot, unique: Unique) -> None:
    topic = await kafka.create(unique("orders"), 2)
    never_used = ProducerId(7_000_000_000)
    for _ in range(2):
        await retire_producer(kafka.upstream, never_used, {topic: [0, 1]})


@pytest.mark.slow  # 32,000 epochs
async def test_an_epoch_near_its_end_is_left_by_changing_the_producer_id(
    kafka: KafkaCalls, new_slot: NewSlot, unique: Unique
) -> None:
    topic = await kafka.create(unique("orders"), 2)
    slot = new_slot(topic)
    first = await slot.open()
    written = await kafka.produce(TopicPartition(topic, 0), first)
    assert written.error == ErrorCode.NONE
    coordinator = await kafka.upstream.coordinator(slot.transactional_id, CoordinatorKind.TRANSACTION)
    left, again = ROTATE_AT - first.epoch, InitProducerId(slot.transactional_id, 60_000, NO_STAMP)
    while left:
        at_once = min(left, 500)  # on one connection: the broker takes them one after the other
        answers = await asyncio.gather(*(kafka.upstream.call(coordinator, again) for _ in range(at_once)))
        assert {answer.error for answer in answers} == {ErrorCode.NONE}
        left -= at_once
    old = await slot.open()
    assert slot.rotation_due
    fenced = await fence_topic(kafka.upstream, [slot], topic, also={})
    assert fenced.partitions == (0, 1)
    assert slot.stamp.producer_id != old.producer_id
    assert slot.stamp.epoch == 0
    for index in range(2):
        partition = TopicPartition(topic, index)
        assert (await kafka.produce(partition, first, 1)).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await kafka.produce(partition, slot.stamp)).error == ErrorCode.NONE


async def test_the_shortest_memory_decides_how_often_a_fence_is_kept_alive(kafka: KafkaCalls, unique: Unique) -> None:
    usual = await kafka.create(unique("usual"))
    hasty = await kafka.create(unique("hasty"), retention_ms="3600000", segment_ms="7200000")
    kept = await kafka.create(
        unique("compacted"), cleanup_policy="compact", retention_ms="1000", delete_retention_ms="7200000"
    )
    plain = await kafka.create(unique("plain"), delete_retention_ms="1000")
    found = await read_keep_alives(kafka.upstream, [usual, hasty, kept, plain, unique("gone")])
    assert set(found) == {usual, hasty, kept, plain}
    assert (found[kept].interval, found[kept].short) == (1800, ())
    assert (found[plain].interval, found[plain].short) == (6 * 3600, ())
    assert found[hasty].interval == 900
    assert found[hasty].setting == f"retention.ms of {hasty}"
    assert not found[usual].assumed
    assert found[usual].interval == 6 * 3600
