"""Recent answers put together: what a broker would tell of the same log, or the first of them alone."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.fanout import recent as module
from sidecar.fanout.question import Question
from sidecar.fanout.recent import KEPT_S, Chains, Kept, Recent
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import Fetched, Position

if TYPE_CHECKING:
    import pytest

_MUCH = 1 << 20
ENDS: dict[Question, bytes] = {}
"""What was last heard of where logs end."""


def question(offset: int, epoch: int = -1, isolation: int = 0) -> Question:
    return Question(Position(b"orders", 0, epoch, offset), isolation)


@cache
def batch(base: int, records: int = 1) -> bytes:
    found = build_batch([RawRecord(b"", b"x")] * records, None)
    struct.pack_into(">q", found, 0, base)
    return bytes(found)


def fetched(records: bytes, end: int = 0, aborted: int = -1) -> Fetched:
    head = struct.pack(">ihqqqi", 0, 0, end, end, 0, aborted) + bytes(16 * max(0, aborted))
    return Fetched(0, len(records), head + struct.pack(">ii", -1, len(records)) + records)


def chains(*kept: tuple[Question, Fetched]) -> Chains:
    recent = Recent()
    for number, (asked, found) in enumerate(kept):
        recent.keep(asked, found, float(number))
    return Chains(recent, ENDS.get)


def test_answers_that_go_on_from_each_other_are_one_with_the_last_ones_watermarks() -> None:
    found = chains(
        (question(3), fetched(batch(3, 2), 5)),
        (question(5), fetched(batch(5) + batch(6), 7)),
        (question(7), fetched(batch(7), 8)),
    ).answer(question(3), _MUCH, 2.0)
    records = batch(3, 2) + batch(5) + batch(6) + batch(7)
    assert found == Kept(fetched(records, 8), 2.0)


def test_what_stands_alone_is_told_as_it_came() -> None:
    only = fetched(batch(3), 4)
    assert chains((question(3), only), (question(5), fetched(batch(5)))).answer(question(3), _MUCH, 1.0) == Kept(
        only, 0.0
    )
    assert chains((question(3), only)).answer(question(4), _MUCH, 0.0) is None


def test_other_questions_are_not_gone_on_with() -> None:
    first = fetched(batch(3), 4)
    for other in (question(4, epoch=1), question(4, isolation=1)):
        assert chains((question(3), first), (other, fetched(batch(4)))).answer(question(3), _MUCH, 1.0) == Kept(
            first, 0.0
        )


def test_aborted_transactions_are_told_by_the_answer_that_names_them_alone() -> None:
    plain, aborted = fetched(batch(3), 4), fetched(batch(4), 5, aborted=1)
    both = chains((question(3), plain), (question(4), aborted), (question(5), fetched(batch(5), 6)))
    assert both.answer(question(3), _MUCH, 2.0) == Kept(plain, 0.0)
    assert both.answer(question(4), _MUCH, 2.0) == Kept(aborted, 1.0)


def test_a_batch_that_is_cut_off_ends_it() -> None:
    cut = fetched(batch(3) + batch(4)[:-1], 5)
    assert chains((question(3), cut), (question(4), fetched(batch(4)))).answer(question(3), _MUCH, 1.0) == Kept(
        cut, 0.0
    )


def test_no_more_is_put_together_than_the_reader_takes() -> None:
    first, size = fetched(batch(3), 4), len(batch(3))
    found = chains((question(3), first), (question(4), fetched(batch(4), 5)))
    assert found.answer(question(3), 2 * size - 1, 1.0) == Kept(first, 0.0)
    assert found.answer(question(3), 2 * size, 1.0) == Kept(fetched(batch(3) + batch(4), 5), 1.0)
    assert found.answer(question(3), 1, 1.0) == Kept(first, 0.0)


def test_what_comes_later_is_told_once_it_is_known() -> None:
    recent = Recent()
    recent.keep(question(3), fetched(batch(3), 4), 0.0)
    found = Chains(recent, ENDS.get)
    assert found.answer(question(3), _MUCH, 0.0) == Kept(fetched(batch(3), 4), 0.0)
    recent.keep(question(4), fetched(batch(4), 5), 1.0)
    found.changed()
    assert found.answer(question(3), _MUCH, 1.0) == Kept(fetched(batch(3) + batch(4), 5), 1.0)
    assert found.answer(question(3), _MUCH, KEPT_S) is None


def test_who_is_behind_is_told_where_the_log_ends_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the high watermark consumers know their lag: it was up to a minute old, so those far behind had none."""
    old, large = fetched(batch(3), 4), fetched(batch(4, 300), 304)
    found = chains((question(3), old), (question(4), large))
    monkeypatch.setitem(ENDS, question(3), fetch.empty_element(fetched(b"", 900).element, 0, 11))
    told = found.answer(question(3), old.record_bytes, 1.0)
    assert told == Kept(fetched(batch(3), 900), 0.0)
    assert found.answer(question(3), old.record_bytes, 1.0) is told, "once for all that ask the same"
    together = found.answer(question(3), _MUCH, 1.0)
    assert together == Kept(fetched(batch(3) + batch(4, 300), 900), 1.0)
    monkeypatch.setitem(ENDS, question(4), fetch.empty_element(fetched(b"", 300).element, 0, 11))
    later = found.answer(question(4), _MUCH, 1.0)
    assert later is not None
    assert later.fetched is large, "an end that was heard of before is no news"


def test_what_is_made_for_those_behind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_BYTES", 1_000)
    found = chains((question(3), fetched(batch(3), 4)))
    monkeypatch.setitem(ENDS, question(3), fetch.empty_element(fetched(b"", 900).element, 0, 11))
    for most in range(100):
        assert found.answer(question(3), 100 + most, 0.0) is not None
        kept = sum(len(each.fetched.element) for each in found._joined.values())
        assert 0 < kept == found._bytes <= 1_000


def test_the_offset_behind_an_element_is_that_of_its_last_whole_batch() -> None:
    found = fetched(batch(3) + batch(4, 3))
    assert fetch.offset_behind(found.element, found.record_bytes) == 7
    old = bytearray(batch(3))
    old[16] = 1
    assert fetch.offset_behind(fetched(bytes(old)).element, len(old)) is None
    assert fetch.offset_behind(fetched(b"").element, 0) is None
