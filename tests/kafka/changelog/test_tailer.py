"""The view follows the log through everything a cluster goes through, and ends only where the topic does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sidecar.changelog import (
    MASTER_SLOT,
    Change,
    Changelog,
    ChangelogError,
    ChangelogLostError,
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
from tests.kafka.changelog.conftest import OpenChangelog
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


async def test_it_reads_what_was_there_and_then_what_comes(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))
    await append(kafka, topic, [policy("orders", 1), policy("payments", 1)])
    async with following(kafka, topic) as tailer:
        assert await tailer.read_to_end(timeout=10) == 2
        assert (version(tailer, "orders"), version(tailer, "payments")) == (1, 1)
        changes: list[Change] = []
        stop = tailer.subscribe(changes.append, *Kind)
        await tailer.reached(await append(kafka, topic, [policy("orders", 2)]), timeout=10)
        stop()
        await tailer.reached(await append(kafka, topic, [policy("orders", 3)]), timeout=10)
        assert version(tailer, "orders") == 3
        (change,) = changes
        assert change.after is not None
        assert change.after.value.version == 2


async def test_a_parked_poll_keeps_nobody_waiting(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))
    async with following(kafka, topic, poll_wait=30.0) as tailer:
        await tailer.read_to_end(timeout=10)
        for number in range(1, 6):
            async with asyncio.timeout(10):
                await tailer.reached(await append(kafka, topic, [policy("orders", number)]))
                await tailer.read_to_end(timeout=10)
        assert version(tailer, "orders") == 5


async def test_a_large_log_leaves_the_loop_to_others(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))
    batches, size = 20, 1_000
    for number in range(batches):
        await append(kafka, topic, [policy(f"t{index}", number) for index in range(size)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    async with following(kafka, topic) as tailer:
        before = turns
        await tailer.reached(Offset(batches * size - 1), timeout=60)
        assert len(tailer.view) == size
        assert turns - before >= batches
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_waiting_ends_with_its_timeout_and_with_the_reading(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))
    async with following(kafka, topic) as tailer:
        with pytest.raises(TimeoutError):
            await tailer.reached(Offset(5), timeout=0.05)
        waiting = asyncio.create_task(tailer.reached(Offset(5)))
        await tailer.read_to_end(timeout=10)
    with pytest.raises(ChangelogError, match="stopped"):
        await waiting
    with pytest.raises(ChangelogError, match="stopped"):
        await tailer.reached(Offset(0))


async def test_a_listener_that_fails_ends_the_reading_for_all_to_see(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))

    def bad(_: Change) -> None:
        raise ZeroDivisionError

    async with following(kafka, topic) as tailer:
        tailer.subscribe(bad, *Kind)
        offset = await append(kafka, topic, [policy("orders", 1)])
        with pytest.raises(ChangelogError, match="ZeroDivisionError"):
            await tailer.reached(offset, timeout=10)
        assert isinstance(tailer.last_error, ChangelogError)


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


async def test_a_log_that_ends_in_front_of_what_was_read_is_read_anew(kafka: KafkaCalls, unique: Unique) -> None:
    """What an unclean election would leave: the reader is ahead of the log, and knows a record that it lost."""
    topic = await kafka.create(unique("log"))
    await append(kafka, topic, [policy("orders", 1), policy("payments", 1)])
    errors: list[Exception] = []
    topic_id = (await kafka.upstream.layout(topic)).topic_id
    tailer = Tailer(kafka.upstream, TopicPartition(topic, 0), topic_id, on_error=errors.append)
    tailer.view.apply(Offset(40), 0, None, policy("orders", 7))
    tailer.view.apply(Offset(41), 0, None, policy("refunds", 7))
    tailer.position, tailer._started_reading = Offset(42), True
    changes: list[Change] = []
    tailer.subscribe(changes.append, *Kind)
    tailer.start()
    await wait_until(lambda: tailer.caught_up and tailer.position == 2, "the log to be read anew")
    assert (version(tailer, "orders"), version(tailer, "payments"), version(tailer, "refunds")) == (1, 1, 0)
    assert [change.after is None for change in changes] == [True, True, False, False]
    assert any("records were lost" in str(error) for error in errors)
    await tailer.close()


async def test_a_log_whose_start_moved_past_the_reader_is_read_on_from_there(kafka: KafkaCalls, unique: Unique) -> None:
    topic = await kafka.create(unique("log"))
    await append(kafka, topic, [policy(f"t{index}", 1) for index in range(10)])
    await kafka.delete_records(TopicPartition(topic, 0), Offset(6))
    topic_id = (await kafka.upstream.layout(topic)).topic_id
    tailer = Tailer(kafka.upstream, TopicPartition(topic, 0), topic_id)
    tailer.view.apply(Offset(0), 0, None, policy("t0", 1))
    tailer.position, tailer._started_reading = Offset(1), True
    tailer.start()
    await wait_until(lambda: tailer.caught_up, "the end of the log")
    assert [version(tailer, f"t{index}") for index in range(10)] == [1, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    await tailer.close()


async def test_another_topic_under_the_name_ends_it(kafka: KafkaCalls, open_changelog: OpenChangelog) -> None:
    changelog = await open_changelog()
    name = changelog.topics.names.ownership
    await changelog.tailer.read_to_end(timeout=10)
    waiting = asyncio.create_task(changelog.tailer.reached(Offset(1_000)))
    await kafka.delete(name)
    await kafka.create(name, cleanup_policy="compact")
    with pytest.raises(ChangelogLostError, match="created anew"):
        await asyncio.wait_for(waiting, timeout=20)
    assert not changelog.tailer.caught_up
    with pytest.raises(ChangelogLostError, match="created anew"):
        await changelog.append([Record(Key(Kind.POLICY, "orders"), state.Policy())])


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
