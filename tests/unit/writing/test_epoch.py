"""An epoch of a slot and the next one, without a broker: what they tell of themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.changelog import (
    MASTER_SLOT,
    Clock,
    Key,
    Kind,
    Position,
    Record,
    SlotName,
    View,
    pack_offsets,
    pack_positions,
    shared_slot,
    unpack_offsets,
    unpack_positions,
)
from sidecar.dedup.reply import Reply
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import RefusedSequences, Verdict
from sidecar.protocol.batch import read_header, stamp
from sidecar.protocol.ids import ClientSequence, Offset, ProducerEpoch, ProducerId, Stamp, StampedSequence
from sidecar.protocol.session import Caller, Session
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.takeover.succession import NOTHING, unpack_refused
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch
from tests.unit.exclusive.paper_node import Cluster, PaperForwarder
from tests.unit.forwarder.paper import record_batch

BEFORE, NEXT = (Stamp(ProducerId(900), ProducerEpoch(epoch)) for epoch in (4, 5))


@pytest.mark.parametrize(("slot", "stamps"), [(MASTER_SLOT, [NEXT]), (shared_slot(1), [])])
async def test_snapshots_of_sequence_ids_get_the_next_epoch_of_the_master_slot(
    slot: SlotName, stamps: list[Stamp]
) -> None:
    """Under the one before, Kafka would refuse them."""

    async def raised() -> Stamp:
        return NEXT

    async def appended(_: object) -> None: ...

    taken = TakenSlot(
        SlotScope("orders", slot), UUID(int=1), BEFORE, cast(Any, SimpleNamespace(raise_epoch=raised)),
        cast(Any, None), Session("pid:7"), "billing", 1, {0: Position(0, ClientSequence(3))}, {}, (0,),
        state.Ownership(), 0, {},
    )  # fmt: skip
    changelog = SimpleNamespace(view=View(), clock=Clock(), journal=lambda _: SimpleNamespace(append=appended))
    renewed: list[Stamp] = []
    ids = SimpleNamespace(renewed=renewed.append)
    epoch = SlotEpoch(taken, cast(Any, None), cast(Any, None), cast(Any, ids))
    following = await epoch.raise_for(cast(Any, SimpleNamespace(node_id=1, changelog=changelog)), 0, client_epoch=1)
    assert (following.taken.stamp, renewed) == (NEXT, stamps)


def taken(session: str = "pid:7", **facts: Any) -> TakenSlot:
    """An epoch of a session on two partitions, of which it has written to the first."""
    bases = {0: Position(2, ClientSequence(30)), 1: Position(2, ClientSequence(0))}
    return TakenSlot(
        **{
            "scope": SlotScope("orders"), "topic_id": UUID(int=1), "stamp": BEFORE, "slot": None, "journal": None,
            "session": Session(session), "name": "billing", "generation": 4, "bases": bases, "refused": {},
            "partitions": (0, 1), "ownership": state.Ownership(), "position": 0, "others": {}, **facts,
        }
    )  # fmt: skip


class Writing:
    """An epoch at work, and what its batches are answered."""

    def __init__(self, session: str = "pid:7", **facts: Any) -> None:
        self.forwarder = PaperForwarder(Cluster(2))
        self.owner = SimpleNamespace(refused=lambda *about: self.refused.append(about))
        self.refused: list[tuple[Any, ...]] = []
        self.epoch = SlotEpoch(taken(session, **facts), cast(Any, self.forwarder), cast(Any, self.owner))
        self.answers: list[int] = []

    def send(self, partition: int, sequence: int, topic_id: bytes = b"") -> None:
        plain = not self.epoch.taken.session.is_idempotent
        batch = record_batch([b"1"])
        stamp(batch, 0, len(batch), *((-1, -1, -1) if plain else (7, 2, sequence)))
        self.forwarder.held += len(batch)
        reply = Reply(lambda outcome: self.answers.append(outcome.error), topic_id)
        self.epoch.append(partition, read_header(batch, 0, len(batch)), memoryview(batch), 30_000, reply)

    def deliver(self) -> None:
        (link,) = self.forwarder.links.values()
        self.forwarder.deliver(link, None)
        self.forwarder.answer(link)


async def test_an_epoch_knows_what_was_sent_under_it_and_what_is_in_the_log() -> None:
    writing = Writing()
    epoch = writing.epoch
    before = epoch.taken.bases
    assert (epoch.touched(), epoch.wrote(), epoch.idle, epoch.certain) == (set(), [], True, True)
    assert (epoch.stands_at(), epoch.acknowledged(0)) == (before, NOTHING)
    writing.send(0, 30)
    assert (epoch.touched(), epoch.wrote(), epoch.idle) == ({0}, [], False)
    assert (epoch.stands_at(), epoch.acknowledged(0)) == (before, NOTHING)
    writing.deliver()
    assert writing.answers == [0]
    assert (epoch.touched(), epoch.wrote(), epoch.idle, epoch.certain) == ({0}, [0], True, True)
    assert epoch.stands_at() == {0: Position(2, ClientSequence(31)), 1: before[1]}
    assert (epoch.acknowledged(0), epoch.acknowledged(1)) == (StampedSequence(0), NOTHING)
    memory = epoch.memory()
    assert (memory.topic_id, memory.stamp, memory.stands_at) == (UUID(int=1), BEFORE, epoch.stands_at())


async def test_a_plain_sessions_batches_are_known_to_be_in_the_log_once_nothing_is_under_way() -> None:
    writing = Writing("conn:1-a-5")
    epoch = writing.epoch
    assert epoch.verdict(0, cast(Any, None)) is Verdict.FORWARD
    writing.send(0, -1)
    writing.send(1, -1)
    assert (epoch.touched(), epoch.wrote()) == ({0, 1}, [])
    writing.deliver()
    assert epoch.wrote() == [0]
    writing.deliver()
    assert (epoch.wrote(), epoch.stands_at()) == ([0, 1], epoch.taken.bases)
    epoch.refused(0, ClientSequence(3), 1)
    assert writing.refused == [], "it has no sequences"


async def test_a_batch_for_another_topic_of_the_name_is_refused_and_gives_its_bytes_back() -> None:
    writing = Writing()
    writing.send(0, 30, UUID(int=2).bytes)
    assert (writing.answers, writing.forwarder.held, writing.epoch.touched()) == ([100], 0, set())
    writing.send(0, 30, UUID(int=1).bytes)
    writing.deliver()
    assert writing.answers == [100, 0]


async def test_refused_sequences_are_told_with_the_clients_epoch() -> None:
    writing = Writing()
    writing.epoch.refused(1, ClientSequence(3), 2)
    assert writing.refused == [(1, 2, 3, 2)]


@pytest.mark.parametrize(("partitions", "covered"), [((0, 1), [0, 1]), ((1,), [1]), ((0, 2), [0, 2]), ((), [])])
async def test_an_epoch_covers_the_partitions_that_were_fenced(partitions: tuple[int, ...], covered: list[int]) -> None:
    epoch = Writing(partitions=partitions).epoch
    assert [index for index in range(-1, 4) if epoch.covers(index)] == covered


async def test_a_partition_that_was_never_written_takes_any_epoch_of_its_client() -> None:
    """A base above 0 shows earlier batches: below it are repeats."""
    epoch = Writing().epoch
    header = read_header(record_batch([b"1"]), 0, len(record_batch([b"1"])))

    def verdict(partition: int, client_epoch: int, sequence: int) -> Verdict:
        its = header._replace(producer_id=7, producer_epoch=client_epoch, base_sequence=sequence)
        return epoch.verdict(partition, its)

    assert verdict(0, 2, 29) is Verdict.REPEAT
    assert verdict(0, 1, 0) is Verdict.STALE
    assert verdict(1, 1, 0) is Verdict.RAISE


async def test_an_epoch_is_quiet_once_nothing_is_under_way_or_not_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a batch is under way, no next epoch is opened from memory."""
    monkeypatch.setattr("sidecar.writing.epoch._QUIET_S", 0.02)
    writing = Writing()
    assert await writing.epoch.quiet()
    writing.send(0, 30)
    assert not await writing.epoch.quiet()
    writing.deliver()
    assert await writing.epoch.quiet()


async def test_gates_end_with_their_epoch_and_lanes_that_are_made_later_as_well() -> None:
    writing, closed = Writing(), list[Outcome]()
    gate = SimpleNamespace(close=closed.append)
    vars(writing.epoch)["_gates"] = SimpleNamespace(in_order=lambda: [gate])
    writing.epoch.close(Outcome(6))
    writing.epoch.close(Outcome(7))
    assert closed == [Outcome(6), Outcome(7)]
    vars(writing.epoch)["_gates"] = None
    writing.send(1, 0)
    assert writing.answers == [6], "a lane that is made later ends as the epoch did"


# The record of the next epoch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slot", "generation"), [(MASTER_SLOT, 4), (shared_slot(1), None)])
async def test_the_record_of_the_next_epoch_keeps_all_that_the_last_one_said(
    slot: SlotName, generation: int | None
) -> None:
    view, written = View(), list[Record]()
    last = (state.Serving if generation else state.Slot)(
        producer_id=900, producer_epoch=4, under=5, retired_producer_ids=[3],
        left=[state.LeftSession(session="pid:9", left_ms=1)], former=[state.FormerWriter(producer_id=800, name="a")],
        own=pack_positions({0: Position(2, ClientSequence(9))}),
    )  # fmt: skip
    kind = Kind.SERVING if generation else Kind.SLOT
    view.apply(Offset(7), 1, BEFORE, Record(Key(kind, "orders", slot), last).encode())

    async def raised() -> Stamp:
        return NEXT

    async def append(records: list[Record]) -> None:
        written.extend(records)

    stamps: list[Stamp] = []

    def journal(writer: Stamp) -> Any:
        stamps.append(writer)
        return SimpleNamespace(append=append)

    refused = {0: RefusedSequences(2, [(20, 22)]), 1: RefusedSequences(2, [(0, 1)])}
    its = taken(
        scope=SlotScope("orders", slot), slot=SimpleNamespace(raise_epoch=raised), refused=refused,
        begins={0: 40, 1: 41}, caller=Caller("User:app", "billing"), ids_from={0: 10},
    )  # fmt: skip
    before = SlotEpoch(its, cast(Any, PaperForwarder(Cluster(2))), cast(Any, None))
    services = SimpleNamespace(node_id=3, changelog=SimpleNamespace(view=view, clock=Clock(), journal=journal))
    following = await before.raise_for(cast(Any, services), 1, client_epoch=3)
    (record,) = written
    value = record.value
    assert (record.key, stamps) == (Key(kind, "orders", slot), [NEXT])
    assert isinstance(value, state.Serving | state.Slot)
    bases = {0: Position(2, ClientSequence(30)), 1: Position(3, ClientSequence(0))}
    assert (unpack_positions(value.base), following.taken.bases) == (bases, bases)
    spans = {index: found.spans for index, found in unpack_refused(value.refused).items()}
    assert spans == {0: [(20, 22)]} == {index: found.spans for index, found in following.taken.refused.items()}
    assert (value.left, value.former, value.own) == (last.left, last.former, last.own)
    assert (list(value.retired_producer_ids), value.under, value.node) == ([3], 5, 3)
    assert (value.session, value.name, value.client_id, value.principal) == ("pid:7", "billing", "billing", "User:app")
    assert (value.producer_id, value.producer_epoch, value.topic_id) == (900, 5, UUID(int=1).bytes)
    assert unpack_offsets(value.begins) == {0: 40, 1: 41}
    if isinstance(value, state.Serving):
        assert (value.generation, value.ids_from) == (4, pack_offsets({0: 10}))
    assert (following.taken.stamp, following.taken.generation) == (NEXT, 4)
