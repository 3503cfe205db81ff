"""Nodes whose wall clocks are a day off, or jump: what they judge by age they judge by the brokers' clock."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import MASTER_SLOT, Clock, Entry, Opened
from sidecar.policy.policies import PolicyFields
from sidecar.protocol.calls.transactions import PartitionProducers
from sidecar.protocol.ids import TopicPartition
from sidecar.takeover.slots import SlotScope
from sidecar.takeover.tails import Look, trusted_ends
from tests.kafka.exclusive.room import Room, until
from tests.unit.exclusive.world import World

OK, FENCED = 0, 90
FENCING = "mode=exclusive_with_fencing"
DAY_S = 24 * 3600.0


def off(seconds: float) -> Clock:
    """A machine whose wall clock is so far ahead."""
    return Clock(wall=lambda: time.time() + seconds)


@pytest.mark.parametrize("ahead_s", [2 * DAY_S, -2 * DAY_S], ids=["ahead", "behind"])
async def test_a_node_whose_clock_is_days_off_forgets_no_deposed_session(world: World, ahead_s: float) -> None:
    async with world.room() as room:
        topic = await world.govern(room, 1)
        first, second = room.connect("first"), room.connect(f"second;{FENCING}")
        assert [await first.send(topic, b"0"), await second.send(topic, b"1")] == [OK, OK]
        deposed = first.producer_id
    async with world.room(clock=off(ahead_s)) as room:
        assert await room.connect(f"third;{FENCING}").send(topic, b"2") == OK
        record = room.governed.env.changelog.view.ownership(topic)
        assert record is not None
        assert f"pid:{deposed}" in [each.session for each in record.value.deposed]
        assert abs(record.value.since_ms / 1000 - time.time()) < 3600
    async with world.room() as room:
        assert await room.connect("first", producer_id=deposed).send(topic, b"3", sequence=1) == FENCED


async def test_names_are_not_idle_because_the_clock_of_a_node_is_ahead(world: World) -> None:
    async with world.room(clock=off(2 * DAY_S)) as room:
        topic = await world.create(1)
        await room.governed.env.catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE, deduplication=True))
        owner = room.connect("billing")
        await until(lambda: owner.send_ids(topic, [7], sequence=0))
        ids = room.topic(topic).ids
        assert ids is not None
        mark = ids.partitions[0].marks.mark(b"billing")
        assert mark is not None
        assert abs(mark.seen - time.time()) < 3600


async def test_a_leaders_memory_is_trusted_only_by_the_brokers_clock(room: Room, world: World) -> None:
    """Of a slot's epoch that began 20 hours ago a leader may have forgotten everything; a node whose clock is a day
    behind would take it for new.
    """
    topic = await world.govern(room, 1)
    assert await room.connect("owner").send(topic, b"0") == OK
    view, opened = room.governed.env.changelog.view, room.governed.env.changelog.view.opened(topic)[MASTER_SLOT]
    aged = replace(opened, at_ms=opened.at_ms - (20 * 3600 * 1000))
    look = Look({0: 9}, {0: 1}, {TopicPartition(topic, 0): PartitionProducers(0, None, ())})

    def trusted(clock: Clock, entry: Entry[Opened]) -> dict[int, int]:
        return trusted_ends(view, clock, SlotScope(topic, MASTER_SLOT), entry, look, 6 * 3600 * 1000)

    behind = off(-DAY_S)
    assert trusted(behind, aged) == {}, "what time it is is not known yet"
    behind.heard(opened.at_ms, behind.elapsed() - 1)
    assert trusted(behind, aged) == {}
    assert trusted(behind, opened) == {0: 9}
