"""What a takeover believes of where a writer stopped: leaders' words that may not be committed, and logs."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from sidecar.changelog import MASTER_SLOT, Clock, Entry, Key, Kind, Opened, Position, View
from sidecar.protocol.batch import HEADER_BYTES, stamp
from sidecar.protocol.calls.transactions import ActiveProducer, PartitionProducers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.ids import StampedSequence as Stamped
from sidecar.takeover.slots import SlotScope
from sidecar.takeover.succession import NOTHING, UNKNOWN
from sidecar.takeover.tails import Claim, Look, Tail, TailReader, has_forgotten, trusted_ends
from sidecar.v1 import state_pb2 as state
from tests.unit.cluster.paper_log import PaperLog
from tests.unit.dedup.paper import CONTROL, logged, recs

if TYPE_CHECKING:
    from sidecar.protocol.caller import Upstream

PARTITION = TopicPartition("orders", 0)
SLOT, CLIENT = ProducerId(7), ProducerId(900)
WRITER, FENCE = Stamp(SLOT, ProducerEpoch(4)), Stamp(SLOT, ProducerEpoch(5))
_I32 = Struct(">i")


def tail_at(last_sequence: int, offset: int, claim: Claim | None = None) -> Tail:
    return Tail(Stamped(last_sequence), offset, claim)


def claim_at(last_sequence: int, offset: int, leader_epoch: int) -> Claim:
    return Claim(Stamped(last_sequence), offset, leader_epoch)


def batch(offset: int, sequence: int, *, leader: int = 1, producer_id: int = SLOT, epoch: int = 4) -> bytes:
    """A record as a leader of that epoch appended it."""
    data = bytearray(logged(recs(None), offset, producer_id, epoch))
    stamp(data, 0, len(data), producer_id, epoch, sequence)
    _I32.pack_into(data, 12, leader)
    return bytes(data)


def marker(offset: int, *, leader: int = 1, epoch: int = 5, producer_id: int = SLOT) -> bytes:
    data = bytearray(logged(recs(None), offset, producer_id, epoch, attributes=CONTROL))
    _I32.pack_into(data, 12, leader)
    assert len(data) > HEADER_BYTES
    return bytes(data)


def reader(log: PaperLog) -> TailReader:
    return TailReader(cast("Upstream", log), "orders", UUID(int=1))


async def behind(log: PaperLog, tail: Tail, end: int, fence: Stamp = FENCE) -> int:
    return (await reader(log).behind(WRITER, {0: tail}, fence, {0: end}))[0]


def looked(end: int, *active: ActiveProducer, leader_epoch: int = 1) -> Look:
    return Look({0: end}, {0: leader_epoch}, {PARTITION: PartitionProducers(0, None, active)})


def remembers(last_sequence: int, whose: Stamp = WRITER) -> ActiveProducer:
    return ActiveProducer(whose, last_sequence, 0, 0, -1)


# Behind the fence -----------------------------------------------------------------------------------------------------


async def test_a_leaders_word_is_believed_where_the_same_leader_appended_the_marker() -> None:
    log = PaperLog(batch(0, 0), batch(1, 1), marker(2))
    assert await behind(log, Tail(NOTHING, 0, claim_at(1, 2, leader_epoch=1)), 3) == 1


async def test_what_the_next_leader_does_not_have_was_never_written() -> None:
    """The first leader remembered sequence 2, which no follower had; a clean election dropped it."""
    log = PaperLog(batch(0, 0), batch(1, 1), marker(2, leader=2))
    assert await behind(log, Tail(NOTHING, 0, claim_at(2, 2, leader_epoch=1)), 3) == 1
    assert await behind(log, tail_at(0, 1, claim_at(2, 2, leader_epoch=1)), 3) == 1
    assert await behind(log, tail_at(1, 2, claim_at(2, 2, leader_epoch=1)), 3) == 1


async def test_what_landed_behind_the_look_counts_whoever_led() -> None:
    for leader in (1, 2):
        log = PaperLog(batch(0, 0), batch(1, 1), batch(2, 2, leader=leader), marker(3, leader=leader))
        assert await behind(log, Tail(NOTHING, 0, claim_at(1, 2, leader_epoch=1)), 4) == 2


async def test_the_word_of_a_takeover_that_died_is_judged_by_the_first_marker_behind_it() -> None:
    log = PaperLog(batch(0, 0), marker(1, leader=1), marker(2, leader=3, epoch=6))
    last = Stamp(SLOT, ProducerEpoch(6))
    assert await behind(log, Tail(NOTHING, 0, claim_at(0, 1, leader_epoch=1)), 3, last) == 0
    log = PaperLog(batch(0, 0), marker(1, leader=2), marker(2, leader=1, epoch=6))
    assert await behind(log, Tail(NOTHING, 0, claim_at(5, 1, leader_epoch=1)), 3, last) == 0


async def test_a_log_is_read_to_the_marker_of_its_own_slot() -> None:
    """The master slot's is in front of it, and what was written between the two counts."""
    log = PaperLog(batch(0, 0), marker(1, producer_id=99), batch(2, 1), marker(3), batch(4, 9))
    assert await behind(log, Tail(NOTHING, 0), 5) == 1


async def test_an_empty_answer_does_not_end_a_tail() -> None:
    log = PaperLog(batch(0, 0), batch(1, 1), marker(2))
    log.empty_at = {1: 1, 2: 1}
    assert await behind(log, tail_at(0, 1), 3) == 1


async def test_a_log_without_the_marker_says_nothing() -> None:
    log = PaperLog(batch(0, 0), batch(1, 1))
    with pytest.raises(KafkaError, match="the fence's marker is not between 0 and 2") as failure:
        await behind(log, Tail(NOTHING, 0), 2)
    assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_place_that_nothing_tells_any_more_is_not_guessed() -> None:
    """A leader's word is void, and retention took the log between the hint and the marker."""
    log = PaperLog(marker(20, leader=2))
    log.start = 20
    assert await behind(log, tail_at(3, 4, claim_at(9, 15, leader_epoch=1)), 21) == UNKNOWN
    assert await behind(log, tail_at(3, 4), 21) == UNKNOWN  # what came between may have been its own
    log = PaperLog(marker(20))
    log.start = 20
    assert await behind(log, tail_at(3, 4, claim_at(9, 15, leader_epoch=1)), 21) == UNKNOWN  # it may have written since


# A client's own producer id -------------------------------------------------------------------------------------------


async def test_a_log_that_lost_what_was_claimed_of_it_is_read_from_what_is_left() -> None:
    """Each takeover failed there, until so many had put their markers behind the loss."""
    log = PaperLog(batch(0, 0), batch(1, 1), marker(2, leader=2))
    assert await behind(log, tail_at(0, 1, claim_at(900, 1_000, leader_epoch=1)), 3) == 1
    assert await behind(log, tail_at(900, 1_000, claim_at(950, 1_050, leader_epoch=1)), 3) == UNKNOWN


async def own(log: PaperLog, look: Look, end: int) -> dict[int, Position] | None:
    return await reader(log).own(CLIENT, look, FENCE, {0: end}, others_write=False)


async def test_what_a_session_wrote_without_a_policy_counts_once_it_is_committed() -> None:
    active = remembers(41, Stamp(CLIENT, ProducerEpoch(2)))
    assert await own(PaperLog(marker(50)), looked(50, active), 51) == {0: Position(2, Client(42))}
    landed = PaperLog(batch(50, 42, producer_id=CLIENT, epoch=2), marker(51))
    assert await own(landed, looked(50, active), 52) == {0: Position(2, Client(43))}
    assert await own(landed, looked(50), 52) == {0: Position(2, Client(43))}
    assert await own(PaperLog(marker(50, leader=2)), looked(50, active), 51) is None  # look again


async def test_what_others_wrote_before_the_fence_moves_no_sequence_of_a_session() -> None:
    log = PaperLog(batch(50, 42, producer_id=CLIENT, epoch=2), batch(51, 7), marker(52, producer_id=CLIENT), marker(53))
    assert await own(log, looked(50), 54) == {0: Position(2, Client(43))}


async def test_of_a_session_that_never_wrote_nothing_is_read() -> None:
    log = PaperLog(marker(50))
    assert await own(log, looked(50), 51) == {}
    assert await own(log, looked(50, remembers(-1, Stamp(CLIENT, ProducerEpoch(0)))), 51) == {}
    assert await reader(log).own(CLIENT, looked(50), FENCE, {0: 90}, others_write=True) == {}, "others wrote that"
    assert log.fetched == []


# What a leader forgot -------------------------------------------------------------------------------------------------


def test_a_leader_that_does_not_know_what_was_written_has_forgotten_it() -> None:
    looks = [looked(50), looked(50, remembers(-1)), looked(50, remembers(3))]
    assert [has_forgotten(look, "orders", WRITER, (0,)) for look in looks] == [True, True, False]
    assert not has_forgotten(looked(50, remembers(-1, FENCE)), "orders", WRITER, (0,))  # fenced: told by the fence
    assert not has_forgotten(looked(50), "orders", WRITER, ())


# What is written down -------------------------------------------------------------------------------------------------


def view_with(tail: Tail, writer: Stamp = WRITER) -> View:
    view = View()
    (record,) = reader(PaperLog()).records(view, MASTER_SLOT, UUID(int=1), writer, {0: tail}, 1_000)
    assert isinstance(record.value, state.Tail)
    view.apply(Offset(0), 1_000, None, record.encode())
    return view


def before(view: View, look: Look, since: int = 0) -> Tail:
    return reader(PaperLog()).before(view, MASTER_SLOT, WRITER, look, [0], {0: since})[0]


@pytest.mark.parametrize("tail", [tail_at(3, 40), Tail(NOTHING, 40), tail_at(3, 40, claim_at(9, 45, 2))])
def test_a_tail_is_written_down_as_it_is_and_once(tail: Tail) -> None:
    view = view_with(tail)
    assert before(view, looked(50)) == tail
    assert reader(PaperLog()).records(view, MASTER_SLOT, UUID(int=1), WRITER, {0: tail}, 2_000) == []


def test_of_several_partitions_those_whose_tails_are_known_are_not_written_down_again() -> None:
    view = view_with(tail_at(3, 40))
    tails = {0: tail_at(3, 40), 1: tail_at(5, 50)}
    (record,) = reader(PaperLog()).records(view, MASTER_SLOT, UUID(int=1), WRITER, tails, 2_000)
    assert record.key.partition == 1


def test_a_leaders_word_never_takes_the_place_of_what_is_committed() -> None:
    view = view_with(tail_at(3, 40))
    assert before(view, looked(50, remembers(7), leader_epoch=3)) == tail_at(3, 40, claim_at(7, 50, 3))
    view = view_with(tail_at(3, 40, claim_at(9, 45, 3)))
    assert before(view, looked(50, remembers(5), leader_epoch=4)) == Tail(
        Stamped(3), 40, claim_at(5, 50, 4)
    )  # 9 was dropped
    assert before(view, looked(50, remembers(5), leader_epoch=2)) == Tail(
        Stamped(3), 40, claim_at(9, 45, 3)
    )  # it leads no more


def test_without_anything_known_reading_begins_in_front_of_all_that_the_writer_wrote() -> None:
    assert before(View(), looked(50, remembers(7)), since=30) == Tail(NOTHING, 30, claim_at(7, 50, 1))
    earlier = view_with(tail_at(3, 40), Stamp(SLOT, ProducerEpoch(3)))
    assert before(earlier, looked(50), since=30) == Tail(NOTHING, 40)
    assert before(earlier, looked(50), since=45) == Tail(NOTHING, 45)


def test_a_note_that_nothing_was_written_gives_way_to_a_later_place_of_which_that_is_known() -> None:
    """Else retention takes what lies between, and nothing tells any more that none of it was the writer's."""
    assert before(view_with(Tail(NOTHING, 40)), looked(50), since=45) == Tail(NOTHING, 45)
    assert before(view_with(Tail(NOTHING, 40)), looked(50), since=30) == Tail(NOTHING, 40)
    assert before(view_with(tail_at(3, 40)), looked(50), since=45) == tail_at(3, 40)


# Where reading begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "is_trusted"),
    [
        ([], True),
        ([remembers(-1)], True),
        ([remembers(3)], False),
        ([remembers(-1, FENCE)], False),
        ([remembers(3, FENCE)], False),
    ],
    ids=["nothing", "its marker", "its batch", "a later marker", "a later batch"],
)
def test_a_leader_that_knows_no_batch_of_a_young_epoch_is_trusted(
    active: list[ActiveProducer], is_trusted: bool
) -> None:
    value = state.Serving(producer_id=WRITER.producer_id, producer_epoch=WRITER.epoch)
    entry: Entry[Opened] = Entry(Key(Kind.SERVING, "orders", MASTER_SLOT), value, None, Offset(0), 95_000)
    clock = Clock(lambda: 100.0, lambda: 0.0)
    clock.heard(100_000, 0.0)
    scope, look = SlotScope("orders"), looked(50, *active)
    assert trusted_ends(View(), clock, scope, entry, look, 10_000) == ({0: 50} if is_trusted else {})
    assert trusted_ends(View(), clock, scope, entry, look, 1_000) == {}, "it may have forgotten them"


@pytest.mark.parametrize(
    ("opened_ms", "logged_ms", "noted_ms", "is_trusted"),
    [
        (80_000, None, None, False),
        (80_000, 95_000, 95_000, True),
        (80_000, 95_000, 80_000, False),
        (80_000, 80_000, 95_000, False),
        (95_000, 80_000, 80_000, True),
        (90_000, None, None, False),
        (90_001, None, None, True),
    ],
    ids=["old", "kept", "noted long ago", "logged long ago", "young", "just too old", "just young enough"],
)
def test_an_epoch_that_was_kept_alive_since_is_as_good_as_a_young_one(
    opened_ms: int, logged_ms: int | None, noted_ms: int | None, is_trusted: bool
) -> None:
    """A tail counts from the earlier of its own time and that of the log: neither alone is believed."""
    view = View()
    if logged_ms is not None and noted_ms is not None:
        (record,) = reader(PaperLog()).records(view, MASTER_SLOT, UUID(int=1), WRITER, {0: tail_at(3, 40)}, noted_ms)
        view.apply(Offset(0), logged_ms, None, record.encode())
    value = state.Serving(producer_id=WRITER.producer_id, producer_epoch=WRITER.epoch)
    entry: Entry[Opened] = Entry(Key(Kind.SERVING, "orders", MASTER_SLOT), value, None, Offset(0), opened_ms)
    clock = Clock(lambda: 100.0, lambda: 0.0)
    assert trusted_ends(view, clock, SlotScope("orders"), entry, looked(50), 10_000) == {}, "by no brokers' clock"
    clock.heard(100_000, 0.0)
    found = trusted_ends(view, clock, SlotScope("orders"), entry, looked(50), 10_000)
    assert found == ({0: 50} if is_trusted else {})


def test_each_partition_is_judged_by_what_its_own_leader_says() -> None:
    remembered = {
        TopicPartition("orders", index): PartitionProducers(0, None, active)
        for index, active in enumerate([(remembers(3),), (remembers(5, FENCE),), ()])
    }
    look = Look({0: 50, 1: 60, 2: 70}, {0: 1, 1: 2, 2: 3}, remembered)
    assert [look.claim("orders", index, WRITER) for index in range(3)] == [claim_at(3, 50, 1), None, None]
    assert [look.knows_newer("orders", index, WRITER) for index in range(3)] == [False, True, False]
    assert [has_forgotten(look, "orders", WRITER, (index,)) for index in range(3)] == [False, False, True]
    found = reader(PaperLog()).before(View(), MASTER_SLOT, WRITER, look, range(3), {0: 10, 2: 30})
    assert found == {0: Tail(NOTHING, 10, claim_at(3, 50, 1)), 1: Tail(NOTHING, 0), 2: Tail(NOTHING, 30)}


def test_the_tail_of_a_later_epoch_or_another_producer_says_nothing_of_where_this_one_began() -> None:
    later = view_with(tail_at(3, 40), Stamp(SLOT, ProducerEpoch(5)))
    assert before(later, looked(50), since=30) == Tail(NOTHING, 30)
    other = view_with(tail_at(3, 40), Stamp(CLIENT, ProducerEpoch(3)))
    assert before(other, looked(50), since=30) == Tail(NOTHING, 30)
