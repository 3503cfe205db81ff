"""The records of a takeover's commit: owners, and deposed sessions; bounded whatever happens."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from metadata.ownership import AccessMode
from sidecar.changelog import unpack_offsets
from sidecar.protocol.session import Session
from sidecar.takeover import records
from sidecar.takeover.records import DEPOSED_KEPT, STRANGERS_KEPT
from sidecar.takeover.requests import NOBODY, Purpose, Request
from sidecar.takeover.succession import REMEMBERED_MS
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

TOPIC_ID = UUID(int=7)
NOW = 100 * REMEMBERED_MS
A, B, PLAIN = Session("pid:1"), Session("pid:2"), Session("conn:1")


def wanted(session: Session = A, *, deposes: bool = False, **facts: Any) -> Request:
    return Request(Purpose.CLAIM, session, f"name of {session}", deposes=deposes, **facts)


# Who owns it --------------------------------------------------------------------------------------------------------


def ownership(whose: Request, known: state.Ownership | None, generation: int = 2, **facts: Any) -> state.Ownership:
    return records.ownership(whose, known, TOPIC_ID, generation, {0: 40}, NOW, **{"keeps": False, **facts})


def owned(session: str = A, **facts: Any) -> state.Ownership:
    return state.Ownership(
        **{"session": session, "name": f"name of {session}", "generation": 1, "since_ms": 5, **facts}
    )


def test_a_change_of_owner_is_written_with_its_start_offsets() -> None:
    found = ownership(wanted(B, client="10.0.0.1"), owned())
    assert (found.session, found.name, found.generation, found.mode) == (B, f"name of {B}", 2, control.EXCLUSIVE)
    assert (found.since_ms, found.client, found.released_ms) == (NOW, "10.0.0.1", 0)
    assert unpack_offsets(found.start) == {0: 40}
    assert list(found.deposed) == []


def test_an_owner_that_goes_on_stays_as_it_is_written() -> None:
    known = owned()
    assert ownership(wanted(), known, generation=1, keeps=True) is known


def test_an_owner_that_had_let_go_comes_back_with_its_generation_and_start() -> None:
    found = ownership(wanted(), owned(released_ms=9), generation=1, keeps=True)
    assert (found.session, found.generation, found.since_ms, found.released_ms) == (A, 1, 5, 0)


def test_a_fencer_leaves_the_holder_and_the_queue_deposed() -> None:
    found = ownership(wanted(B, deposes=True, evicts={"pid:8": NOW}), owned())
    assert [(d.session, d.generation) for d in found.deposed] == [(A, 1), (Session("pid:8"), 0)]


def test_nobody_owns_the_topic_behind_an_administrators_fence() -> None:
    found = ownership(Request(Purpose.FENCE, NOBODY, mode=AccessMode.EXCLUSIVE_WITH_FENCING, deposes=True), owned())
    assert (found.session, found.name, bool(found.released_ms)) == ("", "", True)
    assert [d.session for d in found.deposed] == [A]


def test_each_try_of_a_deposed_session_renews_its_day() -> None:
    known = owned(
        B, deposed=[state.Deposed(session=s, generation=1, last_try_ms=NOW - REMEMBERED_MS + 1) for s in "xy"]
    )
    found = ownership(wanted(Session("pid:3"), evicts={"x": NOW - 1}), known)
    assert [(d.session, d.generation, d.last_try_ms) for d in found.deposed][-1] == ("x", 1, NOW - 1)
    later = records.ownership(wanted(Session("pid:4")), found, TOPIC_ID, 3, {}, NOW + 10, keeps=False)
    assert [d.session for d in later.deposed] == ["x"]


def test_an_unknown_mode_of_a_newer_node_counts_as_exclusive() -> None:
    assert records.mode_of(99) is AccessMode.EXCLUSIVE


# Bounds -------------------------------------------------------------------------------------------------------------


def test_the_list_of_deposed_sessions_stays_within_its_bounds_and_keeps_the_newest() -> None:
    deposed = [state.Deposed(session=f"pid:{n}", name="x" * 255, last_try_ms=NOW - 20_000 + n) for n in range(20_000)]
    found = ownership(wanted(B), owned(deposed=deposed))
    assert found.deposed[-1].session == Session("pid:19999")
    assert found.ByteSize() < 624 * 1024


def lost_by(producer_id: int, last_try_ms: int, generation: int = 7) -> state.Deposed:
    return state.Deposed(session=Session(f"pid:{producer_id}"), generation=generation, last_try_ms=last_try_ms)


def test_a_day_of_many_changes_of_owner_fits_into_the_list_of_deposed_sessions() -> None:
    """One every five seconds, with names as long as they may be and producer ids of an old cluster."""
    known = owned(Session("pid:999999999999"), name="x" * 255, generation=2**40)
    known.deposed.extend(lost_by(10**12 + n, NOW - 20_000 + n, 2**40) for n in range(DEPOSED_KEPT - 1))
    found = ownership(wanted(B, deposes=True), known)
    assert len(found.deposed) == DEPOSED_KEPT >= 24 * 3600 / 5
    assert found.deposed[-1].session == Session("pid:999999999999")
    assert found.ByteSize() < 768 * 1024


def test_sessions_that_never_owned_a_topic_nor_wrote_displace_none_that_did() -> None:
    """Each new connection may strike back under a producer id of its own, and each may wait."""
    strangers = {f"pid:{n}": NOW for n in range(10_000, 40_000)}
    known = owned(deposed=[lost_by(3, NOW - REMEMBERED_MS + 1)])
    found = ownership(wanted(B, deposes=True, evicts=strangers), known)
    again = ownership(wanted(Session("pid:5"), evicts=strangers), found, generation=3)
    assert {Session("pid:3"), A} <= {d.session for d in found.deposed}
    assert A in {d.session for d in again.deposed}
    assert sum(not d.generation for d in again.deposed) == STRANGERS_KEPT
    assert again.ByteSize() < 64 * 1024


def test_sessions_that_wrote_beside_each_other_are_kept_as_owners_are() -> None:
    strangers = {f"pid:{n}": NOW for n in range(10_000, 20_000)}
    found = ownership(wanted(B, dismisses=(Session("pid:8"), PLAIN), evicts=strangers), None, generation=1)
    assert [d.session for d in found.deposed if d.generation] == [Session("pid:8")]
    (later,) = ownership(wanted(B, dismisses=(Session("pid:8"),)), None, generation=7).deposed
    assert later.generation == 6, "they wrote before this owner"
    again = ownership(wanted(Session("pid:9"), evicts={"pid:8": NOW + 5, **strangers}), found)
    assert [(d.session, d.last_try_ms) for d in again.deposed if d.generation] == [(Session("pid:8"), NOW + 5)]
