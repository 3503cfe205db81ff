"""What a takeover writes down: bases, sessions that left, owners, deposed ones; bounded whatever happens."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import Position, pack_positions, unpack_offsets, unpack_positions
from sidecar.exclusive import succession
from sidecar.exclusive.succession import DEPOSED_KEPT, NOBODY, REMEMBERED_MS, STRANGERS_KEPT, Intent
from sidecar.forwarder.sequences import MODULUS, RefusedSequences, SequenceSpace, Verdict
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

TOPIC_ID = UUID(int=7)
NOW = 100 * REMEMBERED_MS
A, B, PLAIN = "pid:1", "pid:2", "conn:1"


def intent(session: str = A, **facts: Any) -> Intent:
    return Intent(session, f"name of {session}", AccessMode.EXCLUSIVE, **facts)


def serving(session: str, bases: dict[int, Position], *left: state.LeftSession) -> state.Serving:
    return state.Serving(session=session, name=f"name of {session}", base=pack_positions(bases), left=left)


def sequences(
    whose: Intent, newest: state.Serving | None, last: dict[int, int], before: dict[int, Position] | None = None
) -> tuple[dict[int, Position], dict[str, dict[int, Position]]]:
    """The bases, and the sessions that left with theirs."""
    bases, _, left, _ = succession.sequences(whose, newest, range(2), last, before or {}, NOW)
    return bases, {found.session: unpack_positions(found.next) for found in left}


# Where sequences go on ----------------------------------------------------------------------------------------------


def test_a_session_found_nowhere_begins_at_0_under_its_clients_epoch() -> None:
    assert sequences(intent(client_epoch=3), None, {}) == ({0: Position(3, 0), 1: Position(3, 0)}, {})


def test_a_session_that_stays_goes_on_behind_its_last_stamped_sequence_by_partition() -> None:
    newest = serving(A, {0: Position(4, 100), 1: Position(5, 7)})
    assert sequences(intent(), newest, {0: 9}) == ({0: Position(4, 110), 1: Position(5, 7)}, {})


def test_sequences_wrap() -> None:
    newest = serving(A, {0: Position(0, MODULUS - 3)})
    assert sequences(intent(), newest, {0: 4})[0][0] == Position(0, 2)


def test_a_session_whose_sequences_wrap_to_0_is_told_from_one_that_has_written_nothing() -> None:
    """What comes again from in front of the wrap is a repeat; in front of a new session nothing is."""
    wrapped = sequences(intent(), serving(A, {0: Position(0, MODULUS - 3), 1: Position(0, 0)}), {0: 2})[0]
    assert wrapped == {0: Position(0, MODULUS), 1: Position(0, 0)}
    assert sequences(intent(), serving(A, wrapped), {})[0] == wrapped
    assert sequences(intent(), serving(A, wrapped), {0: 0, 1: 0})[0] == {0: Position(0, 1), 1: Position(0, 1)}


def test_a_session_that_asked_for_a_higher_generation_than_its_own_still_finds_its_place() -> None:
    newest = serving(A, {0: Position(0, 0), 1: Position(0, 0)})
    assert sequences(intent(asked=99), newest, {0: 4, 1: 5})[0] == {0: Position(0, 5), 1: Position(0, 6)}


def test_a_session_that_is_followed_is_kept_with_its_next_sequences() -> None:
    newest = serving(A, {0: Position(4, 100), 1: Position(5, 7)})
    bases, left = sequences(intent(B), newest, {0: 9})
    assert bases == {0: Position(0, 0), 1: Position(0, 0)}
    assert left == {A: {0: Position(4, 110), 1: Position(5, 7)}}


def test_a_session_that_left_finds_its_place_when_it_comes_back_and_is_no_longer_listed() -> None:
    came = state.LeftSession(session=A, left_ms=NOW - 1, next=pack_positions({0: Position(4, 110)}))
    bases, left = sequences(intent(client_epoch=6), serving(B, {0: Position(0, 0)}, came), {0: 2})
    assert bases == {0: Position(4, 110), 1: Position(6, 0)}
    assert left == {B: {0: Position(0, 3)}}


def test_after_a_day_a_session_that_left_is_forgotten() -> None:
    gone = state.LeftSession(session=A, left_ms=NOW - REMEMBERED_MS, next=pack_positions({0: Position(4, 110)}))
    bases, left = sequences(intent(), serving("", {}, gone), {})
    assert bases[0] == Position(0, 0)
    assert left == {}


@pytest.mark.parametrize(("session", "facts"), [(A, {"deposes": True}), (PLAIN, {}), ("", {})])
def test_deposed_and_plain_sessions_and_nobody_are_not_kept(session: str, facts: dict[str, Any]) -> None:
    assert sequences(intent(B, **facts), serving(session, {0: Position(0, 0)}), {0: 9})[1] == {}


def test_what_a_session_wrote_before_the_policy_counts() -> None:
    assert (succession.own_producer_id(A), succession.own_producer_id(PLAIN)) == (1, None)
    assert sequences(intent(), None, {}, {0: Position(2, 42)})[0] == {0: Position(2, 42), 1: Position(0, 0)}


def test_a_record_that_came_late_from_under_an_earlier_master_does_not_count() -> None:
    """A node opened a slot for a session, and froze; another one took the topic, and served the session elsewhere. What
    the first one wrote down as it thawed stands behind all of that.
    """
    late = state.Slot(session=A, base=pack_positions({0: Position(0, 10)}), under=5)
    true = state.Slot(session=A, base=pack_positions({0: Position(0, 50)}), under=8)
    said = [succession.mention(A, late, 12, {}, NOW), succession.mention(A, true, 11, {}, NOW)]
    found = succession.sequences(intent(), None, range(1), {}, {}, NOW, elsewhere=[each for each in said if each])
    assert found.bases == {0: Position(0, 50)}
    other = state.Slot(session=B)
    (left,) = succession.sequences(intent(B), late, range(1), {}, {}, NOW, at=12).left
    other.left.append(left)
    again = [succession.mention(A, other, 20, {}, NOW), succession.mention(A, true, 11, {}, NOW)]
    found = succession.sequences(intent(), None, range(1), {}, {}, NOW, elsewhere=[each for each in again if each])
    assert found.bases == {0: Position(0, 50)}


def next_epoch(found: succession.Sequences, session: str) -> state.Serving:
    """The record that a takeover with these sequences writes."""
    stamp = Stamp(ProducerId(9), ProducerEpoch(4))
    names = (session, f"name of {session}")
    opened = succession.opening(TOPIC_ID, 1, stamp, names, 1, found.bases, {}, found.left, [], NOW, own=found.own)
    assert isinstance(opened, state.Serving)
    return state.Serving.FromString(opened.SerializeToString())


@pytest.mark.parametrize("left_meanwhile", [False, True])
@pytest.mark.parametrize("records", [10, 2**30 - 1, 2**30 + 1, MODULUS - 2**27 + 5, MODULUS - 1_001, MODULUS - 3])
def test_what_a_session_wrote_before_the_policy_lags_ever_farther_and_counts_once(
    records: int, left_meanwhile: bool
) -> None:
    """Leaders remember it for a day, and longer: half a round behind it passed for the newest."""
    own = {0: Position(2, 1_000), 1: Position(2, 0)}
    newest = next_epoch(succession.sequences(intent(), None, range(2), {}, own, NOW), A)
    renewed = next_epoch(succession.sequences(intent(), newest, range(2), {0: records - 1}, {}, NOW), A)
    if left_meanwhile:
        renewed = next_epoch(succession.sequences(intent(B), renewed, range(2), {}, {}, NOW), B)
    bases = succession.sequences(intent(), renewed, range(2), {}, own, NOW).bases
    assert bases[0].sequence % MODULUS == (1_000 + records) % MODULUS


def test_what_a_session_wrote_while_a_policy_was_away_counts() -> None:
    newest = next_epoch(succession.sequences(intent(), None, range(2), {}, {0: Position(0, 5)}, NOW), A)
    bases = succession.sequences(intent(), newest, range(2), {0: 9}, {0: Position(0, 40)}, NOW).bases
    assert bases[0] == Position(0, 40)


@pytest.mark.parametrize("base", [0, 7, MODULUS - 1])
def test_where_the_place_of_a_session_is_unknown_all_that_it_may_send_is_a_gap(base: int) -> None:
    newest = serving(A, {0: Position(4, base)})
    place = sequences(intent(), newest, {0: succession.UNKNOWN})[0][0]
    space = SequenceSpace(place.client_epoch, place.sequence, place.sequence, written=True)
    for sequence in (base, base + 1, base + 1_000_000):
        assert space.judge(4, sequence % MODULUS, 1) is Verdict.STRAY
        assert space.stamped(sequence % MODULUS) > 0  # 45 of a partition that knows the marker of the epoch alone
    assert space.judge(5, 0, 1) is Verdict.RAISE
    again = sequences(intent(), serving(A, {0: place}), {})[0][0]
    assert again == place


def test_what_was_refused_counts_as_used_wherever_the_session_stands() -> None:
    refused = {0: RefusedSequences(4, [(110, 115)]), 1: RefusedSequences(0, [(0, 3)])}
    came = state.LeftSession(session=A, left_ms=NOW - 1, next=pack_positions({0: Position(4, 110)}))
    bases, _ = sequences(intent(refused=refused), serving("", {}, came), {})
    assert bases == {0: Position(4, 115), 1: Position(0, 3)}


def test_refusals_of_another_epoch_or_place_move_nothing() -> None:
    refused = {0: RefusedSequences(5, [(110, 115)]), 1: RefusedSequences(4, [(200, 300)])}
    newest = serving(A, {0: Position(4, 100), 1: Position(4, 100)})
    assert sequences(intent(refused=refused), newest, {0: 9, 1: 9})[0] == {0: Position(4, 110), 1: Position(4, 110)}


# Who owns it --------------------------------------------------------------------------------------------------------


def ownership(whose: Intent, known: state.Ownership | None, generation: int = 2, **facts: Any) -> state.Ownership:
    return succession.ownership(whose, known, TOPIC_ID, generation, {0: 40}, NOW, **{"keeps": False, **facts})


def owned(session: str = A, **facts: Any) -> state.Ownership:
    return state.Ownership(
        **{"session": session, "name": f"name of {session}", "generation": 1, "since_ms": 5, **facts}
    )


def test_a_change_of_owner_is_written_with_its_start_offsets() -> None:
    found = ownership(intent(B, client="10.0.0.1"), owned())
    assert (found.session, found.name, found.generation, found.mode) == (B, f"name of {B}", 2, control.EXCLUSIVE)
    assert (found.since_ms, found.client, found.released_ms) == (NOW, "10.0.0.1", 0)
    assert unpack_offsets(found.start) == {0: 40}
    assert list(found.deposed) == []


def test_an_owner_that_goes_on_stays_as_it_is_written() -> None:
    known = owned()
    assert ownership(intent(), known, generation=1, keeps=True) is known


def test_an_owner_that_had_let_go_comes_back_with_its_generation_and_start() -> None:
    found = ownership(intent(), owned(released_ms=9), generation=1, keeps=True)
    assert (found.session, found.generation, found.since_ms, found.released_ms) == (A, 1, 5, 0)


def test_a_fencer_leaves_the_holder_and_the_queue_deposed() -> None:
    found = ownership(intent(B, deposes=True, evicts=(("pid:8", "waiter", NOW),)), owned())
    assert [(d.session, d.generation) for d in found.deposed] == [(A, 1), ("pid:8", 0)]


def test_nobody_owns_the_topic_behind_an_administrators_fence() -> None:
    found = ownership(Intent(NOBODY, "", AccessMode.EXCLUSIVE_WITH_FENCING, deposes=True), owned())
    assert (found.session, found.name, bool(found.released_ms)) == ("", "", True)
    assert [d.session for d in found.deposed] == [A]


def test_each_try_of_a_deposed_session_renews_its_day() -> None:
    known = owned(
        B, deposed=[state.Deposed(session=s, generation=1, last_try_ms=NOW - REMEMBERED_MS + 1) for s in "xy"]
    )
    found = ownership(intent("pid:3", evicts=(("x", "", NOW - 1),)), known)
    assert [(d.session, d.generation, d.last_try_ms) for d in found.deposed][-1] == ("x", 1, NOW - 1)
    later = succession.ownership(intent("pid:4"), found, TOPIC_ID, 3, {}, NOW + 10, keeps=False)
    assert [d.session for d in later.deposed] == ["x"]


def test_an_unknown_mode_of_a_newer_node_counts_as_exclusive() -> None:
    assert succession.mode_of(99) is AccessMode.EXCLUSIVE


# Bounds -------------------------------------------------------------------------------------------------------------


def test_the_lists_stay_within_bounds_and_keep_the_newest() -> None:
    left = [
        state.LeftSession(
            session=f"pid:{n}", name="x" * 255, left_ms=NOW - 20_000 + n,
            next=pack_positions({p: Position(9, 2**30) for p in range(500)}),
        )
        for n in range(20_000 // 20)
    ]  # fmt: skip
    _, _, kept, _ = succession.sequences(intent(), serving("", {}, *left), range(2), {}, {}, NOW)
    assert 10 < len(kept) < 1_000
    assert kept[-1].session == "pid:999"
    deposed = [state.Deposed(session=f"pid:{n}", name="x" * 255, last_try_ms=NOW - 20_000 + n) for n in range(20_000)]
    found = ownership(intent(B), owned(deposed=deposed))
    assert found.deposed[-1].session == "pid:19999"
    assert found.ByteSize() + sum(each.ByteSize() for each in kept) < 1024 * 1024


def lost_by(producer_id: int, last_try_ms: int, generation: int = 7) -> state.Deposed:
    return state.Deposed(session=f"pid:{producer_id}", generation=generation, last_try_ms=last_try_ms)


def test_a_day_of_many_changes_of_owner_fits_into_the_list_of_deposed_sessions() -> None:
    """One every five seconds, with names as long as they may be and producer ids of an old cluster."""
    known = owned("pid:999999999999", name="x" * 255, generation=2**40)
    known.deposed.extend(lost_by(10**12 + n, NOW - 20_000 + n, 2**40) for n in range(DEPOSED_KEPT - 1))
    found = ownership(intent(B, deposes=True), known)
    assert len(found.deposed) == DEPOSED_KEPT >= 24 * 3600 / 5
    assert found.deposed[-1].session == "pid:999999999999"
    assert found.ByteSize() < 768 * 1024


def test_sessions_that_never_owned_a_topic_nor_wrote_displace_none_that_did() -> None:
    """Each new connection may strike back under a producer id of its own, and each may wait."""
    strangers = tuple((f"pid:{n}", "x" * 255, NOW) for n in range(10_000, 40_000))
    known = owned(deposed=[lost_by(3, NOW - REMEMBERED_MS + 1)])
    found = ownership(intent(B, deposes=True, evicts=strangers), known)
    again = ownership(intent("pid:5", evicts=strangers), found, generation=3)
    assert {"pid:3", A} <= {d.session for d in found.deposed}
    assert A in {d.session for d in again.deposed}
    assert sum(not d.generation for d in again.deposed) == STRANGERS_KEPT
    assert again.ByteSize() < 64 * 1024


def test_sessions_that_wrote_beside_each_other_are_kept_as_owners_are() -> None:
    strangers = tuple((f"pid:{n}", "", NOW) for n in range(10_000, 20_000))
    found = ownership(intent(B, dismisses=("pid:8", PLAIN), evicts=strangers), None, generation=1)
    assert [d.session for d in found.deposed if d.generation] == ["pid:8"]
    again = ownership(intent("pid:9", evicts=(("pid:8", "", NOW + 5), *strangers)), found)
    assert [(d.session, d.last_try_ms) for d in again.deposed if d.generation] == [("pid:8", NOW + 5)]


@pytest.mark.parametrize(("partitions", "sessions"), [(1, 5_000), (3, 5_000), (10, 2_800), (100, 400), (500, 75)])
def test_so_many_sessions_that_left_are_kept(partitions: int, sessions: int) -> None:
    """docs/guarantees.md says so."""
    positions = {index: Position(30_000, 2**31 - 1 - index) for index in range(partitions)}
    left = [
        state.LeftSession(
            session=f"pid:{10**6 + n}", name="payments-service", left_ms=NOW - 1, next=pack_positions(positions)
        )
        for n in range(6_000)
    ]
    _, _, kept, _ = succession.sequences(intent(), serving("", {}, *left), range(partitions), {}, {}, NOW)
    assert sessions <= len(kept) <= min(5_000, sessions * 1.1)


def test_the_slots_former_producer_ids_are_kept_once_each() -> None:
    newest = state.Serving(producer_id=5, retired_producer_ids=[3])
    assert succession.retired(newest, Stamp(ProducerId(5), ProducerEpoch(1))) == [3]
    assert succession.retired(newest, Stamp(ProducerId(6), ProducerEpoch(0))) == [3, 5]
    assert succession.retired(None, Stamp(ProducerId(6), ProducerEpoch(0))) == []
