"""What holds for every state of ownership and every step, whatever happens.

`step` asserts `assert_step`, and so `assert_sound`, as it makes a state: in production and in the simulator, which runs
the same code. `assert_whole` looks through all that wait or were deposed, which costs too much at each event: only the
simulator (`tests/sim/inside.py`) and tests call it, for the states of all nodes every few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.ownership.state import Absent, Awaited, Owned, Work

if TYPE_CHECKING:
    from sidecar.ownership.state import State

STRUCK_KEPT: Final = 1_000
"""The limit of sessions that were answered PRODUCER_FENCED and that no record lists."""
_BESIDE: Final = frozenset({Work.OPEN, Work.RESUME, Work.RAISE, Work.RENEW, Work.FIND, Work.EXAMINE})
"""The works of a shared session's slot."""


def assert_sound(state: State) -> None:
    """What holds for one state; its cost does not depend on how many wait."""
    holder, record = state.holder, state.record
    assert (record is None) is (state.position < 0), "a record has an offset"
    assert record is not None or not state.listed, "only a record lists deposed sessions"
    assert state.floor >= 0, "generations begin at 0"
    assert len(state.waiting) == len(state.places), "each waiting session has a place"
    assert len(state.struck) <= STRUCK_KEPT, "sessions that only try are bounded"
    assert state.work is not None or not state.is_slow, "only a work is slow"
    if state.is_beside:
        assert isinstance(holder, Owned), "a shared session holds its slot as long as the slot is its own"
        assert not state.places, "nobody waits for a shared session's slot"
        assert not state.tainted, "nobody loses it by a rule"
        assert state.work is None or state.work in _BESIDE, f"a shared session's slot has no {state.work}"
    else:
        assert state.work is not Work.OPEN, "only a shared session's slot is opened"
    if holder is None:
        return
    assert holder.session, "a holder is a session"
    assert holder.writers <= holder.connections, "a writing connection is one of the holder's"
    if isinstance(holder, Absent):
        assert not holder.connections, "an owner with a connection is not absent"
    if isinstance(holder, Awaited) and holder.recorded is not None:
        assert holder.recorded.session == holder.session, "Redis knows the owner that is awaited"
    if isinstance(holder, Owned) and record is not None and record.generation:
        assert holder.generation <= state.generation, "no owner is newer than the newest record"


def assert_whole(state: State) -> None:
    """What holds for a state, however many wait or were deposed; looks at each of them."""
    assert state.waiting == tuple(state.places), "the queue is in the order of its places"
    for session, place in state.places.items():
        assert place.claimant is None or place.claimant.session == session, f"{session} has another one's place"
        assert place.claimant is not None or not session.is_plain, f"{session} cannot come back from another node"
    if state.record is not None:
        assert state.listed == {deposed.session for deposed in state.record.deposed}, "the newest record lists them"
    assert not any(session.startswith("conn:") for session in state.tries), "a plain session is known by its connection"


def assert_step(before: State, after: State, *, moves_holder: bool, reads: bool = False) -> None:
    """What holds for a step. `moves_holder`: its event may make another session the holder, or nobody. `reads`: the
    changelog decides, which may have lost records: then older ones count again.
    """
    assert_sound(after)
    assert reads or after.generation >= before.generation, "generations never fall"
    assert after.is_beside is before.is_beside, "a slot stays what it is"
    assert after.pruned_at >= before.pruned_at, "time does not go back"
    if before.is_beside and before.holder is not None and after.holder is not None:
        assert before.holder.session == after.holder.session, "a shared session's slot has no other owner"
    assert None in (before.work, after.work) or after.work is before.work, "one work ends before another begins"
    if not moves_holder:
        had, has = before.holder, after.holder
        assert (had is None) is (has is None), "no connection and no batch begins or ends an ownership"
        assert had is None or has is None or had.session == has.session, "another session owns it only after a takeover"
