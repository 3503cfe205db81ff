"""What may happen between two steps of a change of owner: clients that go, Redis that refuses or forgets, Kafka that
fails, an administrator's word. Each moment is held in hand (`room`).
"""

from __future__ import annotations

import asyncio

import pytest

from metadata.nodes import Node as Registration
from metadata.ownership import AccessMode, ClaimRequest, Generation, Ownership
from sidecar.changelog import Key, Kind
from sidecar.changelog.records import read_batches
from sidecar.fencing.slot import EpochsUsedUpError, WriterSlot
from sidecar.forwarder.lane import Lane
from sidecar.policy import catalog
from sidecar.policy.policies import PolicyFields
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Offset
from sidecar.protocol.produce import ProduceResult
from sidecar.takeover import arbitration
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch
from tests.kafka.exclusive.room import Party, Room, free, until
from tests.kafka.gates import REDIS_AWAY, REDIS_LOST
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async, wait_until

OK, UNKNOWN_TOPIC, BUSY, MOVED, AGAIN, REFUSED, OUT_OF_ORDER, DUPLICATE, FENCED = 0, 3, 5, 6, 7, 44, 45, 46, 90
STEPS = ["serve", "claim", "DescribeProducers", "InitProducerId", "AddPartitionsToTxn", "ProduceBatch"]
"""The steps of a takeover that can be held, in their order; the last is the append of `Serving`."""


@pytest.fixture
async def topic(world: World, room: Room) -> str:
    return await world.govern(room)


async def log_of(world: World, topic: str, partition: int = 0) -> list[bytes]:
    return await world.log(topic, partition)


# Clients that go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "plain"), [(step, number % 2 == 1) for number, step in enumerate(STEPS)])
async def test_a_client_that_is_gone_when_its_takeover_ends_does_not_keep_the_topic(
    room: Room, topic: str, step: str, plain: bool
) -> None:
    first, second = room.connect("first", plain=plain), room.connect("second")
    await room.governed.env.services.upstream.layout(topic, refresh=True)  # their clients have asked for Metadata
    gate = room.gates.hold(step)
    first.begin(topic)
    await gate.reached()
    first.close()
    gate.open()
    await free(room, topic)
    await until(lambda: second.send(topic, sequence=0))
    assert room.topic(topic).generation == 2


async def test_a_connection_that_closes_while_its_owner_is_fenced_anew_does_not_keep_the_topic(
    room: Room, topic: str
) -> None:
    owner = room.connect("owner", plain=True)
    assert await owner.send(topic) == OK
    gate = room.gates.hold("InitProducerId")
    room.topic(topic).numbering_lost(_lane(room, topic))
    await gate.reached()
    owner.close()
    gate.open()
    await free(room, topic)
    assert await room.connect("next").send(topic) == OK


def _lane(room: Room, topic: str, partition: int = 0) -> Lane:
    epoch = room.topic(topic).writer.epoch
    assert epoch is not None
    return epoch._lanes[partition]


async def test_the_other_connections_of_an_owner_keep_the_topic_through_a_takeover(room: Room, topic: str) -> None:
    one = room.connect("owner")
    two = room.connect("owner", producer_id=one.producer_id)
    assert await one.send(topic, sequence=0) == OK
    assert await two.send(topic, sequence=1) == OK
    room.topic(topic).fenced(_lane(room, topic))
    assert await two.send(topic, sequence=2) == OK
    two.close()
    await room.idle(topic)
    assert await one.send(topic, sequence=3) == OK
    assert await room.connect("rival").send(topic) == REFUSED
    one.close()
    await free(room, topic)


async def test_a_takeover_that_is_slow_keeps_no_client_waiting_and_is_one_however_often_it_tries(
    room: Room, topic: str, world: World
) -> None:
    owner, gate = room.connect("owner"), room.gates.hold("InitProducerId")
    first = owner.begin(topic, b"0", sequence=0)
    await gate.reached()
    async with asyncio.timeout(5):
        assert (await first).error == BUSY  # after two seconds
    assert [await owner.send(topic, b"0", sequence=0) for _ in range(3)] == [BUSY] * 3
    gate.open()
    await until(lambda: owner.send(topic, b"0", sequence=0))
    assert len(room.told.takeovers) == 1
    assert await world.log(topic) == [b"0"]


async def test_a_batch_whose_client_went_while_it_was_held_is_not_appended(
    room: Room, topic: str, world: World
) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic, b"0") == OK
    gate = room.gates.hold("InitProducerId")
    room.topic(topic).fenced(_lane(room, topic))
    await gate.reached()
    other = room.connect("owner", producer_id=owner.producer_id)
    held = other.begin(topic, b"gone", sequence=1)
    other.close()
    kept = owner.begin(topic, b"1", sequence=1)
    gate.open()
    assert (await kept).error == OK
    assert (await held).error == BUSY
    assert await log_of(world, topic) == [b"0", b"1"]


# A release and who comes next ---------------------------------------------------------------------------------------


async def test_a_claim_that_races_with_the_release_gets_the_topic(room: Room, topic: str, world: World) -> None:
    owner, rival = room.connect("owner"), room.connect("rival")
    assert await owner.send(topic, b"0") == OK
    gate = room.gates.hold("ProduceBatch")  # the record that says so
    owner.close()
    await gate.reached()
    claim = rival.begin(topic, b"1")
    assert not claim.done()
    gate.open()
    assert (await claim).error == OK
    assert room.told.released_sessions == [f"pid:{owner.producer_id}"]
    assert room.topic(topic).generation == 2
    assert await log_of(world, topic) == [b"0", b"1"]


async def test_the_owner_itself_may_race_with_its_release(room: Room, topic: str, world: World) -> None:
    """Its only connection breaks and it is back before the release is written."""
    owner = room.connect("owner")
    assert await owner.send(topic, b"0", sequence=0) == OK
    gate = room.gates.hold("ProduceBatch")
    owner.close()
    await gate.reached()
    again = room.connect("owner", producer_id=owner.producer_id)
    back = [again.begin(topic, b"%d" % i, sequence=i) for i in (1, 2, 3)]
    gate.open()
    assert [(await answer).error for answer in back] == [OK] * 3
    assert room.topic(topic).generation == 1
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3"]


async def test_a_release_that_cannot_be_written_frees_the_topic_after_the_grace(room: Room, topic: str) -> None:
    owner, rival = room.connect("owner"), room.connect("rival")
    assert await owner.send(topic) == OK
    room.gates.fail("ProduceBatch", KafkaError(10, "made too large"))
    owner.close()
    await room.idle(topic)
    assert len(room.told.failures) == 1
    await until(lambda: rival.send(topic, sequence=0))
    assert room.topic(topic).generation == 2


async def test_a_release_that_redis_does_not_hear_is_known_by_the_changelog(room: Room, topic: str) -> None:
    owner, rival = room.connect("owner"), room.connect("rival")
    assert await owner.send(topic) == OK
    room.gates.fail("release", REDIS_AWAY)
    owner.close()
    await free(room, topic)
    assert await rival.send(topic) == OK


async def test_within_the_disconnect_grace_newcomers_wait_and_the_owner_goes_on(world: World) -> None:
    room_of = world.room(disconnect_grace=0.5)
    async with room_of as room:
        topic = await world.create()
        await room.govern(topic)
        owner, rival = room.connect("owner"), room.connect("rival")
        assert await owner.send(topic, b"0", sequence=0) == OK
        owner.close()
        assert await rival.send(topic, b"x", sequence=0) == AGAIN
        again = room.connect("owner", producer_id=owner.producer_id)
        assert await again.send(topic, b"1", sequence=1) == OK
        assert await rival.send(topic, b"x", sequence=0) == REFUSED
        assert room.topic(topic).generation == 1
        again.close()
        released = [f"pid:{owner.producer_id}"]
        await wait_until(lambda: room.told.released_sessions == released, "the release, not only its hour")
        assert [await rival.send(topic, b"2", sequence=1) for _ in range(2)] == [BUSY, OK]
        assert await log_of(world, topic) == [b"0", b"1", b"2"]


# What Redis says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["serve", "claim"])
async def test_without_redis_nobody_gets_a_topic_that_nobody_served(room: Room, topic: str, step: str) -> None:
    room.gates.fail(step, REDIS_AWAY)
    owner = room.connect("owner")
    refused = await owner.begin(topic, sequence=0)
    assert refused.error == BUSY
    assert "Redis does not answer" in (refused.message or "")
    assert room.gates.passed.count("InitProducerId") == 0
    assert await owner.send(topic, sequence=0) == OK


async def test_without_redis_a_claim_is_told_to_come_again_and_an_owner_goes_on(room: Room, topic: str) -> None:
    step = "claim"
    owner, rival = room.connect("owner"), room.connect("rival;mode=exclusive_with_fencing")
    assert await owner.send(topic) == OK
    room.gates.fail(step, REDIS_AWAY)
    refused = await rival.begin(topic, sequence=0)
    assert refused.error == BUSY
    assert "Redis does not answer" in (refused.message or "")
    assert await owner.send(topic) == OK
    room.gates.fail(step, REDIS_AWAY)
    room.topic(topic).fenced(_lane(room, topic))  # who served last takes over again without Redis
    assert await owner.send(topic) == OK
    await until(lambda: rival.send(topic, sequence=0))


@pytest.mark.parametrize("step", ["serve", "claim", "publish"])
async def test_an_answer_of_redis_that_is_lost_changes_nothing_in_the_end(room: Room, topic: str, step: str) -> None:
    room.gates.fail(step, REDIS_LOST, after=True)
    owner = room.connect("owner")
    await until(lambda: owner.send(topic, sequence=0))
    assert room.topic(topic).generation == 1
    assert await room.connect("rival").send(topic) == REFUSED


async def test_a_takeover_that_redis_does_not_hear_of_is_one_all_the_same(
    room: Room, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbitration, "CLAIM_LEASE_MS", 1_000)  # for so long Redis takes the claim for one under way
    room.gates.fail("publish", REDIS_AWAY)
    owner, rival = room.connect("owner"), room.connect("rival")
    assert await owner.send(topic) == OK
    assert await rival.send(topic) == REFUSED
    owner.close()
    await free(room, topic)
    await until(lambda: rival.send(topic, sequence=1))


async def test_an_owner_whom_only_redis_knows_may_come_back_before_anybody_else(room: Room, topic: str) -> None:
    """Redis was filled from a changelog that this node has not read so far."""
    held = Ownership(topic, Generation(7), 10**9, "pid:77", "elder", node_id=1)
    await room.governed.env.services.store.publish(held, None)
    newcomer = room.connect("newcomer")
    answer = await newcomer.begin(topic, sequence=0)
    assert (answer.error, answer.message) == (AGAIN, "elder may still come back to the topic")
    await until(lambda: newcomer.send(topic, sequence=0))
    assert room.topic(topic).generation == 8


async def test_a_generation_that_is_too_low_for_redis_is_refused_and_not_asked_for_ever(room: Room, topic: str) -> None:
    held = Ownership(topic, Generation(7), 10**9, "pid:77", "elder", node_id=1)
    await room.governed.env.services.store.publish(held, None)
    assert await room.connect("x;generation=5").send(topic) == REFUSED
    assert room.gates.passed.count("claim") <= 3


async def test_a_claim_that_is_under_way_elsewhere_is_waited_for(room: Room, topic: str) -> None:
    rival = ClaimRequest(
        topic, b"0123456789abcdef", 1, room.boot, "pid:88", "rival", AccessMode.EXCLUSIVE, 500, topic=topic
    )
    store = room.governed.env.services.store
    assert (await store.claim(rival)).generation == 1
    newcomer = room.connect("newcomer")
    assert await newcomer.send(topic, sequence=0) == BUSY
    await until(lambda: newcomer.send(topic, sequence=0))
    assert room.topic(topic).generation == 2


async def test_a_topic_that_another_node_serves_is_not_taken(room: Room, topic: str) -> None:
    store = room.governed.env.services.store
    other = Registration(node_id=2, boot="ab" * 8, host="127.0.0.1", port=2, position=10**9, policy_version=10**6)
    await store.heartbeat(other)
    await store.serve(topic, 2, other.boot, last_node=None)
    answer = await room.connect("newcomer").begin(topic)
    assert answer.error == MOVED
    assert room.gates.passed.count("InitProducerId") == 0


# What Kafka does ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "step", ["ListOffsets", "DescribeProducers", "InitProducerId", "AddPartitionsToTxn", "ProduceBatch"]
)
async def test_a_call_to_kafka_that_is_lost_costs_a_retry_and_no_record(
    room: Room, topic: str, world: World, step: str, after: bool
) -> None:
    owner, usurper = room.connect("owner"), room.connect("usurper;mode=exclusive_with_fencing")
    assert [await owner.send(topic, b"%d" % i) for i in range(3)] == [OK] * 3
    room.gates.fail(step, DisconnectedError("the broker went", sent=True), after=after)
    await until(lambda: usurper.send(topic, b"3", sequence=0))
    assert await owner.send(topic, b"x") == FENCED
    assert await usurper.send(topic, b"4", sequence=1) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_takeover_that_fails_leaves_those_who_wait_in_their_places(room: Room, topic: str) -> None:
    owner, fencer = room.connect("owner"), room.connect("fencer;mode=exclusive_with_fencing")
    waiting = [room.connect(f"w{i};mode=wait_for_exclusive") for i in range(3)]
    assert await owner.send(topic, sequence=0) == OK
    assert [await each.send(topic, sequence=0) for each in waiting] == [AGAIN] * 3
    room.gates.fail("claim", REDIS_AWAY)
    assert await fencer.send(topic, sequence=0) == BUSY
    names = [claimant.name for claimant, _ in room.topic(topic).waiting()]
    assert names == ["w0", "w1", "w2"]
    assert await owner.send(topic, sequence=1) == OK


async def test_a_topic_that_does_not_exist_is_refused_and_forgotten(room: Room) -> None:
    """A prefix covers any name that comes."""
    prefix = "none-"
    await room.govern(f"{prefix}*")
    party = room.connect("party")
    for number in range(20):
        assert await party.send(f"{prefix}{number}", sequence=0) == UNKNOWN_TOPIC
    assert await party.send(f"{prefix}0", sequence=0) == UNKNOWN_TOPIC
    assert not [name for name in room.governed.topics.named if name.startswith(prefix)]
    assert not [name for name in room.governed.served_topics() if name.startswith(prefix)]
    assert sum(map(len, room.governed.topics._of_connection.values())) == 0


async def test_a_topic_that_is_created_after_its_first_batch_is_governed(room: Room, world: World) -> None:
    name = await world.create()
    await room.govern("orders-*")
    party = room.connect("party")
    assert await party.send("orders-none", sequence=0) == UNKNOWN_TOPIC
    assert await party.send(name, sequence=0) == OK
    assert await room.connect("rival").send(name) == REFUSED


# Raised epochs ------------------------------------------------------------------------------------------------------


async def raise_of(room: Room, owner: Party, topic: str, world: World) -> list[bytes]:
    assert [await owner.send(topic, b"%d" % i, sequence=i) for i in range(3)] == [OK] * 3
    assert [await owner.send(topic, b"%d" % i, sequence=i, partition=1) for i in range(2)] == [OK] * 2
    await until(lambda: owner.send(topic, b"3", sequence=0, epoch=1))
    assert await owner.send(topic, b"4", sequence=1, epoch=1) == OK
    assert await owner.send(topic, b"2", sequence=2, partition=1) == OK
    assert await log_of(world, topic, 1) == [b"0", b"1", b"2"]
    assert room.topic(topic).generation == 1
    return await log_of(world, topic)


async def test_a_raise_from_memory_fences_nothing(room: Room, topic: str, world: World) -> None:
    assert await raise_of(room, room.connect("owner"), topic, world) == [b"0", b"1", b"2", b"3", b"4"]
    assert room.gates.passed.count("AddPartitionsToTxn") == 1


async def test_where_the_slots_epochs_are_used_up_a_raise_takes_over(
    room: Room, topic: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def used_up(slot: WriterSlot) -> None:
        monkeypatch.undo()
        raise EpochsUsedUpError(slot.transactional_id)

    monkeypatch.setattr(WriterSlot, "raise_epoch", used_up)
    assert await raise_of(room, room.connect("owner"), topic, world) == [b"0", b"1", b"2", b"3", b"4"]
    assert room.gates.passed.count("AddPartitionsToTxn") == 2


async def test_where_an_outcome_is_unknown_a_raise_reads_the_log_behind_a_fence(
    room: Room, topic: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = iter([False])
    monkeypatch.setattr(SlotEpoch, "certain", property(lambda epoch: next(known, True)))
    assert await raise_of(room, room.connect("owner"), topic, world) == [b"0", b"1", b"2", b"3", b"4"]
    assert room.gates.passed.count("AddPartitionsToTxn") == 2


@pytest.mark.parametrize("step", ["InitProducerId", "ProduceBatch"])
async def test_a_raise_that_fails_becomes_a_takeover(room: Room, topic: str, world: World, step: str) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic, b"0", sequence=0) == OK
    room.gates.fail(step, KafkaError(31, "made up"))
    await until(lambda: owner.send(topic, b"1", sequence=0, epoch=1))
    assert await owner.send(topic, b"2", sequence=1, epoch=1) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2"]


# An administrator's word --------------------------------------------------------------------------------------------


async def test_a_fence_during_traffic_ends_the_session_between_two_batches(
    room: Room, topic: str, world: World
) -> None:
    owner = room.connect("owner")
    answers: list[ProduceResult] = []

    async def traffic() -> None:
        sequence = 0
        while not answers or answers[-1].error != FENCED:
            sent = [owner.begin(topic, b"%d" % (sequence + i), sequence=sequence + i) for i in range(5)]
            answers.extend(await asyncio.gather(*sent))
            sequence += 5

    writing = asyncio.ensure_future(traffic())
    await wait_for_async(lambda: _more_than(answers, 50), "traffic")
    holder = await room.topic(topic).administer(fence=True)
    assert holder.session == f"pid:{owner.producer_id}"
    async with asyncio.timeout(20):
        await writing
    acked = sum(answer.error == OK for answer in answers)
    assert [answer.error for answer in answers[:acked]] == [OK] * acked
    assert {answer.error for answer in answers[acked:]} <= {FENCED, MOVED}
    log = await log_of(world, topic)
    assert log[:acked] == [b"%d" % i for i in range(acked)]
    assert log == [b"%d" % i for i in range(len(log))]
    assert len(log) <= acked + 5
    assert room.topic(topic).generation == 2
    assert await room.connect("next").send(topic) == OK


async def _more_than(found: list[ProduceResult], number: int) -> bool:
    return len(found) > number


async def test_a_fence_waits_for_the_takeover_under_way_and_fences_its_owner(room: Room, topic: str) -> None:
    owner = room.connect("owner")
    gate = room.gates.hold("InitProducerId")
    claim = owner.begin(topic)
    await gate.reached()
    fencing = asyncio.ensure_future(room.topic(topic).administer(fence=True))
    gate.open()
    assert (await fencing).session == f"pid:{owner.producer_id}"
    assert (await claim).error in (OK, FENCED, MOVED)
    assert await owner.send(topic) == FENCED


async def test_whoever_asked_for_a_fence_may_be_gone_when_it_is_done(room: Room, topic: str) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic) == OK
    gate = room.gates.hold("InitProducerId")
    fencing = asyncio.ensure_future(room.topic(topic).administer(fence=True))
    await gate.reached()
    fencing.cancel()
    gate.open()
    await room.idle(topic)
    assert await owner.send(topic) == FENCED


async def test_a_fence_that_fails_says_so_and_changes_nothing(room: Room, topic: str) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic) == OK
    room.gates.fail("InitProducerId", KafkaError(53, "not allowed"))
    with pytest.raises(KafkaError, match="not allowed"):
        await room.topic(topic).administer(fence=True)
    assert await owner.send(topic) == OK


# Deposed for ever ---------------------------------------------------------------------------------------------------


async def test_a_new_producer_id_that_struck_back_is_deposed_on_other_connections_too(room: Room, topic: str) -> None:
    """franz-go asks for a new producer id after enough refusals, and may connect again."""
    owner, usurper = room.connect("owner;mode=exclusive_with_fencing"), room.connect("b;mode=exclusive_with_fencing")
    assert await owner.send(topic, sequence=0) == OK
    assert await usurper.send(topic, sequence=0) == OK
    assert await owner.send(topic, sequence=1) == FENCED
    fresh = next(room._producer_ids)
    owner.producer_id = fresh
    assert await owner.send(topic, sequence=0) == FENCED
    again = room.connect("owner;mode=exclusive_with_fencing", producer_id=fresh)
    assert await again.send(topic, sequence=0) == FENCED
    assert await usurper.send(topic, sequence=1) == OK
    assert await room.connect("third;mode=exclusive_with_fencing").send(topic) == OK
    listed = {deposed.session for deposed in room.topic(topic).state.record.deposed}  # type: ignore[union-attr]
    assert f"pid:{fresh}" in listed
    assert room.governed.producers.check(again, fresh) is not None


async def test_the_node_lost_the_right_to_serve_and_gives_the_topic_back(room: Room, topic: str) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic, sequence=0) == OK
    live = room.governed.env.catalog.live
    assert live is not None
    room.governed.heard(live, {topic})
    answers = [owner.begin(topic, sequence=i) for i in range(1, 4)]
    codes = [(await answer).error for answer in answers]
    assert set(codes) <= {OK, MOVED}
    assert codes == sorted(codes)
    await room.idle(topic)
    await until(lambda: owner.send(topic, sequence=codes.count(OK) + 1))
    assert room.topic(topic).generation == 1


# Bounds -------------------------------------------------------------------------------------------------------------


async def test_a_name_of_thirty_thousand_letters_is_shown_shortened(room: Room, topic: str) -> None:
    owner, rival = room.connect("x" * 30_000), room.connect("rival")
    assert await owner.send(topic) == OK
    answer = await rival.begin(topic)
    assert answer.error == REFUSED
    assert len(answer.message or "") < 400


async def test_nothing_grows_with_connections_that_came_and_went(room: Room, topic: str) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic) == OK
    for number in range(200):
        party = room.connect(["owner", "rival", "w;mode=wait_for_exclusive"][number % 3], plain=number % 2 == 0)
        await party.send(topic, sequence=0)
        party.close()
    state = room.topic(topic).state
    assert (state.ghosts, state.tainted, state.struck) == ({}, set(), {})
    assert set(room.governed.topics._of_connection) == {owner.connection_id}


# A policy that one half of the cluster has -------------------------------------------------------------------------


async def test_a_policy_whose_node_died_before_it_was_written_down_is_written_down_by_another(
    room: Room, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await world.create(1)
    policies, store = room.governed.env.catalog, room.governed.env.services.store
    decided = PolicyFields(AccessMode.EXCLUSIVE, deduplication=True)
    await store.set_policy(topic, decided.body(), policies._known(), b"of-a-dead-node-1")
    refused = await policies.govern(topic)
    assert refused is not None, "it may be on its way"
    assert "not settled yet" in refused.message
    monkeypatch.setattr(catalog, "_FINISH_S", 0.0)
    await wait_for_async(lambda: settled(room, topic), "the topic to be governed")
    assert policies.book.exact(topic) == decided
    assert (await store.policies()).by_name[topic].version == policies.version


async def test_of_nodes_that_are_asked_at_once_one_writes_a_first_policy_down(room: Room, world: World) -> None:
    """A client writes to many partitions, so to all nodes. Each of them would fence the others, again and again."""
    topic = await world.create(1)
    async with world.room(node_id=2) as other:
        gate = room.gates.hold("InitProducerId")
        first = asyncio.create_task(settled(room, topic))
        await gate.reached()
        assert not await settled(other, topic)
        assert not await settled(other, topic)
        assert "InitProducerId" not in other.gates.passed
        gate.open()
        assert await first
        await other.governed.env.services.changelog.tailer.read_to_end(10)
        assert await settled(other, topic)
        assert await written(room, topic) == [AccessMode.SHARED]


async def test_the_first_policy_of_a_node_that_is_late_does_not_undo_what_another_finished_and_an_operator_changed(
    room: Room, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_FINISH_S", 0.0)
    topic = await world.create(1)
    async with world.room(node_id=2) as other:
        gate = room.gates.hold("ProduceBatch")
        late = asyncio.create_task(room.governed.env.catalog.govern(topic))
        await gate.reached()
        await wait_for_async(lambda: settled(other, topic), "another node to finish the policy")
        await other.govern(topic)
        gate.open()
        refused = await late
        assert refused is not None
        assert refused.code == BUSY, "its client asks again"
        assert await written(room, topic) == [AccessMode.SHARED, AccessMode.EXCLUSIVE]
        assert await settled(room, topic)
        for each in (room, other):
            assert each.governed.env.catalog.book.exact(topic) == PolicyFields(AccessMode.EXCLUSIVE)


async def test_what_an_operator_sets_meanwhile_is_not_replaced_by_what_a_dead_node_decided(
    room: Room, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_FINISH_S", 0.0)
    topic = await world.create(1)
    policies, store = room.governed.env.catalog, room.governed.env.services.store
    await store.set_policy(topic, PolicyFields(AccessMode.SHARED).body(), policies._known(), b"of-a-dead-node-1")
    assert not await settled(room, topic)
    gate = room.gates.hold("InitProducerId")
    finishing = asyncio.create_task(settled(room, topic))
    await gate.reached()
    async with world.room(node_id=2) as other:
        await other.govern(topic)
        gate.open()
        await finishing
        assert await written(room, topic) == [AccessMode.EXCLUSIVE]
        assert policies.book.exact(topic) == PolicyFields(AccessMode.EXCLUSIVE)


async def test_of_two_changes_of_a_policy_at_once_none_is_lost(room: Room, world: World, topic: str) -> None:
    """The one that began first and is written last is made again, on top of the other."""
    policies = room.governed.env.catalog
    async with world.room(node_id=2) as other:
        gate = room.gates.hold("ProduceBatch")
        first = asyncio.create_task(policies.set(topic, PolicyFields(exclusive_reader=True)))
        await gate.reached()
        await other.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        gate.open()
        await first
        both = PolicyFields(AccessMode.EXCLUSIVE, deduplication=True, exclusive_reader=True)
        assert policies.book.exact(topic) == both
        assert len(await written(room, topic)) == 3


async def written(room: Room, topic: str) -> list[AccessMode | None]:
    """The modes that the changelog's records of a policy have, None for a deletion."""
    changelog = room.governed.env.services.changelog
    end = await changelog.tailer.read_to_end(10)
    layout = await room.governed.env.services.upstream.layout(changelog.partition.topic)
    request = FetchPartition(changelog.partition, Offset(0), max_wait_ms=0, max_bytes=10 * 1024 * 1024)
    fetched = await room.governed.env.services.upstream.call(layout.leaders[0], request)
    batches = list(read_batches(fetched.records))
    assert batches[-1].next_offset == end
    key = Key(Kind.POLICY, topic).encode()
    values = [record.value for batch in batches for _, record in batch.records if record.key == key]
    return [
        None if each is None else PolicyFields.of_record(state.Policy.FromString(each)).access_mode for each in values
    ]


async def settled(room: Room, topic: str) -> bool:
    return await room.governed.env.catalog.govern(topic) is None
