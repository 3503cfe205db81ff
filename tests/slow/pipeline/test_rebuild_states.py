"""States that a job writes beside nodes: on real Kafka and Redis, with the moments in hand. Spark has no part in it."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.dedup import snapshots
from sidecar.dedup.marks import Mark
from sidecar.dedup.snapshots import Saved
from tests.conftest import OwnValkey, Unique
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import Room, free, open_room, until
from tests.kafka.gates import forget_redis
from tests.services import Services
from tests.slow.pipeline.snapshot_topics import chunks_of, lose_snapshots, open_job


async def wrote(room: Room, services: Services, *ids: int) -> tuple[str, int]:
    """A topic of one partition that holds these ids in a row, and the offset of the first one: markers are in front."""
    topic = await deduplicated(room, services)
    party = room.connect("a")
    # A batch each: whoever reads on reads no record of the one before.
    offsets = [(await write(party, topic, each))[1] for each in ids]
    assert offsets == list(range(offsets[0], offsets[0] + len(ids)))
    party.close()
    return topic, offsets[0]


async def save(room: Room, topic: str) -> None:
    ids = room.topic(topic).ids
    assert ids is not None
    await ids.save_all()


def rebuilt(covered: int, *ids: tuple[str, int], number: int = 0) -> Saved:
    return Saved(covered, number, [Mark(name.encode(), last, covered - 1, 5) for name, last in ids], rebuilt=True)


@pytest.mark.parametrize("redis_is_empty", [False, True])
async def test_a_node_goes_on_from_what_was_rebuilt_and_reads_only_the_rest(
    services: Services, unique: Unique, redis_is_empty: bool
) -> None:
    cluster, kafka, redis = unique("r"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as room:
        topic, first = await wrote(room, services, 0, 1, 2)
        room.crash()
    async with open_job(kafka, redis, cluster, topic) as job:
        assert await (await job.states()).put(0, rebuilt(first + 2, ("a", 1)))
        assert await job.redis_copy() == rebuilt(first + 2, ("a", 1))
    if redis_is_empty:
        await forget_redis(redis, cluster)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as room:
        party = room.connect("a")
        await until(lambda: party.send_ids(topic, [1, 2], sequence=0))
        assert await party.send_ids(topic, [3], sequence=2) == 0
        assert room.told.recovered == [1]
        ids = room.topic(topic).ids
        assert ids is not None
        assert ids.of(0).saved_up_to == -1
        await ids.save_all()
        copies = {key.split(b"/")[2] for key in await asyncio.to_thread(chunks_of, kafka, cluster, topic)}
        assert b"1" in copies, "the node's own, which nodes of before see too"
        assert await log_of(services, topic) == ["0", "1", "2", "3"]


async def test_a_state_that_tells_less_than_a_nodes_own_of_meanwhile_is_taken_back(
    services: Services, unique: Unique
) -> None:
    cluster, kafka, redis = unique("r"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as room:
        topic, first = await wrote(room, services, 0, 1, 2)
        async with open_job(kafka, redis, cluster, topic) as job:
            states = await job.states()
            await save(room, topic)
            newest = await job.redis_copy()
            assert newest is not None
            for ids in (2, 3):
                assert not await states.put(0, rebuilt(first + ids, ("a", ids - 1)))
            assert await job.redis_copy() == newest
            assert (await job.states()).best(0) == newest
        copies = {key.split(b"/")[2] for key in await asyncio.to_thread(chunks_of, kafka, cluster, topic)}
        assert copies == {b"1"}, "of the states nothing is left"


async def test_a_name_that_is_forgotten_while_a_state_is_rebuilt_stays_so(services: Services, unique: Unique) -> None:
    """The state covers more than the node's snapshot without it, but did not know of that: nobody goes on from it."""
    cluster, kafka, redis = unique("r"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as room:
        topic, first = await wrote(room, services, 5, 6)
        async with open_job(kafka, redis, cluster, topic) as job:
            states = await job.states()
            ids = room.topic(topic).ids
            assert ids is not None
            assert await ids.forget(b"a")
            await free(room, topic)
            party = room.connect("b")
            behind = (await write(party, topic, 7))[1] + 1
            party.close()
            late = rebuilt(behind, ("a", 6), ("b", 7), number=states.known_number(0))
            assert not await states.put(0, late)
            assert (again := states.best(0)) is not None
            assert (again.covered, again.marks) == (first + 2, [])
            late = rebuilt(behind, ("b", 7), number=states.known_number(0))
            assert await states.put(0, late)
        room.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as room:
        party = room.connect("a")
        await until(lambda: party.send_ids(topic, [5], sequence=0))
        assert room.told.recovered == [0]
        assert await log_of(services, topic) == ["5", "6", "7", "5"]


async def test_two_rebuilds_at_once_leave_a_state_of_one_of_them_whole(services: Services, unique: Unique) -> None:
    cluster, kafka, redis = unique("r"), services.kafka_bootstrap, services.redis_url
    names = [(f"{index:0250}", index) for index in range(7_000)]  # several chunks each
    async with open_room(kafka, redis, cluster) as room:
        topic, first = await wrote(room, services, *range(10))
        room.crash()
    async with open_job(kafka, redis, cluster, topic) as one, open_job(kafka, redis, cluster, topic) as other:
        states = await one.states(), await other.states()
        first, second = rebuilt(first + 8, *names), rebuilt(first + 9, *names)
        outcomes = await asyncio.gather(states[0].put(0, first), states[1].put(0, second))
        assert outcomes[1]
        assert (await one.states()).best(0) == await one.redis_copy() == second
        assert await (await one.states()).put(0, second)
        assert (await other.states()).best(0) == second
        copies = {key.split(b"/")[2] for key in await asyncio.to_thread(chunks_of, kafka, cluster, topic)}
        assert len(copies) <= 2, "older ones are taken away"


async def test_redis_is_filled_when_it_comes_back_and_never_with_less(
    services: Services, unique: Unique, own_valkey: OwnValkey
) -> None:
    cluster, kafka, valkey = unique("r"), services.kafka_bootstrap, own_valkey()
    async with open_room(kafka, valkey.url, cluster) as room:
        topic, first = await wrote(room, services, *range(10))
        room.crash()
    async with open_job(kafka, valkey.url, cluster, topic) as job:
        states = await job.states()
        assert await states.put(0, rebuilt(first + 4, ("a", 3)))
        valkey.stop()
        assert await states.put(0, rebuilt(first + 6, ("a", 5)))
        await states.copy_to_redis(0)
        assert states.redis_lacks == {0}
        valkey.restart()
        await states.copy_to_redis(0)
        assert states.redis_lacks == set()
        assert await job.redis_copy() == rebuilt(first + 6, ("a", 5))
        valkey.stop()
        assert await states.put(0, rebuilt(first + 7, ("a", 6)))
        valkey.restart()
        late = await job.states()
        assert await late.put(0, rebuilt(first + 9, ("a", 8)))
        await states.copy_to_redis(0)  # which tells less than what Redis has by now
        assert await job.redis_copy() == rebuilt(first + 9, ("a", 8))


async def test_what_redis_alone_has_is_known(services: Services, unique: Unique) -> None:
    cluster, kafka, redis = unique("r"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as room:
        topic, _ = await wrote(room, services, 0, 1, 2)
        await save(room, topic)
        room.crash()
    async with open_job(kafka, redis, cluster, topic) as job:
        own = await job.redis_copy()
        assert own is not None
        await lose_snapshots(kafka, redis, cluster, topic)
        assert (await job.states()).best(0) is None
        await job.store.keep_snapshot(topic, 0, job.before.topic_id, own.order, _value(job.before.topic_id, own))
        states = await job.states()
        assert states.best(0) == own
        assert states.in_topic(0) is None
        assert await states.put(0, own._replace(rebuilt=True))
        assert (found := states.in_topic(0)) is not None
        assert found.saved.marks == own.marks


def _value(topic_id: bytes, saved: Saved) -> bytes:
    return snapshots.to_value(snapshots.to_records("", 0, snapshots.encode(topic_id, saved, 1)))
