"""Who coordinates, and what becomes of claims when that changes: crashes, stalls, Redis emptied and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.cluster.nodes import Placement
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.witness import FencingRefusedError
from sidecar.protocol.caller import DisconnectedError, FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.epoch import CLAIMS, CoordinatorEpoch
from sidecar.v1 import control_pb2 as control
from tests.kafka.gates import REDIS_AWAY
from tests.unit.resources.room import Caller, Cluster, Room, wish
from tests.wait import wait_for_async, wait_until

INVALID_PRODUCER_EPOCH = 47


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
    assert other.coordinator.node == first.node_id
    await other.sees(first.owners)
    (owner,) = map(other.coordinator.owner, await other.coordinator.claimed(""))
    assert (owner.owner_name, owner.serving_node) == ("billing", first.node_id)


async def test_a_claim_that_the_log_gives_to_somebody_else_is_not_granted(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader appends a claim, loses its place before its replicas have it, answers 6, and nobody leads for a while.
    The next claim under the same sequence would be taken for its repeat.
    """
    first, second = room.caller("first"), room.caller("second")
    room.coordinator.bind(first.connection_id, "pid:1")
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
    assert len(other.coordinator.claims.table.keys_of_token(token)) == 1
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
        other.coordinator.bind(shown[0].connection_id, "pid:2")
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
    other.coordinator.nodes.serving[CLAIMS.encode()] = other.node_id
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
    assert first.coordinator._unsubscribe is not None
    first.coordinator._unsubscribe()
    first.coordinator._unsubscribe = None
    gate = first.gates.hold("ProduceBatch")
    answer = asyncio.create_task(first.caller().own(wish("late")))
    await gate.reached()
    await first.membership._store.hand_over(CLAIMS, first.node_id, first.boot)
    other.coordinator.nodes.serving[CLAIMS.encode()] = other.node_id
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
    monkeypatch.setattr(first.coordinator, "heard", lambda _: None)  # the changelog alone tells it
    plain = first.caller()
    await plain.own(wish("leader"))
    token = next(iter(first.coordinator.claims.table.owners.values())).token
    await first.membership._store.hand_over(CLAIMS, first.node_id, first.boot, to=other.node_id)
    other.coordinator.nodes.serving[CLAIMS.encode()] = other.node_id
    await answer_of(other.caller(), "other")
    await stepped_down(first)
    assert plain.severed
    assert token in [news.token for news in first.news]
    assert not first.coordinator.coordinates
    assert first.coordinator.look(plain.request(wish("leader"))).prospect is Prospect.BUSY


async def test_a_draining_coordinator_hands_over_at_once(rooms: tuple[Room, Room]) -> None:
    first, other = rooms
    plain = first.caller()
    await plain.own(wish("leader"))
    await first.coordinator.drain()
    assert plain.severed
    with pytest.raises(KafkaError):
        await first.coordinator.ready()
    other.coordinator.nodes.serving.pop(CLAIMS.encode(), None)
    other.coordinator.nodes.placement = type(other.coordinator.nodes.placement)([other.coordinator.nodes.me])
    assert await answer_of(other.caller(), "leader") == [1]


async def test_while_redis_is_away_nothing_new_is_claimed_and_what_is_owned_stays(room: Room) -> None:
    billing = room.caller()
    request = billing.request(wish("leader"), wish("other"))
    await billing.ask(request)
    room.gates.fail("serve", REDIS_AWAY, times=1000)
    with pytest.raises(KafkaError) as refused:
        await room.caller().own(wish("new"))
    assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert [each.generation for each in (await billing.ask(request)).answers] == [1, 1]  # a repeat
    await room.coordinator.release(request.token, [wish("other").key])
    assert not billing.severed
    assert room.owners == {"leader": (billing.session, 1)}
    room.gates.heal()
    assert await room.caller().own(wish("new")) == [1]
    rival = room.caller("rival")
    assert await rival.own(wish("leader"), mode=control.EXCLUSIVE_WITH_FENCING) == [2]
    assert billing.severed
    assert len(room.told.epochs) == 1


async def test_an_emptied_redis_changes_nothing(rooms: tuple[Room, Room], cluster: Cluster) -> None:
    first, _ = rooms
    billing = first.caller()
    await billing.own(wish("leader"))
    cluster.redis.empty(restart=False)
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
    await wait_until(lambda: plain.severed, "its connection to be closed")
    newer = room.caller()
    assert await answer_of(newer, "leader", "late") == [1, 1]  # whether it was in the log or not
    assert room.owners["steady"] == ("pid:3", 1)


@pytest.fixture
async def brief() -> AsyncIterator[Cluster]:
    """A cluster whose brokers forget a producer after 16 s, and its transactional id after a minute."""
    found = Cluster(producer_expiration_ms=16_000, transactional_id_expiration_ms=60_000, expiration_check=0.5)
    yield found
    await found.close()


async def epoch_of(cluster: Cluster, room: Room) -> int | None:
    """The coordinator's epoch, as the ownership partition remembers it."""
    assert room.coordinator.epoch is not None
    known = await cluster.kafka.producer(room.changelog.partition, room.coordinator.epoch.stamp)
    return None if known is None else known.stamp.epoch


async def test_the_fence_is_renewed_before_brokers_forget_it_and_without_disturbing_claims(brief: Cluster) -> None:
    """Every quarter of that time, with a margin: 3.2 s."""
    room = await brief.room()
    await room.caller().own(wish("leader"))
    room.gates.passed.clear()
    for second in range(32):
        assert await epoch_of(brief, room) == 0, second
        await brief.kafka.pause(1)
    assert 9 <= room.gates.passed.count("AddPartitionsToTxn") <= 10
    assert await room.caller().own(wish("more")) == [1]
    assert len(room.told.epochs) == 1
    assert room.told.failures == []


async def test_a_fence_that_cannot_be_renewed_is_reported_and_tried_again_after_five_seconds(brief: Cluster) -> None:
    room = await brief.room()
    await room.caller().own(wish("leader"))
    for kind in ("DescribeConfigs", "AddPartitionsToTxn"):
        room.gates.fail(kind, FencingRefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"))
        await wait_until(lambda: room.told.failures, "the failure")
        room.gates.passed.clear()
        await brief.kafka.pause(4.9)
        assert kind not in room.gates.passed
        await brief.kafka.pause(0.7)
        assert kind in room.gates.passed
        assert len(room.told.failures) == 1
        room.told.failures.clear()
    assert room.coordinator.coordinates


async def test_a_coordinator_whose_fence_is_refused_coordinates_no_more(brief: Cluster) -> None:
    """Nothing else shows it that another epoch was opened."""
    room = await brief.room()
    plain = room.caller()
    await plain.own(wish("leader"))
    await WriterSlot(brief.kafka.upstream, transactional_id("c", CLAIMS)).open()
    await brief.kafka.pause(5)
    assert plain.severed
    assert [coordinates for coordinates, _, _ in room.told.epochs[:2]] == [True, False]


async def test_a_refused_fence_of_a_former_epoch_does_not_end_the_present_one(
    brief: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, goes_on = asyncio.Event(), asyncio.Event()

    async def keep_alive(_: object, epoch: CoordinatorEpoch) -> None:
        held.set()
        await goes_on.wait()
        raise FencedError(INVALID_PRODUCER_EPOCH, epoch.stamp, "a newer epoch was opened")

    monkeypatch.setattr("sidecar.resources.coordinator.keep_alive", keep_alive)
    room = await brief.room()
    await room.caller().own(wish("leader"))
    await held.wait()
    room.coordinator.heard({CLAIMS})
    assert not room.coordinator.coordinates
    assert await answer_of(room.caller(), "other") == [1]
    goes_on.set()
    await brief.kafka.pause(0.1)
    assert [coordinates for coordinates, _, _ in room.told.epochs] == [True, False, True]


async def test_a_former_producer_id_of_the_coordinators_stays_fenced(brief: Cluster) -> None:
    """Kafka has given the slot a new one, as nobody used the old one for long: its holder may still write."""
    first = await brief.room(1)
    steady = first.caller()
    await steady.own(wish("leader"), session="pid:1")
    late = first.coordinator.epoch
    assert late is not None
    await first.crash()
    await brief.kafka.pause(120)
    other = await brief.room(2, reconnect_grace=100)
    await wait_until(lambda: other.coordinator.coordinates, "the other node to take over")
    serving = other.changelog.view.serving(CLAIMS)
    assert serving is not None
    assert [*serving.value.retired_producer_ids] == [late.stamp.producer_id] != [serving.value.producer_id]
    assert other.owners == {"leader": ("pid:1", 1)}
    for _ in range(4):
        known = await brief.kafka.producer(other.changelog.partition, late.stamp)
        assert known is not None
        assert known.stamp.epoch > late.stamp.epoch
        await brief.kafka.pause(10)


async def test_claims_of_connections_end_with_their_coordinators_epoch_however_many_there_are(
    cluster: Cluster,
) -> None:
    """In batches of a thousand records."""
    first = await cluster.room(1)
    for part in range(2):
        assert await first.caller().own(*[wish(f"{part}-{number}") for number in range(800)]) == [1] * 800
    await first.caller().own(wish("kept"), session="pid:1")
    await first.crash()
    await cluster.kafka.pause(2)
    other = await cluster.room(2, reconnect_grace=100)
    await wait_until(lambda: other.coordinator.coordinates, "the other node to take over")
    assert other.owners == {"kept": ("pid:1", 1)}
    assert other.gates.passed.count("ProduceBatch") == 2
    assert other.told.epochs == [(True, 1, "")]


async def test_a_sessions_grace_ends_in_time_and_not_with_the_next_tick(cluster: Cluster) -> None:
    room = await cluster.room(disconnect_grace=0.2)
    for _ in range(4):
        one = room.caller()
        await one.own(wish("leader"), session="pid:1")
        one.close()
        await cluster.kafka.pause(0.19)
        assert room.owners == {"leader": ("pid:1", 1)}
        await cluster.kafka.pause(0.06)
        assert room.owners == {}


async def test_a_node_that_coordinates_no_more_has_no_grace_to_look_after(room: Room) -> None:
    await room.caller().own(wish("leader"))
    sessions = room.coordinator.claims.sessions
    sessions.wait_for(["pid:9"], room.changelog.clock.elapsed() + 60.0)
    assert sessions.next_end() is not None
    await room.coordinator.drain()
    assert sessions.next_end() is None


async def test_the_end_of_a_session_is_written_once(room: Room, cluster: Cluster) -> None:
    """Though its append takes as long as several ticks."""
    one = room.caller()
    await one.own(wish("leader"))
    gate = room.gates.hold("ProduceBatch")
    one.close()
    await gate.reached()
    await cluster.kafka.pause(3)
    room.gates.passed.clear()
    gate.open()
    await room.sees({})
    await cluster.kafka.pause(3)
    assert room.gates.passed.count("ProduceBatch") == 0
    assert room.told.outcomes.count(("released", 1)) == 1
    assert room.told.let_go == [one.session]
    assert room.coordinator.claims.over == {}


async def test_a_node_that_shuts_down_waits_five_seconds_for_what_is_being_written(
    room: Room, cluster: Cluster
) -> None:
    await room.coordinator.ready()
    gate = room.gates.hold("ProduceBatch")
    answer = asyncio.create_task(room.caller().own(wish("leader")))
    await gate.reached()
    began = cluster.kafka.now()
    await room.coordinator.drain()
    assert cluster.kafka.now() - began == pytest.approx(5, abs=0.2)
    gate.open()
    with pytest.raises(KafkaError) as refused:
        await answer
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_any_node_says_who_owns_what_and_the_coordinator_who_waits_for_it(rooms: tuple[Room, Room]) -> None:
    first, other = rooms
    owner, waiting = first.caller("a"), first.caller("b")
    await owner.own(wish(("g", "orders", None)), wish("free"), wish("both"))
    for name in ("waited", "both"):
        await owner.own(wish(name))
        await waiting.ask(waiting.request(wish(name), mode=control.WAIT_FOR_EXCLUSIVE))
    await other.sees(first.owners)
    for room in rooms:
        known = room.coordinator
        assert set(await known.claimed("")) == {wish(name).key for name in ("free", "waited", "both")}
        assert await known.claimed("g") == [wish(("g", "orders", None)).key]
        assert await known.claimed("x") == []
        free, nobody = (known.owner(wish(name).key) for name in ("free", "nothing"))
        assert (free.owner_name, free.generation, free.serving_node) == ("a", 1, first.node_id)
        assert (nobody.owner_name, nobody.serving_node, nobody.fencing_token) == ("", first.node_id, 0)
        assert free.fencing_token > 1_700_000_000_000_000
        assert known.queue(wish("free").key) == []
        assert [place.name for place in known.queue(wish("waited").key)] == (["b"] if room is first else [])
    before = first.coordinator.owner(wish("free").key)
    owner.close()
    await first.sees({})
    assert [key.topic for key in await first.coordinator.claimed("")] != []
    heir = first.caller("c")
    await heir.own(wish("free"))
    after = first.coordinator.owner(wish("free").key)
    assert after.fencing_token > before.fencing_token
    await first.coordinator.drain()
    first.coordinator.nodes.serving.clear()
    first.coordinator.nodes.placement = Placement([first.coordinator.nodes.me])
    unknown = first.coordinator.owner(wish("x").key)
    assert unknown.serving_node == -1


async def test_a_request_that_waits_is_counted_once_and_keeps_its_place_when_its_turn_comes(room: Room) -> None:
    owner, second, third = room.caller("a"), room.caller("b"), room.caller("c")
    await owner.own(wish("leader"))
    request = second.request(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE)
    for _ in range(3):
        assert (await second.ask(request)).prospect is Prospect.WAIT
    assert room.told.outcomes.count(("waiting", 1)) == 1
    owner.close()
    await room.sees({})
    assert room.coordinator.wait(request).prospect is Prospect.READY
    later = third.request(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert (await third.ask(later)).prospect is Prospect.WAIT, "it waits for a resource of another room, perhaps"
    free = third.request(wish("other"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert room.coordinator.wait(free).prospect is Prospect.READY
    assert room.coordinator.is_waiting(free.token)


async def test_of_several_nodes_that_are_asked_one_opens_an_epoch(cluster: Cluster) -> None:
    rooms = [await cluster.room(number) for number in (1, 2, 3)]
    outcomes = await asyncio.gather(*(room.coordinator.ready() for room in rooms), return_exceptions=True)
    assert [outcome is None for outcome in outcomes].count(True) == 1
    await cluster.kafka.pause(3)
    assert sum(room.coordinator.coordinates for room in rooms) == 1
    assert len({room.coordinator.node for room in rooms}) == 1


async def test_a_node_that_starts_takes_over_what_nobody_coordinates(cluster: Cluster) -> None:
    before = await cluster.room()
    await before.caller().own(wish("conn"))
    await before.caller().own(wish("pid"), session="pid:9")
    await before.crash()
    room = await cluster.room()
    await room.sees({})  # neither came back, and nobody asked for anything
    assert room.told.epochs[0][:2] == (True, 1)
    await wait_until(lambda: not room.coordinator.claims.table.owners, "the end of the session to be confirmed, too")
    assert await answer_of(room.caller(), "pid") == [1]


async def test_what_happens_at_the_moment_of_the_end_does_not_keep_it_from_ending(room: Room) -> None:
    """A connection closes while the node is shutting down: both reach the same turn of the loop."""
    running = asyncio.create_task(room.coordinator.run())
    await asyncio.sleep(0.1)  # it waits for its next tick
    room.coordinator.connection_closed(0)
    running.cancel()
    await asyncio.wait({running}, timeout=10)
    assert running.cancelled()
