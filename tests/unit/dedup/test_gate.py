"""What becomes of the batches of a session on a topic with sequence ids, one partition, real lanes: order first, then
ids; what waits and for how long; duplicates and the shift that is written down in front of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sidecar.dedup.marks import Judgement, Mark, Pushed
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ClientSequence
from tests.unit.dedup.paper import Rec, batch, recs
from tests.unit.dedup.paper_gate import HELD_S, MODULUS, Client, GateLoop, Partition, Shift, gate_time

OK, LATER, NOT_LEADER, TIMED_OUT, TOO_LARGE, IN_USE, OUT_OF_ORDER, REPEATED, INVALID = 0, 5, 6, 7, 10, 44, 45, 46, 87
ME, OTHER = b"me", b"other"
NOWHERE = Outcome(OK, -1)


@pytest.fixture
def loop() -> Iterator[GateLoop]:
    with gate_time() as found:
        yield found


@pytest.fixture
def partition(loop: GateLoop) -> Partition:
    return Partition(loop)


@pytest.fixture
def client(partition: Partition) -> Client:
    return Client(partition)


@pytest.fixture
def plain(partition: Partition) -> Client:
    return Client(partition, "conn:1", plain=True)


class Told(list[Outcome]):
    """Does something when an outcome comes."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act

    def append(self, outcome: Outcome) -> None:
        self._act()
        super().append(outcome)


def known(partition: Partition, *ids: int, name: bytes = ME) -> None:
    """The log holds these ids, from an earlier epoch."""
    for sequence_id in ids:
        partition.state.marks.learn(Mark(name, sequence_id, -1, 1))


# New ids go on ------------------------------------------------------------------------------------------------------


def test_new_ids_go_out_at_once_and_their_offsets_come_back(client: Client) -> None:
    batches = [client.send(1, 2), client.send(5), client.send(6, 9)]
    assert client.in_flight == [[1, 2], [5], [6, 9]]
    client.land(3)
    assert [batch.outcome for batch in batches] == [Outcome(OK, offset, -1, 0) for offset in (0, 2, 3)]
    assert client.partition.log == [1, 2, 5, 6, 9]
    assert client.partition.state.marks.persisted(ME) == 9
    client.finished()


def test_a_batch_that_was_sent_keeps_its_bytes_alone_not_what_was_opened_of_it(client: Client) -> None:
    at_once = client.send(1)
    client.land()
    known(client.partition, 2)
    part, waiting = client.send(2, 3), client.send(4)
    client.write()
    assert client.in_flight == [[3]]
    client.land()
    assert client.in_flight == [[4]]
    assert [sent.arrival.content for sent in (at_once, part, waiting)] == [None, None, None]
    client.land()
    client.finished()


def test_a_session_that_never_gave_ids_need_not(client: Client) -> None:
    batches = [client.send(None, None), client.send(None)]
    client.land(2)
    assert [batch.error for batch in batches] == [OK, OK]
    client.finished()


def test_ids_of_a_session_without_a_name_need_a_name_header(partition: Partition) -> None:
    client = Client(partition, name=None)
    nameless, named = client.send(1), client.send(Rec(1, OTHER), first=0)
    client.land()
    assert (nameless.error, named.error) == (INVALID, OK)
    assert partition.state.marks.persisted(OTHER) == 1
    client.finished()


def test_the_usual_case_is_admitted_and_changes_nothing_by_being_asked(client: Client) -> None:
    client.send(1)
    client.land()
    data = batch(recs(5))
    for _ in range(2):
        assert client.gate.admits(data, ClientSequence(1), 1) is not None
    assert client.gate.admits(data, ClientSequence(2), 1) is None, "a gap"
    assert (client.in_flight, client.partition.state.marks.pushed(ME)) == ([], 1)
    known(client.partition, 5)
    assert client.gate.admits(data, ClientSequence(1), 1) is None, "a duplicate"
    client.finished()


def test_a_batch_that_goes_out_with_a_whole_request_counts_like_any_other(client: Client) -> None:
    """Its request is sent as it came, and its client is told by somebody else."""
    client.send(1)
    client.land()
    data = batch(recs(5, 6))
    content = client.gate.admits(data, ClientSequence(1), 2)
    assert content is not None
    assert client.space is not None
    append = Append(data, 2, client.loop.time() + 30, 30_000, lambda outcome: None)
    append.belongs(client.space, ClientSequence(1))
    client.shipper.held += len(data)
    client.gate.begin(content, append, ClientSequence(1))
    client.lane.begin(append)
    behind, repeat = client.send(7, first=3), client.send(5, 6, first=1)
    assert repeat.outcome is None
    client.lane.acknowledged(append, Outcome(OK, 1, -1, 0))
    client.loop.turn()
    assert repeat.outcome == Outcome(OK, 1, -1, 0)
    client.fail(TOO_LARGE)
    assert (behind.error, client.partition.state.marks.persisted(ME)) == (TOO_LARGE, 6)
    client.finished()


def test_an_id_is_known_to_be_in_the_log_before_its_client_is_told(client: Client) -> None:
    """Who is told may give the next session the same ids."""
    seen: list[Judgement] = []
    offered = client.send(1)
    offered.outcomes = Told(lambda: seen.append(client.partition.state.marks.judge(ME, 1)))
    client.land()
    assert seen == [Judgement.DUPLICATE]
    client.finished()


# Order before ids ---------------------------------------------------------------------------------------------------


def test_a_gap_is_out_of_order_before_any_id_is_looked_at(client: Client) -> None:
    known(client.partition, 100)
    gap, nonsense = client.send(50, first=3), client.send(b"nonsense", first=4)
    assert (gap.error, nonsense.error) == (OUT_OF_ORDER, OUT_OF_ORDER)
    assert client.keeper.shifts == []
    client.finished()


def test_what_was_sent_behind_a_failure_is_out_of_order_until_that_comes_again(client: Client) -> None:
    first, second = client.send(1), client.send(2)
    client.fail(TOO_LARGE)
    client.fail(OUT_OF_ORDER)
    assert (first.error, second.error) == (TOO_LARGE, OUT_OF_ORDER)
    early, again, behind = client.send(2, first=1), client.send(1, first=0), client.send(2, first=1)
    client.land(2)
    assert (early.error, again.error, behind.error) == (OUT_OF_ORDER, OK, OK)
    assert client.partition.log == [1, 2]
    client.finished()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param((b"x",), id="malformed"),
        pytest.param((1, None), id="missing in some"),
        pytest.param((Rec(1, b""),), id="an empty name"),
    ],
)
def test_a_batch_with_bad_ids_is_invalid_and_moves_nothing(
    client: Client, bad: tuple[int | bytes | Rec | None, ...]
) -> None:
    refused, behind = client.send(*bad, first=0), client.send(7, first=len(bad))
    assert (refused.error, behind.error) == (INVALID, OUT_OF_ORDER)
    assert refused.outcome is not None
    assert refused.outcome.message
    good = client.send(7, first=0)
    client.land()
    assert good.error == OK
    assert client.wire == [0]
    client.finished()


def test_once_with_ids_always_with_ids(client: Client) -> None:
    client.send(1)
    client.land()
    without = client.send(None, first=1)
    assert without.error == INVALID
    assert client.send(2, first=1).error is None
    client.land()
    client.finished()


def test_an_old_batch_of_which_no_more_is_known_is_a_repeat(partition: Partition) -> None:
    client = Client(partition, base=10)
    old, astride = client.send(4, 5, first=8), client.send(4, 5, 6, first=8)
    assert (old.error, astride.error) == (REPEATED, OUT_OF_ORDER)
    client.finished()


# Repeats ------------------------------------------------------------------------------------------------------------


def test_a_repeat_of_a_batch_under_way_gets_its_outcome(client: Client) -> None:
    client.send(1, 2)
    repeat = client.send(1, 2, first=0)
    assert repeat.outcome is None
    assert client.in_flight == [[1, 2]]
    client.land()
    assert repeat.outcome == Outcome(OK, 0, -1, 0)
    assert client.partition.log == [1, 2]
    client.finished()


def test_a_repeat_of_a_landed_batch_gets_its_original_offset(client: Client) -> None:
    client.send(1, 2)
    client.send(3)
    client.land(2)
    assert client.send(3, first=2).outcome == Outcome(OK, 2, -1, 0)
    assert client.send(1, 2, first=0).outcome == Outcome(OK, 0, -1, 0)
    assert client.keeper.shifts == []
    client.finished()


def test_a_repeat_of_a_batch_that_fails_under_way_goes_out_again(client: Client) -> None:
    failed = client.send(1)
    repeat = client.send(1, first=0)
    client.fail(TOO_LARGE)
    assert (failed.error, repeat.error) == (TOO_LARGE, None)
    client.land()
    assert repeat.error == OK
    assert client.partition.log == [1]
    client.finished()


def test_a_repeat_of_a_dropped_batch_is_acknowledged_without_another_shift(client: Client) -> None:
    known(client.partition, 5)
    client.send(4, 5)
    client.write()
    assert client.send(4, 5, first=0).outcome == NOWHERE
    assert len(client.keeper.shifts) == 1
    client.finished()


# Failures -----------------------------------------------------------------------------------------------------------


def test_a_failed_batch_can_be_sent_again(client: Client) -> None:
    """Pulsar's loss before 2.5: a retry of a failed write was taken for a duplicate."""
    failed = client.send(1, 2)
    client.fail(TOO_LARGE)
    assert failed.error == TOO_LARGE
    again = client.send(1, 2, first=0)
    assert client.in_flight == [[1, 2]]
    client.land()
    assert again.error == OK
    assert client.partition.log == [1, 2]
    client.finished()


def test_a_batch_whose_answer_was_lost_goes_out_under_its_sequence_again_and_is_there_once(client: Client) -> None:
    lost = client.send(1, 2, timeout_ms=1_000)
    client.lose_answer()
    client.loop.advance(1.5)
    client.fail(NOT_LEADER)
    client.loop.advance(1.5)
    assert lost.error == NOT_LEADER
    assert client.partition.state.marks.has_doubts
    again = client.send(1, 2, first=0)
    client.land()
    assert again.error == OK
    assert set(client.wire) == {0}
    assert client.partition.log == [1, 2]
    assert client.partition.state.marks.persisted(ME) == 2
    client.finished()


def test_the_parts_of_a_batch_that_was_too_large_are_written_though_its_first_answer_was_lost(client: Client) -> None:
    """One part in the log was taken for all of the batch: the others were acknowledged, and nowhere."""
    client.send(1, 2, 3, timeout_ms=1_000)
    client.fail(13)
    client.loop.advance(1.5)
    client.fail(NOT_LEADER)
    client.loop.advance(1.5)
    whole = client.send(1, 2, 3, first=0)
    client.fail(TOO_LARGE)
    assert whole.error == TOO_LARGE
    assert client.partition.state.marks.has_doubts
    for first, sequence_id in enumerate((1, 2, 3)):
        part = client.send(sequence_id, first=first)
        client.land(len(client.in_flight))
        assert part.outcome == Outcome(OK, first, -1, 0)
    assert client.partition.log == [1, 2, 3]
    assert not client.partition.state.marks.has_doubts
    client.finished()


def test_a_batch_that_is_given_up_when_those_behind_it_have_landed_is_in_the_log(client: Client) -> None:
    """It ran out of time with its followers too slow, and those did not: the session got 45 for all that came next."""
    slow, *behind = client.send(Rec(1, OTHER), timeout_ms=100), client.send(2), client.send(3)
    client.lose_answer(TIMED_OUT)
    client.loop.advance(0.2)
    client.land(2)
    assert [batch.error for batch in (slow, *behind)] == [TIMED_OUT, OK, OK]
    marks = client.partition.state.marks
    assert (marks.has_doubts, marks.persisted(OTHER), marks.persisted(ME)) == (False, 1, 3)
    again, new = client.send(Rec(1, OTHER), first=0), client.send(4)
    client.land(len(client.in_flight))
    assert (again.error, new.error) == (REPEATED, OK)
    assert client.partition.log == [1, 2, 3, 4]
    client.finished()


def given_up_in_doubt(client: Client, *batches: tuple[int, ...], in_the_log: int) -> None:
    """Batches that end with their outcome unknown; so many of them are in the log."""
    offered = [client.send(*ids, timeout_ms=100) for ids in batches]
    for _ in batches[:in_the_log]:
        client.lose_answer()
    client.fail(13, count=len(batches) - in_the_log)
    while not all(batch.outcomes for batch in offered):
        client.loop.advance(1.0)
        while client.shipper.shipped:
            client.fail(13)
    assert client.partition.state.marks.has_doubts
    client.loop.turn()


def test_of_two_batches_in_doubt_the_second_is_not_taken_for_written_because_the_first_is(client: Client) -> None:
    """It would be dropped, acknowledged, and lost."""
    given_up_in_doubt(client, (1,), (2,), in_the_log=1)
    first = client.send(1, first=0)
    client.land()
    assert first.error == OK
    second = client.send(2, first=1)
    assert client.in_flight == [[2]]
    client.land()
    assert second.error == OK
    assert client.partition.log == [1, 2]
    client.finished()


def test_ones_own_batch_in_doubt_goes_out_again_though_its_ids_were_read_in_the_log_meanwhile(client: Client) -> None:
    """Another slot's fence had the log read. Dropping it would shift the base below what Kafka has of this session, and
    Kafka would take the next batch for the one in the log: acknowledged, and lost.
    """
    given_up_in_doubt(client, (1,), in_the_log=1)
    known(client.partition, 1)
    again, behind = client.send(1, first=0), client.send(2, first=1)
    if client.keeper.is_writing:
        client.write()
    client.land(len(client.shipper.shipped))
    assert client.partition.log == [1, 2]
    assert (again.error, behind.error) == (OK, OK)
    client.finished()


# Duplicates ---------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_acknowledged_without_an_offset_and_not_written(client: Client) -> None:
    known(client.partition, 5)
    duplicate = client.send(3, 4, 5)
    assert duplicate.outcome is None
    client.write()
    assert duplicate.outcome == NOWHERE
    assert (client.partition.log, client.partition.dropped) == ([], 3)
    client.finished()


def test_a_shift_is_written_down_before_the_answer_and_before_the_next_batch(client: Client) -> None:
    known(client.partition, 5)
    duplicate, new = client.send(4, 5), client.send(6)
    assert client.keeper.shifts == [Shift(from_sequence=0, base=2, before=0)]
    assert (duplicate.outcome, client.in_flight) == (None, [])
    client.write()
    assert (duplicate.outcome, client.in_flight) == (NOWHERE, [[6]])
    assert client.wire == [0]
    client.land()
    assert new.outcome == Outcome(OK, 0, -1, 0)
    client.finished()


def test_what_follows_a_duplicate_is_stamped_as_if_it_had_never_been(client: Client) -> None:
    client.send(1, 2, 3)
    client.land()
    client.send(2, 3)
    client.write()
    client.send(4)
    client.land()
    assert client.keeper.shifts == [Shift(from_sequence=3, base=2, before=0)]
    assert client.wire == [0, 3]
    assert client.partition.log == [1, 2, 3, 4]
    client.finished()


def test_a_shift_counts_modulo_2_to_the_31(partition: Partition) -> None:
    client = Client(partition, base=MODULUS - 1)
    known(partition, 5)
    client.send(4, 5)
    client.write()
    new = client.send(6)
    client.land()
    assert client.keeper.shifts == [Shift(from_sequence=0, base=1, before=MODULUS - 1)]
    assert (new.error, client.wire) == (OK, [0])
    client.finished()


def test_a_duplicate_waits_for_earlier_batches(client: Client) -> None:
    """An answer in front of theirs would make librdkafka take them for delivered."""
    known(client.partition, 5)
    earlier = [client.send(6), client.send(7)]
    duplicate = client.send(5)
    client.land()
    assert (duplicate.outcome, client.keeper.shifts) == (None, [])
    client.land()
    assert client.keeper.shifts == [Shift(from_sequence=2, base=1, before=0)]
    client.write()
    assert [batch.error for batch in [*earlier, duplicate]] == [OK] * 3
    client.finished()


def test_a_duplicate_whose_earlier_batch_fails_is_out_of_order(client: Client) -> None:
    known(client.partition, 5)
    earlier, duplicate = client.send(6), client.send(5)
    client.fail(TOO_LARGE)
    assert (earlier.error, duplicate.error) == (TOO_LARGE, OUT_OF_ORDER)
    assert client.keeper.shifts == []
    client.finished()


def test_ids_that_are_under_way_wait_for_their_outcome(client: Client) -> None:
    under_way, same = client.send(5), client.send(5)
    assert (client.in_flight, same.outcome) == ([[5]], None)
    client.land()
    client.write()
    assert (under_way.outcome, same.outcome) == (Outcome(OK, 0, -1, 0), NOWHERE)
    client.finished()


def test_several_duplicates_in_a_row_take_one_shift(client: Client) -> None:
    known(client.partition, 9)
    state = client.partition.state
    state.is_ready = False
    duplicates, new = [client.send(5), client.send(6, 7), client.send(8), client.send(9)], client.send(10)
    state.is_ready = True
    state.wake()
    client.loop.turn()
    assert client.keeper.shifts == [Shift(from_sequence=0, base=5, before=0)]
    client.write()
    assert [batch.outcome for batch in duplicates] == [NOWHERE] * 4
    client.land()
    assert (new.error, client.wire, client.partition.dropped) == (OK, [0], 5)
    assert len(client.keeper.shifts) == 1
    client.finished()


def test_a_row_of_duplicates_ends_with_the_first_batch_that_is_none(client: Client) -> None:
    known(client.partition, 6)
    first = client.send(4)
    second, part, behind = client.send(5), client.send(6, 7), client.send(6)
    client.write()
    assert first.outcome == NOWHERE
    client.write()
    assert (second.outcome, part.outcome, behind.outcome) == (NOWHERE, None, None)
    client.write()
    assert client.in_flight == [[7]]
    client.land()
    client.write()
    assert [batch.error for batch in (part, behind)] == [OK, OK]
    assert [shift.base for shift in client.keeper.shifts] == [1, 2, 3, 4]
    client.finished()


# Part duplicates ----------------------------------------------------------------------------------------------------


def test_of_a_batch_that_is_part_duplicate_the_rest_goes_out_and_is_answered_without_an_offset(client: Client) -> None:
    known(client.partition, 5)
    part = client.send(4, 5, 6, 7)
    assert (client.keeper.shifts, client.in_flight) == ([Shift(from_sequence=2, base=2, before=0)], [])
    client.write()
    assert (client.in_flight, part.outcome) == ([[6, 7]], None)
    client.land()
    assert part.outcome is not None
    assert (part.outcome.error, part.outcome.offset) == (OK, -1)
    assert (client.partition.log, client.partition.dropped) == ([6, 7], 2)
    mark = client.partition.state.marks.mark(ME)
    assert mark is not None
    assert (mark.id, mark.offset) == (7, 1)
    client.finished()


def test_what_follows_a_part_duplicate_is_stamped_behind_the_rest_of_it(client: Client) -> None:
    known(client.partition, 5)
    client.send(4, 5, 6, 7)
    client.write()
    client.land()
    new = client.send(8)
    client.land()
    assert (client.wire, new.error) == ([0, 2], OK)
    client.finished()


def test_what_comes_while_the_rest_of_a_part_duplicate_is_under_way_is_stamped_behind_it_too(client: Client) -> None:
    known(client.partition, 5)
    part, early = client.send(4, 5, 6, 7), client.send(8)
    client.write()
    late = client.send(9)
    while client.shipper.shipped:
        client.land()
    assert [batch.error for batch in (part, early, late)] == [OK] * 3
    assert client.wire == [0, 2, 3]
    assert client.partition.log == [6, 7, 8, 9]
    client.finished()


def test_a_repeat_of_a_part_duplicate_is_answered_without_an_offset_too(client: Client) -> None:
    known(client.partition, 5)
    client.send(5, 6)
    client.write()
    repeat = client.send(5, 6, first=0)
    client.land()
    assert repeat.outcome == Outcome(OK, -1, -1, 0)
    assert client.send(5, 6, first=0).outcome == Outcome(OK, -1, -1, 0)
    assert client.partition.log == [6]
    client.finished()


def test_a_part_duplicate_that_fails_is_sent_again_under_the_same_sequence(client: Client) -> None:
    known(client.partition, 5)
    failed = client.send(5, 6)
    client.write()
    client.fail(TOO_LARGE)
    assert failed.error == TOO_LARGE
    again = client.send(5, 6, first=0)
    client.write()
    client.land()
    new = client.send(7)
    client.land()
    assert (again.error, new.error, client.wire) == (OK, OK, [0, 0, 1])
    assert client.keeper.shifts == [Shift(from_sequence=1, base=1, before=0)] * 2
    assert client.partition.log == [6, 7]
    client.finished()


def test_repeats_within_a_batch_are_left_out(client: Client) -> None:
    part = client.send(5, 5, 6)
    client.write()
    client.land()
    assert (part.error, client.partition.log) == (OK, [5, 6])
    client.finished()


def test_names_within_a_batch_are_judged_apart(client: Client) -> None:
    known(client.partition, 5, name=b"a")
    part = client.send(Rec(5, b"a"), Rec(5, b"b"), Rec(6, b"a"), Rec(1))
    client.write()
    client.land()
    assert (part.error, client.partition.log) == (OK, [5, 6, 1])
    assert [client.partition.state.marks.persisted(name) for name in (b"a", b"b", ME)] == [6, 5, 1]
    client.finished()


# A shift that cannot be written -------------------------------------------------------------------------------------


def test_where_a_shift_cannot_be_written_nothing_is_acknowledged(client: Client) -> None:
    known(client.partition, 5)
    duplicate, new = client.send(5), client.send(6)
    error = TimeoutError("the changelog")
    client.keeper.fail(error)
    assert client.keeper.failures == [error]
    assert (duplicate.outcome, new.outcome, client.in_flight) == (None, None, [])
    client.gate.close(Outcome(NOT_LEADER))
    assert (duplicate.error, new.error) == (NOT_LEADER, NOT_LEADER)
    client.loop.turn()
    client.finished()


def test_a_shift_that_takes_too_long_is_still_of_use_to_the_duplicate_that_comes_again(client: Client) -> None:
    known(client.partition, 5)
    duplicate = client.send(4, 5)
    client.loop.advance(HELD_S)
    assert duplicate.error == LATER
    assert not client.gate.is_idle  # nothing waits, but its base is about to change
    again = client.send(4, 5, first=0)
    client.write()
    assert again.outcome == NOWHERE
    new = client.send(6)
    client.land()
    assert (new.error, client.wire, len(client.keeper.shifts)) == (OK, [0], 1)
    client.finished()


def test_a_part_duplicate_that_was_answered_while_its_shift_was_written_goes_out_when_it_comes_again(
    client: Client,
) -> None:
    known(client.partition, 5)
    part = client.send(5, 6)
    client.loop.advance(HELD_S)
    assert part.error == LATER
    client.write()
    assert client.in_flight == []
    again = client.send(5, 6, first=0)
    client.write()
    client.land()
    new = client.send(7)
    client.land()
    assert (again.error, new.error, client.partition.log) == (OK, OK, [6, 7])
    client.finished()


# Waiting ------------------------------------------------------------------------------------------------------------


def test_what_waits_too_long_is_answered_all_at_once_and_can_come_again(client: Client) -> None:
    client.partition.state.is_ready = False
    first = client.send(1)
    client.loop.advance(HELD_S - 0.1)
    second = client.send(2)
    assert (first.error, second.error) == (None, None)
    client.loop.advance(0.2)
    assert (first.error, second.error) == (LATER, LATER)
    client.partition.state.is_ready = True
    again = [client.send(1, first=0), client.send(2, first=1)]
    client.land(2)
    assert [batch.error for batch in again] == [OK, OK]
    client.finished()


def test_what_came_later_is_not_answered_early_where_what_was_in_front_went_on(client: Client) -> None:
    state = client.partition.state
    state.is_ready = False
    client.send(1)
    client.loop.advance(1.5)
    second = client.send(1)
    state.is_ready = True
    state.wake()
    client.loop.turn()
    client.loop.advance(1.0)
    assert (client.in_flight, second.error) == ([[1]], None), "it has waited for one second"
    client.loop.advance(1.0)
    assert second.error == LATER
    client.land()
    client.finished()


def test_batches_of_a_partition_that_is_being_read_go_out_in_order_once_it_is(client: Client) -> None:
    state = client.partition.state
    state.is_ready = False
    batches = [client.send(1), client.send(2), client.send(3)]
    assert client.in_flight == []
    state.is_ready = True
    state.wake()
    client.loop.turn()
    assert client.in_flight == [[1], [2], [3]]
    client.land(3)
    assert [batch.error for batch in batches] == [OK] * 3
    client.finished()


def test_a_partition_whose_ids_are_lost_says_so_at_once(client: Client) -> None:
    state = client.partition.state
    state.is_ready, state.problem = False, Outcome(LATER, message="lost")
    assert client.send(1).outcome == Outcome(LATER, message="lost")
    client.finished()


def test_nothing_overtakes_what_waits(client: Client) -> None:
    under_way, waits, new = client.send(5), client.send(5), client.send(6)
    assert client.in_flight == [[5]]
    client.land()
    client.write()
    assert client.in_flight == [[6]]
    client.land()
    assert [batch.error for batch in (under_way, waits, new)] == [OK] * 3
    client.finished()


# Other sessions -----------------------------------------------------------------------------------------------------


def test_a_name_of_another_live_session_is_refused_and_the_clients_sequences_count_as_used(
    client: Client, partition: Partition
) -> None:
    client.send(1)
    rival = Client(partition, "pid:2", producer_id=8)
    refused = rival.send(2, 3)
    assert refused.outcome is not None
    assert refused.error == IN_USE
    assert "pid:1" in (refused.outcome.message or "")
    assert rival.keeper.refusals == [(0, 2)]
    client.land()
    client.finished()
    rival.finished()


def test_a_duplicate_behind_a_duplicate_is_refused_where_its_name_is_a_rivals(
    client: Client, partition: Partition
) -> None:
    """One base shift does for all duplicates that wait, and none of another live session is among them."""
    rival = Client(partition, "pid:2", name=b"other", producer_id=8)
    rival.send(1)
    rival.land()
    client.send(1)
    client.land()
    client.send(2)
    duplicate, foreign = client.send(1), client.send(Rec(1, b"other"))
    client.land()
    client.write()
    assert [found.outcomes[0].error for found in (duplicate, foreign)] == [0, ErrorCode.POLICY_VIOLATION]


def test_a_session_under_a_name_of_its_own_is_no_rival(client: Client, partition: Partition) -> None:
    another = Client(partition, "pid:2", name=OTHER, producer_id=8)
    batches = [client.send(1), another.send(1)]
    client.land()
    another.land()
    assert [batch.error for batch in batches] == [OK, OK]
    client.finished()
    another.finished()


def test_a_session_that_follows_under_a_name_waits_for_what_the_one_before_it_has_under_way(
    client: Client, partition: Partition
) -> None:
    client.send(5)
    partition.live.discard("pid:1")
    successor = Client(partition, "pid:2", producer_id=8)
    same, new = successor.send(5), successor.send(6)
    assert successor.in_flight == []
    client.land()
    assert successor.keeper.shifts == [Shift(from_sequence=0, base=1, before=0)]
    successor.write()
    successor.land()
    assert (same.outcome, new.error, partition.log) == (NOWHERE, OK, [5, 6])
    client.finished()
    successor.finished()


def test_a_session_that_follows_sends_what_the_one_before_it_did_not_get_into_the_log(
    client: Client, partition: Partition
) -> None:
    failed = client.send(5)
    partition.live.discard("pid:1")
    successor = Client(partition, "pid:2", producer_id=8)
    same = successor.send(5)
    assert (successor.in_flight, same.outcome) == ([], None)
    client.fail(TOO_LARGE)
    assert successor.in_flight == [[5]]
    successor.land()
    assert (failed.error, same.outcome) == (TOO_LARGE, Outcome(OK, 0, -1, 0))
    assert partition.log == [5]
    client.finished()
    successor.finished()


def doubt(partition: Partition, *ids: int) -> None:
    """Somebody who is gone gave a batch up that may still get into the log."""
    batch = partition.state.marks.push((Pushed(ME, ids[-1], len(ids) - 1),), 99)
    partition.state.failed(batch, in_doubt=True)


@pytest.mark.parametrize("lands", [True, False])
def test_the_rest_of_a_batch_is_looked_at_again_where_its_name_was_taken_over_meanwhile(
    partition: Partition, lands: bool
) -> None:
    """While its base was written down the client went, and the next session of the name wrote the same ids."""
    before = Client(partition, "pid:0", producer_id=6)
    before.send(1, 2)
    before.land()
    partition.live.discard("pid:0")
    client, follower = Client(partition), Client(partition, "pid:2", producer_id=8)
    client.send(1, 2, 3, 4)
    assert client.keeper.is_writing
    partition.live.discard("pid:1")
    follower.send(3, 4)
    if lands:
        follower.land()
    client.write()
    assert not client.in_flight
    assert client.keeper.failures
    if not lands:
        follower.land()
    assert partition.log == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param((5,), id="the one in doubt"),
        pytest.param((4,), id="one below it"),
        pytest.param((3, 4, 5), id="the whole batch"),
        pytest.param((4, 5, 6, 7), id="a batch across its end"),
    ],
)
def test_ids_that_another_producer_id_may_still_bring_wait_for_a_fence(
    client: Client, partition: Partition, ids: tuple[int, ...]
) -> None:
    doubt(partition, 3, 4, 5)
    waits = client.send(*ids)
    assert (client.in_flight, waits.outcome) == ([], None)
    assert partition.fences > 0
    partition.state.marks.read_up_to(0, lambda producer_id: True)
    partition.state.wake()
    client.loop.turn()
    assert client.in_flight == [list(ids)]
    client.land()
    client.finished()


def test_ids_above_what_another_producer_id_may_bring_wait_for_a_fence_too(
    client: Client, partition: Partition
) -> None:
    """What comes behind would overtake what may still land: ids of a name rise in the log."""
    doubt(partition, 3, 4, 5)
    new = client.send(6)
    assert (new.error, partition.fences) == (None, 1)
    client.gate.close(Outcome(6))


def test_a_table_full_of_names_at_work_takes_no_other(loop: GateLoop) -> None:
    partition = Partition(loop, names_limit=1)
    first, second = Client(partition, "pid:1"), Client(partition, "pid:2", name=OTHER, producer_id=8)
    first.send(1)
    first.land()
    refused = second.send(1)
    assert (refused.error, second.keeper.refusals) == (IN_USE, [(0, 1)])
    partition.live.discard("pid:1")
    again = second.send(1, first=0)
    second.land()
    assert again.error == OK
    first.finished()
    second.finished()


# Plain sessions -----------------------------------------------------------------------------------------------------


def test_a_plain_sessions_duplicates_are_dropped_without_a_shift(plain: Client) -> None:
    known(plain.partition, 5)
    duplicate, part, new = plain.send(5), plain.send(5, 6), plain.send(7)
    assert duplicate.outcome == NOWHERE
    plain.land(len(plain.shipper.shipped))
    plain.land(len(plain.shipper.shipped))
    assert (part.outcome, new.error) == (Outcome(OK, -1, -1, 0), OK)
    assert (plain.partition.log, plain.wire, plain.keeper.shifts) == ([6, 7], [0, 1], [])
    plain.finished()


def test_a_plain_session_repeats_an_id_and_it_is_there_once(plain: Client) -> None:
    first, again = plain.send(1), plain.send(1)
    assert (plain.in_flight, again.outcome) == ([[1]], None)
    plain.land()
    assert (first.outcome, again.outcome) == (Outcome(OK, 0, -1, 0), NOWHERE)
    assert plain.partition.log == [1]
    plain.finished()


def test_a_plain_session_without_ids_goes_on_as_ever(plain: Client) -> None:
    batches = [plain.send(None), plain.send(None, None)]
    plain.land(2)
    assert [batch.error for batch in batches] == [OK, OK]
    plain.finished()


def test_a_plain_batch_with_ids_that_is_given_up_ends_the_epoch(plain: Client) -> None:
    """What was sent behind it must not get into the log: its own ids would be duplicates then."""
    first, second = plain.send(1), plain.send(2)
    plain.fail(TOO_LARGE)
    assert plain.owner.lost_lanes == [plain.lane]
    plain.fail(OUT_OF_ORDER)
    assert (first.error, second.error) == (TOO_LARGE, TIMED_OUT)
    plain.finished()


def test_a_plain_batch_with_ids_that_runs_out_of_time_before_it_is_sent_ends_the_epoch(plain: Client) -> None:
    """What waited behind it must not be sent: its own ids would be duplicates then."""
    first = plain.send(1)
    plain.fail(NOT_LEADER)
    late, behind = plain.send(2, timeout_ms=100), plain.send(3)
    plain.loop.advance(1.0)
    plain.land()
    assert plain.owner.lost_lanes == [plain.lane]
    assert [batch.error for batch in (first, late, behind)] == [OK, TIMED_OUT, TIMED_OUT]
    assert plain.partition.log == [1]
    plain.finished()


# The end ------------------------------------------------------------------------------------------------------------


def test_closing_answers_everything_that_waits_once(client: Client) -> None:
    known(client.partition, 5)
    under_way, waits, behind = client.send(6), client.send(5), client.send(6)
    client.gate.close(Outcome(NOT_LEADER))
    client.lane.close(Outcome(NOT_LEADER))
    assert (under_way.error, waits.error, behind.error) == (None, NOT_LEADER, NOT_LEADER)
    client.land()
    client.gate.close(Outcome(LATER))
    assert under_way.error == OK
    client.finished()


def test_what_comes_after_the_end_is_answered_as_the_rest(client: Client) -> None:
    client.gate.close(Outcome(NOT_LEADER))
    assert client.send(1).error == NOT_LEADER
    client.finished()


def test_closing_while_a_shift_is_written_answers_what_waits_for_it_once(client: Client) -> None:
    known(client.partition, 5)
    duplicate, behind = client.send(5), client.send(6)
    client.gate.close(Outcome(NOT_LEADER))
    client.write()
    assert (duplicate.error, behind.error, client.in_flight) == (NOT_LEADER, NOT_LEADER, [])
    assert client.partition.dropped == 0
    client.finished()


def test_closing_while_a_shift_for_the_rest_of_a_batch_is_written_is_no_failure_of_the_shift(client: Client) -> None:
    known(client.partition, 5)
    part = client.send(5, 6)
    client.gate.close(Outcome(NOT_LEADER))
    client.write()
    assert (part.error, client.keeper.failures) == (NOT_LEADER, [])
    client.finished()


def test_a_lane_that_was_closed_already_answers_what_the_gate_lets_go(client: Client) -> None:
    client.lane.close(Outcome(NOT_LEADER))
    batches = [client.send(1), client.send(2)]
    client.gate.close(Outcome(NOT_LEADER))
    assert [batch.outcome for batch in batches] == [Outcome(NOT_LEADER), Outcome(OUT_OF_ORDER)]
    client.finished()


def test_a_batch_that_finds_another_topic_under_the_name_is_answered_once(client: Client) -> None:
    """The lane's owner closes the gate upon it, while the batch stands in front there."""

    def ship(lane: Lane, append: Append) -> None:
        lane.foreign_topic()
        client.loop.call_soon(lane.settled, append, Outcome(5))

    def fenced(lane: Lane) -> None:
        client.gate.close(Outcome(NOT_LEADER))
        lane.close(Outcome(NOT_LEADER))

    client.shipper.ship, client.owner.fenced = ship, fenced
    client.partition.state.is_ready = False
    batches = [client.send(1), client.send(2)]
    client.partition.state.is_ready = True
    client.gate.pump()
    client.loop.turn()
    assert [batch.error for batch in batches] == [NOT_LEADER, NOT_LEADER]
    client.finished()


def test_an_outcome_after_the_end_still_counts_for_the_partition(client: Client) -> None:
    """Another session may have the name next."""
    client.send(1)
    client.gate.close(Outcome(NOT_LEADER))
    client.lane.close(Outcome(NOT_LEADER))
    client.land()
    assert client.partition.state.marks.persisted(ME) == 1
    client.finished()


def test_an_answer_that_never_came_leaves_a_doubt_behind(client: Client) -> None:
    client.send(1)
    client.gate.close(Outcome(NOT_LEADER))
    client.lane.close(Outcome(NOT_LEADER))
    client.fail(13)
    assert client.partition.state.marks.doubtful(ME, 8)
    client.finished()


def test_refused_for_good_are_only_those_that_got_a_final_error(client: Client) -> None:
    client.send(b"x", first=0)
    client.send(1, first=7)
    assert client.keeper.refusals == []
    assert {ErrorCode.INVALID_RECORD, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} == {
        batch.error for batch in client.offered
    }
    client.finished()
