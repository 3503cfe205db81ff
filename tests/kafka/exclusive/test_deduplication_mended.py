"""What deduplication once got wrong where a topic changes nodes: what a node keeps, reads, forgets and believes.

The moments of a pipeline under way are in `test_deduplication_mended_pipelines.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from metadata.ownership import AccessMode
from sidecar.cluster.logs import LogReader
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.policies import PolicyFields, Scope
from tests.conftest import Unique
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import Party, Room, free, open_room, until
from tests.services import Services
from tests.topics import create_topic, delete_records
from tests.wait import wait_for_async


def ids_of(room: Room, topic: str) -> TopicIds:
    found = room.topic(topic).ids
    assert found is not None
    return found


async def knows_policies_of(second: Room, first: Room) -> None:
    async def caught_up() -> bool:
        return second.governed.env.catalog.version >= first.governed.env.catalog.version

    await wait_for_async(caught_up, "the policy to be known")


async def leave(party: Party, room: Room, topic: str) -> None:
    party.close()
    await free(room, topic)


async def hand_over(room: Room, topic: str) -> None:
    """Whoever asks next may serve the topic."""
    await room.topic(topic).hand_back()
    await room.governed.env.services.store.hand_over(topic, room.governed.env.node_id, room.boot)


async def redis_copy(redis: str, cluster: str, topic: str, put: bytes | None = None) -> bytes:
    """The snapshot of partition 0 that Redis has; `put` back one that it had."""
    async with Redis.from_url(redis) as client:
        (key,) = [key async for key in client.scan_iter(f"sidecar:{{{cluster}}}:*snapshots*")]
        if put is not None:
            await client.hset(key, f"{topic}/0", put)  # pyright: ignore[reportGeneralTypeIssues]
        value = await client.hget(key, f"{topic}/0")  # pyright: ignore[reportGeneralTypeIssues]
    assert isinstance(value, bytes)
    return value


@asynccontextmanager
async def after_a_crash(services: Services, cluster: str) -> AsyncIterator[tuple[Room, str]]:
    """A room that comes to a topic with the ids 0 to 2 of `billing`, whose node crashed."""
    kafka, redis = services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        assert (await write(first.connect("billing"), topic, 0, 1, 2))[0] == 0
        first.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        yield second, topic


# The log ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True], ids=["another owner", "another node"])
async def test_a_topic_goes_on_when_retention_took_all_but_the_markers_of_an_idle_time(
    services: Services, unique: Unique, crash: bool
) -> None:
    """Keep-alives append markers that no snapshot covered: what retention took up to them passed for unknown ids."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        billing = first.connect("billing")
        assert (await write(billing, topic, 0, 1, 2))[0] == 0
        for _ in range(2):
            await first.topic(topic).keep_alive()
        await ids_of(first, topic).save_all()
        await asyncio.to_thread(delete_records, services.kafka_bootstrap, topic)
        if not crash:
            await leave(billing, first, topic)
            other = first.connect("billing")
            await until(lambda: other.send_ids(topic, [3], sequence=0))
            return
        first.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        other = second.connect("billing")
        await until(lambda: other.send_ids(topic, [3], sequence=0))


async def test_an_empty_answer_is_not_the_end_of_the_log(
    services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader just elected knows a lower high watermark for a while; reading ended there, and ids were missed."""
    async with after_a_crash(services, unique("d")) as (second, topic):
        ask, lagged = LogReader._ask, 0

        async def lags_once(logs: LogReader, leader: int, partition: Any, *rest: Any) -> Any:
            nonlocal lagged
            answer: Any = await ask(logs, leader, partition, *rest)
            if lagged or partition.topic != topic:
                return answer
            lagged += 1
            return type(answer)(0, 0, 0, 0, b"")  # its high watermark is 0

        monkeypatch.setattr(LogReader, "_ask", lags_once)
        billing = second.connect("billing")
        await until(lambda: billing.send_ids(topic, [2], sequence=0))
        assert lagged == 1
        assert await log_of(services, topic) == ["0", "1", "2"]


async def test_what_retention_takes_while_the_log_is_read_is_not_taken_for_known(
    services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader went on where the log began by then, and ids that had been in it were written again."""
    async with after_a_crash(services, unique("d")) as (second, topic):
        ends, taken = LogReader.ends, 0

        async def and_then_retention(logs: LogReader, name: str, *rest: Any) -> dict[int, int]:
            nonlocal taken
            found = await ends(logs, name, *rest)
            if name == topic and not taken:
                taken += 1
                await asyncio.to_thread(delete_records, services.kafka_bootstrap, topic)
            return found

        monkeypatch.setattr(LogReader, "ends", and_then_retention)
        billing = second.connect("billing")

        async def stopped() -> bool:
            result = await billing.begin(topic, ids=[2], sequence=0)
            assert result.error in (5, 6), f"written again at {result.base_offset}"
            return bool(second.told.lost)

        await wait_for_async(stopped, "the ids to be called lost")
        assert taken == 1


# Forgotten names ----------------------------------------------------------------------------------------------------


async def test_a_name_that_another_node_forgot_does_not_come_back_with_the_topic(
    services: Services, unique: Unique
) -> None:
    """A node that got a topic back went on with its memory of the name: what began anew passed for duplicates."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await deduplicated(first, services)
        await knows_policies_of(second, first)
        billing = first.connect("billing")
        assert (await write(billing, topic, *range(10)))[0] == 0
        await leave(billing, first, topic)
        await hand_over(first, topic)
        other = second.connect("other")
        await until(lambda: other.send_ids(topic, [0], sequence=0))
        assert await ids_of(second, topic).forget(b"billing")
        await leave(other, second, topic)
        anew = second.connect("billing")
        assert (await write(anew, topic, 0, 1))[1] >= 0
        await leave(anew, second, topic)
        await hand_over(second, topic)
        again = first.connect("billing")
        await until(lambda: again.send_ids(topic, [2], sequence=0))
        assert (await write(again, topic, 3, sequence=1))[0] == 0
        assert (await log_of(services, topic))[-4:] == ["0", "1", "2", "3"]


async def test_a_name_that_was_forgotten_stays_a_stranger_at_the_next_node(services: Services, unique: Unique) -> None:
    """The snapshot still had it: the next node dropped what its session, told to begin with 0, had written and went on
    with.
    """
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        billing = first.connect("billing")
        assert (await write(billing, topic, *range(10)))[0] == 0
        ids = ids_of(first, topic)
        await ids.save_all()
        await leave(billing, first, topic)
        assert await ids.forget(b"billing")
        assert not any(state.marks.knows(b"billing") for state in ids.partitions.values())
        back = first.connect("billing")
        assert (await write(back, topic, 0, 1))[1] >= 0
        first.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        again = second.connect("billing", producer_id=back.producer_id)
        await until(lambda: again.send_ids(topic, [2], sequence=2))
        assert (await log_of(services, topic))[-3:] == ["0", "1", "2"]


# Redis from an old backup: it may delay, never corrupt ----------------------------------------------------------------


async def test_redis_from_an_old_backup_does_not_bring_a_forgotten_name_back(
    services: Services, unique: Unique
) -> None:
    """Its copy was believed without a look at what came behind it in the snapshot topic."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services)
        billing = first.connect("billing")
        assert (await write(billing, topic, *range(10)))[0] == 0
        ids = ids_of(first, topic)
        await ids.save_all()
        backup = await redis_copy(redis, cluster, topic)
        await leave(billing, first, topic)
        assert await ids.forget(b"billing")
        assert (await write(first.connect("billing"), topic, 0, 1))[1] >= 0
        await ids.save_all()
        first.crash()
    await redis_copy(redis, cluster, topic, backup)
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        again = second.connect("billing")
        await until(lambda: again.send_ids(topic, [2], sequence=0))
        assert (await log_of(services, topic))[-3:] == ["0", "1", "2"]


async def test_redis_from_an_old_backup_does_not_stop_the_topic(services: Services, unique: Unique) -> None:
    """The names of slots that later snapshots cover are not kept: read from the old copy on, the log is nobody's."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first:
        topic = await deduplicated(first, services, mode=AccessMode.SHARED)
        ids = ids_of(first, topic)
        copies: list[bytes] = []
        for number in range(4):
            party = first.connect(f"worker-{number}", plain=True)
            assert (await write(party, topic, 1))[0] == 0
            await ids.save_all()
            copies.append(await redis_copy(redis, cluster, topic))
            party.close()
        first.crash()
    await redis_copy(redis, cluster, topic, copies[0])
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        party = second.connect("worker-0")
        await until(lambda: party.send_ids(topic, [2], sequence=0))


# Where a session goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failover", [False, True], ids=["another epoch", "another node"])
async def test_a_shift_of_sequences_for_a_batch_that_failed_counts_for_nothing(
    services: Services, unique: Unique, failover: bool
) -> None:
    """It was in the changelog by then: what the session sent next passed for repeats, acknowledged and nowhere.

    A client may use the sequence of a batch that it gave up for its next one: Java before 2.5 does, and who splits.
    """
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await asyncio.to_thread(create_topic, kafka, 1, **{"max.message.bytes": "115"})
        await first.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        await knows_policies_of(second, first)
        billing = first.connect("billing")
        for number in range(3):
            assert (await write(billing, topic, number))[0] == 0
        result = await billing.begin(topic, ids=[1, 2, 10**18], sequence=3)  # the last alone goes on: as many digits
        assert result.error == 10
        await until(lambda: billing.send_ids(topic, [4], sequence=3))
        if failover:
            await first.governed.drain()
            billing = second.connect("billing", producer_id=billing.producer_id)
        else:
            first.topic(topic).lose_epoch()
        for sequence, number in ((4, 5), (5, 6)):
            await until(lambda: billing.send_ids(topic, [number], sequence=sequence))  # noqa: B023
        assert await log_of(services, topic) == ["0", "1", "2", "4", "5", "6"]


async def test_a_node_that_lost_a_topic_for_a_while_without_noticing_reads_what_others_saved(
    services: Services, unique: Unique
) -> None:
    """Frozen while another node serves it: its own marks end where the other's began."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await deduplicated(first, services)
        await knows_policies_of(second, first)
        billing = first.connect("billing")
        assert (await write(billing, topic, 0, 1))[0] == 0
        await leave(billing, first, topic)
        await first.gives_up(topic)
        for name in ("a", "b", "c"):
            party = second.connect(name)
            await until(lambda: party.send_ids(topic, [0], sequence=0))  # noqa: B023
            await ids_of(second, topic).save_all()
            await leave(party, second, topic)
        await hand_over(second, topic)
        again = first.connect("billing")

        async def goes_on() -> bool:
            assert not first.told.lost
            return await again.send_ids(topic, [2], sequence=0) == 0

        await wait_for_async(goes_on, "the batch to be taken")


@pytest.mark.parametrize("client_id", ["billing", "billing;generation=1"])
async def test_an_owner_goes_on_behind_a_batch_whose_name_found_no_room(
    room: Room, services: Services, client_id: str
) -> None:
    """Its client counts the refused sequence as used. One that asks for a generation was out of order for ever."""
    topic = await deduplicated(room, services)
    ids = room.topic(topic).ids
    assert ids is not None
    ids.services = ids.services._replace(names_limit=1)
    owner = room.connect(client_id)
    assert (await write(owner, topic, 1, name=b"one"))[0] == 0
    assert (await write(owner, topic, 1, name=b"two"))[0] == 44
    assert (await write(owner, topic, 2, name=b"one"))[0] == 0
    assert await log_of(services, topic) == ["1", "2"]


async def test_what_a_session_was_refused_in_anothers_partition_is_no_business_of_its_own(
    room: Room, services: Services
) -> None:
    """Its place there is written down once it owns that one: until then it was taken over again without end."""
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 2)
    await room.governed.env.catalog.set(
        topic, PolicyFields(AccessMode.EXCLUSIVE, deduplication=True, scope=Scope.PARTITION)
    )
    neighbour, owner = room.connect("shipping"), room.connect("billing")
    assert (await write(neighbour, topic, 1, partition=0))[0] == 0
    assert (await write(owner, topic, 1, partition=1))[0] == 0
    owner.sequence = 0
    assert (await write(owner, topic, 2, partition=0))[0] == 44
    assert (await write(owner, topic, 2, partition=1))[0] == 0
    assert await log_of(services, topic, 1) == ["1", "2"]
