"""The fence and the changelog on the oldest and the newest Kafka: our calls have fixed versions, brokers have not."""

from __future__ import annotations

import pytest

from sidecar.changelog import MASTER_SLOT, Changelog, Key, Kind, Record
from sidecar.fencing.expiry import read_keep_alives
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import fence_topic, retire_producer
from sidecar.protocol.caller import FencedError
from sidecar.protocol.calls.admin import ApiVersions
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.conftest import OwnKafka
from tests.kafka_calls import KafkaCalls, kafka_calls

PARTITIONS = 3


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
async def test_a_takeover_holds_on_every_kafka(own_kafka: OwnKafka, version: str) -> None:
    broker = own_kafka(version=version)
    async with kafka_calls(broker.bootstrap) as kafka:
        assert await kafka.upstream.call(None, ApiVersions())
        topic = await kafka.create("orders", PARTITIONS)
        changelog = await Changelog.open(kafka.upstream, "c")
        old, new = (WriterSlot(kafka.upstream, transactional_id("c", topic)) for _ in range(2))
        also = {changelog.partition.topic: [changelog.partition.partition]}
        stale = await old.open()
        await fence_topic(kafka.upstream, [old], topic, also=also)
        for index in range(PARTITIONS):
            assert (await kafka.produce(TopicPartition(topic, index), stale)).error == ErrorCode.NONE
        writer = await new.open()
        assert (await kafka.produce(TopicPartition(topic, 0), stale, 1)).error == ErrorCode.NONE
        fenced = await fence_topic(kafka.upstream, [new], topic, also=also)
        assert fenced.partitions == tuple(range(PARTITIONS))
        await changelog.tailer.seen(writer, timeout=10)
        claim = [Record(Key(Kind.OWNERSHIP, topic, MASTER_SLOT), state.Ownership(session="pid:1", generation=1))]
        with pytest.raises(FencedError):
            await changelog.journal(stale).append(claim)
        await changelog.tailer.reached(await changelog.journal(writer).append(claim), timeout=10)
        entry = changelog.view.ownership(topic)
        assert entry is not None
        assert entry.writer == writer
        await _write_through_keep_alives(kafka, new, topic)
        for index in range(PARTITIONS):
            answer = await kafka.produce(TopicPartition(topic, index), stale, 2)
            assert answer.error == ErrorCode.INVALID_PRODUCER_EPOCH
        await _raise_and_lose(new, WriterSlot(kafka.upstream, new.transactional_id))
        assert (await read_keep_alives(kafka.upstream, [topic]))[topic].interval == 6 * 3600
        await changelog.close()


async def _write_through_keep_alives(kafka: KafkaCalls, slot: WriterSlot, topic: str) -> None:
    for sequence in range(3):
        answer = await kafka.produce(TopicPartition(topic, 0), slot.stamp, sequence)
        assert answer.error == ErrorCode.NONE
        await slot.keep_alive({topic: range(PARTITIONS)})


async def _raise_and_lose(holder: WriterSlot, rival: WriterSlot) -> None:
    held = holder.stamp
    assert (await holder.raise_epoch()).epoch == held.epoch + 1
    await rival.open()
    with pytest.raises(FencedError):
        await holder.raise_epoch()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
async def test_a_former_producer_id_is_fenced_on_every_kafka(own_kafka: OwnKafka, version: str) -> None:
    broker = own_kafka(version=version)
    async with kafka_calls(broker.bootstrap) as kafka:
        topic = await kafka.create("orders", 2)
        former = WriterSlot(kafka.upstream, "sidecar.c.former")
        stale = await former.open()
        assert (await kafka.produce(TopicPartition(topic, 0), stale)).error == ErrorCode.NONE
        await retire_producer(kafka.upstream, stale.producer_id, {topic: [0, 1]})
        for index, sequence in ((0, 1), (1, 0)):
            answer = await kafka.produce(TopicPartition(topic, index), stale, sequence)
            assert answer.error == ErrorCode.INVALID_PRODUCER_EPOCH
