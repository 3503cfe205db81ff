"""What a sequence id is by what the log holds and what is under way (PIP-6); which names are forgotten, which never.

The scenarios of Pulsar's `MessageDuplicationTest`, and its holes: replay that moves a mark back, names that are never
purged or that a full table drops at random.
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dedup.marks import NO_ID, SLICE_NAMES, Judgement, Mark, Marks, Pushed, UnderWay
from sidecar.forwarder.sequences import MODULUS
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.primitives import at_once

NEW, DUPLICATE, UNSETTLED = Judgement.NEW, Judgement.DUPLICATE, Judgement.UNSETTLED
ME, OTHER = b"me", b"other"
MINE, ANOTHERS = 7, 8
NOW = 1_700_000_000


def push(
    marks: Marks, last: int, *, name: bytes = ME, producer_id: int = MINE, delta: int = 0, sequence: int = -1
) -> UnderWay:
    return marks.push((Pushed(name, last, delta),), producer_id, Client(sequence), delta + 1)


def land(marks: Marks, *ids: int, name: bytes = ME, producer_id: int = MINE, now: int = NOW) -> None:
    """One batch for each id; they come to lie behind one another."""
    for sequence_id in ids:
        marks.landed(push(marks, sequence_id, name=name, producer_id=producer_id), marks.covered, 1, now)


def judged(marks: Marks, *ids: int, name: bytes = ME) -> list[Judgement]:
    return [marks.judge(name, sequence_id) for sequence_id in ids]


def nobody(name: bytes) -> bool:
    return False


# Judgements ---------------------------------------------------------------------------------------------------------


def test_the_first_id_of_a_name_is_new_whatever_it_is() -> None:
    assert judged(Marks(), 0, 1, 2**63 - 1) == [NEW] * 3


def test_an_id_at_or_below_what_the_log_holds_is_a_duplicate_and_holes_are_fine() -> None:
    marks = Marks()
    land(marks, 0, 1, 5)
    assert judged(marks, 0, 1, 2, 3, 4, 5) == [DUPLICATE] * 6
    assert judged(marks, 6, 100) == [NEW] * 2


def test_an_id_that_is_under_way_is_never_guessed() -> None:
    """testIsDuplicate: 0, 1 and 5 are sent, then 0 comes again before and after it is in the log."""
    marks = Marks()
    first = push(marks, 0)
    push(marks, 1)
    push(marks, 5)
    assert judged(marks, 0, 1, 3, 5, 6) == [UNSETTLED] * 4 + [NEW]
    marks.landed(first, 0, 1, NOW)
    assert judged(marks, 0, 1, 3, 5, 6) == [DUPLICATE] + [UNSETTLED] * 3 + [NEW]
    assert (marks.persisted(ME), marks.pushed(ME)) == (0, 5)


def test_a_batch_across_what_was_sent_is_unsettled_and_leaves_the_mark_where_it_was() -> None:
    """testIsDuplicate: 1 to 5 are sent behind 0, then comes 4 to 8."""
    marks = Marks()
    land(marks, 0)
    push(marks, 5, delta=4)
    assert judged(marks, 4, 5, 6, 7, 8) == [UNSETTLED] * 2 + [NEW] * 3
    assert (marks.persisted(ME), marks.pushed(ME)) == (0, 5)


def test_a_failed_append_lowers_pushed_to_what_the_log_holds() -> None:
    """testIsDuplicateWithFailure: 6 comes again while it is sent; 7 fails; 6 is a duplicate, 7 and 8 are new."""
    marks = Marks()
    land(marks, 0, 1, 5)
    six = push(marks, 6)
    assert judged(marks, 6) == [UNSETTLED]
    seven = push(marks, 7)
    marks.landed(six, 3, 1, NOW)
    marks.failed(seven, in_doubt=False)
    assert (marks.persisted(ME), marks.pushed(ME)) == (6, 6)
    assert judged(marks, 6, 7, 8) == [DUPLICATE, NEW, NEW]


def test_a_failure_does_not_lower_pushed_below_what_else_is_under_way() -> None:
    marks = Marks()
    low, high = push(marks, 3), push(marks, 9)
    marks.failed(low, in_doubt=False)
    assert judged(marks, 3, 9) == [UNSETTLED, UNSETTLED]
    marks.failed(high, in_doubt=False)
    assert judged(marks, 3, 9) == [NEW, NEW]


def test_names_know_nothing_of_each_other() -> None:
    marks = Marks()
    land(marks, 9)
    push(marks, 20)
    assert judged(marks, 0, 9, 20, name=OTHER) == [NEW] * 3
    assert (marks.persisted(OTHER), marks.pushed(OTHER), marks.mark(OTHER)) == (NO_ID, NO_ID, None)
    assert not marks.knows(OTHER)


def test_a_batch_of_several_names_moves_them_all_at_once() -> None:
    marks = Marks()
    batch = marks.push((Pushed(ME, 4, 0), Pushed(OTHER, 7, 2)), MINE)
    assert marks.is_busy(ME)
    assert marks.is_busy(OTHER)
    assert (judged(marks, 4), judged(marks, 7, name=OTHER)) == ([UNSETTLED], [UNSETTLED])
    marks.landed(batch, 100, 3, NOW)
    assert marks.mark(ME) == Mark(ME, 4, 100, NOW)
    assert marks.mark(OTHER) == Mark(OTHER, 7, 102, NOW)
    assert not marks.is_busy(ME)


def test_an_offset_that_kafka_does_not_tell_is_unknown_and_moves_nothing_but_the_id() -> None:
    marks = Marks(covered=5)
    marks.landed(push(marks, 4, delta=3), -1, 4, NOW)
    assert marks.mark(ME) == Mark(ME, 4, NO_ID, NOW)
    assert marks.covered == 5


def test_an_outcome_counts_once() -> None:
    marks = Marks()
    batch = push(marks, 4)
    marks.failed(batch, in_doubt=False)
    marks.landed(batch, 7, 1, NOW)
    marks.failed(batch, in_doubt=True)
    assert judged(marks, 4) == [NEW]
    assert not marks.has_doubts
    assert marks.covered == 0


# Doubt --------------------------------------------------------------------------------------------------------------


def test_a_name_in_doubt_is_doubtful_for_every_other_producer_id() -> None:
    marks = Marks()
    marks.failed(push(marks, 5), in_doubt=True)
    assert marks.has_doubts
    assert marks.doubtful(ME, ANOTHERS)
    assert not marks.doubtful(OTHER, ANOTHERS)


def test_ones_own_doubt_goes_out_again_for_kafka_to_judge() -> None:
    marks = Marks()
    marks.failed(push(marks, 5), in_doubt=True)
    assert not marks.doubtful(ME, MINE)
    assert judged(marks, 5) == [NEW]


def test_a_landed_batch_tells_that_earlier_doubts_of_its_producer_id_are_in_the_log() -> None:
    marks = Marks()
    doubt, behind = marks.push((Pushed(ME, 5, 0), Pushed(OTHER, 3, 1)), MINE, Client(0), 2), push(marks, 6, sequence=2)
    marks.failed(doubt, in_doubt=True)
    marks.landed(behind, 20, 1, NOW)
    assert not marks.has_doubts
    assert marks.mark(OTHER) == Mark(OTHER, 3, NO_ID, NOW)
    assert (marks.persisted(ME), marks.covered) == (6, 21)


def test_a_landed_batch_says_nothing_of_another_producer_ids_doubts() -> None:
    marks = Marks()
    marks.failed(push(marks, 5, name=OTHER, producer_id=ANOTHERS), in_doubt=True)
    land(marks, 6)
    assert marks.has_doubts
    assert marks.persisted(OTHER) == NO_ID


def test_a_landed_batch_says_nothing_of_doubts_that_were_sent_behind_it() -> None:
    marks = Marks()
    first, second = push(marks, 5), push(marks, 6)
    marks.failed(second, in_doubt=True)
    marks.landed(first, 0, 1, NOW)
    assert marks.has_doubts
    assert judged(marks, 5, 6) == [DUPLICATE, NEW]


def test_a_batch_that_was_sent_again_says_nothing_of_doubts_whose_sequences_are_behind_it() -> None:
    """5 and 6 are given up; 5 goes out again and was in the log, 6 never got there: it would be dropped and lost."""
    marks = Marks()
    first, second = push(marks, 5, sequence=0), push(marks, 6, sequence=1)
    marks.failed(first, in_doubt=True)
    marks.failed(second, in_doubt=True)
    marks.landed(push(marks, 5, sequence=0), -1, 1, NOW)
    assert judged(marks, 5, 6) == [DUPLICATE, NEW]


@pytest.mark.parametrize("first", [16, MODULUS - 2], ids=["in a row", "where sequences begin anew"])
def test_the_parts_of_a_batch_in_doubt_say_that_it_is_not_in_the_log(first: int) -> None:
    """Too large, once its answer had been lost: 2 to 5 would be dropped behind the first part, and be lost."""
    marks = Marks()
    marks.failed(push(marks, 5, delta=4, sequence=first), in_doubt=True)
    for part in range(1, 6):
        assert judged(marks, part, 5) == [NEW, NEW]
        marks.landed(push(marks, part, sequence=(first + part - 1) % MODULUS), part, 1, NOW)
        assert not marks.has_doubts
        assert marks.mark(ME) == Mark(ME, part, part, NOW)


def test_a_part_in_doubt_is_in_the_log_where_the_next_part_is() -> None:
    marks = Marks()
    for last, delta in ((5, 4), (1, 0)):
        marks.failed(push(marks, last, delta=delta, sequence=16), in_doubt=True)
    marks.landed(push(marks, 2, name=OTHER, sequence=17), 1, 1, NOW)
    assert not marks.has_doubts
    assert judged(marks, 1, 2) == [DUPLICATE, NEW]


def test_a_batch_that_lands_in_front_of_one_in_doubt_says_nothing_of_it() -> None:
    marks = Marks()
    marks.failed(push(marks, 7, delta=1, sequence=5), in_doubt=True)
    marks.landed(push(marks, 5, delta=4, sequence=0), 0, 5, NOW)
    assert marks.has_doubts
    assert judged(marks, 5, 7) == [DUPLICATE, NEW]


def test_a_batch_in_doubt_that_was_sent_again_has_its_offset_when_it_is_told() -> None:
    marks = Marks()
    marks.failed(push(marks, 5, sequence=3), in_doubt=True)
    marks.landed(push(marks, 5, sequence=3), 40, 1, NOW)
    assert marks.mark(ME) == Mark(ME, 5, 40, NOW)


def test_a_producer_id_is_quiet_when_nothing_of_it_is_under_way_or_in_doubt() -> None:
    marks = Marks()
    batch = push(marks, 5)
    assert (marks.is_quiet(MINE), marks.is_quiet(ANOTHERS)) == (False, True)
    marks.failed(batch, in_doubt=True)
    assert not marks.is_quiet(MINE)
    marks.read_up_to(0, lambda its: its == MINE)
    assert marks.is_quiet(MINE)


def test_reading_behind_a_fence_settles_what_was_fenced_and_nothing_else() -> None:
    marks = Marks()
    fenced, at_work = push(marks, 5), push(marks, 5, name=OTHER, producer_id=ANOTHERS)
    marks.failed(push(marks, 9), in_doubt=True)
    marks.failed(push(marks, 9, name=OTHER, producer_id=ANOTHERS), in_doubt=True)
    marks.read_up_to(40, lambda its: its == MINE)
    assert judged(marks, 5, 9) == [NEW, NEW]
    assert not marks.doubtful(ME, ANOTHERS)
    assert judged(marks, 5, name=OTHER) == [UNSETTLED]
    assert marks.doubtful(OTHER, MINE)
    marks.landed(fenced, 39, 1, NOW)
    assert judged(marks, 5) == [NEW], "the log was read: what it holds was learned there"
    marks.landed(at_work, 41, 1, NOW)
    assert judged(marks, 5, name=OTHER) == [DUPLICATE]


# How far the log is known -------------------------------------------------------------------------------------------


def test_covered_follows_what_landed() -> None:
    marks = Marks(covered=10)
    assert marks.covered == 10
    marks.landed(push(marks, 1), 10, 3, NOW)
    assert marks.covered == 13
    marks.landed(push(marks, 2), 11, 1, NOW)
    assert marks.covered == 13, "an earlier batch of another session, answered late"


def test_covered_stays_in_front_of_what_is_under_way() -> None:
    marks = Marks(covered=10)
    first = push(marks, 1)
    marks.landed(push(marks, 5, name=OTHER, producer_id=ANOTHERS), 12, 1, NOW)
    assert marks.covered == 10
    second = push(marks, 2)
    marks.failed(first, in_doubt=False)
    assert marks.covered == 13, "it was sent when everything in front of 13 had landed"
    marks.landed(second, 20, 1, NOW)
    assert marks.covered == 21


def test_covered_stays_in_front_of_what_is_in_doubt_until_a_fence() -> None:
    marks = Marks(covered=10)
    marks.failed(push(marks, 1), in_doubt=True)
    marks.landed(push(marks, 5, name=OTHER, producer_id=ANOTHERS), 12, 1, NOW)
    assert marks.covered == 10
    marks.read_up_to(13, lambda its: its == MINE)
    assert marks.covered == 13


def test_covered_stays_in_front_of_the_oldest_doubt_in_whatever_order_batches_are_given_up() -> None:
    marks = Marks(covered=10)
    early = push(marks, 1)
    marks.landed(push(marks, 5, name=OTHER, producer_id=ANOTHERS), 12, 1, NOW)
    late = push(marks, 6, name=OTHER, producer_id=ANOTHERS)
    marks.failed(late, in_doubt=True)
    marks.failed(early, in_doubt=True)
    assert marks.covered == 10


def test_reading_never_moves_covered_back() -> None:
    marks = Marks(covered=10)
    marks.read_up_to(5, lambda its: True)
    assert marks.covered == 10


# Merging ------------------------------------------------------------------------------------------------------------

learned = st.builds(
    Mark,
    name=st.sampled_from([ME, OTHER, b"third"]),
    id=st.integers(0, 2**63 - 1),
    offset=st.integers(-1, 2**63 - 1),
    seen=st.integers(0, 2**32 - 1),
)


@given(found=st.lists(learned, max_size=30), data=st.data())
def test_marks_are_merged_by_the_higher_id_in_whatever_order_they_are_learned(
    found: list[Mark], data: st.DataObject
) -> None:
    """Pulsar's replay puts: a lower id later in the log moved the mark back."""
    marks = Marks()
    for mark in data.draw(st.permutations(found)):
        marks.learn(mark)
    highest = {mark.name: max(its.id for its in found if its.name == mark.name) for mark in found}
    assert {mark.name: mark.id for mark in marks} == highest
    for mark in marks:
        assert mark.offset in {its.offset for its in found if (its.name, its.id) == (mark.name, mark.id)}
        assert mark.seen == max(its.seen for its in found if its.name == mark.name)


def test_an_append_below_the_mark_moves_nothing_back() -> None:
    marks = Marks()
    late = push(marks, 3)
    marks.learn(Mark(ME, 9, 90, NOW))
    marks.landed(late, 80, 1, NOW + 5)
    assert marks.mark(ME) == Mark(ME, 9, 90, NOW + 5)


# Bounds -------------------------------------------------------------------------------------------------------------


def full(limit: int) -> Marks:
    """A table of names n0, n1, ...; those with the lower number wrote longer ago."""
    marks = Marks(limit)
    for index in range(limit):
        land(marks, index, name=b"n%d" % index, now=NOW + index)
    return marks


def test_there_is_room_until_the_table_is_full() -> None:
    marks = Marks(3)
    assert marks.make_room([b"a", b"b", b"c"], nobody)
    land(marks, 1, name=b"a")
    assert marks.make_room([b"a", b"b", b"c", b"b"], nobody)
    assert (len(marks), marks.evicted) == (1, 0)


def test_the_last_room_is_used_before_any_name_is_forgotten() -> None:
    marks = full(100)
    assert marks.forget(b"n50")
    assert marks.make_room([ME], nobody)
    assert (len(marks), marks.evicted) == (99, 0)


def test_the_name_that_wrote_least_lately_makes_room() -> None:
    marks = full(4)
    assert marks.make_room([ME], nobody)
    assert [mark.name for mark in marks] == [b"n1", b"n2", b"n3"]
    assert marks.evicted == 1


def test_a_twentieth_goes_at_once_so_that_not_every_new_name_sorts_the_table() -> None:
    marks = full(100)
    assert marks.make_room([ME], nobody)
    assert (len(marks), marks.evicted) == (95, 5)
    assert {mark.name for mark in marks} == {b"n%d" % index for index in range(5, 100)}


def test_a_name_that_is_live_or_under_way_is_never_evicted() -> None:
    """Pulsar's snapshot drops an arbitrary subset of a full table."""
    marks = full(4)
    push(marks, 50, name=b"n1")
    assert marks.make_room([ME], lambda name: name in (b"n0", b"n2"))
    assert [mark.name for mark in marks] == [b"n0", b"n1", b"n2"]


def test_there_is_no_room_where_all_names_are_live_and_none_is_forgotten() -> None:
    marks = full(4)
    assert not marks.make_room([ME], lambda name: True)
    assert (len(marks), marks.evicted) == (4, 0)
    assert marks.make_room([b"n0"], lambda name: True), "it is known already"


def test_room_is_never_made_by_forgetting_a_name_that_wants_in_itself() -> None:
    """A returning name and a new one in one batch: the resend under the returning one would be appended twice."""
    marks = full(4)
    marks.make_room([b"n0", ME], nobody)
    assert marks.judge(b"n0", 0) is DUPLICATE


def test_what_finds_no_room_forgets_nobody() -> None:
    marks = full(4)
    assert not marks.make_room([b"x%d" % index for index in range(5)], nobody)
    assert (len(marks), marks.evicted) == (4, 0)


def test_a_name_that_nobody_used_for_years_is_known_while_there_is_room() -> None:
    """A nightly job: the time between two runs forgets nothing."""
    marks = Marks(3)
    land(marks, 1, name=b"nightly", now=0)
    at_once(marks.note_live(NOW, nobody))
    assert marks.make_room([ME, OTHER], nobody)
    assert judged(marks, 1, name=b"nightly") == [DUPLICATE]


def test_a_name_counts_as_used_for_as_long_as_it_is_live() -> None:
    marks = full(4)
    at_once(marks.note_live(NOW + 4, lambda name: name == b"n0"))
    assert marks.make_room([ME], nobody)
    assert [mark.name for mark in marks] == [b"n0", b"n2", b"n3"]


def test_a_name_with_ids_under_way_counts_as_used() -> None:
    marks = full(4)
    batch = push(marks, 50, name=b"n0")
    at_once(marks.note_live(NOW + 4, nobody))
    marks.failed(batch, in_doubt=False)
    assert marks.make_room([ME], nobody)
    assert [mark.name for mark in marks] == [b"n0", b"n2", b"n3"]


def test_a_name_that_is_forgotten_while_names_are_noted_stays_forgotten() -> None:
    marks = full(SLICE_NAMES + 2)
    noting = marks.note_live(NOW + 10_000, lambda _: True)
    next(noting)
    last = b"n%d" % (SLICE_NAMES + 1)
    assert marks.forget(last)
    at_once(noting)
    assert not marks.knows(last)
    assert {mark.seen for mark in marks} == {NOW + 10_000}


def test_a_partition_is_crowded_before_it_forgets_any_name() -> None:
    marks = Marks(10)
    seen: list[bool] = []
    for index in range(10):
        land(marks, 1, name=b"n%d" % index)
        seen.append(marks.is_crowded)
    assert seen == [False] * 7 + [True] * 3


def test_a_name_that_was_forgotten_begins_anew() -> None:
    marks = Marks()
    land(marks, 7)
    assert marks.forget(ME)
    assert not marks.forget(ME)
    assert (judged(marks, 7), len(marks)) == ([NEW], 0)


def test_a_row_that_is_used_again_knows_nothing_of_the_name_that_had_it() -> None:
    marks = full(50)
    rows = len(marks._ids)
    for index in range(50):
        assert marks.forget(b"n%d" % index)
    for index in range(50):
        marks.learn(Mark(b"m%d" % index, 0, -1, 1))
    assert list(marks) == [Mark(b"m%d" % index, 0, -1, 1) for index in range(50)]
    assert len(marks._ids) == len(marks._offsets) == len(marks._seen) == rows


@pytest.mark.parametrize("partitions", [4])
def test_a_name_costs_less_than_200_bytes_in_each_partition(partitions: int) -> None:
    """The names themselves are shared: 10,000 of them in 100 partitions stay below 200 MB."""
    names = [b"producer-%d" % index for index in range(10_000)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [Marks() for _ in range(partitions)]
        for marks in kept:
            for index, name in enumerate(names):
                marks.learn(Mark(name, 2**40 + index, 2**41 + index, NOW))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / (partitions * len(names)) < 200
    assert sum(map(len, kept)) == partitions * len(names)
