"""Topics that come and go under a prefix policy: what is left of each is its generation, and nothing newer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import Kind, View, read_batches
from sidecar.cluster.logs import LogReader
from sidecar.exclusive import forgetting
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.protocol.caller import Channel, FencedError
from tests.kafka.exclusive.room import Room, until
from tests.unit.exclusive.world import World

OK, UNKNOWN_TOPIC = 0, 3
PREFIX = "come-and-go-"


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks need not be half a minute apart."""
    monkeypatch.setattr(forgetting, "_APART_S", 0.0)


@pytest.fixture
def name() -> str:
    return f"{PREFIX}1"


async def govern(room: Room, **fields: Any) -> None:
    await room.governed.env.catalog.set(f"{PREFIX}*", PolicyFields(AccessMode.EXCLUSIVE, **fields))


async def write(room: Room, topic: str, partition: int = 0) -> None:
    owner = room.connect("owner")
    await until(lambda: owner.send_ids(topic, [1, 2], partition=partition, sequence=0))
    owner.close()


async def forget(room: Room, topics: Collection[str]) -> list[str]:
    """Two looks at topics that a broker does not know."""
    assert await room.governed.forgetting.look(topics) == []
    return await room.governed.forgetting.look(topics)


def kinds(view: View, topic: str) -> list[Kind]:
    return [entry.key.kind for entry in view.of_topic(topic)]


def in_redis(world: World, topics: Collection[str]) -> list[str]:
    """Every field of every hash and sorted set of the cluster that names one of the topics."""
    fields = [(key, field) for key, value in world.redis.data.items() if isinstance(value, dict) for field in value]
    return [f"{key} {field}" for key, field in fields if field.decode().split("/")[0] in topics]


async def in_snapshots(room: Room, topic: str) -> set[bytes]:
    """The keys of a topic in the snapshot topic."""
    changelog, logs = room.governed.env.changelog, LogReader(room.governed.env.services.upstream, Channel("test"))
    place = changelog.snapshots_of(topic)
    end = (await logs.ends(place.topic, [place.partition]))[place.partition]
    found: dict[bytes, bytes | None] = {}
    async for records in logs.read(place, 0, end):
        for batch in read_batches(records):
            found.update((record.key, record.value) for _, record in batch.records)
    return {key for key, value in found.items() if value is not None and key.startswith(f"{topic}/".encode())}


async def test_topics_that_come_and_go_leave_their_generation_and_nothing_else(room: Room, world: World) -> None:
    await govern(room, deduplication=True)
    topics = [f"{PREFIX}{number}" for number in range(2)]
    for topic in topics:
        await world.create(2, topic)
        await write(room, topic)
        ids = room.topic(topic).ids
        assert ids is not None
        await ids.save_all()
    assert in_redis(world, topics)
    assert await in_snapshots(room, topics[0])
    await world.delete(*topics)

    assert sorted(await forget(room, topics)) == sorted(topics)

    assert [kinds(room.governed.env.changelog.view, topic) for topic in topics] == [[Kind.OWNERSHIP]] * 2
    assert in_redis(world, topics) == []
    assert [await in_snapshots(room, topic) for topic in topics] == [set(), set()]
    assert not set(topics) & (set(room.governed.topics.named) | set(room.governed.known_topics()))
    assert not any(room.governed.env.changelog.view.opened(topic) for topic in topics)
    for topic in topics:
        (entry,) = room.governed.env.changelog.view.of_topic(topic)
        assert entry.value.generation == 1
        assert len(entry.key.encode()) + entry.value.ByteSize() < len(topic) + 64
    async with world.room(node_id=2) as fresh:
        assert [kinds(fresh.governed.env.changelog.view, topic) for topic in topics] == [[Kind.OWNERSHIP]] * 2
        assert not set(topics) & (set(fresh.governed.topics.named) | set(fresh.governed.known_topics()))


async def test_another_node_forgets_the_topic_too(room: Room, world: World, name: str) -> None:
    async with world.room(node_id=2) as other:
        await govern(room)
        await world.create(2, name)
        await write(room, name)
        await other.governed.env.changelog.tailer.read_to_end(20)
        assert other.governed.known_topics() == [name]
        other.governed.topic(name)
        await world.delete(name)
        assert await forget(room, [name]) == [name]
        await other.governed.env.changelog.tailer.read_to_end(20)
        assert name not in other.governed.topics.named


async def test_a_topic_created_anew_later_goes_on_with_its_generation(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    await write(room, name)
    await world.delete(name)
    assert await forget(room, [name]) == [name]
    await world.create(2, name)
    heir = room.connect("heir")
    await until(lambda: heir.send(name, sequence=0))
    assert room.topic(name).generation == 2
    assert await heir.send(name, sequence=1) == OK


async def test_no_generation_of_a_partition_falls_where_one_record_stands_for_all(
    room: Room, world: World, name: str
) -> None:
    await govern(room, scope=Scope.PARTITION)
    await world.create(2, name)
    for partition in (0, 1, 1):
        owner = room.connect("owner;mode=exclusive_with_fencing", plain=True)
        await until(lambda: owner.send(name, partition=partition))  # noqa: B023  at once
        owner.close()
    await world.delete(name)
    assert await forget(room, [name]) == [name]
    assert kinds(room.governed.env.changelog.view, name) == [Kind.OWNERSHIP]
    assert in_redis(world, [name]) == []
    await world.create(2, name)
    for partition in (0, 1):
        owner = room.connect("heir")
        await until(lambda: owner.send(name, partition=partition, sequence=0))  # noqa: B023  at once
    parts = {part.scope.partition: part.generation for part in room.governed.topic(name).parts}
    assert parts == {0: 3, 1: 3}


async def test_a_broker_that_knows_the_topic_is_believed(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    await write(room, name)
    assert await forget(room, [name]) == []
    assert Kind.SERVING in kinds(room.governed.env.changelog.view, name)


async def test_a_topic_that_came_back_between_two_looks_is_not_gone(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    await write(room, name)
    await world.delete(name)
    look = room.governed.forgetting.look
    assert await look([name]) == []
    await world.create(2, name)
    assert await look([name]) == []
    assert await look([]) == []
    await world.delete(name)
    assert await look([name]) == [], "the look before it came back counts no more"
    assert Kind.SERVING in kinds(room.governed.env.changelog.view, name)


async def test_a_topic_whose_client_is_connected_waits(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    owner = room.connect("owner")
    assert await owner.send(name) == OK
    await world.delete(name)
    assert await forget(room, [name]) == []
    owner.close()
    assert await room.governed.forgetting.look([name]) == [name]


async def test_a_topic_that_somebody_lost_a_moment_ago_waits(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    owner, rival = room.connect("owner"), room.connect("rival;mode=exclusive_with_fencing")
    assert await owner.send(name) == OK
    assert await rival.send(name) == OK
    for party in (owner, rival):
        party.close()
    await world.delete(name)
    assert await forget(room, [name]) == [], "who was deposed is refused for a day"


async def test_a_topic_created_anew_while_it_is_fenced_keeps_everything(room: Room, world: World, name: str) -> None:
    await govern(room)
    await world.create(2, name)
    await write(room, name)
    await world.delete(name)
    assert await room.governed.forgetting.look([name]) == []
    gate = room.gates.hold("InitProducerId")
    look = asyncio.ensure_future(room.governed.forgetting.look([name]))
    await gate.reached()
    await world.create(2, name)
    gate.open()
    assert await look == []
    assert Kind.SERVING in kinds(room.governed.env.changelog.view, name)
    heir = room.connect("heir")
    await until(lambda: heir.send(name, sequence=0))
    assert room.topic(name).generation == 2


async def test_who_takes_the_topic_over_in_front_of_the_last_batch_loses_nothing(
    room: Room, world: World, name: str
) -> None:
    await govern(room)
    await world.create(2, name)
    await write(room, name)
    await world.delete(name)
    assert await room.governed.forgetting.look([name]) == []
    gate = room.gates.hold("ProduceBatch")
    look = asyncio.ensure_future(room.governed.forgetting.look([name]))
    await gate.reached()
    await world.create(2, name)
    async with world.room(node_id=2) as rival:
        heir = rival.connect("heir")
        await until(lambda: heir.send(name, sequence=0))
        gate.open()
        assert await look == []
        assert any(isinstance(error, FencedError) for error in room.told.failures)
        assert await heir.send(name, sequence=1) == OK
        assert rival.topic(name).generation == 2
        for view in (room.governed.env.changelog.view, rival.governed.env.changelog.view):
            serving = view.serving(name)
            assert serving is not None
            assert serving.value.node == 2


async def test_a_topic_that_never_existed_leaves_nothing_at_the_node(room: Room, name: str) -> None:
    await govern(room)
    room.governed.topic(name)  # somebody has asked for it
    assert await room.connect("owner").send(name) == UNKNOWN_TOPIC
    assert room.governed.known_topics() == []
