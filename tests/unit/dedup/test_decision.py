"""What a batch is in for by its sequence ids."""

from __future__ import annotations

from sidecar.dedup.content import Content, Next, decide, is_new
from sidecar.dedup.marks import Marks
from sidecar.dedup.names import NameHolders
from sidecar.protocol.ids import ClientSequence as Client
from tests.unit.dedup.paper import HEADERS, batch, recs

OWN, OTHER = 7, 8


def content(*ids: int) -> Content:
    return Content(batch(recs(*ids)), len(ids), HEADERS, b"me")


def landed(*ids: int, producer_id: int = OWN) -> Marks:
    """Marks of a log with these ids."""
    marks, found = Marks(), content(*ids)
    marks.landed(marks.push(found.marks, producer_id, Client(0), len(ids)), 0, len(ids), 1)
    return marks


def test_ids_above_all_that_was_sent_go_out() -> None:
    assert decide(content(3, 4), landed(1, 2), Client(2), OWN) is Next.SEND


def test_ids_that_are_in_the_log_are_all_left_out() -> None:
    assert decide(content(1, 2), landed(1, 2), Client(2), OWN) == []


def test_of_a_batch_that_is_partly_in_the_log_the_new_records_are_kept() -> None:
    kept = decide(content(2, 3), landed(1, 2), Client(2), OWN)
    assert isinstance(kept, list)
    assert len(kept) == 1


def test_ids_under_way_in_another_slot_are_waited_for() -> None:
    marks = Marks()
    marks.push(content(1).marks, OTHER, Client(0), 1)
    assert decide(content(2), marks, Client(0), OWN) is Next.WAIT


def test_ids_of_another_slot_in_doubt_take_a_fence() -> None:
    marks = Marks()
    marks.failed(marks.push(content(1).marks, OTHER, Client(0), 1), in_doubt=True)
    assert decide(content(2), marks, Client(0), OWN) is Next.FENCE


def test_the_batch_in_doubt_goes_again_under_its_own_sequence() -> None:
    marks = Marks()
    marks.failed(marks.push(content(1).marks, OWN, Client(5), 1), in_doubt=True)
    assert decide(content(1), marks, Client(5), OWN) is Next.SEND


def test_a_name_that_its_session_does_not_hold_is_not_surely_new() -> None:
    names = NameHolders(lambda _: True)
    names.hold((b"me",), "pid:1")
    assert is_new(content(3), landed(1, 2), names, "pid:1")
    assert not is_new(content(3), landed(1, 2), names, "pid:2")
