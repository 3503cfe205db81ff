"""Each invariant notices a state that breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metadata.ownership import AccessMode, Generation
from metadata.ownership import Ownership as RedisOwnership
from sidecar.ownership.invariants import STRUCK_KEPT, assert_sound, assert_step, assert_whole
from sidecar.ownership.state import Awaited, Claimant, Leaving, Owned, Place, State, Work
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as records

SESSION, PLAIN = Session("pid:1"), Session("conn:1")
OWNER = Owned(SESSION, "billing", AccessMode.EXCLUSIVE, 3, frozenset({1}), frozenset({1}))
RECORD = records.Ownership(session="pid:1", generation=3)
SOUND = State(OWNER, RECORD, 9, floor=3, places={SESSION: Place(None, 0.0, 5.0)}, waiting=(SESSION,))
BESIDE = {"is_beside": True, "places": {}, "waiting": ()}
RIVAL = Claimant(Session("pid:2"), "rival", is_named=True, connection=2)
IN_REDIS = RedisOwnership("orders", Generation(3), 9, "pid:2", "rival", AccessMode.EXCLUSIVE)


def test_a_sound_state() -> None:
    assert_sound(State())
    assert_sound(SOUND)
    assert_whole(SOUND)
    assert_step(SOUND, SOUND, moves_holder=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"position": -1}, "has an offset"),
        ({"record": None}, "has an offset"),
        ({"floor": -1}, "begin at 0"),
        ({"waiting": ()}, "has a place"),
        ({"struck": {f"pid:{number}": 0 for number in range(STRUCK_KEPT + 1)}}, "bounded"),
        ({"holder": replace(OWNER, session=Session(""))}, "is a session"),
        ({"holder": replace(OWNER, connections=frozenset())}, "of the holder's"),
        ({"holder": Leaving(SESSION, "", AccessMode.EXCLUSIVE, 3, frozenset({1}))}, "not absent"),
        ({"holder": Awaited(SESSION, "", AccessMode.EXCLUSIVE, 3, recorded=IN_REDIS)}, "awaited"),
        ({"holder": replace(OWNER, generation=4)}, "newer than"),
        ({"record": None, "position": -1, "listed": frozenset({"pid:7"})}, "only a record"),
        ({"is_slow": True}, "only a work"),
        ({"work": Work.OPEN}, "slot is opened"),
        ({"is_beside": True, "holder": None}, "as long as"),
        ({"is_beside": True}, "nobody waits"),
        (BESIDE | {"tainted": frozenset({1})}, "by a rule"),
        (BESIDE | {"work": Work.CLAIM}, "has no Work.CLAIM"),
    ],
)
def test_a_state_that_cannot_be(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        assert_sound(replace(SOUND, **change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"waiting": (PLAIN,)}, "order"),
        ({"places": {SESSION: Place(RIVAL, 0.0, 5.0)}}, "another one's"),
        ({"places": {PLAIN: Place(None, 0.0, 5.0)}, "waiting": (PLAIN,)}, "cannot come back"),
        ({"listed": frozenset({"pid:7"})}, "lists them"),
        ({"struck": {"conn:7": 1}}, "by its connection"),
    ],
)
def test_what_cannot_be_of_any_of_many(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        assert_whole(replace(SOUND, **change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"record": records.Ownership(generation=2), "floor": 2, "holder": None}, "never fall"),
        ({"holder": None}, "begins or ends"),
        ({"holder": replace(OWNER, session=Session("pid:2"))}, "only after a takeover"),
        (BESIDE, "stays what it is"),
        ({"pruned_at": -1.0}, "does not go back"),
    ],
)
def test_a_step_that_cannot_be(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        assert_step(SOUND, replace(SOUND, **change), moves_holder=False)


def test_one_work_ends_before_another_begins() -> None:
    busy = replace(SOUND, work=Work.CLAIM)
    for after in (busy, SOUND):
        assert_step(busy, after, moves_holder=False)
    with pytest.raises(AssertionError, match="before another begins"):
        assert_step(busy, replace(SOUND, work=Work.RESUME), moves_holder=False)
