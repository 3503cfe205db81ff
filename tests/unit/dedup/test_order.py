"""Where a batch of an idempotent client stands: next, ahead of a gap, a repeat; modulo 2^31."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dedup.batches import KEPT, ClientOrder, OrderVerdict
from sidecar.forwarder.sequences import MODULUS, REPEAT_WINDOW
from sidecar.protocol.ids import ClientSequence as Client

ANSWER = (100, -1, 0)
sequences = st.integers(0, MODULUS - 1)
sizes = st.integers(1, 1_000)


@given(start=sequences, batches=st.lists(sizes, max_size=10))
def test_batches_in_a_row_are_each_the_next_one(start: Client, batches: list[int]) -> None:
    order, first = ClientOrder(start), start
    for records in batches:
        assert order.place(Client(first), records) is OrderVerdict.NEXT
        order.take(Client(first), records)
        first = (first + records) % MODULUS
    assert order.expected == first


@given(start=sequences, ahead=st.integers(1, 2**30 - 1), records=sizes)
def test_what_comes_ahead_of_the_next_one_is_a_gap(start: Client, ahead: int, records: int) -> None:
    assert ClientOrder(start).place(Client((start + ahead) % MODULUS), records) is OrderVerdict.GAP


@given(start=sequences, behind=st.integers(1, REPEAT_WINDOW), records=sizes)
def test_what_ends_in_front_of_the_next_one_is_old_and_what_crosses_it_is_astride(
    start: Client, behind: int, records: int
) -> None:
    place = ClientOrder(start).place(Client((start - behind) % MODULUS), records)
    assert place is (OrderVerdict.OLD if records <= behind else OrderVerdict.ASTRIDE)


@given(start=sequences, behind=st.integers(REPEAT_WINDOW + 1, MODULUS - 1), records=sizes)
def test_what_is_nowhere_near_is_out_of_order_and_no_repeat(start: Client, behind: int, records: int) -> None:
    assert ClientOrder(start).place(Client((start - behind) % MODULUS), records) is OrderVerdict.GAP


@given(start=sequences, landed=st.lists(sizes, max_size=3), behind=st.integers(1, REPEAT_WINDOW))
def test_in_front_of_a_session_that_is_new_there_is_nothing_to_repeat(
    start: Client, landed: list[int], behind: int
) -> None:
    """Its sequences begin at 0: what comes with 2^31 - 1 is in no log, and may not be called a repeat."""
    order = ClientOrder(start, has_past=False)
    for records in landed:
        order.landed(order.take(Client(order.expected), records), ANSWER)
    assert order.place(Client((start - behind) % MODULUS), 1) is OrderVerdict.GAP
    if landed and landed != [1]:
        assert order.place(Client((order.expected - 1) % MODULUS), 1) in (OrderVerdict.OLD, OrderVerdict.REPEAT)


@given(start=sequences, batches=st.lists(sizes, min_size=1, max_size=KEPT))
def test_the_batches_that_came_last_are_known_again(start: Client, batches: list[int]) -> None:
    order = ClientOrder(start)
    firsts = [(start + behind) % MODULUS for behind in accumulate(batches, initial=0)]
    taken = [order.take(Client(first), records) for first, records in zip(firsts, batches, strict=False)]
    for first, records, passed in zip(firsts, batches, taken, strict=False):
        assert order.place(Client(first), records) is OrderVerdict.REPEAT
        assert order.passed(Client(first), records) is passed


def test_a_repeat_has_the_answer_of_the_batch_it_repeats_once_there_is_one() -> None:
    order = ClientOrder(Client(0))
    batch = order.take(Client(0), 3)
    repeated = order.passed(Client(0), 3)
    assert repeated is not None
    assert repeated.answer is None
    order.landed(batch, ANSWER)
    assert repeated.answer == ANSWER


def test_another_cut_of_what_came_last_is_no_repeat() -> None:
    order = ClientOrder(Client(0))
    order.take(Client(0), 3)
    assert order.place(Client(0), 2) is OrderVerdict.OLD
    assert order.place(Client(1), 2) is OrderVerdict.OLD
    assert order.place(Client(0), 4) is OrderVerdict.ASTRIDE


def test_as_many_repeats_are_known_as_a_broker_remembers() -> None:
    order = ClientOrder(Client(0))
    for first in range(KEPT + 1):
        order.take(Client(first), 1)
    assert order.place(Client(0), 1) is OrderVerdict.OLD
    assert [order.place(Client(first), 1) for first in range(1, KEPT + 1)] == [OrderVerdict.REPEAT] * KEPT


def test_a_failed_batch_is_the_next_one_again_and_what_was_sent_behind_it_is_ahead() -> None:
    order = ClientOrder(Client(10))
    batches = [order.take(Client(first), 1) for first in (10, 11, 12)]
    order.failed(batches[1])
    assert order.place(Client(10), 1) is OrderVerdict.REPEAT
    assert order.place(Client(11), 1) is OrderVerdict.NEXT
    assert order.place(Client(12), 1) is OrderVerdict.GAP


@pytest.mark.parametrize("failing", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_where_several_fail_the_earliest_is_next_in_whatever_order_they_do(failing: tuple[int, ...]) -> None:
    order = ClientOrder(Client(MODULUS - 1))
    batches = [order.take(Client((MODULUS - 1 + index) % MODULUS), 1) for index in range(3)]
    for index in failing:
        order.failed(batches[index])
    assert order.expected == MODULUS - 1
    assert [order.place(Client(first), 1) for first in (MODULUS - 1, 0, 1)] == [
        OrderVerdict.NEXT,
        OrderVerdict.GAP,
        OrderVerdict.GAP,
    ]


def test_a_batch_that_landed_behind_one_that_failed_shows_that_both_are_in_the_log() -> None:
    """Its outcome was unknown: Kafka would not have taken the second one without it."""
    order = ClientOrder(Client(0))
    first, second = order.take(Client(0), 1), order.take(Client(1), 1)
    order.failed(first)
    order.landed(second, ANSWER)
    assert order.expected == 2
    assert order.place(Client(0), 1) is OrderVerdict.OLD


@pytest.mark.parametrize("start", [0, MODULUS - 1])
def test_a_batch_is_given_up_for_nothing_where_one_behind_it_has_landed(start: Client) -> None:
    """It was the next one then, and all that its client sent behind what had landed a gap, for ever."""
    order = ClientOrder(start)
    batches = [order.take(Client((start + index) % MODULUS), 1) for index in range(4)]
    order.landed(batches[1], ANSWER)
    assert not order.failed(batches[0])
    assert (order.expected, order.place(start, 1)) == ((start + 4) % MODULUS, OrderVerdict.OLD)
    assert order.failed(batches[3])
    assert order.failed(batches[2])
    assert order.place(Client((start + 2) % MODULUS), 1) is OrderVerdict.NEXT


def test_a_landed_batch_does_not_move_the_next_one_back() -> None:
    order = ClientOrder(Client(0))
    first = order.take(Client(0), 1)
    order.take(Client(1), 1)
    order.landed(first, ANSWER)
    assert order.expected == 2


def test_a_batch_that_was_sent_again_is_known_by_its_second_try() -> None:
    order = ClientOrder(Client(0))
    order.failed(order.take(Client(0), 1))
    again = order.take(Client(0), 1)
    order.landed(again, ANSWER)
    assert order.passed(Client(0), 1) is again
