"""Who writes under a producer name: one live session at a time; and whose the batches in the log are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dedup.names import FORGOTTEN, NameHolders, Rival, WriterNames

ME, OTHER = b"me", b"other"


@pytest.fixture
def live() -> set[str]:
    return {"pid:1", "pid:2"}


@pytest.fixture
def holders(live: set[str]) -> NameHolders:
    return NameHolders(live.__contains__)


def test_a_name_is_the_first_sessions_while_that_is_live(holders: NameHolders, live: set[str]) -> None:
    assert holders.rival([ME], "pid:1") is None
    holders.hold([ME], "pid:1")
    assert holders.rival([ME], "pid:1") is None
    assert holders.rival([OTHER, ME], "pid:2") == Rival(ME, "pid:1")
    live.discard("pid:1")
    assert holders.rival([OTHER, ME], "pid:2") is None


def test_a_name_goes_to_the_session_that_follows(holders: NameHolders, live: set[str]) -> None:
    holders.hold([ME], "pid:1")
    live.discard("pid:1")
    assert not holders.is_live(ME)
    holders.hold([ME], "pid:2")
    live.add("pid:1")
    assert holders.rival([ME], "pid:1") == Rival(ME, "pid:2")
    assert holders.session_of(ME) == "pid:2"
    assert holders.is_live(ME)


def test_nobody_has_a_name_that_was_never_written_under(holders: NameHolders) -> None:
    assert holders.session_of(ME) is None
    assert not holders.is_live(ME)


def test_a_session_that_wrote_with_ids_must_always_do_so(holders: NameHolders) -> None:
    assert not holders.must_carry("pid:1")
    holders.hold([ME], "pid:1")
    assert holders.must_carry("pid:1")
    assert not holders.must_carry("pid:2")


def test_a_session_that_lost_its_name_to_another_one_still_must(holders: NameHolders, live: set[str]) -> None:
    holders.hold([ME], "pid:1")
    live.discard("pid:1")
    holders.hold([ME], "pid:2")
    live.add("pid:1")
    assert holders.must_carry("pid:1")


def test_sessions_that_are_gone_are_forgotten_and_no_others(holders: NameHolders, live: set[str]) -> None:
    holders.hold([ME], "pid:1")
    holders.hold([OTHER], "pid:2")
    live.discard("pid:1")
    holders.forget_gone()
    assert (holders.session_of(ME), holders.session_of(OTHER)) == (None, "pid:2")
    assert (holders.must_carry("pid:1"), holders.must_carry("pid:2")) == (False, True)


# Writers of earlier batches -----------------------------------------------------------------------------------------


def test_an_epoch_is_the_one_who_had_it_up_to_that() -> None:
    names = WriterNames()
    names.add(7, 3, ME)
    names.add(7, 5, OTHER)
    assert [names.of(7, epoch) for epoch in range(7)] == [ME] * 4 + [OTHER] * 2 + [None]


def test_a_session_whose_client_raised_its_epoch_has_several_in_a_row() -> None:
    names = WriterNames()
    names.add(7, 0, OTHER)
    names.add(7, 4, ME)
    assert [names.of(7, epoch) for epoch in range(1, 5)] == [ME] * 4


def test_a_slot_that_changed_its_producer_id_has_writers_under_both() -> None:
    """Kafka gives a new producer id where the epochs of the old one are used up."""
    names = WriterNames()
    names.add(7, 32_766, ME)
    names.add(8, 0, ME)
    names.add(8, 2, OTHER)
    assert [names.of(7, 32_766), names.of(8, 0), names.of(8, 1), names.of(8, 2)] == [ME, ME, OTHER, OTHER]
    assert names.of(9, 0) is None


def test_a_writer_without_a_name_is_nobody_and_a_forgotten_one_may_be_anybody() -> None:
    names = WriterNames()
    names.add(7, 1, FORGOTTEN)
    names.add(7, 2, None)
    names.add(7, 3, ME)
    assert [names.of(7, epoch) for epoch in range(4)] == [FORGOTTEN, FORGOTTEN, None, ME]


@given(spans=st.dictionaries(st.integers(0, 50), st.sampled_from([ME, OTHER, None, FORGOTTEN])), data=st.data())
def test_the_order_in_which_writers_are_told_is_of_no_account(
    spans: dict[int, bytes | None], data: st.DataObject
) -> None:
    names = WriterNames()
    for last in data.draw(st.permutations(list(spans))):
        names.add(7, last, spans[last])
    for epoch in range(52):
        last = min((last for last in spans if last >= epoch), default=None)
        assert names.of(7, epoch) == (None if last is None else spans[last])
    told = [(first, last_one, name) for _, first, last_one, name in names.spans()]
    assert [(epoch, names.of(7, epoch)) for epoch in range(max(spans, default=-1) + 1)] == [
        (epoch, name) for first, last_one, name in told for epoch in range(first, last_one + 1)
    ]
