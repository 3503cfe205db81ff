"""Where sequences go on under the next epoch: bases, and sessions that left; bounded whatever happens."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sidecar.changelog import Position, pack_positions, unpack_positions
from sidecar.forwarder.sequences import MODULUS, RefusedSequences, SequenceSpace, Verdict
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.ids import StampedSequence as Stamped
from sidecar.protocol.session import Session
from sidecar.takeover import records, succession
from sidecar.takeover.requests import Purpose, Request
from sidecar.takeover.succession import REMEMBERED_MS, next_positions
from sidecar.v1 import state_pb2 as state

TOPIC_ID = UUID(int=7)
NOW = 100 * REMEMBERED_MS
A, B, PLAIN = Session("pid:1"), Session("pid:2"), Session("conn:1")


def wanted(session: Session = A, *, deposes: bool = False, **facts: Any) -> Request:
    return Request(Purpose.CLAIM, session, f"name of {session}", deposes=deposes, **facts)


def position(client_epoch: int, sequence: int) -> Position:
    return Position(client_epoch, Client(sequence))


def serving(session: str, bases: dict[int, Position], *left: state.LeftSession) -> state.Serving:
    return state.Serving(session=session, name=f"name of {session}", base=pack_positions(bases), left=left)


def sequences(
    whose: Request, newest: state.Serving | None, last: dict[int, int], before: dict[int, Position] | None = None
) -> tuple[dict[int, Position], dict[str, dict[int, Position]]]:
    """The bases, and the sessions that left with theirs."""
    stamped = {index: Stamped(each) for index, each in last.items()}
    bases, _, left, _ = succession.sequences(whose, newest, range(2), stamped, before or {}, NOW)
    return bases, {found.session: unpack_positions(found.next) for found in left}


# Where sequences go on ----------------------------------------------------------------------------------------------


def test_a_session_found_nowhere_begins_at_0_under_its_clients_epoch() -> None:
    assert sequences(wanted(client_epoch=3), None, {}) == ({0: position(3, 0), 1: position(3, 0)}, {})


def test_a_session_that_stays_goes_on_behind_its_last_stamped_sequence_by_partition() -> None:
    newest = serving(A, {0: position(4, 100), 1: position(5, 7)})
    assert sequences(wanted(), newest, {0: 9}) == ({0: position(4, 110), 1: position(5, 7)}, {})


@pytest.mark.parametrize(("last", "expected"), [(3, 104), (4, 205), (9, 210), (-1, 100)])
def test_a_base_that_moved_counts_from_the_batch_at_which_it_moved(last: int, expected: int) -> None:
    shift = state.SequenceBase(from_sequence=5, base=200, base_before=100)
    stamped = {} if last < 0 else {0: Stamped(last)}
    found = next_positions(pack_positions({0: position(3, 100)}), stamped, {0: shift})
    assert found == {0: position(3, expected)}


def test_sequences_wrap() -> None:
    newest = serving(A, {0: position(0, MODULUS - 3)})
    assert sequences(wanted(), newest, {0: 4})[0][0] == position(0, 2)


def test_a_session_whose_sequences_wrap_to_0_is_told_from_one_that_has_written_nothing() -> None:
    """What comes again from in front of the wrap is a repeat; in front of a new session nothing is."""
    wrapped = sequences(wanted(), serving(A, {0: position(0, MODULUS - 3), 1: position(0, 0)}), {0: 2})[0]
    assert wrapped == {0: position(0, MODULUS), 1: position(0, 0)}
    assert sequences(wanted(), serving(A, wrapped), {})[0] == wrapped
    assert sequences(wanted(), serving(A, wrapped), {0: 0, 1: 0})[0] == {
        0: position(0, 1),
        1: position(0, 1),
    }


def test_a_session_that_asked_for_a_higher_generation_than_its_own_still_finds_its_place() -> None:
    newest = serving(A, {0: position(0, 0), 1: position(0, 0)})
    assert sequences(wanted(asked=99), newest, {0: 4, 1: 5})[0] == {
        0: position(0, 5),
        1: position(0, 6),
    }


def test_a_session_that_is_followed_is_kept_with_its_next_sequences() -> None:
    newest = serving(A, {0: position(4, 100), 1: position(5, 7)})
    bases, left = sequences(wanted(B), newest, {0: 9})
    assert bases == {0: position(0, 0), 1: position(0, 0)}
    assert left == {A: {0: position(4, 110), 1: position(5, 7)}}


def test_a_session_that_left_finds_its_place_when_it_comes_back_and_is_no_longer_listed() -> None:
    came = state.LeftSession(session=A, left_ms=NOW - 1, next=pack_positions({0: position(4, 110)}))
    bases, left = sequences(wanted(client_epoch=6), serving(B, {0: position(0, 0)}, came), {0: 2})
    assert bases == {0: position(4, 110), 1: position(6, 0)}
    assert left == {B: {0: position(0, 3)}}


def test_after_a_day_a_session_that_left_is_forgotten() -> None:
    gone = state.LeftSession(session=A, left_ms=NOW - REMEMBERED_MS, next=pack_positions({0: position(4, 110)}))
    bases, left = sequences(wanted(), serving("", {}, gone), {})
    assert bases[0] == position(0, 0)
    assert left == {}


@pytest.mark.parametrize(("session", "facts"), [(A, {"deposes": True}), (PLAIN, {}), ("", {})])
def test_deposed_and_plain_sessions_and_nobody_are_not_kept(session: str, facts: dict[str, Any]) -> None:
    assert sequences(wanted(B, **facts), serving(session, {0: position(0, 0)}), {0: 9})[1] == {}


def test_what_a_session_wrote_before_the_policy_counts() -> None:
    assert (A.producer_id, PLAIN.producer_id) == (1, None)
    assert sequences(wanted(), None, {}, {0: position(2, 42)})[0] == {
        0: position(2, 42),
        1: position(0, 0),
    }


def test_a_record_that_came_late_from_under_an_earlier_master_does_not_count() -> None:
    """A node opened a slot for a session, and froze; another one took the topic, and served the session elsewhere. What
    the first one wrote down as it thawed stands behind all of that.
    """
    late = state.Slot(session=A, base=pack_positions({0: position(0, 10)}), under=5)
    true = state.Slot(session=A, base=pack_positions({0: position(0, 50)}), under=8)
    said = [succession.mention(A, late, 12, {}, NOW), succession.mention(A, true, 11, {}, NOW)]
    found = succession.sequences(wanted(), None, range(1), {}, {}, NOW, elsewhere=[each for each in said if each])
    assert found.bases == {0: position(0, 50)}
    other = state.Slot(session=B)
    (left,) = succession.sequences(wanted(B), late, range(1), {}, {}, NOW, at=12).left
    other.left.append(left)
    again = [succession.mention(A, other, 20, {}, NOW), succession.mention(A, true, 11, {}, NOW)]
    found = succession.sequences(wanted(), None, range(1), {}, {}, NOW, elsewhere=[each for each in again if each])
    assert found.bases == {0: position(0, 50)}


def next_epoch(found: succession.Sequences, session: str) -> state.Serving:
    """The record that a takeover with these sequences writes."""
    stamp = Stamp(ProducerId(9), ProducerEpoch(4))
    names = (Session(session), f"name of {session}")
    opened = records.opening(TOPIC_ID, 1, stamp, names, 1, found._replace(refused={}), NOW)
    assert isinstance(opened, state.Serving)
    return state.Serving.FromString(opened.SerializeToString())


@pytest.mark.parametrize("left_meanwhile", [False, True])
@pytest.mark.parametrize("count", [10, 2**30 - 1, 2**30 + 1, MODULUS - 2**27 + 5, MODULUS - 1_001, MODULUS - 3])
def test_what_a_session_wrote_before_the_policy_lags_ever_farther_and_counts_once(
    count: int, left_meanwhile: bool
) -> None:
    """Leaders remember it for a day, and longer: half a round behind it passed for the newest."""
    own = {0: position(2, 1_000), 1: position(2, 0)}
    newest = next_epoch(succession.sequences(wanted(), None, range(2), {}, own, NOW), A)
    renewed = next_epoch(succession.sequences(wanted(), newest, range(2), {0: Stamped(count - 1)}, {}, NOW), A)
    if left_meanwhile:
        renewed = next_epoch(succession.sequences(wanted(B), renewed, range(2), {}, {}, NOW), B)
    bases = succession.sequences(wanted(), renewed, range(2), {}, own, NOW).bases
    assert bases[0].sequence % MODULUS == (1_000 + count) % MODULUS


def test_what_a_session_wrote_while_a_policy_was_away_counts() -> None:
    newest = next_epoch(succession.sequences(wanted(), None, range(2), {}, {0: position(0, 5)}, NOW), A)
    bases = succession.sequences(wanted(), newest, range(2), {0: Stamped(9)}, {0: position(0, 40)}, NOW).bases
    assert bases[0] == position(0, 40)


@pytest.mark.parametrize("base", [0, 7, MODULUS - 1])
def test_where_the_place_of_a_session_is_unknown_all_that_it_may_send_is_a_gap(base: Client) -> None:
    newest = serving(A, {0: Position(4, base)})
    place = sequences(wanted(), newest, {0: succession.UNKNOWN})[0][0]
    space = SequenceSpace(place.client_epoch, place.sequence, place.sequence, written=True)
    for sequence in (base, base + 1, base + 1_000_000):
        assert space.judge(4, Client(sequence % MODULUS), 1) is Verdict.STRAY
        assert (
            space.stamped(Client(sequence % MODULUS)) > 0
        )  # 45 of a partition that knows the marker of the epoch alone
    assert space.judge(5, Client(0), 1) is Verdict.RAISE
    again = sequences(wanted(), serving(A, {0: place}), {})[0][0]
    assert again == place


def test_what_was_refused_counts_as_used_wherever_the_session_stands() -> None:
    refused = {0: RefusedSequences(4, [(110, 115)]), 1: RefusedSequences(0, [(0, 3)])}
    came = state.LeftSession(session=A, left_ms=NOW - 1, next=pack_positions({0: position(4, 110)}))
    bases, _ = sequences(wanted(refused=refused), serving("", {}, came), {})
    assert bases == {0: position(4, 115), 1: position(0, 3)}


def test_refusals_of_another_epoch_or_place_move_nothing() -> None:
    refused = {0: RefusedSequences(5, [(110, 115)]), 1: RefusedSequences(4, [(200, 300)])}
    newest = serving(A, {0: position(4, 100), 1: position(4, 100)})
    assert sequences(wanted(refused=refused), newest, {0: 9, 1: 9})[0] == {
        0: position(4, 110),
        1: position(4, 110),
    }


@pytest.mark.parametrize(
    ("slots", "own", "expected"),
    [
        ((4, 30), (5, 0), (5, 0)),
        ((4, 30), (3, 90), (4, 30)),
        ((32_767, 30), (0, 2), (0, 2)),
        ((0, 2), (32_767, 30), (0, 2)),
        ((4, 30), (4 + 16_383, 2), (4 + 16_383, 2)),
        ((4, 30), (4 + 16_384, 2), (4, 30)),
        ((4, 30), (4, 30 + MODULUS // 2 - 1), (4, 30 + MODULUS // 2 - 1)),
        ((4, 30), (4, 30 + MODULUS // 2), (4, 30)),
    ],
)
def test_of_two_places_of_a_session_the_later_client_epoch_counts_and_both_wrap(
    slots: tuple[int, int], own: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Its client raised its epoch while the topic had no policy (KIP-360)."""
    bases, _ = sequences(wanted(), serving(A, {0: position(*slots)}), {}, {0: position(*own)})
    assert bases[0] == position(*expected)
    remembered = succession.sequences(
        wanted(), serving(A, {0: position(*slots)}), range(1), {}, {}, NOW, memory={0: position(*own)}
    )
    assert remembered.bases[0] == position(*expected), "this node's memory of the session is compared alike"


def test_a_session_that_no_record_names_goes_on_where_this_node_remembers_it() -> None:
    found = succession.sequences(wanted(), None, range(2), {}, {}, NOW, memory={0: position(2, 9)})
    assert found.bases == {0: position(2, 9), 1: position(0, 0)}


def test_a_session_that_left_is_listed_with_all_that_its_return_needs() -> None:
    newest = serving(A, {0: position(4, 100)})
    newest.client_id, newest.principal, newest.under = "billing", "User:app", 5
    newest.own.CopyFrom(pack_positions({0: position(4, 90)}))
    newest.refused.extend(succession.pack_refused({0: RefusedSequences(4, [(80, 85)])}))
    left = succession.sequences(wanted(B), newest, range(1), {0: Stamped(9)}, {}, NOW, at=12).left
    assert left == [
        state.LeftSession(
            session=A, name=f"name of {A}", left_ms=NOW, next=pack_positions({0: position(4, 110)}),
            refused=newest.refused, opened_at=12, under=5, client_id="billing", principal="User:app", own=newest.own,
        )
    ]  # fmt: skip
    (unnamed,) = succession.sequences(wanted(B), serving(A, {}), range(1), {}, {}, NOW, at=12).left
    assert unnamed.under == 12
    assert not any(unnamed.HasField(each) for each in ("client_id", "principal", "own"))


def test_the_next_record_has_all_refused_sequences_of_the_session_and_none_of_a_partition_that_is_gone() -> None:
    newest = serving(A, {0: position(4, 100), 1: position(4, 0)})
    newest.refused.extend(succession.pack_refused({0: RefusedSequences(4, [(80, 85)])}))
    more = {
        0: RefusedSequences(4, [(100, 103)]),
        1: RefusedSequences(4, [(0, 1), (7, 9)]),
        2: RefusedSequences(4, [(0, 3)]),
    }
    refused = succession.sequences(wanted(refused=more), newest, range(2), {}, {}, NOW).refused
    assert {index: (found.client_epoch, found.spans) for index, found in refused.items()} == {
        0: (4, [(80, 85), (100, 103)]),
        1: (4, [(0, 1), (7, 9)]),
    }


def test_of_what_records_say_of_a_session_the_latest_counts() -> None:
    said = [
        succession.Mention(at, {0: position(0, sequence)}, {0: RefusedSequences(0, [(sequence, sequence + 1)])})
        for at, sequence in (((8, 30), 70), ((5, 40), 20), ((8, 20), 60))
    ]
    found = succession.sequences(wanted(), serving(A, {0: position(0, 10)}), range(1), {}, {}, NOW, elsewhere=said)
    assert found.bases == {0: position(0, 70)}
    assert found.refused[0].spans == [(70, 71)]


def test_positions_under_the_sessions_own_producer_id_are_kept_with_those_that_are_found_now() -> None:
    newest = serving(A, {0: position(4, 100), 1: position(4, 0)})
    newest.own.CopyFrom(pack_positions({0: position(4, 90), 1: position(4, 3)}))
    own = succession.sequences(wanted(), newest, range(2), {}, {1: position(4, 8)}, NOW).own
    assert own == {0: position(4, 90), 1: position(4, 8)}


# Bounds -------------------------------------------------------------------------------------------------------------


def test_the_lists_stay_within_bounds_and_keep_the_newest() -> None:
    left = [
        state.LeftSession(
            session=Session(f"pid:{n}"), name="x" * 255, left_ms=NOW - 20_000 + n,
            next=pack_positions({p: position(9, 2**30) for p in range(500)}),
        )
        for n in range(20_000 // 20)
    ]  # fmt: skip
    _, _, kept, _ = succession.sequences(wanted(), serving("", {}, *left), range(2), {}, {}, NOW)
    assert 10 < len(kept) < 1_000
    assert kept[-1].session == Session("pid:999")
    assert sum(each.ByteSize() for each in kept) < 400 * 1024


@pytest.mark.parametrize(("partitions", "sessions"), [(1, 5_000), (3, 5_000), (10, 2_800), (100, 400), (500, 75)])
def test_so_many_sessions_that_left_are_kept(partitions: int, sessions: int) -> None:
    """docs/reference/guarantees.md says so."""
    positions = {index: position(30_000, 2**31 - 1 - index) for index in range(partitions)}
    left = [
        state.LeftSession(
            session=f"pid:{10**6 + n}",
            name="payments-service",
            left_ms=NOW - 1,
            next=pack_positions(positions),
        )
        for n in range(6_000)
    ]
    _, _, kept, _ = succession.sequences(wanted(), serving("", {}, *left), range(partitions), {}, {}, NOW)
    assert sessions <= len(kept) <= min(5_000, sessions * 1.1)


@pytest.mark.parametrize(("kind", "kept"), [(state.Serving, 300), (state.Slot, 100)])
def test_the_record_of_a_shared_slot_lists_fewer_sessions_that_left(
    kind: type[state.Serving | state.Slot], kept: int
) -> None:
    """There may be a thousand such slots."""
    left = [state.LeftSession(session=f"pid:{10 + n}", left_ms=NOW - 300 + n) for n in range(300)]
    found = succession.sequences(wanted(), kind(left=reversed(left)), range(1), {}, {}, NOW).left
    assert [each.session for each in found] == [each.session for each in left[-kept:]]


def test_a_session_that_left_is_listed_for_a_day() -> None:
    left = [state.LeftSession(session=f"pid:{10 + n}", left_ms=NOW - REMEMBERED_MS + n) for n in range(2)]
    found = succession.sequences(wanted(), serving("", {}, *left), range(1), {}, {}, NOW).left
    assert [each.session for each in found] == ["pid:11"]
    last = succession.mention(Session("pid:11"), serving("", {}, *left), 3, {}, NOW)
    assert last is not None
    assert succession.mention(Session("pid:10"), serving("", {}, *left), 3, {}, NOW) is None
