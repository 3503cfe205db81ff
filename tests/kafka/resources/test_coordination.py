"""Who coordinates, and what becomes of claims when that changes: crashes, stalls, Redis emptied and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.protocol.caller import DisconnectedError, FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.epoch import CLAIMS
from tests.conftest import Unique
from tests.kafka.gates import REDIS_AWAY
from tests.kafka.resources.room import Caller, Room, coordinating, open_room, wish
from tests.services import Services
from tests.wait import wait_for_async, wait_until

INVALID_PRODUCER_EPOCH = 47


@pytest.fixture
async def rooms(services: Services, unique: Unique) -> AsyncIterator[tuple[Room, Room]]:
    """Two nodes of a cluster: the one that coordinates, and the other one."""
    cluster = unique("claims")
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(
                open_room(services.kafka_bootstrap, services.redis_url, cluster, node_id=number)
            )
            for number in (1, 2)
        ]
        yield await coordinating(*both)


async def answer_of(caller: Caller, *names: str, **options: Any) -> list[int | str]:
    """Ask again while nobody coordinates here."""
    found: list[list[int | str]] = []

    async def answered() -> bool:
        try:
            found.append(await caller.own(*[wish(name) for name in names], **options))
        except KafkaError:
            return False
        return True

    await wait_for_async(answered, "an answer")
    return found[0]


async def gone(room: Room, name: str) -> None:
    async def nobody() -> bool:
        return name not in room.owners

    await wait_for_async(nobody, f"nobody to own {name}")


async def stepped_down(room: Room) -> None:
    async def no_more() -> bool:
        return not room.coordinator.coordinates

    await wait_for_async(no_more, "the node to coordinate no more")


async def test_another_node_says_who_coordinates(rooms: tuple[Room, Room]) -> None:
    first, other = rooms
    await first.caller().own(wish("leader"))
    with pytest.raises(KafkaError) as refused:
        await other.caller().own(wish("leader"))
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert other.coordinator.state.node == first.node_id
    await other.sees(first.owners)
    (owner,), _ = other.coordinator.state.describe(other.coordinator.state.claimed(""))
    assert (owner.owner_name, owner.serving_node) == ("billing", first.node_id)


async def test_a_claim_that_the_log_gives_to_somebody_else_is_not_granted(
    services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader appends a claim, loses its place before its replicas have it, answers 6, and nobody leads for a while.
    The next claim under the same sequence would be taken for its repeat.
    """
    async with open_room(services.kafka_bootstrap, services.redis_url, unique("claims")) as room:
        first, second = room.caller("first"), room.caller("second")
        room.coordinator.bind(first, "pid:1")
        await room.coordinator.ready()
        with monkeypatch.context() as patch:
            patch.setattr(room.changelog.appender, "deadline", 0.05)

            def lose_its_place(answer: Any) -> Any:
                room.gates.fail("layout", DisconnectedError("nobody tells who leads", sent=False), times=100)
                return replace(answer, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)

            room.gates.exchange("ProduceBatch", lose_its_place)
            with pytest.raises(KafkaError):
                await first.own(wish("leader"), session="pid:1")
        room.gates.heal()
        await room.sees({"leader": ("pid:1", 1)})
        assert await answer_of(second, "leader", session="pid:2") == ["HELD"]
        assert room.owners == {"leader": ("pid:1", 1)}
        assert await answer_of(first, "leader", session="pid:1") == [1]


async def test_after_a_crash_a_pid_session_keeps_its_claim_and_a_connections_is_free(rooms: tuple[Room, Room]) -> None:
    first, other = rooms
    rival, plain = first.caller("rival"), first.caller("plain")
    await rival.own(wish("kept"))
    token = rival.request().token
    assert await first.caller("steady").own(wish("kept", 4), session="pid:4711", token=token) == [4]
    assert await plain.own(wish("free")) == [1]
    await other.sees(first.owners)
    await first.crash()
    again = other.caller("steady")
    assert await answer_of(again, "kept", session="pid:4711", token=token) == [4]
    assert other.owners == {"kept": ("pid:4711", 4)}
    assert await answer_of(other.caller(), "free") == [1]
    assert len(other.coordinator.state.table.keys_of_token(token)) == 1
    again.close()
    await gone(other, "kept")


async def test_a_pid_session_that_does_not_come_back_within_its_grace_loses_its_claims(
    rooms: tuple[Room, Room],
) -> None:
    first, other = rooms
    await first.caller().own(wish("gone"), session="pid:1")
    await first.caller().own(wish("back"), session="pid:2")
    await other.sees(first.owners)
    await first.crash()
    shown: list[Caller] = []

    async def takes_over() -> bool:
        if not other.coordinator.coordinates:
            return False
        shown.append(other.caller())
        other.coordinator.bind(shown[0], "pid:2")
        assert await other.caller().own(wish("gone")) == ["HELD"]  # it is waited for
        return True

    await wait_for_async(takes_over, "the other node to coordinate by itself")
    await other.sees({"back": ("pid:2", 1)})


async def test_a_coordinator_that_stalled_through_its_lease_cannot_grant(rooms: tuple[Room, Room]) -> None:
    """Its append arrives behind the fence of the next one: Kafka refuses it, and it severs whom it let own."""
    first, other = rooms
    plain, late = first.caller("plain"), first.caller("late")
    assert await plain.own(wish("leader")) == [1]
    gate = first.gates.hold("ProduceBatch")
    answer = asyncio.create_task(late.own(wish("late")))
    await gate.reached()  # decided, and not written yet
    await first.membership._store.hand_over(CLAIMS, first.node_id, first.boot)  # its lease is over, unnoticed
    heir = other.caller("heir")
    other.coordinator.state.nodes.serving[CLAIMS.encode()] = other.node_id
    assert await answer_of(heir, "leader", "late") == [1, 1]
    gate.open()
    with pytest.raises(KafkaError) as refused:
        await answer
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await stepped_down(first)
    assert plain.severed
    for room in rooms:
        await room.sees({"leader": (heir.session, 1), "late": (heir.session, 1)})


async def test_kafka_itself_refuses_what_a_stalled_coordinator_appends(rooms: tuple[Room, Room]) -> None:
    """Not its tail but the fence: it is told of nothing else."""
    first, other = rooms
    await first.caller().own(wish("leader"))
    first.coordinator.lease._unsubscribe()
    first.coordinator.lease._unsubscribe = lambda: None
    gate = first.gates.hold("ProduceBatch")
    answer = asyncio.create_task(first.caller().own(wish("late")))
    await gate.reached()
    await first.membership._store.hand_over(CLAIMS, first.node_id, first.boot)
    other.coordinator.state.nodes.serving[CLAIMS.encode()] = other.node_id
    assert await answer_of(other.caller(), "late") == [1]
    gate.open()
    with pytest.raises(KafkaError):
        await answer
    refusal = first.told.failures[-1]
    assert isinstance(refusal, FencedError)
    assert refusal.code == INVALID_PRODUCER_EPOCH


async def test_a_node_that_sees_another_ones_term_severs_whom_it_let_own(
    rooms: tuple[Room, Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = rooms
    monkeypatch.setattr(first.coordinator.lease, "heard", lambda _: None)  # the changelog alone tells it
    plain = first.caller()
    await plain.own(wish("leader"))
    told: list[bytes] = []
    first.coordinator.state.listeners.append(lambda token, _lost: told.append(token))
    token = next(iter(first.coordinator.state.table.owners.values())).token
    await first.membership._store.hand_over(CLAIMS, first.node_id, first.boot, to=other.node_id)
    other.coordinator.state.nodes.serving[CLAIMS.encode()] = other.node_id
    await answer_of(other.caller(), "other")
    await stepped_down(first)
    assert plain.severed
    assert token in told
    assert not first.coordinator.coordinates
    assert first.coordinator.look(plain.request(wish("leader"))).prospect is Prospect.BUSY


async def test_a_draining_coordinator_hands_over_at_once(rooms: tuple[Room, Room]) -> None:
    first, other = rooms
    plain = first.caller()
    await plain.own(wish("leader"))
    await first.coordinator.lease.drain()
    assert plain.severed
    with pytest.raises(KafkaError):
        await first.coordinator.ready()
    other.coordinator.state.nodes.serving.pop(CLAIMS.encode(), None)
    other.coordinator.state.nodes.placement = type(other.coordinator.state.nodes.placement)(
        [other.coordinator.state.nodes.me]
    )
    assert await answer_of(other.caller(), "leader") == [1]


async def test_while_redis_is_away_nothing_new_is_claimed_and_what_is_owned_stays(room: Room) -> None:
    billing = room.caller()
    request = billing.request(wish("leader"), wish("other"))
    await billing.ask(request)
    room.gates.fail("serve", REDIS_AWAY, times=1000)
    with pytest.raises(KafkaError) as refused:
        await room.caller().own(wish("new"))
    assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert [each.generation for each in (await billing.ask(request)).ownerships] == [1, 1]  # a repeat
    await room.coordinator.release(request.token, [wish("other").key])
    assert not billing.severed
    assert room.owners == {"leader": (billing.session, 1)}
    room.gates.heal()
    assert await room.caller().own(wish("new")) == [1]


async def test_an_emptied_redis_changes_nothing(rooms: tuple[Room, Room], services: Services) -> None:
    first, _ = rooms
    billing = first.caller()
    await billing.own(wish("leader"))
    store = first.membership._store
    await store._server.call(
        "DEL", *[key.encode() for key in map(store._key, ("served", "leases", "served:version", "nodes"))]
    )
    for room in rooms:
        await room.membership.beat_now()
    assert await answer_of(first.caller(), "more") == [1]
    assert not billing.severed
    assert first.owners["leader"] == (billing.session, 1)
    assert len([epoch for epoch in first.told.epochs if epoch[0]]) == 1


async def test_an_append_whose_outcome_nobody_knows_ends_the_term(room: Room) -> None:
    plain = room.caller()
    assert await plain.own(wish("leader")) == [1]
    assert await room.caller().own(wish("steady"), session="pid:3") == [1]
    room.changelog.appender.deadline = 0.2
    room.gates.fail("ProduceBatch", DisconnectedError("lost", sent=True), times=50, after=True)
    late = room.caller()
    with pytest.raises(KafkaError):
        await late.own(wish("late"))
    room.gates.heal()
    room.changelog.appender.deadline = 30.0
    assert plain.severed
    newer = room.caller()
    assert await answer_of(newer, "leader", "late") == [1, 1]  # whether it was in the log or not
    assert room.owners["steady"] == ("pid:3", 1)


async def test_the_fence_is_kept_alive_without_disturbing_claims(room: Room) -> None:
    await room.caller().own(wish("leader"))
    room.gates.passed.clear()
    room.coordinator.lease._fenced_at, room.coordinator.lease._fence_due = -1e9, 0.0

    async def fenced() -> bool:
        return "AddPartitionsToTxn" in room.gates.passed

    await wait_for_async(fenced, "the fence to be renewed")
    assert await room.caller().own(wish("more")) == [1]
    assert len(room.told.epochs) == 1


async def test_a_node_that_starts_takes_over_what_nobody_coordinates(services: Services, unique: Unique) -> None:
    cluster = unique("claims")
    async with open_room(services.kafka_bootstrap, services.redis_url, cluster) as room:
        await room.caller().own(wish("conn"))
        await room.caller().own(wish("pid"), session="pid:9")
        await room.crash()
    async with open_room(services.kafka_bootstrap, services.redis_url, cluster) as room:
        await room.sees({})  # neither came back, and nobody asked for anything
        assert room.told.epochs[0][:2] == (True, 1)
        await wait_until(lambda: not room.coordinator.state.table.owners, "the end of the session to be confirmed, too")
        assert await answer_of(room.caller(), "pid") == [1]


async def test_what_happens_at_the_moment_of_the_end_does_not_keep_it_from_ending(room: Room) -> None:
    """A connection closes while the node is shutting down: both reach the same turn of the loop."""
    running = asyncio.create_task(room.coordinator.lease.run())
    await asyncio.sleep(0.1)  # it waits for its next tick
    room.coordinator.connection_closed(0)
    running.cancel()
    await asyncio.wait({running}, timeout=10)
    assert running.cancelled()
