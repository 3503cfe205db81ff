"""The view follows the log through everything a cluster goes through, and ends only where the topic does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sidecar.changelog import Change, ChangelogError, ChangelogLostError, Key, Kind, Record, Tailer
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.protocol.calls.logs import FetchPartition, ProduceBatch
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.sim.kafka.direct import DirectUpstream, SimulatedKafka
from tests.unit.changelog.conftest import OpenChangelog
from tests.wait import wait_until

FETCH, LIST_OFFSETS = 1, 2
LOG = TopicPartition("log", 0)
WRITER = Stamp(ProducerId(70), ProducerEpoch(3))


@asynccontextmanager
async def following(
    kafka: SimulatedKafka, upstream: DirectUpstream | None = None, **options: Any
) -> AsyncIterator[Tailer]:
    topic_id = (await kafka.upstream.layout(LOG.topic)).topic_id
    tailer = Tailer(upstream or kafka.node(), LOG, topic_id, **options)
    tailer.start()
    yield tailer
    await tailer.close()


@pytest.fixture
async def log(kafka: SimulatedKafka) -> Callable[..., Any]:
    """Create the log, and return what appends policies to it: `await log(orders=1)`."""
    await kafka.create(LOG.topic, replicas=3, min_insync_replicas="2")
    await kafka.pause(1)

    async def append(writer: Stamp | None = None, sequence: int = 0, **versions: int) -> Offset:
        batch = build_batch([policy(name, version) for name, version in versions.items()], writer, sequence)
        leader = kafka.cluster.leader(*LOG)
        answer = await kafka.upstream.call(leader, ProduceBatch(LOG, bytes(batch), 10_000))
        assert answer.error == ErrorCode.NONE, answer
        return answer.base_offset

    return append


def policy(name: str, version: int) -> RawRecord:
    return Record(Key(Kind.POLICY, name), state.Policy(version=version)).encode()


def versions(tailer: Tailer) -> dict[str, int]:
    return {entry.key.topic: entry.value.version for entry in tailer.view.policies()}


async def test_it_reads_what_was_there_and_then_what_comes(kafka: SimulatedKafka, log: Any) -> None:
    await log(orders=1, payments=1)
    async with following(kafka) as tailer:
        assert await tailer.read_to_end(timeout=10) == 2
        assert versions(tailer) == {"orders": 1, "payments": 1}
        changes: list[Change] = []
        stop = tailer.subscribe(changes.append, *Kind)
        of_orders: list[Change] = []
        tailer.subscribe(of_orders.append, Key(Kind.POLICY, "orders"))
        await tailer.reached(await log(orders=2), timeout=10)
        stop()
        await tailer.reached(await log(orders=3, payments=3) + 1, timeout=10)
        assert versions(tailer) == {"orders": 3, "payments": 3}
        assert [change.after.value.version for change in changes if change.after] == [2]
        assert [change.after.value.version for change in of_orders if change.after] == [2, 3]


async def test_a_parked_poll_keeps_nobody_waiting(kafka: SimulatedKafka, log: Any) -> None:
    async with following(kafka, poll_wait=30.0) as tailer:
        await tailer.read_to_end(timeout=10)
        for number in range(1, 6):
            async with asyncio.timeout(1):
                await tailer.reached(await log(orders=number))
                await tailer.read_to_end(timeout=1)
        assert versions(tailer) == {"orders": 5}


async def test_a_large_log_leaves_the_loop_to_others(kafka: SimulatedKafka, log: Any) -> None:
    batches, size, turns = 8, 500, 0
    for number in range(batches):
        await log(**{f"t{index}": number for index in range(size)})

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += len(versions(tailer)) > 0 and tailer.position < batches * size

    async with following(kafka) as tailer:
        task = asyncio.create_task(others())
        await tailer.reached(Offset(batches * size - 1), timeout=60)
        task.cancel()
    assert turns >= batches - 1


async def test_a_batch_is_seen_whole_or_not_at_all(kafka: SimulatedKafka, log: Any) -> None:
    """Also where the reading starts within one, as the log's start was moved there."""
    await log(a=1, b=1, c=1)
    await log(a=2, b=2)
    await kafka.delete_records(LOG, Offset(2))
    async with following(kafka) as tailer:
        tailer.subscribe(lambda change: seen.append((change.key.topic, tailer.position)), *Kind)
        seen: list[tuple[str, int]] = []
        await tailer.read_to_end(timeout=10)
    assert seen == [("c", 2), ("a", 3), ("b", 3)]


async def test_a_stamp_is_seen_with_its_epoch_or_a_newer_one_and_nothing_older(kafka: SimulatedKafka, log: Any) -> None:
    async with following(kafka) as tailer:
        waiting = {
            epoch: asyncio.create_task(tailer.seen(Stamp(WRITER.producer_id, ProducerEpoch(epoch))))
            for epoch in (2, 3, 4)
        }
        of_another = asyncio.create_task(tailer.seen(Stamp(ProducerId(71), ProducerEpoch(0)), timeout=60))
        await tailer.reached(await log(WRITER, orders=1), timeout=10)
        await asyncio.sleep(0)
        assert {epoch: task.done() for epoch, task in waiting.items()} == {2: True, 3: True, 4: False}
        await tailer.seen(WRITER, timeout=0)
        await tailer.reached(await log(Stamp(WRITER.producer_id, ProducerEpoch(5)), orders=2), timeout=10)
        await waiting[4]
        with pytest.raises(TimeoutError):
            await of_another


async def test_who_waits_for_offsets_is_woken_in_their_order(kafka: SimulatedKafka, log: Any) -> None:
    async with following(kafka) as tailer:
        woken: list[int] = []

        async def wait(offset: int) -> None:
            await tailer.reached(Offset(offset))
            woken.append(offset)

        tasks = [asyncio.create_task(wait(offset)) for offset in (2, 0, 1, 0, 9)]
        given_up = asyncio.create_task(wait(1))
        await asyncio.sleep(0)
        given_up.cancel()
        await tailer.reached(await log(orders=1), timeout=10)
        await asyncio.sleep(0)
        assert woken == [0, 0]
        await tailer.reached(await log(orders=2, payments=1) + 1, timeout=10)
        await asyncio.sleep(0)
        assert woken == [0, 0, 1, 2]
        assert not tasks[-1].done()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_waiting_ends_with_its_timeout_and_with_the_reading(kafka: SimulatedKafka, log: Any) -> None:
    async with following(kafka) as tailer:
        with pytest.raises(TimeoutError):
            await tailer.reached(Offset(5), timeout=0.05)
        waiting = [asyncio.create_task(tailer.reached(Offset(5))), asyncio.create_task(tailer.seen(WRITER))]
        await tailer.read_to_end(timeout=10)
    for ended in (*waiting, tailer.reached(Offset(0)), tailer.seen(WRITER), tailer.read_to_end(10)):
        with pytest.raises(ChangelogError, match="stopped"):
            await ended
    await log(orders=1)
    await kafka.pause(5)
    assert len(tailer.view) == 0


async def test_a_listener_that_fails_ends_the_reading_for_all_to_see(kafka: SimulatedKafka, log: Any) -> None:
    def bad(_: Change) -> None:
        raise ZeroDivisionError

    errors: list[Exception] = []
    async with following(kafka, on_error=errors.append) as tailer:
        tailer.subscribe(bad, *Kind)
        offset = await log(orders=1)
        with pytest.raises(ChangelogError, match="ZeroDivisionError"):
            await tailer.reached(offset, timeout=10)
        assert errors == [tailer.last_error]
        with pytest.raises(ChangelogError, match="ZeroDivisionError"):
            await tailer.read_to_end(timeout=10)


async def test_it_goes_on_at_the_next_leader_and_when_the_only_one_comes_back(kafka: SimulatedKafka, log: Any) -> None:
    errors: list[Exception] = []
    async with following(kafka, on_error=errors.append) as tailer:
        await tailer.reached(await log(orders=1), timeout=10)
        kafka.cluster.brokers[kafka.cluster.leader(*LOG)].kill()
        await kafka.pause(3)
        await tailer.reached(await log(orders=2), timeout=30)
        assert errors
        assert tailer.last_error is None
        assert tailer.caught_up
        for broker in kafka.cluster.brokers.values():
            broker.kill()
        await wait_until(lambda: tailer.last_error is not None, "the tailer to notice")
        noticed = len(errors)
        await kafka.pause(60)
        assert 50 < len(errors) - noticed < 200, "it asks about once a second"
        reading = asyncio.create_task(tailer.read_to_end(timeout=120))
        await kafka.pause(20)
        for broker in kafka.cluster.brokers.values():
            broker.start()
        assert await reading == 2
        await tailer.reached(await log(orders=3), timeout=30)
        assert versions(tailer) == {"orders": 3}


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
async def test_an_error_of_the_leader_is_reported_and_read_over(
    kafka: SimulatedKafka, log: Any, error: ErrorCode
) -> None:
    errors: list[Exception] = []
    async with following(kafka, on_error=errors.append) as tailer:
        await tailer.read_to_end(timeout=10)
        kafka.refuse(FETCH, error)
        await wait_until(lambda: errors, "the error")
        assert tailer.last_error is errors[0]
        assert isinstance(errors[0], KafkaError)
        assert errors[0].code == error
        await tailer.reached(await log(orders=1), timeout=10)
        assert tailer.last_error is None


async def test_a_leader_that_does_not_say_where_the_log_ends_is_asked_again(kafka: SimulatedKafka, log: Any) -> None:
    async with following(kafka) as tailer:
        await tailer.reached(await log(orders=1), timeout=10)
        kafka.refuse(LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
        assert await tailer.read_to_end(timeout=10) == 1
        kafka.refuse(LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=10_000)
        with pytest.raises(TimeoutError):
            await tailer.read_to_end(timeout=10)


async def test_a_silent_leader_is_left_after_the_poll_and_some_seconds(kafka: SimulatedKafka, log: Any) -> None:
    errors: list[Exception] = []
    async with following(kafka, poll_wait=2.0, on_error=errors.append) as tailer:
        await tailer.read_to_end(timeout=10)
        began = kafka.now()
        kafka.cluster.brokers[kafka.cluster.leader(*LOG)].freeze()
        await wait_until(lambda: errors, "the silence to be noticed")
        assert 2.9 < kafka.now() - began <= 5.1
        await kafka.pause(3)
        await tailer.reached(await log(orders=1), timeout=10)


async def test_it_has_caught_up_when_it_has_read_to_the_high_watermark(kafka: SimulatedKafka, log: Any) -> None:
    await log(orders=1)
    await log(**{f"t{index}": 1 for index in range(200)})
    upstream = kafka.node()
    positions: list[tuple[int, bool]] = []

    async def look(request: Any) -> None:
        if isinstance(request, FetchPartition):
            positions.append((tailer.position, tailer.caught_up))

    upstream.before = look
    async with following(kafka, upstream, max_bytes=100) as tailer:
        await tailer.read_to_end(timeout=10)
        await kafka.pause(1)
        kafka.cluster.brokers[kafka.cluster.leader(*LOG)].empty_fetches(1)
        await tailer.reached(await log(orders=2), timeout=10)
        await kafka.pause(1)
    assert positions[:3] == [(0, False), (1, False), (201, True)]
    assert positions[-2:] == [(201, False), (202, True)]


async def test_a_log_that_ends_in_front_of_what_was_read_is_read_anew(kafka: SimulatedKafka, log: Any) -> None:
    """What an unclean election leaves: the reader is ahead of the log, and knows a record that it lost."""
    await log(orders=1, payments=1)
    errors: list[Exception] = []
    changes: list[Change] = []
    topic_id = (await kafka.upstream.layout(LOG.topic)).topic_id
    tailer = Tailer(kafka.node(), LOG, topic_id, on_error=errors.append)
    tailer.start()
    await tailer.read_to_end(10)
    tailer.view.apply(Offset(40), 0, None, policy("orders", 7))
    tailer.view.apply(Offset(41), 0, None, policy("refunds", 7))
    tailer.position = Offset(42)
    tailer.subscribe(changes.append, *Kind)
    was_behind = False

    def watch(_: Change) -> None:
        nonlocal was_behind
        was_behind = was_behind or not tailer.caught_up

    tailer.subscribe(watch, *Kind)
    await wait_until(lambda: tailer.caught_up and tailer.position == 2, "the log to be read anew")
    assert versions(tailer) == {"orders": 1, "payments": 1}
    assert [(change.key.topic, change.after is None) for change in changes] == [
        ("orders", True), ("refunds", True), ("orders", False),
    ]  # fmt: skip
    assert was_behind
    assert any("records were lost" in str(error) for error in errors)
    await tailer.close()


async def test_a_log_whose_start_moved_past_the_reader_is_read_on_from_there(kafka: SimulatedKafka, log: Any) -> None:
    await log(**{f"t{index}": 1 for index in range(5)})
    upstream = kafka.node()
    errors: list[Exception] = []
    async with following(kafka, upstream, on_error=errors.append) as tailer:
        await tailer.read_to_end(timeout=10)
        upstream.before = lambda request: kafka.pause(3600 if isinstance(request, FetchPartition) else 0)
        await kafka.pause(10)
        for number in (2, 3):
            await log(**{f"t{index}": number for index in range(5)})
        await kafka.delete_records(LOG, Offset(12))
        upstream.before = None
        await kafka.pause(3600)
        await tailer.read_to_end(timeout=10)
        assert versions(tailer) == {"t0": 1, "t1": 1, "t2": 3, "t3": 3, "t4": 3}
        assert errors == []
    async with following(kafka) as tailer:
        await tailer.read_to_end(timeout=10)
        assert versions(tailer) == {"t2": 3, "t3": 3, "t4": 3}


async def test_another_topic_under_the_name_ends_it(kafka: SimulatedKafka, open_changelog: OpenChangelog) -> None:
    changelog = await open_changelog()
    name = changelog.topics.names.ownership
    await changelog.tailer.read_to_end(timeout=10)
    waiting = asyncio.create_task(changelog.tailer.reached(Offset(1_000)))
    await kafka.delete(name)
    await kafka.create(name, cleanup_policy="compact")
    with pytest.raises(ChangelogLostError, match="created anew"):
        await asyncio.wait_for(waiting, timeout=20)
    assert not changelog.tailer.caught_up
    assert isinstance(changelog.tailer.last_error, ChangelogLostError)
    with pytest.raises(ChangelogLostError, match="created anew"):
        await changelog.append([Record(Key(Kind.POLICY, "orders"), state.Policy())])


async def test_only_what_came_after_the_end_was_read_sets_the_clock_back(kafka: SimulatedKafka, log: Any) -> None:
    """A node's clock is an hour ahead: what it reads of the past says nothing, the first record after that does."""
    await log(orders=1)
    clock = kafka.clock()
    clock.heard(kafka.wall_ms() + 3_600_000)
    async with following(kafka, clock=clock) as tailer:
        await tailer.read_to_end(timeout=10)
        assert clock.now_ms() - kafka.wall_ms() > 3_590_000
        assert not clock.is_confirmed
        await kafka.pause(5)
        await tailer.reached(await log(orders=2), timeout=10)
        assert clock.is_confirmed
        assert abs(clock.now_ms() - kafka.wall_ms()) < 5_000
