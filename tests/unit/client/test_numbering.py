"""Which sequence id a record bears."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import SequenceError
from sidecar.client.numbering import HIGHEST, Numbering


def numbering(last: Mapping[int, int] | None = None, partitions: int = 2, initial: int | None = None) -> Numbering:
    return Numbering("orders", {} if last is None else last, range(partitions), initial)


def send(found: Numbering, number: int | None = None, partition: int = 0) -> int | None:
    chosen = found.choose(number)
    found.take(partition, chosen, given=number is not None)
    return chosen


def test_ids_count_up_from_0() -> None:
    found = numbering()
    assert [send(found, partition=index % 2) for index in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("last", "resumes"), [({}, -1), ({0: 9}, -1), ({0: 9, 1: 4}, 4), ({0: 9, 1: 4, 2: 1}, 4), ({1: 4}, -1)]
)
def test_they_go_on_behind_the_least_of_all_partitions(last: dict[int, int], resumes: int) -> None:
    found = numbering(last)
    assert (found.last_id, found.last_ids) == (resumes, last)
    assert send(found) == resumes + 1


def test_only_the_producers_own_partitions_say_where_it_goes_on() -> None:
    found = Numbering("orders", {0: 2, 1: 9, 3: 5}, (1, 3))
    assert (found.last_id, found.last_ids) == (5, {0: 2, 1: 9, 3: 5})
    assert Numbering("orders", {0: 2, 1: 9}, (1, 3)).last_id == -1


def test_the_initial_id_is_the_first_ones() -> None:
    found = numbering({0: 9, 1: 9}, initial=99)
    assert (send(found), send(found)) == (99, 100)


def test_once_given_always_given() -> None:
    found = numbering()
    assert (send(found), send(found, 7), send(found, 9)) == (0, 7, 9)
    with pytest.raises(SequenceError, match="once given, always given"):
        send(found)
    assert send(found, 10) == 10


def test_an_id_that_was_refused_does_not_count_as_given() -> None:
    found = numbering()
    with pytest.raises(SequenceError):
        send(found, -1)
    assert send(found) == 0


def test_ids_rise_in_each_partition_by_itself() -> None:
    found = numbering()
    assert (send(found, 5), send(found, 5, partition=1), send(found, 6)) == (5, 5, 6)
    for number in (6, 5, 0):
        with pytest.raises(SequenceError, match=f"{number} is not above 6"):
            send(found, number)


def test_what_was_there_before_may_be_sent_again() -> None:
    found = numbering({0: 9, 1: 9})
    assert [send(found, number) for number in range(3)] == [0, 1, 2]


def test_a_failed_id_may_be_given_again_unless_a_higher_one_went_out() -> None:
    found = numbering()
    for number in (5, 6):
        send(found, number)
    found.failed(0, 6)
    assert send(found, 6) == 6
    found.failed(0, 5)
    with pytest.raises(SequenceError, match="5 is not above 6"):
        send(found, 5)
    found.arrived(0, 6)
    with pytest.raises(SequenceError):
        send(found, 6)


@pytest.mark.parametrize("number", [-1, HIGHEST + 1])
def test_an_id_out_of_range_is_refused(number: int) -> None:
    for make in (lambda: send(numbering(), number), lambda: numbering(initial=number)):
        with pytest.raises(SequenceError, match="from 0 to 2") as refused:
            make()
        assert (refused.value.code, refused.value.retryable) == (87, False)


def test_the_highest_id_is_the_last() -> None:
    found = numbering(initial=HIGHEST)
    assert send(found) == HIGHEST
    with pytest.raises(SequenceError, match="no sequence id left"):
        send(found)


def test_without_deduplication_records_bear_none_and_giving_one_names_the_policy() -> None:
    found = Numbering("orders", None, range(2))
    assert (found.last_id, found.last_ids, send(found), send(found)) == (-1, {}, None, None)
    for make in (lambda: send(found, 3), lambda: Numbering("orders", None, range(2), 3)):
        with pytest.raises(SequenceError, match="sidecar topic set orders --dedup"):
            make()


def test_what_arrives_moves_the_place_to_resume() -> None:
    found = numbering()
    found.arrived(0, 3)
    assert (found.last_id, found.last_of(0), found.last_of(1)) == (-1, 3, -1)
    found.arrived(1, 2)
    found.arrived(0, 1)
    assert (found.last_id, found.last_ids) == (2, {0: 3, 1: 2})
    found.partitions = range(3)
    assert found.last_id == -1


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.sampled_from(["sent", "arrived", "failed"]))))
def test_no_id_goes_out_at_or_below_one_that_may_be_in_the_log(
    steps: list[tuple[int, int, str]],
) -> None:
    found, alive = numbering(partitions=3), dict[int, set[int]]()
    for number, partition, step in steps:
        ids = alive.setdefault(partition, set())
        if step == "sent":
            try:
                send(found, number, partition)
            except SequenceError:
                assert number <= max(ids)
            else:
                assert number > max(ids, default=-1)
                ids.add(number)
        elif number in ids and step == "arrived":
            found.arrived(partition, number)
        elif number in ids and number > found.last_of(partition):
            found.failed(partition, number)
            ids.discard(number)
