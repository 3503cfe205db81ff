"""Sequence ids of sessions that write beside each other, of owners of partitions, and where the policy changes."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import deque
from pathlib import Path

import pytest

from metadata import nodes
from metadata.ownership import AccessMode
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive import bindings, records, shared, succession
from sidecar.exclusive.policies import PolicyFields, Scope
from tests.conftest import Unique
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import HeldAnswers, Room, open_room, until
from tests.kafka.gates import forget_redis
from tests.services import Services
from tests.topics import create_topic, delete_records
from tests.wait import wait_until

ROOT, PRODUCT = Path(__file__).parents[3], ("sidecar", "metadata")
_FULL = 150
"""Sessions, after which every list of them has as many as it may."""


@pytest.fixture
async def topic(room: Room, services: Services) -> str:
    return await deduplicated(room, services, mode=AccessMode.SHARED)


# Shared sessions ----------------------------------------------------------------------------------------------------


async def test_shared_sessions_have_marks_of_their_own(room: Room, services: Services, topic: str) -> None:
    first, second = room.connect("first"), room.connect("second")
    assert (await write(first, topic, 1, 2))[0] == 0
    assert (await write(second, topic, 1))[0] == 0
    assert await write(second, topic, 1) == (0, -1)
    assert await write(first, topic, 2, 3) == (0, -1)
    assert await log_of(services, topic) == ["1", "2", "1", "3"]


async def test_a_second_live_session_of_a_name_is_refused_until_the_first_is_gone(
    room: Room, services: Services, topic: str
) -> None:
    first, second = room.connect("billing"), room.connect("billing")
    assert (await write(first, topic, 1))[0] == 0
    result = await second.begin(topic, ids=[2], sequence=0)
    assert (result.error, "another live session" in (result.message or "")) == (44, True)
    first.close()
    await until(lambda: second.send_ids(topic, [1, 2], sequence=1))  # its client counts the refused one as used
    assert await second.send_ids(topic, [3], sequence=3) == 0
    assert await log_of(services, topic) == ["1", "2", "3"]


async def test_what_a_gone_session_has_under_way_is_awaited_by_the_next_of_its_name(
    room: Room, services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = room.connect("billing")
    assert (await write(first, topic, 0))[0] == 0
    answers = HeldAnswers(monkeypatch)
    under_way = first.begin(topic, ids=[1])
    await answers.came(1)
    answers.end()
    first.close()
    second = room.connect("billing")
    again = second.begin(topic, ids=[1, 2])
    ids = room.topic(topic).ids
    assert ids is not None
    await wait_until(lambda: bool(ids.of(0)._waiting), "the next one to wait")
    assert not again.done()
    answers.tell()
    assert (await under_way).error == 0
    assert (await again).error == 0
    assert await log_of(services, topic) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "number",
    [80, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_000)])],
)
async def test_many_short_lived_sessions_of_many_names_leave_a_bounded_trace(
    room: Room, topic: str, number: int
) -> None:
    ids = room.topic(topic).ids
    assert ids is not None
    room.sent = deque(maxlen=100)  # the test's own memory
    await come_and_go(room, topic, range(number))
    opened = dict(room.governed.env.changelog.view.opened(topic))
    assert len(opened) <= 66
    assert max(entry.value.ByteSize() for entry in opened.values()) < 20_000
    assert len(ids.of(0).marks) == number
    await ids.save_all()
    assert all(ids.is_covered(entry.value.producer_id, entry.value.producer_epoch) for entry in opened.values())


async def come_and_go(room: Room, topic: str, numbers: range) -> None:
    """One session after the other under a name of its own, every second one without idempotence."""
    for number in numbers:
        party = room.connect(f"worker-{number}", plain=bool(number % 2))
        assert (await write(party, topic, 1))[0] == 0
        party.close()


@pytest.mark.slow
async def test_sessions_that_come_and_go_take_no_memory_once_every_list_of_them_is_full(
    room: Room, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = room.topic(topic).ids
    assert ids is not None
    room.sent = deque(maxlen=10)  # the test's own memory
    monkeypatch.setattr(shared, "POOL", 2)
    monkeypatch.setattr(succession, "_LEFT_KEPT_SHARED", 3)
    monkeypatch.setattr(records, "_FORMER_KEPT", 5)
    monkeypatch.setattr(bindings, "_FIRST_KEPT", 10)
    ids.services = ids.services._replace(names_limit=20)
    tracemalloc.start()
    try:
        await come_and_go(room, topic, range(_FULL))
        before = await kept(room, ids)
        await come_and_go(room, topic, range(_FULL, 2 * _FULL))
        grown = await kept(room, ids) - before
    finally:
        tracemalloc.stop()
    assert len(ids.of(0).marks) <= 20
    assert grown < 25 * _FULL, f"{grown} bytes: the least that a session can leave behind takes more"


async def kept(room: Room, ids: TopicIds) -> int:
    """Bytes that the product keeps, once what is only kept for a while is gone. Timers that were cancelled are not
    counted: the event loop keeps some of them until they are due. What heartbeats say is remembered up to a bound: it
    grows with time, not with sessions.
    """
    nodes._decoded.cache_clear()
    room.gates.passed.clear()
    await ids.save_all()
    await ids.forget_gone()
    gc.collect()
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{ROOT}/{of}/*") for of in PRODUCT])
    return sum(found.size for found in traces.statistics("filename"))


async def test_the_names_of_a_slots_former_sessions_are_known_to_the_next_node(
    services: Services, unique: Unique
) -> None:
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services, mode=AccessMode.SHARED)
        for number in range(12):
            party = first.connect(f"worker-{number % 4}", plain=True)  # a slot is free once its session is gone
            assert (await write(party, topic, number))[0] == 0
            party.close()
        first.crash()
    await forget_redis(redis, cluster)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        for number in range(4):
            party = second.connect(f"worker-{number}")
            await until(lambda: party.send_ids(topic, [8 + number], sequence=0))  # noqa: B023
            assert await party.send_ids(topic, [20 + number], sequence=1) == 0
        assert await log_of(services, topic) == [str(number) for number in (*range(12), *range(20, 24))]


# Owners of partitions -----------------------------------------------------------------------------------------------


async def test_owners_of_partitions_are_deduplicated_each(services: Services, unique: Unique) -> None:
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await asyncio.to_thread(create_topic, kafka, 2)
        policy = PolicyFields(AccessMode.EXCLUSIVE, deduplication=True, scope=Scope.PARTITION)
        await first.governed.env.catalog.set(topic, policy)
        left, right = first.connect("left"), first.connect("right")
        assert (await write(left, topic, 1, 2))[0] == 0
        assert (await write(right, topic, 1, partition=1))[0] == 0
        assert await write(left, topic, 2, 3) == (0, -1)
        assert await write(right, topic, 1, partition=1) == (0, -1)
        first.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        left, right = second.connect("left"), second.connect("right")
        await until(lambda: left.send_ids(topic, [3], sequence=0))
        assert await left.send_ids(topic, [4], sequence=1) == 0
        await until(lambda: right.send_ids(topic, [1, 2], sequence=0, partition=1))
        assert await log_of(services, topic) == ["1", "2", "3", "4"]
        assert await log_of(services, topic, 1) == ["1", "2"]


# The policy ---------------------------------------------------------------------------------------------------------


async def test_a_topic_that_gets_ids_while_it_is_written_knows_what_is_in_its_log(
    room: Room, services: Services
) -> None:
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1)
    await room.govern(topic)
    billing = room.connect("billing")
    assert (await write(billing, topic, 3, 4))[0] == 0
    assert (await write(billing, topic, 2))[0] == 0  # nobody looks yet
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
    sequence = billing.sequence
    await until(lambda: billing.send_ids(topic, [4], sequence=sequence))  # the higher id counts, not the newer one
    assert await billing.send_ids(topic, [5], sequence=sequence + 1) == 0
    assert await log_of(services, topic) == ["3", "4", "2", "5"]


async def test_without_the_policy_nobody_looks_and_with_it_again_all_is_known(room: Room, services: Services) -> None:
    topic = await deduplicated(room, services)
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=False))
    await until(lambda: billing.send_ids(topic, [1], sequence=1))
    assert await billing.send_ids(topic, [7], sequence=2) == 0
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
    await until(lambda: billing.send_ids(topic, [7], sequence=3))
    assert await billing.send_ids(topic, [8], sequence=4) == 0
    assert await log_of(services, topic) == ["1", "1", "7", "8"]


async def test_ids_that_cannot_be_known_any_more_stop_the_topic_until_somebody_decides(
    services: Services, unique: Unique
) -> None:
    """No snapshot left, and retention took the log that would tell: never a guess."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        billing = first.connect("billing")
        for number in range(3):
            assert (await write(billing, topic, number))[0] == 0
        first.crash()
    await asyncio.to_thread(delete_records, kafka, topic)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        billing = second.connect("billing")
        await until(lambda: billing.send_ids(topic, [2], sequence=0), 5)
        result = await billing.begin(topic, ids=[2], sequence=0)
        while "no snapshot is left" not in (result.message or ""):
            assert result.error == 5
            result = await billing.begin(topic, ids=[2], sequence=0)
        assert second.told.lost
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=False))
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        await until(lambda: billing.send_ids(topic, [3], sequence=0))


async def test_what_the_newest_snapshot_has_is_known_after_somebody_decided(services: Services, unique: Unique) -> None:
    """The snapshot ends in front of the log: it was thrown away, with ids of names that are not in the log any more."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services, mode=AccessMode.SHARED)
        billing, other = first.connect("billing"), first.connect("other")
        assert (await write(billing, topic, 7))[0] == 0
        ids = first.topic(topic).ids
        assert ids is not None
        await ids.save_all()
        assert (await write(other, topic, 1))[0] == 0
        first.crash()
    await asyncio.to_thread(delete_records, kafka, topic)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        await wait_until_lost(second, topic)
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=False))
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        billing, other = second.connect("billing"), second.connect("other")
        assert await write(billing, topic, 7) == (0, -1)
        assert (await write(other, topic, 1))[1] > 0  # it was in neither: documented


async def wait_until_lost(room: Room, topic: str) -> None:
    """A client asks for the topic, whose ids cannot be known."""
    party = room.connect("somebody")
    while not room.told.lost:
        await party.begin(topic, ids=[1], sequence=0)
    party.close()


async def test_a_topic_that_retention_has_shortened_can_get_ids(room: Room, services: Services) -> None:
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1)
    await room.govern(topic)
    billing = room.connect("billing")
    assert await billing.send(topic, b"old") == 0
    await asyncio.to_thread(delete_records, services.kafka_bootstrap, topic)
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
    await until(lambda: billing.send_ids(topic, [1], sequence=1))
    assert (await billing.begin(topic, ids=[1], sequence=2)).base_offset == -1
