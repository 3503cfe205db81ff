"""A (producer name, sequence id) gets into a partition once: on real Kafka and Redis, with the moments in hand."""

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
from sidecar.exclusive import bindings, shared
from sidecar.takeover import records, succession
from tests.conftest import Unique
from tests.kafka.exclusive.deduplicated import come_and_go, deduplicated, log_of, write
from tests.kafka.exclusive.room import HeldAnswers, Room, free, open_room, until
from tests.kafka.gates import forget_redis
from tests.services import Services

ROOT, PRODUCT = Path(__file__).parents[3], ("sidecar", "metadata")
_FULL = 150
"""Sessions, after which every list of them has as many as it may."""


@pytest.fixture
async def topic(room: Room, services: Services) -> str:
    return await deduplicated(room, services)


async def test_a_repeat_by_another_session_of_the_name_is_acknowledged_and_not_written(
    room: Room, services: Services, topic: str
) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, 0, 1, 2))[0] == 0
    billing.close()
    again = room.connect("billing")
    assert await write(again, topic, 1, 2) == (0, -1)
    assert (await write(again, topic, 3))[0] == 0
    assert await log_of(services, topic) == ["0", "1", "2", "3"]
    assert room.told.duplicates == 2


async def test_of_a_batch_that_is_part_duplicate_only_the_new_records_are_written(
    room: Room, services: Services, topic: str
) -> None:
    """Pulsar drops all of it (#6273)."""
    billing = room.connect("billing")
    assert (await write(billing, topic, 2, 3, 5))[0] == 0
    assert await write(billing, topic, 2, 4, 6) == (0, -1)
    assert (await write(billing, topic, 7, 8))[0] == 0
    assert await log_of(services, topic) == ["2", "3", "5", "6", "7", "8"]


async def test_a_plain_client_is_deduplicated_too(room: Room, services: Services, topic: str) -> None:
    billing = room.connect("billing", plain=True)
    assert (await write(billing, topic, 0, 1))[0] == 0
    assert await write(billing, topic, 0, 1) == (0, -1)
    assert await write(billing, topic, 1, 2) == (0, -1)
    assert await log_of(services, topic) == ["0", "1", "2"]


# What a batch has to be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([b"7x"], "not a decimal integer"),
        ([b"-1"], "negative"),
        ([b"9223372036854775808"], "larger than"),
        ([4, None], "record 1 of the batch has no sequence id"),
    ],
)
async def test_a_batch_with_bad_ids_is_refused_whole_and_says_why(
    room: Room, services: Services, topic: str, ids: list[int | bytes | None], told: str
) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, 3))[0] == 0
    result = await billing.begin(topic, ids=ids, sequence=1)
    assert (result.error, told in (result.message or "")) == (87, True), result.message
    assert (await billing.begin(topic, ids=[9], sequence=1 + len(ids))).error == 45  # the gap, as Kafka would say
    assert (await billing.begin(topic, ids=[5], sequence=1)).error == 0
    assert await log_of(services, topic) == ["3", "5"]


async def test_a_sequence_id_without_a_name_is_refused(room: Room, topic: str) -> None:
    nobody = room.connect("rdkafka")
    result = await nobody.begin(topic, ids=[1])
    assert (result.error, "no producer name" in (result.message or "")) == (87, True)
    nobody.sequence = 0
    assert (await write(nobody, topic, 1, name=b"billing"))[0] == 0


async def test_who_sent_ids_once_sends_them_always(room: Room, services: Services, topic: str) -> None:
    billing = room.connect("billing")
    assert await billing.send(topic, b"before") == 0
    assert (await write(billing, topic, 1))[0] == 0
    assert await billing.send(topic, b"after", sequence=2) == 87
    assert await log_of(services, topic) == ["before", "1"]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
async def test_in_every_codec(room: Room, services: Services, topic: str, codec: int) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, 0, 1, 2, codec=codec))[0] == 0
    assert await write(billing, topic, 1, 2, codec=codec) == (0, -1)
    assert await write(billing, topic, 2, 3, 4, codec=codec) == (0, -1)
    assert (await write(billing, topic, 5, codec=codec))[0] == 0
    assert await log_of(services, topic) == ["0", "1", "2", "3", "4", "5"]


async def test_several_names_in_one_session_count_apart(room: Room, services: Services, topic: str) -> None:
    relay = room.connect("relay")
    for name in (b"a", b"b"):
        assert (await write(relay, topic, 1, 2, name=name))[0] == 0
    assert await write(relay, topic, 2, 3, name=b"a") == (0, -1)
    assert await write(relay, topic, 2, name=b"b") == (0, -1)
    assert (await write(relay, topic, 1))[0] == 0  # under its own name
    assert await log_of(services, topic) == ["1", "2", "1", "2", "3", "1"]


# Order --------------------------------------------------------------------------------------------------------------


async def test_a_gap_is_told_before_any_id_is_looked_at(room: Room, services: Services, topic: str) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, 0, 1))[0] == 0
    assert (await billing.begin(topic, ids=[0], sequence=3)).error == 45  # a duplicate, but something is missing
    assert (await billing.begin(topic, ids=[2], sequence=2)).error == 0
    assert (await billing.begin(topic, ids=[0], sequence=3)).error == 0
    assert (await billing.begin(topic, ids=[3], sequence=4)).error == 0
    assert await log_of(services, topic) == ["0", "1", "2", "3"]


async def test_an_id_that_is_under_way_is_awaited(
    room: Room, services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = room.connect("billing", plain=True)
    assert (await write(billing, topic, 0))[0] == 0
    answers = HeldAnswers(monkeypatch)
    first = billing.begin(topic, ids=[1])
    await answers.came(1)
    again = billing.begin(topic, ids=[1, 2])
    await asyncio.sleep(0.1)
    assert not again.done()
    answers.end()
    answers.tell()
    assert (await first).error == 0
    assert ((await again).error, (await again).base_offset) == (0, -1)
    assert await log_of(services, topic) == ["0", "1", "2"]


async def test_a_repeat_of_a_batch_gets_its_own_offset(room: Room, services: Services, topic: str) -> None:
    """A client whose answer was lost sends the batch again, on another connection."""
    billing = room.connect("billing")
    _, offset = await write(billing, topic, 0, 1)
    again = room.connect("billing", producer_id=billing.producer_id)
    result = await again.begin(topic, ids=[0, 1], sequence=0)
    billing.close()
    assert (result.error, result.base_offset) == (0, offset)
    assert await log_of(services, topic) == ["0", "1"]


async def test_batches_behind_a_duplicate_go_on_in_order(room: Room, services: Services, topic: str) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, *range(5)))[0] == 0
    ids = [[0], [1], [2, 3], [4], [5], [4, 6], [7], [7], [8]]
    answers = [billing.begin(topic, ids=list(each)) for each in ids]
    assert [(await answer).error for answer in answers] == [0] * len(ids)
    assert [(await answer).base_offset >= 0 for answer in answers] == [
        False, False, False, False, True, False, True, False, True
    ]  # fmt: skip
    assert await log_of(services, topic) == [str(each) for each in range(9)]


# Another owner, another node ----------------------------------------------------------------------------------------


async def test_the_session_goes_on_behind_dropped_records_at_the_next_node(services: Services, unique: Unique) -> None:
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster, node_id=2) as second:
        async with open_room(kafka, redis, cluster) as first:
            topic = await deduplicated(first, services)
            billing = first.connect("billing")
            assert (await write(billing, topic, 0, 1, 2))[0] == 0
            assert await write(billing, topic, 1, 2) == (0, -1)
            assert await write(billing, topic, 2, 3) == (0, -1)  # the base moved twice: client 7 is stamped 4
            await first.governed.drain()
        back = second.connect("billing", producer_id=billing.producer_id)
        back.sequence = 7
        await until(lambda: back.send_ids(topic, [4], sequence=7))
        assert await back.send_ids(topic, [3], sequence=6) in (0, 46)  # a repeat from before
        assert await back.send_ids(topic, [3, 4, 5], sequence=8) == 0
        assert await log_of(services, topic) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("redis_is_empty", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_node_that_takes_over_knows_what_another_one_wrote(
    services: Services, unique: Unique, redis_is_empty: bool, snapshot: bool
) -> None:
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services, 2)
        for name in ("a", "b"):
            party = first.connect(name)
            assert (await write(party, topic, 5, 6, partition=1))[0] == 0
            party.close()
            await free(first, topic)
        if snapshot:
            ids = first.topic(topic).ids
            assert ids is not None
            await ids.save_all()
            assert first.told.snapshots[-1] == 2
            party = first.connect("c")
            assert (await write(party, topic, 1, partition=1))[0] == 0
        first.crash()
    if redis_is_empty:
        await forget_redis(redis, cluster)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        for name in ("a", "b"):
            party = second.connect(name)
            await until(lambda: party.send_ids(topic, [6], partition=1, sequence=0))  # noqa: B023
            assert await party.send_ids(topic, [7], partition=1, sequence=1) == 0
            party.close()
            await free(second, topic)
        values = await log_of(services, topic, 1)
        assert values == ["5", "6", "5", "6", *(["1"] if snapshot else []), "7", "7"]
        if snapshot:
            assert second.told.recovered[0] == 1  # the one record behind the snapshot


# Sessions that come and go --------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_sessions_that_come_and_go_take_no_memory_once_every_list_of_them_is_full(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await deduplicated(room, services, mode=AccessMode.SHARED)
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
