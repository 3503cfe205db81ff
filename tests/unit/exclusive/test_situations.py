"""What stands behind an answer: leaders that confirmed, records that the next node needs, sequences that count as used,
an owner's grace.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from metadata.ownership import AccessMode
from sidecar.dedup.cleaning import SNAPSHOT_S
from sidecar.policy.policies import Scope
from sidecar.protocol.messages.transactions import DESCRIBE_PRODUCERS
from tests.kafka.exclusive.room import until
from tests.kafka.gates import REDIS_AWAY

if TYPE_CHECKING:
    from tests.kafka.exclusive.room import Room
    from tests.unit.exclusive.world import World

OK, BUSY, MOVED, AGAIN, REFUSED, REPEAT, STALE, FENCED = 0, 5, 6, 7, 44, 46, 47, 90
FENCING = "mode=exclusive_with_fencing"


async def owner_in_redis(room: Room, topic: str) -> str | None:
    stored = (await room.governed.env.services.store.ownership(topic)).owner
    return None if stored is None else stored.session


def leader_of(world: World, topic: str, partition: int) -> int:
    return world.kafka.cluster.leader(topic, partition)


# The owner's grace ----------------------------------------------------------------------------------------------------


async def test_redis_keeps_an_owner_that_may_still_come_back(world: World) -> None:
    """A claim that fails takes nothing from it: no node may give the topic away before its grace is over."""
    async with world.room() as room:
        topic = await world.govern(room)
        owner = room.connect("owner")
        assert await owner.send(topic, b"0") == OK
        room.crash()
    async with world.room(node_id=2, grace=30.0) as room:
        fencer = room.connect(f"fencer;{FENCING}")
        room.gates.fail("claim", REDIS_AWAY)
        assert await fencer.send(topic, sequence=0) in (BUSY, MOVED)
        assert await owner_in_redis(room, topic) == f"pid:{owner.producer_id}"
        back = room.connect("owner", producer_id=owner.producer_id)
        await until(lambda: back.send(topic, b"1", sequence=1))
        assert room.topic(topic).generation == 1
    assert await world.log(topic) == [b"0", b"1"]


async def test_an_owner_that_did_not_come_back_is_released_before_the_next_one_claims(world: World) -> None:
    async with world.room() as room:
        topic = await world.govern(room)
        owner = room.connect("owner")
        assert await owner.send(topic, b"0") == OK
        room.crash()
    async with world.room(node_id=2, grace=1.0) as room:
        heir = room.connect("heir")
        assert await heir.send(topic, sequence=0) in (MOVED, AGAIN, BUSY)
        await until(lambda: heir.send(topic, b"1", sequence=0))
        passed = room.gates.passed
        assert passed.index("release") < len(passed) - 1 - passed[::-1].index("claim")
        assert room.topic(topic).generation == 2


async def test_an_owners_time_to_come_back_runs_from_the_end_of_its_node(world: World) -> None:
    async with world.room(node_id=2, grace=1.5) as second:
        async with world.room(grace=1.5) as first:
            topic = await world.govern(first)
            owner = first.connect("owner")
            assert await owner.send(topic, b"0") == OK
            second.topic(topic)
            await world.kafka.pause(1.8)
        rival = second.connect("rival", plain=True)
        await until(lambda: rival.send(topic, b"r"), AGAIN)  # the owner may still come
        back = second.connect("owner", producer_id=owner.producer_id)
        await until(lambda: back.send(topic, b"1", sequence=1))
        assert await rival.send(topic, b"r") == REFUSED
        assert second.topic(topic).generation == 1


# Leaders that do not confirm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [0, 1, 2])
async def test_nobody_writes_before_every_leader_has_confirmed_the_fence(world: World, room: Room, slow: int) -> None:
    topic = await world.govern(room, 3)
    owner, rival = room.connect("owner"), room.connect(f"rival;{FENCING}")
    assert await owner.send(topic, b"0", partition=slow) == OK
    behind = world.kafka.cluster.brokers[leader_of(world, topic, slow)]
    asked = room.gates.hold("EndTxn")
    claim = rival.begin(topic, b"1", partition=(slow + 1) % 3)
    await asked.reached()
    records = room.gates.passed.count("ProduceBatch")
    behind.keep_back(lambda request: request.key == DESCRIBE_PRODUCERS.key)
    asked.open()
    await world.kafka.pause(1.5)
    assert not claim.done()
    assert room.gates.passed.count("ProduceBatch") == records, "it counts as fenced"
    behind.keeps_back = None
    behind.give_out()
    if (await claim).error != OK:
        await until(lambda: rival.send(topic, b"1", partition=(slow + 1) % 3, sequence=0))
    assert await owner.send(topic, b"x", partition=slow, sequence=1) == FENCED


# The next node --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AccessMode.EXCLUSIVE, AccessMode.SHARED])
async def test_a_raised_epoch_is_known_to_the_next_node(world: World, mode: AccessMode) -> None:
    """Else it would take what was written under the raised epoch for nobody's, or a repeat for a new batch."""
    async with world.room() as room:
        topic = await world.govern(room, mode=mode)
        owner = room.connect("owner")
        for partition in (0, 1):
            assert await owner.send(topic, b"0", partition=partition, sequence=0) == OK
        await until(lambda: owner.send(topic, b"1", sequence=0, epoch=1))
        assert await owner.send(topic, b"2", sequence=1, epoch=1) == OK
        room.crash()
    async with world.room(node_id=2, grace=30.0) as room:
        back = room.connect("owner", producer_id=owner.producer_id)
        await until(lambda: back.send(topic, b"3", sequence=2, epoch=1))
        assert await back.send(topic, b"2", sequence=1, epoch=1) in (OK, REPEAT)
        assert await back.send(topic, b"x", sequence=3, epoch=0) == STALE
        assert await back.send(topic, b"1", partition=1, sequence=1) == OK
        assert await back.send(topic, b"0", partition=1, sequence=0) in (OK, REPEAT)
    assert await world.log(topic) == [b"0", b"1", b"2", b"3"]
    assert await world.log(topic, 1) == [b"0", b"1"]


@pytest.mark.parametrize("scope", [Scope.TOPIC, Scope.PARTITION])
async def test_the_next_node_knows_the_ids_of_records_that_are_deleted(world: World, scope: Scope) -> None:
    """A node that hands a topic back stores its ids: retention may take the records before anybody reads them."""
    async with world.room() as room:
        topic = await world.govern(room, deduplication=True, scope=scope)
        owner = room.connect("owner")
        await until(lambda: owner.send_ids(topic, [1, 2], sequence=0))
        await room.governed.drain()
        await world.delete_records(topic)
    async with world.room(node_id=2) as room:
        heir = room.connect("owner")
        await until(lambda: heir.send_ids(topic, [2, 3], sequence=0))
        assert room.told.lost == []
        known = await room.governed.topic(topic).know_ids(5.0)
        assert known.of(0).marks.persisted(b"owner") == 3
    assert await world.log(topic) == [b"1", b"2", b"3"], "with what is deleted"


async def test_ids_are_stored_while_the_node_serves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a node that dies leaves all of the log to read, or what retention has left of it."""
    monkeypatch.setattr("sidecar.dedup.partition.time", SimpleNamespace(monotonic=world.kafka.now))
    async with world.room() as room:
        topic = await world.govern(room, deduplication=True)
        owner = room.connect("owner")
        await until(lambda: owner.send_ids(topic, [1], sequence=0))
        await world.kafka.pause(2 * SNAPSHOT_S)
        room.crash()
    await world.delete_records(topic)
    async with world.room(node_id=2, grace=1.0) as room:
        heir = room.connect("owner")
        await until(lambda: heir.send_ids(topic, [1, 2], sequence=0))
    assert await world.log(topic) == [b"1", b"2"], "with what is deleted"


# Sequences that the client counts as used -----------------------------------------------------------------------------


async def test_a_session_goes_on_behind_a_batch_under_the_producer_name_of_another_one(
    world: World, room: Room
) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED, deduplication=True)
    first, second = room.connect("first"), room.connect("second")
    await until(lambda: first.send_ids(topic, [1], name=b"sensor", sequence=0))
    await until(lambda: second.send_ids(topic, [2], name=b"sensor", sequence=0), REFUSED)
    await until(lambda: second.send_ids(topic, [3], name=b"other", sequence=1))
    first.close()
    await until(lambda: second.send_ids(topic, [4], name=b"sensor", sequence=2))
    assert await world.log(topic) == [b"1", b"3", b"4"]


# A topic that is created anew -----------------------------------------------------------------------------------------


async def test_a_session_that_comes_to_a_topic_that_was_created_anew_shares_it(world: World, room: Room) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    assert await room.connect("first").send(topic, b"old") == OK
    await world.create_anew(topic)
    second = room.connect("second")
    assert await second.send(topic, sequence=0) == BUSY, "no other node serves it"
    await until(lambda: second.send(topic, b"new", sequence=0))
    assert await world.log(topic) == [b"new"]
