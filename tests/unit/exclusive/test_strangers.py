"""What a client may do to others whose producer ids it sees or guesses, and to a node by what it names: nothing."""

import asyncio
from itertools import count

import pytest

from metadata.ownership import AccessMode
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.reply import Reply
from sidecar.exclusive.bindings import NOT_YOURS
from sidecar.exclusive.offers import NO_BATCH, Offer
from sidecar.exclusive.refusals import RefusedLedger
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant
from sidecar.protocol.session import Session
from tests.kafka.exclusive.room import Party, Room, free, until
from tests.kafka.gates import Gate
from tests.unit.exclusive.world import World

FENCED, HELD, GAP, UNKNOWN = 90, 44, 45, 3


async def written(world: World, topic: str) -> int:
    """Batches in the first partition; fences' markers are none."""
    return len(await sequences(world, topic))


async def sequences(world: World, topic: str) -> list[int]:
    """Their stamped sequences."""
    found = await world.batches(topic)
    return [batch.base_sequence for batch in found if not batch.is_special]


# Whose a producer id is ---------------------------------------------------------------------------------------------


async def test_nobody_writes_under_the_producer_id_of_another_client_id(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing;mode=exclusive")
    stranger = room.connect("attacker", producer_id=owner.producer_id)
    assert await owner.send(topic) == 0
    assert await stranger.send(topic, b"evil", sequence=1) == HELD
    assert stranger.answers[-1].message == NOT_YOURS
    assert await owner.send(topic) == 0
    assert await written(world, topic) == 2


def connect_as(room: Room, principal: str, producer_id: int | None = None) -> Party:
    found = room.connect("billing;mode=exclusive", producer_id=producer_id)
    found.principal = principal
    return found


async def test_nobody_writes_under_the_producer_id_of_another_principal_whatever_it_calls_itself(world: World) -> None:
    """Also at a node that the owner's batches have not come to yet: the records of the topic say whose it is."""
    async with world.room() as first:
        topic = await world.govern(first)
        owner = connect_as(first, "User:billing")
        stranger = connect_as(first, "User:other", owner.producer_id)
        assert await owner.send(topic) == 0
        assert await stranger.send(topic, b"evil", sequence=1) == HELD
        assert await stranger.send(topic, b"evil", sequence=0, epoch=1) == HELD
        assert await owner.send(topic) == 0
        assert await owner.send(topic, sequence=0, epoch=1) == 0
    async with world.room(grace=30) as second:
        stranger = connect_as(second, "User:other", owner.producer_id)
        assert await stranger.send(topic, b"evil", sequence=1, epoch=1) == HELD
        back = connect_as(second, "User:billing", owner.producer_id)
        await until(lambda: back.send(topic, sequence=1, epoch=1))
        assert await written(world, topic) == 4


async def claim_for(room: Room, topic: str, party: Party) -> None:
    """A claim by request of a connection, for the producer id that it names."""
    claimant = Claimant(
        Session(f"pid:{party.producer_id}"), "claimant", False, party.connection_id, AccessMode.EXCLUSIVE,
        names_session=True, caller=party.caller,
    )  # fmt: skip
    claimed: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    room.topic(topic).offer(
        Offer(claimant, "", 0, NO_BATCH, memoryview(b""), 0, lambda: True, Reply(claimed.set_result))
    )
    assert (await claimed).error == 0


@pytest.mark.parametrize("claims", ["supervisor", "billing"])
async def test_a_producer_id_that_was_claimed_by_request_stays_its_clients_when_the_node_starts_again(
    world: World, claims: str
) -> None:
    """Whose it was did not get into the record, as nobody had written when that was made."""
    async with world.room() as first:
        topic = await world.govern(first)
        owner = first.connect("billing")
        await claim_for(first, topic, first.connect(claims, producer_id=owner.producer_id))
        assert await owner.send(topic) == 0
    async with world.room(grace=30) as second:
        stranger = second.connect("attacker", producer_id=owner.producer_id)
        assert await stranger.send(topic, b"evil", sequence=1) == HELD
        back = second.connect("billing", producer_id=owner.producer_id)
        await until(lambda: back.send(topic, sequence=1))
        assert await written(world, topic) == 2


async def test_a_claim_that_says_whose_the_producer_id_is_costs_no_second_takeover(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing")
    room.governed.env.bindings.given(owner.producer_id, owner.caller)
    await claim_for(room, topic, owner)
    taken = room.topic(topic).taken
    assert await owner.send(topic) == 0
    assert room.topic(topic).taken is taken is not None


async def test_who_claims_by_request_for_anothers_producer_id_does_not_write_under_it(room: Room, world: World) -> None:
    """A claim may be made for the producer of another client.id. Its connection wrote as that: what the producer wrote
    next was acknowledged as a repeat, and lost.
    """
    name = await world.govern(room)
    owner = room.connect("billing")
    stranger = room.connect("attacker", producer_id=owner.producer_id)
    room.governed.env.bindings.given(owner.producer_id, owner.caller)
    await claim_for(room, name, stranger)
    holder = room.topic(name).state.holder
    assert holder is not None
    assert holder.session == f"pid:{owner.producer_id}"
    for _ in range(2):
        assert await stranger.send(name, b"evil", sequence=0) == HELD
    assert await owner.send(name, b"1") == 0
    assert await stranger.send(name, b"evil", sequence=1) == HELD
    assert await owner.send(name, b"2") == 0
    assert await sequences(world, name) == [0, 1]
    assert await world.log(name) == [b"1", b"2"]


async def test_nobody_raises_the_producer_epoch_of_another_client_id(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing")
    stranger = room.connect("attacker", producer_id=owner.producer_id)
    assert await owner.send(topic) == 0
    assert await stranger.send(topic, b"evil", sequence=0, epoch=1) == HELD
    assert await owner.send(topic) == 0


async def test_another_connection_of_the_same_client_id_goes_on_whatever_its_settings(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing;mode=exclusive;generation=1")
    assert await owner.send(topic) == 0
    again = room.connect("billing;mode=exclusive;-7", producer_id=owner.producer_id)
    assert await again.send(topic, sequence=1) == 0


async def test_a_producer_id_stays_its_clients_when_the_node_starts_again(world: World) -> None:
    async with world.room() as first:
        topic = await world.govern(first)
        owner = first.connect("billing")
        assert await owner.send(topic) == 0
    async with world.room(grace=30) as second:
        stranger = second.connect("attacker", producer_id=owner.producer_id)
        assert await stranger.send(topic, b"evil", sequence=1) == HELD
        back = second.connect("billing", producer_id=owner.producer_id)
        assert await back.send(topic, sequence=1) == 0
        assert await stranger.send(topic, b"evil", sequence=2) == HELD
        assert await written(world, topic) == 2


async def test_a_producer_id_stays_its_clients_when_its_session_left(world: World) -> None:
    async with world.room() as first:
        topic = await world.govern(first)
        left = first.connect("billing")
        assert await left.send(topic) == 0
        left.close()
        await free(first, topic)
        other = first.connect("other")
        assert await other.send(topic) == 0
        other.close()
        await free(first, topic)
    async with world.room() as second:
        stranger = second.connect("attacker;mode=exclusive_with_fencing", producer_id=left.producer_id)
        assert await stranger.send(topic, b"evil", sequence=1) == HELD
        back = second.connect("billing", producer_id=left.producer_id)
        await until(lambda: back.send(topic, sequence=1))
        assert await written(world, topic) == 3


async def test_a_raised_client_epoch_keeps_the_client_id_in_the_record(world: World) -> None:
    async with world.room() as first:
        topic = await world.govern(first)
        owner = first.connect("billing")
        assert await owner.send(topic) == 0
        assert await owner.send(topic, sequence=0, epoch=1) == 0
    async with world.room(grace=30) as second:
        stranger = second.connect("attacker", producer_id=owner.producer_id)
        assert await stranger.send(topic, b"evil", sequence=1, epoch=1) == HELD


async def test_nobody_writes_beside_others_under_anothers_producer_id(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.SHARED)
    one, other = room.connect("one"), room.connect("other")
    stranger = room.connect("attacker", producer_id=one.producer_id)
    assert (await one.send(topic), await other.send(topic)) == (0, 0)
    assert await stranger.send(topic, b"evil", sequence=1) == HELD
    assert await stranger.send(topic, b"evil", sequence=0, epoch=1) == HELD
    assert (await one.send(topic), await other.send(topic)) == (0, 0)
    assert await written(world, topic) == 4


async def test_a_partitions_owner_is_bound_to_its_client_id(room: Room, world: World) -> None:
    topic = await world.govern(room, mode=AccessMode.EXCLUSIVE)
    owner = room.connect("billing")
    assert await owner.send(topic, partition=1) == 0
    assert await room.connect("attacker", producer_id=owner.producer_id).send(topic, partition=0) == HELD


async def test_what_is_refused_to_a_stranger_does_not_count_as_used(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    assert await owner.send(topic) == 0
    assert await rival.send(topic) == HELD
    stranger = room.connect("attacker", producer_id=rival.producer_id)
    assert await stranger.send(topic, ids=[None] * 500, sequence=1) == HELD
    owner.close()
    await free(room, topic)
    await until(lambda: rival.send(topic, sequence=1))


async def test_a_stranger_gets_no_victim_deposed_by_his_own_deposed_connection(room: Room, world: World) -> None:
    topic = await world.govern(room)
    deposed = room.connect("attacker")
    assert await deposed.send(topic) == 0
    owner, waiting = room.connect("owner;mode=exclusive_with_fencing"), room.connect("waiting;mode=wait_for_exclusive")
    assert await owner.send(topic) == 0
    assert await deposed.send(topic) == FENCED
    assert await waiting.send(topic) == 7
    own, deposed.producer_id = deposed.producer_id, waiting.producer_id
    assert await deposed.send(topic, sequence=0) == HELD
    deposed.producer_id = own
    owner.close()
    await until(lambda: waiting.send(topic, sequence=0))


async def test_nobody_succeeds_a_session_of_another_client_id(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, stranger = room.connect("billing"), room.connect("attacker")
    assert await owner.send(topic) == 0
    error = room.governed.producers.check(stranger, owner.producer_id)
    assert error is not None
    assert error.code == HELD
    assert room.governed.producers.check(room.connect("billing;mode=exclusive"), owner.producer_id) is None
    room.governed.producers.initialised(
        stranger, stranger.producer_id, owner.producer_id
    )  # though another node let it pass
    assert await stranger.send(topic) == HELD
    assert await owner.send(topic) == 0


async def test_what_kafka_gave_is_the_clients_who_asked_for_it_whoever_comes_first(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    guess = room.connect("attacker", producer_id=rival.producer_id)
    assert await owner.send(topic) == 0
    assert await guess.send(topic, ids=[None] * 500, sequence=0) == HELD
    room.governed.producers.initialised(rival, rival.producer_id, None)
    assert await guess.send(topic, sequence=500) == HELD
    owner.close()
    await free(room, topic)
    await until(lambda: rival.send(topic, sequence=0))
    assert await guess.send(topic, sequence=1) == HELD


async def test_who_came_first_with_a_producer_id_has_it_on_that_topic(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    assert await owner.send(topic) == 0
    assert await rival.send(topic) == HELD
    late = room.connect("late", producer_id=rival.producer_id)
    assert await late.send(topic, sequence=1) == HELD
    assert late.answers[-1].message == NOT_YOURS


# What is remembered of those who are refused ------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1])
async def test_a_partition_that_is_not_there_is_no_business_of_the_topic(
    room: Room, world: World, partition: int
) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    assert await owner.send(topic) == 0
    assert await rival.send(topic, partition=partition) == UNKNOWN
    assert await owner.send(topic, partition=partition, sequence=1) == UNKNOWN
    assert room.governed.topics.refused.total == 0
    assert not (await room.idle(topic)).busy
    owner.close()
    await free(room, topic)
    await until(lambda: rival.send(topic, sequence=0))


async def test_partitions_that_are_not_there_cost_kafka_few_questions_in_all(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing")
    assert await owner.send(topic) == 0
    room.gates.passed.clear()
    answers = [owner.begin(topic, partition=partition, sequence=0) for partition in range(2, 1002)]
    names = [owner.begin(f"{topic}-{number}", sequence=0) for number in range(1000)]
    assert {answer.error for answer in await asyncio.gather(*answers, *names)} == {UNKNOWN}
    assert room.gates.passed.count("MetadataCall") <= 3
    assert "layout" not in room.gates.passed


async def test_batches_that_wait_for_their_topic_to_be_known_keep_their_order(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner = room.connect("billing")
    answers = [owner.begin(topic) for _ in range(5)]
    assert [answer.error for answer in await asyncio.gather(*answers)] == [0] * 5
    assert await sequences(world, topic) == list(range(5))


async def test_nothing_overtakes_a_batch_that_waits_for_its_topic_to_be_known(
    room: Room, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have asked for the topic meanwhile: a request that could go on whole waits all the same."""
    topic = await world.govern(room)
    upstream, told = room.governed.env.services.upstream, Gate()
    assert isinstance(upstream, KafkaUpstream)
    learn = upstream.learn

    async def learn_late(name: bytes) -> bool:
        found = await learn(name)
        await told.pass_through()
        return found

    owner = room.connect("billing", plain=True)
    await until(lambda: owner.send(topic, b"0"))
    monkeypatch.setattr(upstream, "learn", learn_late)
    upstream.view.forget([topic.encode()])  # its partitions were changed
    waits = owner.begin(topic, b"1")
    await told.reached()
    behind = owner.begin(topic, b"2")
    told.open()
    first, second = await asyncio.gather(waits, behind)
    assert (first.error, second.error) == (0, 0)
    assert first.base_offset < second.base_offset


async def test_of_a_session_whose_refused_sequences_are_forgotten_nothing_is_written_in_a_wrong_place(
    room: Room, world: World
) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    assert await owner.send(topic) == 0
    assert await rival.send(topic) == HELD
    room.topic(topic).refusals.forget(Session(f"pid:{rival.producer_id}"))
    owner.close()
    await free(room, topic)
    await until(lambda: rival.send(topic, sequence=1), GAP)
    assert await written(world, topic) == 1
    assert await rival.send(topic, sequence=0) == 0


async def test_a_refused_session_goes_on_correctly_on_another_connection(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, rival = room.connect("billing"), room.connect("rival")
    assert await owner.send(topic) == 0
    assert await rival.send(topic) == HELD
    rival.close()
    owner.close()
    await free(room, topic)
    back = room.connect("rival", producer_id=rival.producer_id)
    await until(lambda: back.send(topic, sequence=1))


async def test_what_many_refused_sessions_leave_behind_is_bounded(room: Room, world: World) -> None:
    topic = await world.govern(room)
    owner, ids = room.connect("billing"), count(5_000_000_000)
    room.governed.topics.refused = room.topic(topic).refusals._ledger = RefusedLedger(100, 10)
    assert await owner.send(topic) == 0
    flood = room.connect("flood")
    for _ in range(120):
        flood.producer_id = next(ids)
        assert await flood.send(topic, sequence=0) == HELD
    assert room.governed.topics.refused.total == 100
    flood.close()
    assert room.governed.topics.refused.total == 10
