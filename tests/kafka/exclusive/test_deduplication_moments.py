"""Moments of deduplication that only a room in hand can stop at: snapshots, recoveries that fail, lost answers.

Many are Pulsar's own acceptance tests of PIP-6, and holes found in its source: D1 to D6 of `tests/pulsar.toml`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.cluster.logs import LogReader
from sidecar.dedup import partition, recovery
from sidecar.dedup.cleaning import Pace
from sidecar.dedup.marks import Mark
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.policies import PolicyFields
from sidecar.local import Kafka, KafkaConfig
from sidecar.protocol.calls.logs import Appended
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition
from tests.conftest import QUICK_RETURN, Unique
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import HeldAnswers, Room, free, open_room, until
from tests.kafka.gates import Answered, Gate, forget_redis
from tests.logs import read_log
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_until

STORAGE = KafkaError(56, "the log directory is not there")


@pytest.fixture
async def topic(room: Room, services: Services) -> str:
    return await deduplicated(room, services)


def ids_of(room: Room, topic: str) -> TopicIds:
    found = room.topic(topic).ids
    assert found is not None
    return found


def last_ids(ids: TopicIds, name: bytes) -> dict[int, int]:
    return {index: mark.id for index, state in ids.partitions.items() if (mark := state.marks.mark(name)) is not None}


# What is told -------------------------------------------------------------------------------------------------------


async def test_the_last_id_that_is_told_is_in_the_log_never_one_that_is_on_its_way(
    room: Room, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: Pulsar tells what was pushed; an application that resumes there skips what then fails."""
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    answers = HeldAnswers(monkeypatch)
    under_way = billing.begin(topic, ids=[2])
    await answers.came(1)
    assert last_ids(ids_of(room, topic), b"billing") == {0: 1}
    answers.end()
    answers.tell()
    assert (await under_way).error == 0
    assert last_ids(ids_of(room, topic), b"billing") == {0: 2}


async def test_ids_go_on_where_they_were_after_a_reconnect_and_after_the_topic_was_unloaded(
    room: Room, services: Services, topic: str
) -> None:
    billing = room.connect("billing")
    for number in range(3):
        assert (await write(billing, topic, number))[0] == 0
    billing.close()
    again = room.connect("billing")
    assert (await write(again, topic, *range(6)))[0] == 0
    await room.governed.topic(topic).hand_back()  # as another node takes it
    last = room.connect("billing", producer_id=again.producer_id)
    last.sequence = 6
    assert (await write(last, topic, *range(9)))[0] == 0
    assert await log_of(services, topic) == [str(number) for number in range(9)]


async def test_many_threads_of_one_producer_lose_no_id(room: Room, services: Services, topic: str) -> None:
    """Its client puts them in order; the node gets them in whatever batches, many at once."""
    billing = room.connect("billing")
    answers = [billing.begin(topic, ids=[number]) for number in range(300)]
    codes = [(await answer).error for answer in answers]
    assert codes == [0] * 300
    assert await log_of(services, topic) == [str(number) for number in range(300)]


# Snapshots ----------------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_written_after_so_many_batches(
    room: Room, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "SNAPSHOT_LEAST_S", 0.0)
    billing = room.connect("billing")
    ids_of(room, topic).pace = Pace(1e9, 10)
    for number in range(9):
        assert (await write(billing, topic, number))[0] == 0
    await ids_of(room, topic).save_due()
    assert room.told.snapshots == []
    assert (await write(billing, topic, 9))[0] == 0
    await wait_until(lambda: room.told.snapshots == [1], "a snapshot")


async def test_a_snapshot_is_written_after_some_time_if_anything_moved(
    room: Room, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """#8237: a quiet topic of Pulsar never had one."""
    monkeypatch.setattr(partition, "SNAPSHOT_LEAST_S", 0.0)
    billing = room.connect("billing")
    ids_of(room, topic).pace = Pace(0.0, 1_000)
    assert (await write(billing, topic, 1))[0] == 0
    await wait_until(lambda: room.told.snapshots == [1], "a snapshot")
    await ids_of(room, topic).save_due()
    assert room.told.snapshots == [1]  # nothing moved


async def test_a_node_that_leaves_lets_the_next_one_read_nothing_again(services: Services, unique: Unique) -> None:
    """#22479: 999 entries and a restart, 999 and a restart: Pulsar never takes a snapshot."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        billing = first.connect("billing")
        for number in range(20):
            assert (await write(billing, topic, number))[0] == 0
        await first.governed.drain()
        assert first.told.snapshots == [1]
    await forget_redis(redis, cluster)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        again = second.connect("billing")
        await until(lambda: again.send_ids(topic, [19], sequence=0))
        assert second.told.recovered == [0]


async def test_a_snapshot_that_cannot_be_written_is_written_with_the_next_occasion(room: Room, topic: str) -> None:
    """D5: Pulsar takes none ever after."""
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    ids = ids_of(room, topic)
    room.gates.fail("ProduceBatch", Answered(Appended(ErrorCode.MESSAGE_TOO_LARGE, Offset(-1), -1, -1, None)))
    await ids.save_all()
    assert room.told.snapshots == []
    await ids.save_all()
    assert room.told.snapshots == [1]


async def test_a_name_that_nobody_used_for_years_is_still_known(room: Room, topic: str) -> None:
    """A nightly job: its name was forgotten after six hours, and it wrote everything twice."""
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    ids = ids_of(room, topic)
    ids.of(0).marks.learn(Mark(b"nightly", 7, 0, 0))
    await ids.forget_gone()
    assert last_ids(ids, b"nightly") == {0: 7}


# Recoveries ---------------------------------------------------------------------------------------------------------


def hold_reading(monkeypatch: pytest.MonkeyPatch, topic: str) -> Gate:
    """The logs of a topic are not read before the gate opens."""
    gate, read_on = Gate(), recovery.read_on

    async def held(logs: LogReader, partition: TopicPartition, *rest: Any) -> None:
        if partition.topic == topic:
            await gate.pass_through()
        await read_on(logs, partition, *rest)

    monkeypatch.setattr(recovery, "read_on", held)
    return gate


async def test_while_ids_cannot_be_read_nothing_is_taken_and_then_all_is_known(
    room: Room, services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulsar's checkStatusFail, checkStatusRetriesAfterFailedEnable: never silently without."""
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    billing.close()
    await free(room, topic)
    read_on, failures = recovery.read_on, iter([STORAGE] * 3)

    async def fails(*told: Any) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        await read_on(*told)

    monkeypatch.setattr(recovery, "read_on", fails)
    again = room.connect("billing")
    result = await again.begin(topic, ids=[1, 2], sequence=0)
    while result.error == 5:
        result = await again.begin(topic, ids=[1, 2], sequence=0)
    assert result.error == 0
    assert STORAGE in room.told.failures
    assert await log_of(services, topic) == ["1", "2"]


async def test_batches_wait_while_ids_are_read_and_other_topics_go_on(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulsar loads the topic no further meanwhile, and gives up after a minute (#23003)."""
    slow, other = await deduplicated(room, services), await deduplicated(room, services)
    gate = hold_reading(monkeypatch, slow)
    billing, shipping = room.connect("billing"), room.connect("shipping")
    waits = billing.begin(slow, ids=[1])
    await gate.reached()
    assert (await write(shipping, other, 1))[0] == 0
    assert not waits.done()
    gate.open()
    assert (await waits).error == 0


async def test_batches_that_wait_for_ids_for_long_are_told_to_come_again(
    room: Room, services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = hold_reading(monkeypatch, topic)
    billing = room.connect("billing")
    waits = [billing.begin(topic, ids=[number]) for number in range(3)]
    await gate.reached()
    assert [(await answer).error for answer in waits] == [5, 5, 5]
    gate.open()
    billing.sequence = 0
    for number in range(3):
        assert (await write(billing, topic, number))[0] == 0
    assert await log_of(services, topic) == ["0", "1", "2"]


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker; whoever stops it lets it go on."""
    kafka = Kafka(tmp_path_factory.mktemp("mortal"), KafkaConfig(overrides=QUICK_RETURN))
    kafka.start()
    yield kafka
    kafka.stop(grace=0)


@pytest.mark.parametrize(
    ("mode", "plain"), [(AccessMode.EXCLUSIVE, False), (AccessMode.SHARED, True)], ids=["owner", "plain beside others"]
)
async def test_what_fails_while_the_storage_is_away_can_be_sent_again_and_is_there_once(
    mortal_kafka: Kafka, services: Services, unique: Unique, plain: bool, mode: AccessMode
) -> None:
    """Pulsar's testClientDeduplicationWithBkFailure: 10 to 19 fail and fail again, 20 follow once it is back."""
    kafka = mortal_kafka
    async with open_room(kafka.bootstrap, services.redis_url, unique("h")) as room:
        topic = await asyncio.to_thread(create_topic, kafka.bootstrap, 1)
        await room.governed.env.catalog.set(topic, PolicyFields(mode, deduplication=True))
        billing = room.connect("billing", plain=plain)
        for number in range(3):
            assert (await write(billing, topic, number))[0] == 0
        kafka.pause()
        failed = [billing.begin(topic, ids=[number], timeout_ms=500) for number in (3, 4, 5)]
        codes = {(await answer).error for answer in failed}
        kafka.resume()
        assert codes <= {5, 6, 7}
        for number in (3, 4, 5, 6):
            await until(lambda: billing.send_ids(topic, [number], sequence=number))  # noqa: B023
        values = await asyncio.to_thread(read_log, kafka.bootstrap, topic)
        assert values == [b"%d" % number for number in range(7)]
