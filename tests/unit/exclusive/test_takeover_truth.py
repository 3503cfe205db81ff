"""What a takeover believes: leaders that may lose what they say, brokers that lag, logs that others still write to.

One broker, whose answers are altered on their way to the node that takes over; delayed batches are held back here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.cluster.logs import LogReader
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing import topic as fencing
from sidecar.forwarder import forwarder as links
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.protocol.calls.logs import Fetched
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.metadata import ClusterState
from tests.kafka.exclusive.room import Party, Room
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async

OK, BUSY, MOVED, AGAIN, DUPLICATE = 0, 5, 6, 7, 46


@asynccontextmanager
async def two_rooms(world: World) -> AsyncIterator[tuple[Room, Room]]:
    async with (
        world.room(grace=5.0) as one,
        world.room(node_id=2, grace=0.3) as two,
    ):
        yield one, two
        one.crash()


async def new_topic(world: World, partitions: int = 1) -> str:
    return await world.create(partitions)


async def log_of(world: World, topic: str, partition: int = 0) -> list[bytes]:
    return await world.log(topic, partition)


async def settled(party: Party, topic: str, value: bytes, **options: Any) -> int:
    """The answer to a batch that is sent until it is no retriable one."""
    found: list[int] = []

    async def answered() -> bool:
        found.append(await party.send(topic, value, **options))
        return found[-1] not in (BUSY, MOVED, AGAIN)

    await wait_for_async(answered, "an answer")
    return found[-1]


class Delayed:
    """Batches on their way to a leader: those sent while `hold` stay here until they `arrive`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hold = False
        self._held: list[tuple[Any, tuple[Any, ...]]] = []
        self._send = links.LeaderLink._send

        def send(link: Any, *told: Any) -> None:
            if self.hold:
                self._held.append((link, told))
            else:
                self._send(link, *told)

        monkeypatch.setattr(links.LeaderLink, "_send", send)

    def let_go(self) -> None:
        for link, told in self._held:
            self._send(link, *told)
        self._held.clear()

    async def arrive(self, room: Room, topic: str, partition: int = 0) -> None:
        """They are in the log when this returns."""
        logs = LogReader(room.governed.env.services.upstream)
        before = await logs.ends(topic, [partition])
        self.let_go()

        async def there() -> bool:
            return await logs.ends(topic, [partition]) != before

        await wait_for_async(there, "the delayed batch")


# Slots are fenced one after another ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Scope.TOPIC, Scope.PARTITION])
async def test_what_a_slot_writes_behind_the_master_slots_marker_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    delayed = Delayed(monkeypatch)
    topic = await new_topic(world)
    async with world.room(grace=5.0) as room:
        mode = AccessMode.SHARED if scope is Scope.TOPIC else AccessMode.EXCLUSIVE
        await room.governed.env.catalog.set(topic, PolicyFields(mode, scope=scope))
        billing = room.connect("billing")
        assert await settled(billing, topic, b"0", sequence=0) == OK
        delayed.hold = True
        late = billing.begin(topic, b"1", sequence=1)
        delayed.hold = False
        await room.governed.env.catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.TOPIC))
        again = room.connect("billing", producer_id=billing.producer_id)
        fence, fenced = fencing.fence_slot, list[str]()

        async def in_turn(upstream: Any, slot: Any, *rest: Any) -> None:
            if fenced and not fenced[0].endswith(("/1", "/p0")) and len(fenced) == 1:
                await delayed.arrive(room, topic)
            fenced.append(slot.transactional_id)
            await fence(upstream, slot, *rest)

        monkeypatch.setattr(fencing, "fence_slot", in_turn)
        assert await settled(again, topic, b"1", sequence=1) == DUPLICATE
        assert len(fenced) > 1, "one slot alone was fenced"
        assert (await late).error in (OK, MOVED)
        assert await again.send(topic, b"2", sequence=2) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2"]


# What leaders say ---------------------------------------------------------------------------------------------------


def of_an_earlier_leader(room: Room, topic: str, producer_id: int | None = None) -> None:
    """One look is at a leader that remembers one more batch, which it loses with its place to the next one."""
    looks = 0

    def listed(answer: Any) -> Any:
        return {
            where: replace(each, leader_epoch=each.leader_epoch - 1) if where.topic == topic and not looks else each
            for where, each in answer.items()
        }

    def remembered(answer: Any) -> Any:
        nonlocal looks
        found = dict(answer)
        for where, producers in answer.items():
            if where.topic == topic and not looks:
                active = tuple(
                    replace(each, last_sequence=each.last_sequence + 1)
                    if each.last_sequence >= 0 and producer_id in (None, each.stamp.producer_id)
                    else each
                    for each in producers.producers
                )
                looks += active != producers.producers
                found[where] = replace(producers, producers=active)
        return found

    room.gates.alter("ListOffsets", listed)
    room.gates.alter("DescribeProducers", remembered)


async def test_a_batch_that_a_leader_lost_with_its_place_is_not_called_a_repeat(world: World) -> None:
    topic = await new_topic(world)
    async with two_rooms(world) as (one, two):
        await one.govern(topic)
        billing = one.connect("billing")
        assert await settled(billing, topic, b"0", sequence=0) == OK
        assert await billing.send(topic, b"1", sequence=1) == OK
        await one.gives_up(topic)
        of_an_earlier_leader(two, topic)
        again = two.connect("billing", producer_id=billing.producer_id)
        assert await settled(again, topic, b"2", sequence=2) == OK
        assert await again.send(topic, b"1", sequence=1) == DUPLICATE
        assert await again.send(topic, b"3", sequence=3) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3"]


async def test_nor_is_one_that_was_sent_while_the_topic_had_no_policy(world: World) -> None:
    topic = await new_topic(world)
    async with world.room() as room:
        producer_id = 77
        written = await world.kafka.produce(
            TopicPartition(topic, 0), Stamp(ProducerId(producer_id), ProducerEpoch(0)), 0, b"0"
        )
        assert written.error == OK
        await room.govern(topic)
        of_an_earlier_leader(room, topic, producer_id)
        billing = room.connect("billing", producer_id=producer_id)
        assert await settled(billing, topic, b"1", sequence=1) == OK
        assert await billing.send(topic, b"0", sequence=0) == DUPLICATE
        assert room.gates.passed.count("claim") == 2  # it looked again
    assert await log_of(world, topic) == [b"0", b"1"]


async def test_an_empty_answer_of_a_new_leader_is_not_the_end_of_a_tail(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed = Delayed(monkeypatch)
    topic = await new_topic(world)
    async with two_rooms(world) as (one, two):
        await one.govern(topic)
        billing = one.connect("billing")
        assert await settled(billing, topic, b"0", sequence=0) == OK
        delayed.hold = True
        late = billing.begin(topic, b"1", sequence=1)
        delayed.hold = False
        await one.gives_up(topic)
        looked = two.gates.hold("InitProducerId")
        again = two.connect("billing", producer_id=billing.producer_id)
        answer = asyncio.ensure_future(settled(again, topic, b"1", sequence=1))
        await looked.reached()
        await delayed.arrive(two, topic)
        lags = iter(range(3))

        ask = LogReader._ask

        async def lagging(reader: LogReader, leader: int, partition: Any, *rest: Any) -> Fetched:
            found = await ask(reader, leader, partition, *rest)
            if partition.topic != topic or next(lags, None) is None:
                return found
            return Fetched(0, Offset(1), Offset(1), Offset(0), b"")  # its high watermark is behind

        monkeypatch.setattr(LogReader, "_ask", lagging)
        looked.open()
        assert await answer == DUPLICATE
        assert next(lags, None) is None, "no answer was empty"
        assert (await late).error in (OK, MOVED)
        assert await again.send(topic, b"2", sequence=2) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2"]


# Which partitions there are -----------------------------------------------------------------------------------------


def lag(room: Room, topic: str) -> None:
    """No broker that answers this node knows of more than one partition."""

    def fewer(state: ClusterState) -> ClusterState:
        topics = [
            replace(each, partitions=tuple(known for known in each.partitions if known.partition == 0))
            if each.name == topic
            else each
            for each in state.topics
        ]
        return replace(state, topics=tuple(topics))

    upstream = room.governed.env.services.upstream
    assert isinstance(upstream, KafkaUpstream)
    upstream.view.forget([topic.encode()])
    room.gates.alter("MetadataCall", fewer)


async def test_a_node_whose_brokers_lag_behind_takes_nothing_that_was_written_already(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed = Delayed(monkeypatch)
    topic = await new_topic(world, 2)
    async with two_rooms(world) as (one, two):
        await one.govern(topic)
        billing = one.connect("billing")
        assert await settled(billing, topic, b"0", sequence=0) == OK
        assert await billing.send(topic, b"0", partition=1, sequence=0) == OK
        delayed.hold = True
        late = billing.begin(topic, b"zombie", partition=1, sequence=1)
        delayed.hold = False
        await one.gives_up(topic)
        lag(two, topic)
        rival = two.connect("rival;mode=exclusive_with_fencing")

        async def refused() -> bool:
            assert await rival.send(topic, b"1", sequence=0) in (BUSY, MOVED, AGAIN)
            return any(f"knows of partition 1 of {topic}" in str(failure) for failure in two.told.failures)

        await wait_for_async(refused, "a takeover to refuse")
        assert two.gates.passed.count("InitProducerId") == 0
        two.gates.heal()
        assert await settled(rival, topic, b"1", sequence=0) == OK
        delayed.let_go()
        assert (await late).error != OK
    assert await log_of(world, topic, 1) == [b"0"]
    assert await log_of(world, topic) == [b"0", b"1"]


async def test_what_is_fenced_was_looked_at(world: World) -> None:
    """A partition that is added between the two makes the takeover begin anew."""
    topic = await new_topic(world)
    async with world.room() as room:
        await room.govern(topic)
        gate = room.gates.hold("InitProducerId")
        billing = room.connect("billing")
        answer = billing.begin(topic, b"0", sequence=0)
        await gate.reached()
        await world.grow(topic, 2)
        gate.open()
        if (await answer).error != OK:  # batches wait two seconds for a takeover
            assert await settled(billing, topic, b"0", sequence=0) == OK
        assert room.gates.passed.count("claim") == 2
        assert await settled(billing, topic, b"1", partition=1, sequence=0) == OK


async def test_a_topic_made_anew_with_fewer_partitions_is_served(world: World) -> None:
    topic = await new_topic(world, 2)
    async with world.room() as room:
        await room.govern(topic)
        billing = room.connect("billing")
        assert await settled(billing, topic, b"0", partition=1, sequence=0) == OK
        await world.create_anew(topic, 1)
        billing.close()
        other = room.connect("other;mode=exclusive_with_fencing")

        async def served() -> bool:
            return await other.send(topic, b"1", sequence=0) == OK

        await wait_for_async(served, "the new topic to be served")
    assert await log_of(world, topic) == [b"1"]
