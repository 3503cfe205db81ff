"""Shared sessions in unlucky moments: somebody takes the topic, adds a partition or makes it anew while they write."""

from __future__ import annotations

import asyncio

from metadata.ownership import AccessMode
from tests.kafka.exclusive.room import Room, free, until
from tests.kafka.gates import REDIS_AWAY
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async

OK, BUSY, AGAIN, REFUSED, GAP, REPEAT, FENCED = 0, 5, 7, 44, 45, 46, 90
UNHEARD = "the batch before this one was refused; a client that knows of that sends this one again"
ALONE, WAITING, FENCING = "mode=exclusive", "mode=wait_for_exclusive", "mode=exclusive_with_fencing"


async def log(world: World, topic: str) -> list[bytes]:
    return await world.log(topic)


def takeovers(room: Room) -> int:
    return room.gates.passed.count("InitProducerId")


# A topic that is made anew -------------------------------------------------------------------------------------------


async def test_sessions_share_a_topic_that_was_created_anew_after_an_owner(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    owner = room.connect(f"owner;{ALONE}")
    assert await owner.send(topic, b"0") == OK
    owner.close()
    await free(room, topic)
    await world.create_anew(topic)
    writer, before = room.connect("writer"), takeovers(room)
    await until(lambda: writer.send(topic, b"w", sequence=0))
    assert takeovers(room) - before < 20


async def test_a_session_goes_on_counting_in_a_topic_that_was_created_anew(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    one = room.connect("one")
    for number in range(3):
        assert await one.send(topic, b"old", sequence=number) == OK
    await world.create_anew(topic)
    await room.topic(topic).keep_alive()
    await until(lambda: one.send(topic, b"3", sequence=3))
    assert await log(world, topic) == [b"3"]


# Partitions that are added -------------------------------------------------------------------------------------------


async def test_a_session_that_finds_a_new_partition_deposes_nobody_who_took_the_topic_meanwhile(
    room: Room, world: World
) -> None:
    topic = await world.govern(room, 1, mode=AccessMode.SHARED)
    writer = room.connect("writer")
    assert await writer.send(topic, b"0") == OK
    await world.grow(topic, 2)
    await room.governed.env.services.upstream.layout(topic, refresh=True)  # its client has asked for Metadata
    gate = room.gates.hold("layout")
    late = writer.begin(topic, b"late", partition=1, sequence=0)
    await gate.reached()
    owner = room.connect(f"owner;{FENCING}")
    await until(lambda: owner.send(topic, b"1", sequence=0))
    gate.open()
    assert (await late).error != OK
    assert await owner.send(topic, b"2", sequence=1) == OK
    assert await log(world, topic) == [b"0", b"1", b"2"]


async def test_nor_while_a_claim_is_past_its_commit_point(room: Room, world: World) -> None:
    topic = await world.govern(room, 1, mode=AccessMode.SHARED)
    writer = room.connect("writer")
    assert await writer.send(topic, b"0") == OK
    await world.grow(topic, 2)
    await room.governed.env.services.upstream.layout(topic, refresh=True)  # its client has asked for Metadata
    told, layout = room.gates.hold("publish"), room.gates.hold("layout")
    late = writer.begin(topic, b"late", partition=1, sequence=0)
    await layout.reached()
    owner = room.connect(f"owner;{FENCING}")
    first = owner.begin(topic, b"1", sequence=0)
    await told.reached()
    layout.open()
    assert (await late).error != OK
    told.open()
    if (await first).error != OK:
        await until(lambda: owner.send(topic, b"1", sequence=0))
    assert await owner.send(topic, b"2", sequence=1) == OK


async def test_many_sessions_find_a_new_partition_at_once_and_it_is_fenced_once(room: Room, world: World) -> None:
    topic = await world.govern(room, 1, mode=AccessMode.SHARED)
    parties = [room.connect(f"party {number}") for number in range(30)]
    assert await asyncio.gather(*[party.send(topic, b"0") for party in parties]) == [OK] * 30
    await world.grow(topic, 2)
    before = takeovers(room)
    await asyncio.gather(*[until(lambda p=party: p.send(topic, b"x", partition=1, sequence=0)) for party in parties])
    assert takeovers(room) - before <= 4 * 30, "the master slot and every other, then each for its session"


# Claims --------------------------------------------------------------------------------------------------------------


async def test_a_claim_that_redis_cannot_grant_disturbs_nobody_who_writes(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    one, fencer = room.connect("one"), room.connect(f"fencer;{FENCING}")
    assert await one.send(topic, b"0", sequence=0) == OK
    room.gates.fail("claim", REDIS_AWAY, times=100)
    before = takeovers(room)
    for number in range(1, 6):
        assert await fencer.send(topic, b"f", sequence=0) == BUSY
        assert await one.send(topic, b"%d" % number, sequence=number) == OK
    assert takeovers(room) == before


async def test_what_was_refused_to_a_session_counts_though_its_slot_is_still_open(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    one, two = room.connect("one"), room.connect("two")
    assert [await one.send(topic, b"0", sequence=0), await two.send(topic, b"t", sequence=0)] == [OK, OK]
    one.close()
    waiter = room.connect(f"waiter;{WAITING}", plain=True)
    assert await waiter.send(topic, b"w") == AGAIN
    back = room.connect("one", producer_id=one.producer_id)
    assert await back.send(topic, b"1", sequence=1) == REFUSED
    waiter.close()
    assert [await back.send(topic, b"2", sequence=2) for _ in range(2)] == [BUSY, OK]
    assert back.answers[-2].message == UNHEARD


# Takeovers by another node -------------------------------------------------------------------------------------------


async def test_a_client_that_raises_its_epoch_in_the_middle_of_a_takeover_writes_once(world: World) -> None:
    """The next node has looked, and not fenced yet, when the session raises its epoch and writes once more."""
    async with world.room() as first, world.room(node_id=2) as second:
        topic = await world.govern(first, 1, mode=AccessMode.SHARED)
        one = first.connect("one")
        assert await one.send(topic, b"0", sequence=0) == OK
        await first.gives_up(topic)
        gate = second.gates.hold("InitProducerId")
        back = second.connect("one", producer_id=one.producer_id)
        answer = back.begin(topic, b"1", sequence=0, epoch=1)
        await gate.reached()
        first.governed.topic(topic).serving = True  # its next heartbeat will tell it otherwise
        assert await one.send(topic, b"1", sequence=0, epoch=1) == OK  # this answer is lost
        gate.open()
        code = (await answer).error
        while code not in (OK, REPEAT, GAP):
            code = await back.send(topic, b"1", sequence=0, epoch=1)
        assert await log(world, topic) == [b"0", b"1"]
        assert await back.send(topic, b"2", sequence=1, epoch=1) == OK


async def test_a_node_that_has_not_read_yet_where_a_session_stands_does_not_begin_it_anew(world: World) -> None:
    """The node that served dies behind its fence; the next one reads the changelog a moment late."""
    async with (
        world.room(grace=0.1) as first,
        world.room(node_id=2, grace=0.1) as second,
    ):
        topic = await world.govern(first, 1, mode=AccessMode.SHARED)
        one = first.connect("one")
        assert await one.send(topic, b"0", sequence=0) == OK  # say the answer is lost
        await asyncio.sleep(0.3)
        lag = second.gates.hold("FetchPartition")  # the next poll of the second node's tailer
        other = first.connect("nudge")
        assert await other.send(topic, b"n", sequence=0) == OK
        await lag.reached()
        owner = first.connect(f"owner;{FENCING}")
        fence = first.gates.hold("AddPartitionsToTxn")
        dead = owner.begin(topic, b"x", sequence=0)
        await fence.reached()
        behind = first.gates.hold("ListOffsets")
        fence.open()
        await behind.reached()
        await first.gives_up(topic)
        back, opened = second.connect("one", producer_id=one.producer_id), takeovers(second)
        answer = back.begin(topic, b"0", sequence=0)

        async def has_begun() -> bool:
            return takeovers(second) > opened

        await wait_for_async(has_begun, "the takeover")
        lag.open()
        if (await answer).error not in (OK, REPEAT):
            await until(lambda: back.send(topic, b"0", sequence=0), REPEAT)
        behind.open()
        await dead
        assert (await log(world, topic)).count(b"0") == 1
