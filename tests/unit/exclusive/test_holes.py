"""Holes of Pulsar's exclusive producers, found in its source, each shown closed here: E1 to E8 of `tests/pulsar.toml`.

With the moments in hand (`room`).
"""

from __future__ import annotations

import pytest

from sidecar.protocol.errors import KafkaError
from tests.kafka.exclusive.room import HeldAnswers, Room, free, until
from tests.kafka.gates import REDIS_AWAY
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async

OK, BUSY, AGAIN, TOO_LARGE, REFUSED, OUT_OF_ORDER, FENCED = 0, 5, 7, 10, 44, 45, 90
FENCING, WAITING = "mode=exclusive_with_fencing", "mode=wait_for_exclusive"
STORAGE = KafkaError(56, "the log directory is not there")


@pytest.fixture
async def topic(world: World, room: Room) -> str:
    return await world.govern(room)


async def log_of(world: World, topic: str, partition: int = 0) -> list[bytes]:
    return await world.log(topic, partition)


def queue_of(room: Room, topic: str) -> list[str]:
    return [claimant.name for claimant, _ in room.topic(topic).waiting()]


# E1: a fencer while the old holder has publishes in flight ----------------------------------------------------------


@pytest.mark.parametrize("leaves_first", [False, True], ids=["answers first", "leaves first"])
async def test_e1_what_an_old_holder_had_in_flight_opens_the_topic_to_nobody_when_it_ends(
    room: Room, topic: str, world: World, monkeypatch: pytest.MonkeyPatch, leaves_first: bool
) -> None:
    """Pulsar removes the old holder when its last publish is acknowledged, and with it the new one's exclusivity."""
    owner, fencer = room.connect("owner"), room.connect(f"fencer;{FENCING}")
    assert await owner.send(topic, b"0") == OK
    answers = HeldAnswers(monkeypatch)
    in_flight = [owner.begin(topic, b"%d" % i) for i in (1, 2, 3)]
    await answers.came(3)
    answers.end()
    assert await fencer.send(topic, b"4", sequence=0) == OK
    assert [(taken, lost) for taken, lost, _ in room.told.depositions] == [(topic, ("owner",))]
    waiter = room.connect(f"waiter;{WAITING}")
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert not any(answer.done() for answer in in_flight)
    if leaves_first:
        owner.close()
        answers.tell()
    else:
        answers.tell()
        owner.close()
    assert {(await answer).error for answer in in_flight} == {OK}  # they stand in front of the fence
    await room.idle(topic)
    assert room.told.released_sessions == []
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert await room.connect("rival").send(topic) == REFUSED
    assert await room.connect("crowd;mode=shared").send(topic) == REFUSED
    assert await fencer.send(topic, b"5", sequence=1) == OK
    assert room.topic(topic).generation == 2
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


# E2: a waiter of an old epoch ---------------------------------------------------------------------------------------


async def test_e2_a_fenced_producer_that_comes_back_to_wait_is_neither_queued_nor_revived(
    room: Room, topic: str, world: World
) -> None:
    stale, fencer = room.connect(f"stale;{WAITING}"), room.connect(f"fencer;{FENCING}")
    assert await stale.send(topic, b"0", sequence=0) == OK
    assert await fencer.send(topic, b"1", sequence=0) == OK
    again = room.connect(f"stale;{WAITING}", producer_id=stale.producer_id)
    assert await again.send(topic, sequence=1) == FENCED
    assert queue_of(room, topic) == []
    waiter = room.connect(f"waiter;{WAITING}")
    assert await waiter.send(topic, sequence=0) == AGAIN
    fencer.close()
    await free(room, topic)
    assert await again.send(topic, sequence=1) == FENCED
    assert room.topic(topic).generation == 2  # its try moved nothing
    assert await waiter.send(topic, b"2", sequence=0) == OK
    assert room.topic(topic).generation == 3
    assert await again.send(topic, sequence=1) == FENCED
    assert await log_of(world, topic) == [b"0", b"1", b"2"]


async def test_e2_a_waiter_that_owned_the_topic_before_is_promoted_to_a_higher_generation(
    room: Room, topic: str
) -> None:
    """It left by itself, so it may come back; its old generation does not."""
    first, second = room.connect(f"first;{WAITING}"), room.connect("second")
    assert await first.send(topic, sequence=0) == OK
    first.close()
    await free(room, topic)
    assert await second.send(topic) == OK
    again = room.connect(f"first;{WAITING}", producer_id=first.producer_id)
    assert await again.send(topic, sequence=1) == AGAIN
    second.close()
    await free(room, topic)
    assert await again.send(topic, sequence=1) == OK
    assert room.topic(topic).generation == 3


# E3: somebody writes while the holder is away -----------------------------------------------------------------------


async def test_e3_nobody_writes_in_a_gap_without_a_generation_of_its_own(room: Room, topic: str, world: World) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic, b"0", sequence=0) == OK
    owner.close()
    await free(room, topic)
    assert await room.connect("crowd;mode=shared").send(topic, b"x") == REFUSED
    owner = room.connect("owner", producer_id=owner.producer_id)
    assert await owner.send(topic, b"1", sequence=1) == OK
    assert room.topic(topic).generation == 1  # nobody came between
    owner.close()
    await free(room, topic)
    other = room.connect("other")
    assert await other.send(topic, b"2") == OK
    other.close()
    await free(room, topic)
    owner = room.connect("owner", producer_id=owner.producer_id)
    assert await owner.send(topic, b"3", sequence=2) == OK
    assert room.topic(topic).generation == 3  # somebody did, and the owner can see it
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3"]


# E4: a claim that fails ---------------------------------------------------------------------------------------------

FAILING: dict[str, Exception] = {
    "serve": REDIS_AWAY,
    "claim": REDIS_AWAY,
    "layout": STORAGE,
    "InitProducerId": STORAGE,
    "AddPartitionsToTxn": STORAGE,
    "ProduceBatch": STORAGE,
}


@pytest.mark.parametrize("who", ["the same", "another", "the same on a new connection"])
@pytest.mark.parametrize("step", FAILING)
async def test_e4_a_claim_that_fails_leaves_the_topic_held_by_nobody(
    room: Room, topic: str, step: str, who: str
) -> None:
    """Pulsar marks the topic as taken first: a passing error then locks it until it is unloaded."""
    failed = room.connect("claimant")
    room.gates.fail(step, FAILING[step])
    assert await failed.send(topic, sequence=0) in (BUSY, OK)  # some steps try again by themselves
    assert step in room.gates.passed
    if who != "the same":
        failed.close()
        await free(room, topic)
    if who == "another":
        next_one = room.connect("another")
    elif who == "the same":
        next_one = failed
    else:
        next_one = room.connect("claimant", producer_id=failed.producer_id)
    sequence = 1 if who != "another" and failed.answers[0].error == OK else 0
    codes: list[int] = []

    async def owns() -> bool:
        codes.append(await next_one.send(topic, sequence=sequence))
        return codes[-1] == OK

    await wait_for_async(owns, "the topic")
    assert set(codes) <= {OK, BUSY}  # never a refusal
    assert await room.connect("rival").send(topic) == REFUSED


# E5: one's own half-open connection ---------------------------------------------------------------------------------


async def test_e5_a_holder_on_a_new_connection_is_not_refused_by_its_own_old_one(
    room: Room, topic: str, world: World
) -> None:
    """The old one is half open: the node has not heard of its end."""
    old = room.connect("owner")
    assert await old.send(topic, b"0", sequence=0) == OK
    new = room.connect("owner", producer_id=old.producer_id)
    assert await new.send(topic, b"1", sequence=1) == OK
    old.close()  # heard of late: it does not end the new one
    await room.idle(topic)
    assert room.told.released_sessions == []
    assert await new.send(topic, b"2", sequence=2) == OK
    assert room.topic(topic).generation == 1
    assert await room.connect("rival").send(topic) == REFUSED
    assert await log_of(world, topic) == [b"0", b"1", b"2"]


async def test_e5_a_plain_holder_on_a_new_connection_waits_for_its_old_one_and_is_not_fenced(
    room: Room, topic: str
) -> None:
    old, new = room.connect("owner", plain=True), room.connect("owner", plain=True)
    assert await old.send(topic) == OK
    assert [await new.send(topic) for _ in range(3)] == [AGAIN] * 3
    old.close()
    await free(room, topic)
    assert await new.send(topic) == OK
    assert room.topic(topic).generation == 2


# E6: a waiter that is gone ------------------------------------------------------------------------------------------


async def test_e6_waiters_that_are_gone_keep_the_others_no_longer_than_their_patience_and_cost_no_generation(
    room: Room, topic: str
) -> None:
    """A plain waiter goes with its connection; an idempotent one may come back on another for the reconnect grace."""
    owner, alive = room.connect("owner"), room.connect(f"alive;{WAITING}")
    ghosts = [room.connect(f"g{i};{WAITING}", plain=i % 2 == 0) for i in range(6)]
    assert await owner.send(topic) == OK
    assert [await each.send(topic) for each in ghosts] == [AGAIN] * 6
    assert await alive.send(topic, sequence=0) == AGAIN
    for each in ghosts:
        each.close()
    assert queue_of(room, topic) == ["g1", "g3", "g5", "alive"]
    owner.close()
    await free(room, topic)
    assert await alive.send(topic, sequence=0) == AGAIN
    await until(lambda: alive.send(topic, sequence=0))
    assert queue_of(room, topic) == []
    assert room.topic(topic).generation == 2
    assert [session for session, _, _ in room.told.takeovers] == [f"pid:{each.producer_id}" for each in (owner, alive)]


async def test_e6_a_topic_for_which_only_the_dead_waited_is_free(room: Room, topic: str) -> None:
    owner, ghost = room.connect("owner"), room.connect(f"ghost;{WAITING}", plain=True)
    assert await owner.send(topic) == OK
    assert await ghost.send(topic) == AGAIN
    ghost.close()
    owner.close()
    await free(room, topic)
    assert await room.connect("next").send(topic) == OK
    assert room.topic(topic).generation == 2


# E7: a write that fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["idempotent", "plain"])
async def test_e7_a_write_that_kafka_refuses_hands_the_topic_to_nobody(room: Room, world: World, plain: bool) -> None:
    topic = await world.create(1, **{"max.message.bytes": "1000"})
    await room.govern(topic)
    owner, waiter = room.connect("owner", plain=plain), room.connect(f"waiter;{WAITING}")
    assert await owner.send(topic, b"0", sequence=0) == OK
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert await owner.send(topic, b"x" * 2_000, sequence=1) == TOO_LARGE
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert await owner.send(topic, b"1", sequence=1) == OK
    assert room.topic(topic).generation == 1
    assert queue_of(room, topic) == ["waiter"]
    assert await log_of(world, topic) == [b"0", b"1"]


@pytest.mark.parametrize("plain", [False, True], ids=["idempotent", "plain"])
async def test_e7_a_broker_that_dies_with_a_write_in_flight_hands_the_topic_to_nobody(
    room: Room, world: World, plain: bool
) -> None:
    topic = await world.govern(room, 1)
    leader = world.kafka.cluster.brokers[world.kafka.cluster.leader(topic, 0)]
    owner, waiter = room.connect("owner", plain=plain), room.connect(f"waiter;{WAITING}")
    assert await owner.send(topic, b"0", sequence=0) == OK
    assert await waiter.send(topic, sequence=0) == AGAIN
    leader.freeze()
    in_flight = owner.begin(topic, b"1", sequence=1, timeout_ms=120_000)
    leader.kill()
    assert not in_flight.done()
    assert await waiter.send(topic, sequence=0) == AGAIN
    leader.start()
    await until(lambda: waiter.send(topic, sequence=0), AGAIN)
    assert (await in_flight).error == OK
    assert await owner.send(topic, b"2", sequence=2) == OK
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert room.topic(topic).generation == 1
    assert await world.log(topic) == [b"0", b"1", b"2"]


# E8: a fencer of an old epoch ---------------------------------------------------------------------------------------


async def test_e8_a_fenced_fencer_that_comes_back_evicts_nobody(room: Room, topic: str, world: World) -> None:
    """Pulsar closes the holder and fails the queue first, and looks at the fencer's own epoch then."""
    stale, holder = room.connect(f"stale;{FENCING}"), room.connect(f"holder;{FENCING}")
    assert await stale.send(topic, b"0", sequence=0) == OK
    assert await holder.send(topic, b"1", sequence=0) == OK
    waiters = [room.connect(f"w{i};{WAITING}") for i in range(2)]
    assert [await each.send(topic, sequence=0) for each in waiters] == [AGAIN] * 2
    before = list(room.gates.passed)
    for _ in range(3):
        zombie = room.connect(f"stale;{FENCING}", producer_id=stale.producer_id)
        assert await zombie.send(topic, sequence=1) == FENCED
    assert room.gates.passed == before  # neither Redis nor Kafka was asked
    assert queue_of(room, topic) == ["w0", "w1"]
    assert await holder.send(topic, b"2", sequence=1) == OK
    assert room.topic(topic).generation == 2
    holder.close()
    await free(room, topic)
    assert await waiters[0].send(topic, b"3", sequence=0) == OK
    assert await log_of(world, topic) == [b"0", b"1", b"2", b"3"]


async def test_e8_a_fencer_that_asks_for_an_old_generation_evicts_nobody(room: Room, topic: str) -> None:
    first, holder = room.connect("first"), room.connect(f"holder;{FENCING}")
    assert await first.send(topic) == OK
    assert await holder.send(topic) == OK
    waiter = room.connect(f"waiter;{WAITING}")
    assert await waiter.send(topic, sequence=0) == AGAIN
    before = list(room.gates.passed)
    assert await room.connect(f"late;{FENCING};generation=1").send(topic) == REFUSED
    assert room.gates.passed == before
    assert queue_of(room, topic) == ["waiter"]
    assert await waiter.send(topic, sequence=0) == AGAIN
    assert await holder.send(topic) == OK
    assert room.topic(topic).generation == 2
