"""A policy that a client made by asking for a mode ends with the last session that asked, and its grace."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive.client_policies import ClientPolicies
from sidecar.exclusive.policy_use import Idle
from sidecar.policy.policies import PolicyFields
from tests.kafka.exclusive.room import Room
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from tests.kafka.exclusive.room import Party

OK, MOVED, REFUSED = 0, 6, 44


async def a_topic(world: World) -> str:
    return await world.create(1)


async def ask(room: Room, topic: str, client_id: str) -> Party:
    """A client that asks for a mode, as the gateway handles its first request, and writes."""
    await governs(room, topic)
    party = room.connect(client_id)

    async def writes() -> bool:
        return await party.send(topic, sequence=0) == OK

    await wait_for_async(writes, f"{client_id} to write")
    party.sequence = 1
    return party


async def governs(room: Room, topic: str) -> None:
    async def governed() -> bool:
        return await room.governed.env.catalog.govern(topic) is None

    await wait_for_async(governed, "the topic to be governed")


def has_policy(room: Room, topic: str) -> bool:
    return room.governed.env.catalog.book.effective(topic) is not None


async def ends(room: Room, topic: str) -> None:
    policies = ClientPolicies(room.governed)

    async def gone() -> bool:
        await policies.look()
        return not has_policy(room, topic)

    await wait_for_async(gone, "the policy to end")


async def stays(room: Room, topic: str) -> None:
    """Nobody ends the policy, however long after the grace it is looked at."""
    policies = ClientPolicies(room.governed)
    await policies.look()
    assert not policies._idle, "somebody uses it"
    assert has_policy(room, topic)


async def test_whoever_comes_back_after_the_policy_gets_the_next_generation(room: Room, world: World) -> None:
    topic = await a_topic(world)
    owner = await ask(room, topic, "x;mode=exclusive")
    owner.close()
    await ends(room, topic)
    back = room.connect("x;mode=exclusive", producer_id=owner.producer_id)
    await governs(room, topic)

    async def writes() -> bool:
        return await back.send(topic, sequence=1) == OK

    await wait_for_async(writes, "the session to write again")
    assert room.topic(topic).generation == 2


async def test_those_who_asked_keep_the_policy_and_others_do_not(room: Room, world: World) -> None:
    topic = await a_topic(world)
    asked, guest = await ask(room, topic, "x;mode=shared"), room.connect("guest")
    assert await guest.send(topic) == OK
    await stays(room, topic)
    asked.close()
    await ends(room, topic)


async def test_who_waits_keeps_the_policy(room: Room, world: World) -> None:
    topic = await a_topic(world)
    owner = await ask(room, topic, "x;mode=exclusive")
    waiting = room.connect("y;mode=wait_for_exclusive")
    assert await waiting.send(topic, sequence=0) != OK
    owner.close()
    await room.idle(topic)
    await stays(room, topic)
    assert await waiting.send(topic, sequence=0) == OK


async def test_an_operators_policy_stays_also_when_it_was_set_in_the_middle(room: Room, world: World) -> None:
    topic = await a_topic(world)
    (await ask(room, topic, "x;mode=exclusive")).close()
    async with world.room(node_id=2) as other:
        gate = room.gates.hold("delete_policy")
        policies = ClientPolicies(room.governed)

        async def looked() -> bool:
            await policies.look()
            return topic not in room.governed.env.catalog.by_clients

        ending = asyncio.create_task(wait_for_async(looked, "the policy to be no client's any more"))
        await gate.reached()
        await other.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        gate.open()
        await ending
        for each in (room, other):
            await each.governed.env.changelog.tailer.read_to_end(10)
            assert each.governed.env.catalog.book.exact(topic) == PolicyFields(AccessMode.SHARED, deduplication=True)


async def test_a_claim_that_comes_in_the_middle_is_made_anew_on_a_topic_without_a_policy(
    room: Room, world: World
) -> None:
    topic = await a_topic(world)
    owner = await ask(room, topic, "x;mode=exclusive")
    owner.close()
    gate = room.gates.hold("delete_policy")
    ending = asyncio.create_task(ends(room, topic))
    await gate.reached()
    back = room.connect("x;mode=exclusive", producer_id=owner.producer_id)
    claim = back.begin(topic, sequence=1)
    gate.open()
    await ending
    assert (await claim).error == MOVED, "its client asks for the mode again"
    assert room.topic(topic).generation == 1


async def test_a_node_that_takes_the_topic_in_the_middle_keeps_the_policy_for_its_owner(
    room: Room, world: World
) -> None:
    """The deletion was decided, and its node stops; the next one grants the topic; then the first one goes on."""
    topic = await a_topic(world)
    (await ask(room, topic, "x;mode=exclusive")).close()
    async with world.room(node_id=2) as other:
        gate = room.gates.hold("delete_policy")
        policies = ClientPolicies(room.governed)

        async def stopped() -> bool:
            if not gate._reached.is_set():
                await policies.look()
            return gate._reached.is_set()

        ending = asyncio.create_task(wait_for_async(stopped, "the decision"))
        await gate.reached()
        await room.gives_up(topic)
        owner = await ask(other, topic, "y;mode=exclusive")
        gate.open()
        await ending
        await room.idle(topic)
        for each in (room, other):
            await each.governed.env.changelog.tailer.read_to_end(10)
            assert has_policy(each, topic)
        assert await owner.send(topic) == OK


async def test_after_all_nodes_were_away_the_first_in_line_ends_the_policy(world: World) -> None:
    async with world.room() as room:
        topic = await a_topic(world)
        await ask(room, topic, "x;mode=exclusive")
        room.crash()
    async with world.room() as room:
        assert has_policy(room, topic)
        await ends(room, topic)


async def test_a_node_looks_for_policies_that_are_over_until_it_stops(room: Room, world: World) -> None:
    topic = await a_topic(world)
    owner = await ask(room, topic, "x;mode=exclusive")
    looks = asyncio.create_task(ClientPolicies(room.governed).run())
    await world.kafka.pause(60.0)
    assert has_policy(room, topic)
    owner.close()
    room.gates.passed.clear()
    await world.kafka.pause(60.0)
    assert not has_policy(room, topic)
    assert room.gates.passed.count("publish") == 1, "the topic is fenced once"
    looks.cancel()


@pytest.mark.parametrize(("served", "failures"), [(True, 4), (False, 0)], ids=["served before", "served since"])
async def test_each_failure_to_end_a_policy_counts_but_one_that_began_to_serve(served: bool, failures: int) -> None:
    topic = SimpleNamespace(name="orders", serving=served)

    async def fails() -> None:
        topic.serving = True

    topic.end_policy = fails
    env = SimpleNamespace(now=lambda: 5.0, catalog=SimpleNamespace(by_clients={"orders"}))
    policies = ClientPolicies(cast(Any, SimpleNamespace(env=env)), {"orders": Idle(1.0, 3)})
    await policies._end(cast(Any, topic))
    assert policies._idle == {"orders": Idle(5.0, failures)}
