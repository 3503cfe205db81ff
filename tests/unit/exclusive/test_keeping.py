"""Fences that do not fade: brokers forget within seconds here, and the keeper is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive.keeper import Keeper
from sidecar.network.tasks import Tasks
from tests.sim.parts import Upstream
from tests.unit.exclusive.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kafka.exclusive.room import Room

OK = 0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Partitions forget a producer after 16 s, the coordinator a transactional id after 64 s."""
    found = World(producer_expiration_ms=16_000, transactional_id_expiration_ms=64_000, expiration_check=1.0)
    yield found
    await found.kafka.close()


@pytest.fixture
async def kept(room: Room) -> AsyncIterator[Room]:
    """A room with its keeper at work."""
    upstream, tasks = room.governed.env.services.upstream, Tasks(room.unexpected.append)
    assert isinstance(upstream, Upstream)
    keeper = Keeper(upstream, tasks, room.governed, lambda topic, error: room.unexpected.append(error))
    tasks.start(keeper.run())
    yield room
    await tasks.cancel()


async def markers(world: World, topic: str, partition: int) -> int:
    return sum(batch.is_control for batch in await world.batches(topic, partition))


@pytest.mark.parametrize("mode", [AccessMode.EXCLUSIVE, AccessMode.SHARED])
async def test_the_fence_of_an_idle_topic_is_renewed_and_its_writer_goes_on(
    kept: Room, world: World, mode: AccessMode
) -> None:
    topic = await world.govern(kept, mode=mode)
    owner = kept.connect("owner")
    assert await owner.send(topic, b"0") == OK
    before = [await markers(world, topic, partition) for partition in (0, 1)]
    await world.kafka.pause(30.0)
    after = [await markers(world, topic, partition) for partition in (0, 1)]
    assert all(new > old for new, old in zip(after, before, strict=True))
    assert await owner.send(topic, b"1") == OK
    assert await world.log(topic) == [b"0", b"1"]
    assert kept.topic(topic).generation == (1 if mode is AccessMode.EXCLUSIVE else 0)


async def test_a_partition_that_is_added_is_fenced_though_nobody_writes(kept: Room, world: World) -> None:
    topic = await world.govern(kept, 1)
    owner = kept.connect("owner")
    assert await owner.send(topic, b"0") == OK
    await world.grow(topic, 2)
    await world.kafka.pause(30.0)
    assert await markers(world, topic, 1)
    assert await owner.send(topic, b"1", partition=1, sequence=0) == OK
    assert await owner.send(topic, b"1", sequence=1) == OK
    assert kept.topic(topic).generation == 1
