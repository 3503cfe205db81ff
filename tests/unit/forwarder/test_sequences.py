"""Which sequence a batch is stamped with: bases, raised epochs, repeats, refusals; modulo 2^31 and 2^15."""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.forwarder.sequences import (
    EPOCH_RECORDS,
    MODULUS,
    REPEAT_WINDOW,
    PlainSequences,
    RefusedSequences,
    SequenceSpace,
    Verdict,
    place_behind,
)
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import StampedSequence as Stamped

EPOCHS = 2**15
sequences = st.integers(0, MODULUS - 1)
epochs = st.integers(0, EPOCHS - 1)
sizes = st.integers(1, 1_000)


def space(client_epoch: int = 0, base: int = 0, next_: int | None = None, *, written: bool = False) -> SequenceSpace:
    return SequenceSpace(client_epoch, Client(base), Client(base if next_ is None else next_), written)


# Bases --------------------------------------------------------------------------------------------------------------


@given(base=sequences, ahead=st.integers(0, EPOCH_RECORDS - 1), records=sizes)
def test_what_begins_at_the_base_or_ahead_of_it_is_forwarded_and_counted_from_the_base(
    base: int, ahead: int, records: int
) -> None:
    of = space(base=base, written=True)
    sequence = (base + ahead) % MODULUS
    assert of.judge(0, Client(sequence), records) is Verdict.FORWARD
    assert of.stamped(Client(sequence)) == ahead


@given(base=sequences, behind=st.integers(1, REPEAT_WINDOW), records=sizes)
def test_what_ends_below_the_base_is_a_repeat(base: int, behind: int, records: int) -> None:
    of = space(base=base, written=True)
    sequence = (base - behind) % MODULUS
    verdict = of.judge(0, Client(sequence), records)
    assert verdict is (Verdict.REPEAT if records <= behind else Verdict.ASTRIDE)


def test_a_batch_across_the_base_is_no_repeat_as_its_end_is_in_no_log() -> None:
    of = space(base=10, written=True)
    assert of.judge(0, Client(8), 2) is Verdict.REPEAT
    assert of.judge(0, Client(8), 3) is Verdict.ASTRIDE
    assert of.judge(0, Client(10), 3) is Verdict.FORWARD


def test_a_gap_is_forwarded_so_that_kafka_judges_it() -> None:
    assert space(base=0).judge(0, Client(7), 1) is Verdict.FORWARD


@pytest.mark.parametrize(
    ("base", "sequence", "verdict", "stamped"),
    [
        (MODULUS - 2, MODULUS - 2, Verdict.FORWARD, 0),
        (MODULUS - 2, MODULUS - 1, Verdict.FORWARD, 1),
        (MODULUS - 2, 0, Verdict.FORWARD, 2),
        (MODULUS - 2, MODULUS - 3, Verdict.REPEAT, MODULUS - 1),
        (1, 0, Verdict.REPEAT, MODULUS - 1),
        (0, MODULUS - 1, Verdict.REPEAT, MODULUS - 1),
    ],
)
def test_sequences_wrap_from_two_to_the_31_to_zero(base: int, sequence: Client, verdict: Verdict, stamped: int) -> None:
    of = space(base=base, written=True)
    assert of.judge(0, sequence, 1) is verdict
    assert of.stamped(sequence) == stamped


# Bounds -------------------------------------------------------------------------------------------------------------


@given(base=sequences, written=st.integers(0, EPOCH_RECORDS + 10**7), sequence=sequences, past=st.booleans())
@example(base=0, written=2**28 + 1, sequence=2**31 - 1, past=True)
@example(base=0, written=0, sequence=2**31 - 1, past=False)
def test_only_what_lies_shortly_below_a_base_that_has_a_past_is_called_a_repeat(
    base: int, written: int, sequence: Client, past: bool
) -> None:
    of = space(base=base, next_=(base + written) % MODULUS, written=past)
    expected = past and 0 < (base - sequence) % MODULUS <= REPEAT_WINDOW - written
    assert (of.judge(0, sequence, 1) is Verdict.REPEAT) == expected


@pytest.mark.parametrize("sequence", [2**30 - 2, 2**30 - 1, 2**30, 2**30 + 1, MODULUS - 1])
def test_what_comes_next_is_never_a_repeat_however_far_the_base_lags(sequence: Client) -> None:
    """From 2^30 on it was one: acknowledged, and in no log."""
    of = space(base=0, next_=sequence, written=True)
    of.has_past = False  # it began here
    assert of.judge(0, sequence, 1) is Verdict.RENEW
    assert space(base=0, next_=sequence, written=False).judge(0, sequence, 1) is Verdict.RENEW


@given(base=sequences, over=st.integers(0, 10**7), pipelined=st.integers(0, 10**7), records=sizes)
def test_an_epoch_is_replaced_once_so_many_records_of_it_are_in_the_log(
    base: int, over: int, pipelined: int, records: int
) -> None:
    of = space(base=base, next_=(base + EPOCH_RECORDS + over) % MODULUS, written=True)
    assert of.judge(0, Client((of.next + pipelined) % MODULUS), records) is Verdict.RENEW
    renewed = space(base=of.next, written=True)
    assert renewed.judge(0, of.next, records) is Verdict.FORWARD
    assert renewed.judge(0, Client((of.next - records) % MODULUS), records) is Verdict.REPEAT


@given(base=sequences, written=st.integers(0, EPOCH_RECORDS - 1), ahead=st.integers(0, MODULUS - 1))
def test_a_batch_far_ahead_replaces_no_epoch(base: int, written: int, ahead: int) -> None:
    """Else a client that skips sequences would have a node replace epochs for ever."""
    of = space(base=base, next_=(base + written) % MODULUS, written=True)
    assert of.judge(0, Client((of.next + ahead) % MODULUS), 1) is not Verdict.RENEW


def test_behind_the_limit_batches_in_flight_go_on_until_the_last_answer_counts() -> None:
    of = SequenceSpace(0, Client(0), Client(0), limit=4)
    assert [of.judge(0, Client(sequence), 2) for sequence in (0, 2, 4, 6)] == [Verdict.FORWARD] * 4
    of.appended(Client(0), 2)
    assert of.judge(0, Client(8), 2) is Verdict.FORWARD
    of.appended(Client(2), 2)
    assert of.judge(0, Client(8), 2) is Verdict.RENEW
    assert of.judge(0, Client(2), 2) is Verdict.FORWARD, "a repeat that Kafka remembers"
    assert of.judge(0, Client(2**30), 2) is Verdict.RENEW
    assert SequenceSpace(0, Client(8), Client(8), limit=4, written=True).judge(0, Client(2**30), 2) is Verdict.STRAY


def test_what_wrapped_to_0_has_a_past_and_what_begins_at_0_has_none() -> None:
    begun, wrapped = space(), space(base=MODULUS - 3, written=True)
    assert begun.stands_at == 0
    assert wrapped.stands_at == MODULUS - 3
    wrapped.appended(Client(MODULUS - 3), 3)
    assert (wrapped.next, wrapped.stands_at) == (0, MODULUS)
    assert [place_behind(sequence) for sequence in (1, MODULUS - 1, MODULUS, MODULUS + 1)] == [
        1,
        MODULUS - 1,
        MODULUS,
        1,
    ]


# Client epochs ------------------------------------------------------------------------------------------------------


@given(epoch=epochs, ahead=st.integers(1, 2**14 - 1))
def test_an_epoch_ahead_is_raised_by_sequence_0_alone(epoch: int, ahead: int) -> None:
    of = space(client_epoch=epoch, base=5, written=True)
    raised = (epoch + ahead) % EPOCHS
    assert of.judge(raised, Client(0), 1) is Verdict.RAISE
    assert of.judge(raised, Client(1), 1) is Verdict.WAIT


@given(epoch=epochs, behind=st.integers(1, 2**14), sequence=sequences)
def test_an_epoch_behind_is_stale_where_the_session_wrote(epoch: int, behind: int, sequence: Client) -> None:
    of = space(client_epoch=epoch, base=5, written=True)
    assert of.judge((epoch - behind) % EPOCHS, sequence, 1) is Verdict.STALE


@given(epoch=epochs, other=epochs)
def test_any_epoch_opens_a_partition_where_the_session_has_nothing(epoch: int, other: int) -> None:
    verdict = space(client_epoch=epoch).judge(other, Client(0), 1)
    assert verdict is (Verdict.FORWARD if other == epoch else Verdict.RAISE)


def test_librdkafka_wraps_its_epoch_to_0() -> None:
    assert space(client_epoch=32_767, base=9, written=True).judge(0, Client(0), 1) is Verdict.RAISE


def test_something_sent_counts_as_written_whatever_becomes_of_it() -> None:
    of = space(client_epoch=3)
    of.sent()
    assert of.judge(2, Client(0), 1) is Verdict.STALE


# What is known to be in the log -------------------------------------------------------------------------------------


@given(base=sequences, batches=st.lists(sizes, max_size=20))
def test_next_is_behind_the_last_one_that_was_appended(base: int, batches: list[int]) -> None:
    of, sequence = space(base=base), base
    for records in batches:
        of.appended(Client(sequence), records)
        sequence = (sequence + records) % MODULUS
    assert of.next == sequence


def test_a_repeat_moves_next_not_back() -> None:
    of = space()
    of.appended(Client(0), 5)
    of.appended(Client(0), 2)
    assert of.next == 5


def test_a_batch_whose_outcome_is_unknown_makes_next_uncertain_until_something_behind_it_is_in_the_log() -> None:
    of = space()
    of.appended(Client(0), 3)
    assert of.certain
    of.doubted(Client(3), 2)
    assert not of.certain
    of.appended(Client(3), 1)
    assert not of.certain
    of.appended(Client(4), 1)
    assert of.certain


@given(start=sequences, doubts=st.lists(sizes, min_size=1, max_size=5), settled=st.integers(0, 5))
def test_certain_means_that_no_batch_in_doubt_lies_behind_next(start: int, doubts: list[int], settled: int) -> None:
    of, ends = space(base=start, written=True), [start]
    for records in doubts:
        of.doubted(Client(ends[-1]), records)
        ends.append((ends[-1] + records) % MODULUS)
    for first, behind in itertools.pairwise(ends[: settled + 1]):
        of.appended(Client(first), (behind - first) % MODULUS)
    assert of.certain == (of.next == ends[-1])


@given(doubt=st.integers(1, 10_000), stray=sequences, order=st.booleans(), later=st.integers(0, EPOCH_RECORDS))
def test_a_doubt_far_away_does_not_hide_one_that_may_be_in_the_log(
    doubt: int, stray: int, order: bool, later: int
) -> None:
    of = space(written=True)
    of.appended(Client(0), later)
    doubts = [(later, doubt), (stray, 1)]
    for sequence, records in doubts if order else reversed(doubts):
        of.doubted(Client(sequence), records)
    assert not of.certain


# Plain sessions -----------------------------------------------------------------------------------------------------


@given(start=sequences, batches=st.lists(sizes, min_size=1, max_size=10), kept=st.integers(0, 9))
def test_a_plain_session_is_counted_without_gaps_and_anew_from_a_batch_given_back(
    start: Stamped, batches: list[int], kept: int
) -> None:
    plain = PlainSequences(start)
    numbers = [plain.take(records) for records in batches]
    assert numbers == [(start + sum(batches[:index])) % MODULUS for index in range(len(batches))]
    back = numbers[min(kept, len(numbers) - 1)]
    plain.next = back
    assert plain.take(1) == back


# Refused sequences --------------------------------------------------------------------------------------------------


@given(start=sequences, batches=st.lists(sizes, min_size=1, max_size=30), data=st.data())
def test_refused_batches_count_as_used_in_whatever_order_they_came(
    start: Client, batches: list[int], data: st.DataObject
) -> None:
    firsts = [(start + sum(batches[:index])) % MODULUS for index in range(len(batches))]
    refused = RefusedSequences(0)
    for first, records in data.draw(st.permutations(list(zip(firsts, batches, strict=True)))):
        refused.refused(0, Client(first), records)
    assert refused.behind(start) == place_behind(start + sum(batches))


def test_a_refusal_behind_a_gap_does_not_move_the_expected_sequence() -> None:
    refused = RefusedSequences(0)
    refused.refused(0, Client(5), 1)
    assert refused.behind(Client(0)) == 0
    refused.refused(0, Client(0), 5)
    assert refused.behind(Client(0)) == 6


def test_refusals_move_a_session_on_that_wrote_before() -> None:
    """It came back behind its 100 records, was refused ten times, and goes on with 110 (aiokafka)."""
    refused = RefusedSequences(0)
    for sequence in range(100, 110):
        refused.refused(0, Client(sequence), 1)
    assert refused.behind(Client(100)) == 110
    assert refused.behind(Client(0)) == 0
    assert refused.behind(Client(105)) == 110
    assert refused.behind(Client(110)) == 110


def test_a_refusal_of_a_new_epoch_forgets_those_of_the_old_one() -> None:
    refused = RefusedSequences(0)
    refused.refused(0, Client(0), 10)
    refused.refused(1, Client(0), 1)
    assert (refused.client_epoch, refused.behind(Client(0))) == (1, 1)


def test_refused_sequences_are_bounded() -> None:
    refused = RefusedSequences(0)
    for sequence in range(0, 4_000, 2):
        refused.refused(0, Client(sequence), 1)
    assert len(refused.spans) <= 16
    assert refused.behind(Client(3_998)) == 3_999


@given(sequence=sequences, records=sizes)
def test_a_batch_refused_again_moves_nothing_further(sequence: Client, records: int) -> None:
    refused = RefusedSequences(0)
    for _ in range(3):
        refused.refused(0, sequence, records)
    assert refused.behind(sequence) == place_behind(sequence + records)
    assert len(refused.spans) == 1


# What was refused, however often ------------------------------------------------------------------------------------


@given(
    start=st.one_of(st.just(0), st.integers(MODULUS - 400, MODULUS - 1)),
    fates=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=60, max_size=100),
    again=st.data(),
)
def test_a_refused_batch_is_never_a_repeat_however_many_were_refused(
    start: int, fates: list[tuple[bool, int]], again: st.DataObject
) -> None:
    """A client's batches are refused or written by turns, and refused ones may come again in between, as their answers
    were lost. Behind the next hand-over none of the refused is taken for written, and the recent written ones are
    known.
    """
    refused, sent, at = RefusedSequences(0), list[tuple[int, int, bool]](), start
    for is_refused, records in fates:
        sent.append((at, records, is_refused))
        if is_refused:
            refused.refused(0, Client(at), records)
            first, count, was_refused = again.draw(st.sampled_from(sent[-5:]))
            if was_refused:
                refused.refused(0, Client(first), count)
        at = (at + records) % MODULUS
    assert len(refused.spans) <= 16
    space = SequenceSpace(0, Client(at), Client(at), written=True, refused=refused)
    for number, (first, records, was_refused) in enumerate(sent):
        verdict = space.judge(0, Client(first), records)
        if was_refused:
            assert verdict in (Verdict.REFUSED, Verdict.FORGOTTEN)
        else:
            assert verdict in (Verdict.REPEAT, Verdict.FORGOTTEN)
        if number >= len(sent) - 16:
            assert verdict is (Verdict.REFUSED if was_refused else Verdict.REPEAT)


def test_below_sixteen_refused_spans_nothing_is_known() -> None:
    refused = RefusedSequences(0)
    for number in range(17):
        refused.refused(0, Client(2 * number), 1)
    space = SequenceSpace(0, Client(40), Client(40), written=True, refused=refused)
    assert [space.judge(0, Client(sequence), 1) for sequence in (0, 1, 2, 3)] == [
        Verdict.FORGOTTEN,
        Verdict.FORGOTTEN,
        Verdict.REFUSED,
        Verdict.REPEAT,
    ]


# What comes behind refused ones -------------------------------------------------------------------------------------


def behind_refused(*, client_epoch: int = 0) -> SequenceSpace:
    """Sequences 2 to 4 were refused to a session that has 0 and 1 in the log."""
    refused = RefusedSequences(0)
    refused.refused(0, Client(2), 2)
    refused.refused(0, Client(4), 1)
    return SequenceSpace(client_epoch, Client(5), Client(5), written=True, refused=refused)


def comes(of: SequenceSpace, sequence: int, connection: int, *, epoch: int = 0) -> Verdict:
    """What becomes of a batch of one record, as `SlotWriter.write` has it."""
    verdict = of.judge(epoch, Client(sequence), 1)
    if verdict is Verdict.UNHEARD and of.is_heard_on(connection):
        return Verdict.FORWARD
    of.answered(verdict, connection)
    return verdict


def test_the_first_batch_behind_refused_ones_goes_on_when_it_comes_once_more() -> None:
    of = behind_refused()
    assert [comes(of, 5, 1) for _ in range(2)] == [Verdict.UNHEARD, Verdict.FORWARD]
    of.sent()
    assert [comes(of, 5, 2), comes(of, 6, 2)] == [Verdict.FORWARD, Verdict.FORWARD]


def test_on_another_connection_it_shows_nothing_as_answers_may_be_lost_between_them() -> None:
    of = behind_refused()
    assert [comes(of, 5, connection) for connection in (1, 2, 1)] == [Verdict.UNHEARD] * 3
    assert comes(of, 5, 1) is Verdict.FORWARD


def test_nor_does_it_where_a_refused_one_came_again_meanwhile() -> None:
    of = behind_refused()
    found = [comes(of, sequence, 1) for sequence in (5, 4, 5, 5)]
    assert found == [Verdict.UNHEARD, Verdict.REFUSED, Verdict.UNHEARD, Verdict.FORWARD]


def test_a_client_that_raised_its_epoch_knows_of_the_refusal() -> None:
    assert comes(behind_refused(), 0, 1, epoch=1) is Verdict.RAISE
    assert comes(behind_refused(client_epoch=1), 5, 1, epoch=1) is Verdict.FORWARD


def test_only_right_behind_refused_ones_anything_has_to_come_twice() -> None:
    refused = RefusedSequences(0)
    refused.refused(0, Client(2), 2)
    of = SequenceSpace(0, Client(5), Client(5), written=True, refused=refused)
    assert comes(of, 5, 1) is Verdict.FORWARD


@given(
    refused=st.integers(1, 4),
    steps=st.lists(st.one_of(st.sampled_from(["hears", "reconnects", "times out"]), st.integers(0, 3)), max_size=60),
)
@example(refused=1, steps=[0, 0, "hears", "hears", 0])
def test_nothing_is_written_behind_refused_batches_before_their_client_has_heard_of_all(
    refused: int, steps: list[str | int]
) -> None:
    """A client has its batches in flight. What has had no answer when its time is over it sends again, in order, on the
    same connection or the next one, and takes no later answer to an earlier try. What it sent on earlier connections
    may arrive at any later time (a number: how many connections ago).
    """
    known = RefusedSequences(0)
    for number in range(refused):
        known.refused(0, Client(number), 1)
    of = SequenceSpace(0, Client(refused), Client(refused), written=True, refused=known)
    heard, tries = 0, 0
    connections = [deque((number, tries) for number in range(refused + 1))]
    answers = deque[tuple[int, Verdict]]()
    for step in steps:
        newest = len(connections) - 1
        if step in ("reconnects", "times out"):
            tries += 1
            if step == "reconnects":
                connections.append(deque())
            connections[-1].extend((number, tries) for number in range(heard, refused + 1))
            answers.clear()
        elif step == "hears" and answers:
            number, verdict = answers.popleft()
            if verdict is Verdict.UNHEARD:
                connections[newest].append((number, tries))
            else:
                heard += 1
        elif isinstance(step, int) and step <= newest and connections[newest - step]:
            number, tried = connections[newest - step].popleft()
            verdict = comes(of, number, newest - step)
            if verdict is Verdict.FORWARD:
                assert heard == refused
                return
            if tried == tries:
                answers.append((number, verdict))


def test_a_client_that_is_refused_for_days_goes_on_behind_the_last_of_them() -> None:
    refused, step = RefusedSequences(0), 2**27 + 1
    for index in range(20):
        refused.refused(0, Client(index * step % MODULUS), step)
        assert refused.behind(Client(0 if index < 15 else index * step % MODULUS)) == (index + 1) * step % MODULUS
    assert len(refused.spans) == 1


@pytest.mark.parametrize("doubts", [(9, 4), (4, 9), (9, 4, 9)])
def test_of_several_batches_in_doubt_the_last_in_the_order_of_the_log_counts(doubts: tuple[int, ...]) -> None:
    of = SequenceSpace(0, Client(0), Client(0))
    for sequence in doubts:
        of.doubted(Client(sequence), 1)
    for sequence in range(9):
        of.appended(Client(sequence), 1)
        assert not of.certain
    of.appended(Client(9), 1)
    assert of.certain
