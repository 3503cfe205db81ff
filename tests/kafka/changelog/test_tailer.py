"""The view follows the log through everything a cluster goes through, and ends only where the topic does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sidecar.changelog import (
    MASTER_SLOT,
    Changelog,
    Ignored,
    Key,
    Kind,
    Record,
    Tailer,
)
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.fencing.slot import WriterSlot
from sidecar.local import Kafka
from sidecar.local.tools import Tools
from sidecar.protocol.calls.logs import FetchPartition, ProduceBatch
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.conftest import QUICK_RETURN, OwnKafka, Unique
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.wait import wait_for_async, wait_until


@asynccontextmanager
async def following(kafka: KafkaCalls, topic: str, **options: object) -> AsyncIterator[Tailer]:
    topic_id = (await kafka.upstream.layout(topic)).topic_id
    tailer = Tailer(kafka.upstream, TopicPartition(topic, 0), topic_id, **options)  # type: ignore[arg-type]
    tailer.start()
    yield tailer
    await tailer.close()


def policy(name: str, version: int) -> RawRecord:
    return Record(Key(Kind.POLICY, name), state.Policy(version=version)).encode()


async def append(kafka: KafkaCalls, topic: str, records: list[RawRecord]) -> Offset:
    partition = TopicPartition(topic, 0)
    request = ProduceBatch(partition, bytes(build_batch(records, None)), 10_000)
    answer = await kafka.upstream.call(await kafka.leader(partition), request)
    assert answer.error == ErrorCode.NONE, answer
    return answer.base_offset


def version(tailer: Tailer, name: str) -> int:
    entry = next((each for each in tailer.view.policies() if each.key.topic == name), None)
    return entry.value.version if entry else 0


async def test_it_survives_the_death_of_the_only_broker(own_kafka: OwnKafka) -> None:
    broker = own_kafka(overrides=QUICK_RETURN)
    async with kafka_calls(broker.bootstrap) as kafka:
        changelog = await Changelog.open(kafka.upstream, "c")
        tailer = changelog.tailer
        await tailer.reached(await changelog.append([Record(Key(Kind.POLICY, "orders"), state.Policy(version=1))]), 10)
        broker.kill()
        await wait_until(lambda: tailer.last_error is not None, "the tailer to notice")
        appending = asyncio.create_task(changelog.append([Record(Key(Kind.POLICY, "orders"), state.Policy(version=2))]))
        await asyncio.to_thread(broker.restart)
        await tailer.reached(await appending, timeout=30)
        assert version(tailer, "orders") == 2
        assert tailer.last_error is None
        await changelog.close()


async def test_it_follows_the_leader_of_a_cluster_when_that_is_killed(kafka_cluster: Kafka, unique: Unique) -> None:
    async with kafka_calls(kafka_cluster.bootstrap) as kafka:
        changelog = await Changelog.open(kafka.upstream, unique("c"))
        tailer = changelog.tailer
        for number in range(1, 4):
            await tailer.reached(await changelog.append([_policy(number)]), timeout=10)
        leader = await kafka.leader(changelog.partition)
        kafka_cluster.kill(leader)
        try:
            for number in range(4, 8):
                await tailer.reached(await changelog.append([_policy(number)]), timeout=40)
                assert version(tailer, "orders") == number
            assert await kafka.leader(changelog.partition) != leader
        finally:
            await asyncio.to_thread(kafka_cluster.restart, leader)
        fresh = await Changelog.open(kafka.upstream, changelog.topics.names.ownership.removeprefix("__sidecar_"))
        await fresh.tailer.read_to_end(timeout=30)
        assert version(fresh.tailer, "orders") == 7
        await fresh.close()
        await changelog.close()


def _policy(number: int) -> Record:
    return Record(Key(Kind.POLICY, "orders"), state.Policy(version=number))


async def test_after_compaction_the_newest_record_of_every_key_stands(own_kafka: OwnKafka) -> None:
    broker = own_kafka(overrides={"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"})
    async with kafka_calls(broker.bootstrap) as kafka:
        topic = await kafka.create(
            "log", cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.001"
        )
        padding = RawRecord(b"shadow/padding", state.Shadow(source="x" * 100_000).SerializeToString())
        for number in range(1, 31):
            await append(kafka, topic, [policy(f"t{index}", number) for index in range(20)])
            await append(kafka, topic, [padding])
        await append(kafka, topic, [RawRecord(b"policy/t0", None)])

        async def compacted() -> bool:
            request = FetchPartition(TopicPartition(topic, 0), Offset(0), max_wait_ms=0, max_bytes=1)
            fetched = await kafka.upstream.call(await kafka.leader(TopicPartition(topic, 0)), request)
            return int.from_bytes(fetched.records[:8]) > 0

        await wait_for_async(compacted, "the first segments to be compacted", timeout=60)
        async with following(kafka, topic) as tailer:
            await tailer.read_to_end(timeout=20)
            assert version(tailer, "t0") == 0
            assert {version(tailer, f"t{index}") for index in range(1, 20)} == {30}


async def test_a_throttled_reading_misses_nothing(own_kafka: OwnKafka, kafka_tools: Tools) -> None:
    """A broker that throttles answers with no partition at all (KIP-219)."""
    broker = own_kafka(overrides={"quota.window.num": "2"}).bootstrap
    quota = ["--alter", "--add-config", "consumer_byte_rate=400000", "--entity-type", "clients", "--entity-default"]
    async with kafka_calls(broker) as kafka:
        topic = await kafka.create("log")
        padding = RawRecord(b"shadow/padding", state.Shadow(source="x" * 100_000).SerializeToString())
        for number in range(20):
            await append(kafka, topic, [policy(f"t{number}", 1), padding])
        await asyncio.to_thread(kafka_tools.run, "kafka.admin.ConfigCommand", "--bootstrap-server", broker, *quota)
        errors: list[Exception] = []
        async with following(kafka, topic, max_bytes=300_000, on_error=errors.append) as tailer:
            await tailer.read_to_end(timeout=60)
            assert {version(tailer, f"t{number}") for number in range(20)} == {1}
        assert {error.code for error in errors if isinstance(error, KafkaError)} == {
            ErrorCode.THROTTLING_QUOTA_EXCEEDED
        }, errors


async def test_what_a_forgotten_epoch_still_gets_in_counts_for_nothing(own_kafka: OwnKafka) -> None:
    """The partition forgot the producer id, so Kafka accepts a stale epoch again. The view remembers."""
    broker = own_kafka(
        overrides={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}
    )
    async with kafka_calls(broker.bootstrap) as kafka:
        changelog = await Changelog.open(kafka.upstream, "c")
        partition = changelog.partition
        slot = WriterSlot(kafka.upstream, "sidecar.c.orders")
        stale = await slot.open()
        current = await slot.open()
        await slot.fence({partition.topic: [0]})
        owner = Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), state.Ownership(session="pid:2", generation=2))
        await changelog.journal(current).append([owner])

        async def forgotten() -> bool:
            return await kafka.producer(partition, current) is None

        await wait_for_async(forgotten, "the partition to forget the producer id", timeout=30)
        intruder = Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), state.Ownership(session="pid:1", generation=1))
        offset = await changelog.journal(stale).append([intruder])
        await changelog.tailer.reached(offset, timeout=10)
        entry = changelog.view.ownership("orders")
        assert entry is not None
        assert entry.value.session == "pid:2"
        assert changelog.view.ignored[Ignored.STALE_EPOCH] == 1
        await changelog.close()
