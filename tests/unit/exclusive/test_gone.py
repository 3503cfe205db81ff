"""Topics that were deleted in Kafka: their series end, nothing else of them does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive import keeper
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.keeper import Keeper
from sidecar.network.tasks import Tasks
from sidecar.telemetry.hooks import NodeMetrics
from tests.kafka.exclusive.room import Room, until
from tests.kafka.gates import GatedUpstream
from tests.unit.exclusive.world import World

OK, NO_TOPIC = 0, 3


@dataclass
class Kept:
    """A room whose keeper looks when it is told to, with places for the series of one topic."""

    governed: GovernedTopics
    keeper: Keeper
    metrics: NodeMetrics

    async def look(self) -> None:
        await self.keeper._read(list(self.governed.kept_topics()))

    def series(self) -> dict[str, tuple[int | None, str | None]]:
        """Generation and owner by topic."""
        return {
            topic: (stats.generation, stats.owner[0] if stats.owner else None)
            for topic, stats in self.metrics.topics.topics.items()
        }


@pytest.fixture
def kept(room: Room, monkeypatch: pytest.MonkeyPatch) -> Kept:
    metrics, governed = NodeMetrics({}, "test", topic_limit=1), room.governed
    for hook in ("owner_changed", "topic_forgotten", "governed_produce", "fenced"):
        monkeypatch.setattr(room.told, hook, getattr(metrics, hook))
    monkeypatch.setattr(keeper, "_READ_S", -1.0)
    monkeypatch.setattr(keeper, "_GONE_S", 0.0)
    tasks, upstream, told = Tasks(room.unexpected.append), governed.env.services.upstream, room.told.operation_failed
    assert isinstance(upstream, GatedUpstream)
    found = Keeper(upstream, tasks, governed, told)
    return Kept(governed, found, metrics)


async def test_a_topic_that_was_deleted_gives_its_place_to_one_that_is_there(
    room: Room, kept: Kept, world: World
) -> None:
    former, live = await world.govern(room), await world.govern(room)
    owner, heir = room.connect("owner"), room.connect("heir")
    assert await owner.send(former) == OK
    assert await heir.send(live) == OK
    await kept.look()
    assert kept.series() == {former: (1, "owner")}
    await world.delete(former)
    await kept.look()
    assert kept.series() == {live: (1, "heir")}


async def test_a_topic_that_was_created_anew_goes_on_with_its_generation_and_has_its_series_again(
    room: Room, kept: Kept, world: World
) -> None:
    topic = await world.govern(room, 1)
    assert await room.connect("owner").send(topic) == OK
    await world.delete(topic)
    await kept.look()
    assert kept.series() == {}
    assert room.topic(topic).generation == 1
    await world.create(1, topic)
    await kept.look()
    assert kept.series() == {topic: (1, "owner")}, "though nothing has happened to it"
    heir = room.connect("heir;mode=exclusive_with_fencing")
    await until(lambda: heir.send(topic, sequence=0))
    assert kept.series() == {topic: (2, "heir")}


async def test_one_answer_that_does_not_know_a_topic_takes_nothing_from_it(
    room: Room, kept: Kept, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GONE_S", 30.0)
    topic = await world.govern(room)
    assert await room.connect("owner").send(topic) == OK
    await world.delete(topic)
    await kept.look()
    assert kept.series() == {topic: (1, "owner")}


async def test_a_name_that_was_never_a_topic_keeps_no_place(room: Room, kept: Kept) -> None:
    await room.govern("never-*", AccessMode.EXCLUSIVE)
    kept.metrics.fenced("never-there", "redis_down")
    assert await room.connect("owner").send("never-there") == NO_TOPIC
    await room.idle("never-there")
    assert kept.series() == {}
