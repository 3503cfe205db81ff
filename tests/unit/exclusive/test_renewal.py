"""Slot epochs that have had enough records are replaced, and sequences wrap, without an error at the client.

A base that lags half a round behind its client makes every new batch a repeat: acknowledged, and in no log. Positions
are set, not waited for: a limit of a few records, and sessions whose sequences begin just below 2^31.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from metadata.ownership import AccessMode
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import MODULUS, Append, PlainSequences
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence, ProducerEpoch, ProducerId, Stamp, StampedSequence, TopicPartition
from sidecar.protocol.produce import ProduceResult
from tests.kafka.exclusive.producers import batch_of
from tests.kafka.exclusive.room import Party, Room, until
from tests.unit.exclusive.world import World
from tests.wait import wait_for_async

OK, BUSY, OUT_OF_ORDER, DUPLICATE = 0, 5, 45, 46
LIMIT = 4
"""Records of a session in a partition after which these rooms replace its slot epoch."""

WRITERS = {
    "owner": PolicyFields(AccessMode.EXCLUSIVE),
    "owner with ids": PolicyFields(AccessMode.EXCLUSIVE, deduplication=True),
    "shared": PolicyFields(AccessMode.SHARED),
    "shared with ids": PolicyFields(AccessMode.SHARED, deduplication=True),
    "partition": PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.PARTITION),
    "partition with ids": PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.PARTITION, deduplication=True),
}
some_writers = pytest.mark.parametrize(
    "policy", [WRITERS["owner with ids"], WRITERS["shared"]], ids=["owner", "shared"]
)
every_writer = pytest.mark.parametrize("policy", list(WRITERS.values()), ids=list(WRITERS))


@pytest.fixture
async def room(world: World) -> AsyncIterator[Room]:
    async with world.room(epoch_records=LIMIT) as found:
        yield found


class Writer:
    """A session that numbers its records from `first` on, and its sequence ids from 0 where the topic has some."""

    def __init__(self, party: Party, topic: str, policy: PolicyFields, first: int = 0, sent: int = 0) -> None:
        self.party = party
        self._topic = topic
        self._with_ids = bool(policy.deduplication)
        self._first = first
        self._sent = sent

    def begin(self, records: int = 1, *, at: int | None = None) -> asyncio.Future[ProduceResult]:
        """The next batch, or the one again that began with record `at`."""
        at = self._sent if at is None else at
        self._sent = max(self._sent, at + records)
        sequence, ids = (self._first + at) % MODULUS, range(at, at + records)
        if self._with_ids:
            return self.party.begin(self._topic, ids=list(ids), sequence=sequence)
        assert records == 1
        return self.party.begin(self._topic, b"%d" % at, sequence=sequence)

    async def send(self, records: int = 1, *, at: int | None = None) -> int:
        """Its error code; 5 is tried again with the same sequence."""
        at = self._sent if at is None else at
        errors: list[int] = []

        async def answered() -> bool:
            async with asyncio.timeout(20):
                errors.append((await self.begin(records, at=at)).error)
            return errors[-1] != BUSY

        await wait_for_async(answered, "an answer other than 5")
        return errors[-1]


async def log_of(world: World, topic: str) -> list[int]:
    values = await world.log(topic)
    return [int(value) for value in values]


async def governed(room: Room, world: World, policy: PolicyFields) -> str:
    topic = await world.create(1)
    await room.governed.env.catalog.set(topic, policy)
    return topic


def fences(room: Room) -> int:
    return room.gates.passed.count("AddPartitionsToTxn")


def epochs(room: Room) -> int:
    return room.gates.passed.count("InitProducerId")


# Replaced epochs ----------------------------------------------------------------------------------------------------


@every_writer
async def test_slot_epochs_are_replaced_under_batches_in_flight_without_an_error(
    room: Room, world: World, policy: PolicyFields
) -> None:
    topic = await governed(room, world, policy)
    writer = Writer(room.connect("billing"), topic, policy)
    assert await writer.send() == OK
    opened, fenced = epochs(room), fences(room)
    for _ in range(6):
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*[writer.begin() for _ in range(5)])
        assert [answer.error for answer in answers] == [OK] * 5
        assert all(answer.base_offset >= 0 for answer in answers)
    assert await log_of(world, topic) == list(range(31))
    assert epochs(room) >= opened + 5, "epochs were replaced"
    assert fences(room) == fenced, "from memory: nothing is fenced"
    batches = await world.batches(topic)
    assert max(batch.last_sequence for batch in batches if not batch.is_special) < LIMIT + 5


@some_writers
async def test_a_batch_from_before_the_replacement_that_comes_again_is_in_the_log_once(
    room: Room, world: World, policy: PolicyFields
) -> None:
    topic = await governed(room, world, policy)
    writer = Writer(room.connect("billing"), topic, policy)
    assert [await writer.send() for _ in range(LIMIT)] == [OK] * LIMIT
    opened = epochs(room)
    assert await writer.send() == OK
    assert epochs(room) == opened + 1, "replaced"
    assert [await writer.send(at=at) for at in range(LIMIT)] == [DUPLICATE] * LIMIT
    assert await writer.send(at=LIMIT) == OK, "Kafka remembers it"
    assert await writer.send() == OK
    assert epochs(room) == opened + 1
    assert await log_of(world, topic) == list(range(LIMIT + 2))


@some_writers
async def test_a_takeover_right_behind_a_replacement_goes_on_in_the_right_place(
    world: World, policy: PolicyFields
) -> None:
    """Also where the new epoch has no record yet, and none of its own to be found by."""
    async with world.room(epoch_records=LIMIT) as room:
        topic = await governed(room, world, policy)
        writer = Writer(room.connect("billing"), topic, policy)
        assert [await writer.send() for _ in range(LIMIT)] == [OK] * LIMIT
        opened = epochs(room)
        assert await writer.send(at=LIMIT + 5) == OUT_OF_ORDER
        assert epochs(room) == opened + 1
    async with world.room(node_id=2, epoch_records=LIMIT) as room:
        party = room.connect("billing", producer_id=writer.party.producer_id)
        again = Writer(party, topic, policy, sent=LIMIT)
        await until(lambda: again.send(at=LIMIT))
        assert await again.send(at=LIMIT - 1) == DUPLICATE
        assert [await again.send() for _ in range(2 * LIMIT)] == [OK] * 2 * LIMIT
    assert await log_of(world, topic) == list(range(3 * LIMIT + 1))


async def test_an_epoch_with_a_batch_in_doubt_is_replaced_by_a_takeover(
    room: Room, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await world.govern(room, 1)
    owner = Writer(room.connect("billing"), topic, WRITERS["owner"])
    assert [await owner.send() for _ in range(LIMIT - 1)] == [OK] * (LIMIT - 1)
    fenced, space = fences(room), room.topic(topic).writer.epoch
    assert space is not None
    space._spaces[0].doubted(ClientSequence(LIMIT + 1), 1)
    assert [await owner.send() for _ in range(2)] == [OK] * 2
    assert fences(room) == fenced + 1
    assert await log_of(world, topic) == list(range(LIMIT + 1))


async def test_a_replacement_that_fails_becomes_a_takeover(room: Room, world: World) -> None:
    topic = await world.govern(room, 1)
    owner = Writer(room.connect("billing"), topic, WRITERS["owner"])
    assert [await owner.send() for _ in range(LIMIT)] == [OK] * LIMIT
    fenced = fences(room)
    room.gates.fail("InitProducerId", KafkaError(31, "made up"))
    await until(lambda: owner.send(at=LIMIT))
    assert fences(room) == fenced + 1
    assert await log_of(world, topic) == list(range(LIMIT + 1))


async def test_where_the_policy_changes_during_a_replacement_the_new_one_holds(room: Room, world: World) -> None:
    """Else the next epoch would write ids past the marks that the policy wants."""
    topic = await world.govern(room, 1)
    owner = Writer(room.connect("billing"), topic, WRITERS["owner"])
    assert [await owner.send() for _ in range(LIMIT)] == [OK] * LIMIT
    gate = room.gates.hold("InitProducerId")
    party = owner.party
    renewing = party.begin(topic, ids=[LIMIT], sequence=LIMIT)
    await gate.reached()
    await room.governed.env.catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE, deduplication=True))
    gate.open()
    if (await renewing).error != OK:
        await until(lambda: party.send_ids(topic, [LIMIT], sequence=LIMIT))
    await until(lambda: party.send_ids(topic, [LIMIT], sequence=LIMIT + 1))
    assert room.told.duplicates == 1
    assert await log_of(world, topic) == list(range(LIMIT + 1))


@some_writers
async def test_a_gap_replaces_no_epoch_and_no_sequence_that_is_nowhere_near_is_acknowledged(
    world: World, policy: PolicyFields
) -> None:
    """2^30 records behind its base a batch was called a repeat, 30 hours after the epoch began."""
    async with world.room() as room:
        topic = await governed(room, world, policy)
        writer = Writer(room.connect("billing"), topic, policy)
        assert await writer.send() == OK
        opened = epochs(room)
        for at in (5, 2**28, 2**30 - 1, 2**30, 2**31 - 2**27, 2**31 - 1):
            assert await writer.send(at=at) == OUT_OF_ORDER
        assert await writer.send(at=1) == OK
        assert epochs(room) == opened
        new = Writer(room.connect("other"), topic, policy) if policy.access_mode is AccessMode.SHARED else None
        if new is not None:
            assert await new.send(at=2**31 - 1) == OUT_OF_ORDER
    assert await log_of(world, topic) == [0, 1]


# Sequences that wrap ------------------------------------------------------------------------------------------------


@every_writer
async def test_a_client_whose_sequences_wrap_goes_on_through_epochs_and_takeovers(
    world: World, policy: PolicyFields
) -> None:
    """Java and librdkafka count 2147483647, 0, 1, within one batch too."""
    first, records = MODULUS - 9, 3 if policy.deduplication else 1
    async with world.room(epoch_records=LIMIT) as room:
        topic = await world.create(1)
        party = room.connect("billing")
        stamp = Stamp(ProducerId(party.producer_id), ProducerEpoch(0))
        sent = await world.kafka.produce(TopicPartition(topic, 0), stamp, first, b"0")  # while it has no policy
        assert sent.error == OK
        await room.governed.env.catalog.set(topic, policy)
        writer = Writer(party, topic, policy, first, sent=1)
        for _ in range(12 // records):
            async with asyncio.timeout(20):
                assert (await writer.begin(records)).error == OK
        assert await writer.send(records, at=13 - records) in (OK, DUPLICATE)
    async with world.room(node_id=2, epoch_records=LIMIT) as room:
        party = room.connect("billing", producer_id=writer.party.producer_id)
        again = Writer(party, topic, policy, first, sent=13)
        await until(lambda: again.send(at=13))
        assert await again.send(at=12) == DUPLICATE
        assert await again.send() == OK
    assert await log_of(world, topic) == list(range(15))


class NobodysLane:
    """Implements `sidecar.forwarder.lane.Owner`."""

    def fenced(self, lane: Lane) -> None:
        raise AssertionError("nobody fences it")

    def numbering_lost(self, lane: Lane) -> None:
        raise AssertionError("nothing is lost")


async def test_the_numbers_of_a_plain_session_wrap_as_kafka_counts(room: Room, world: World) -> None:
    """2^31 - 3 and five records end with 1; what follows is 2."""
    topic = await world.create(1)
    forwarder = room.governed.env.forwarder
    await room.governed.env.services.upstream.layout(topic, refresh=True)
    stamp = Stamp(ProducerId(77), ProducerEpoch(0))
    lane = forwarder.lane(topic.encode(), 0, stamp, PlainSequences(StampedSequence(MODULUS - 3)), NobodysLane())
    loop, written = asyncio.get_running_loop(), 0
    answers: list[asyncio.Future[Outcome]] = []
    for records in (5, 2, 1):
        batch = batch_of([b"%d" % (written + index) for index in range(records)], -1, -1, -1)
        written += records
        answers.append(loop.create_future())
        assert forwarder.admit(len(batch))
        lane.append(Append(memoryview(batch), records, loop.time() + 20, 10_000, answers[-1].set_result))
    async with asyncio.timeout(20):
        assert [(await answer).error for answer in answers] == [OK] * 3
    assert await log_of(world, topic) == list(range(8))
    batches = await world.batches(topic)
    assert [(batch.base_sequence, batch.last_sequence) for batch in batches if batch.records] == [
        (MODULUS - 3, 1),
        (2, 3),
        (4, 4),
    ]
