"""Where logs end: what is noted, who stands there, who is near."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from sidecar.fanout import ends as module
from sidecar.fanout.ends import Ends
from sidecar.fanout.question import Question
from sidecar.protocol.calls.tails import Position


def ends() -> Ends:
    nobody = cast("Any", None)  # nothing is asked here: that is for tests with a broker
    return Ends(nobody, nobody)


def note(into: Ends, high_watermark: int, last_stable: int, isolation: int = 0) -> None:
    element = struct.pack(">ihqqqiii", 0, 0, high_watermark, last_stable, 0, -1, -1, 0)
    into.note(b"orders", 0, isolation, element)


def question(offset: int, isolation: int = 0) -> Question:
    return Question(Position(b"orders", 0, -1, offset), isolation)


async def test_each_isolation_level_has_an_end_of_its_own() -> None:
    found = ends()
    assert not found.is_known(question(0))
    assert not found.is_reached(question(0))
    note(found, 10, 7)
    note(found, 10, 7, isolation=1)
    assert (found.is_reached(question(9)), found.is_reached(question(10))) == (False, True)
    assert (found.is_reached(question(6, 1)), found.is_reached(question(7, 1))) == (False, True)
    found.forget(b"orders", 0)
    assert not found._ends


async def test_near_is_who_is_behind_by_what_came_in_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ends()
    assert not found.is_near(question(0))
    note(found, 10, 10)
    note(found, 15, 15)
    note(found, 20, 20)
    assert (found.is_near(question(9)), found.is_near(question(10))) == (False, True)
    monkeypatch.setattr(module, "NEAR_S", 0.0)
    note(found, 30, 30)
    assert (found.is_near(question(19)), found.is_near(question(20))) == (False, True)


async def test_what_a_log_has_deleted_is_known_by_its_start() -> None:
    found = ends()
    assert not found.is_deleted(question(0))
    found.note(b"orders", 0, 0, struct.pack(">ihqqqiii", 0, 0, 20, 20, 5, -1, -1, 0))
    for isolation in (0, 1):
        assert [found.is_deleted(question(offset, isolation)) for offset in (4, 5)] == [True, False]
    of_committed = ends()
    of_committed.note(b"orders", 0, 1, struct.pack(">ihqqqiii", 0, 0, 20, 20, 5, -1, -1, 0))
    for isolation in (0, 1):
        assert [of_committed.is_deleted(question(offset, isolation)) for offset in (4, 5)] == [True, False]
    note(found, 20, 20, isolation=1)
    for isolation in (0, 1):
        assert [found.is_deleted(question(offset, isolation)) for offset in (4, 5)] == [True, False]
