"""The records of a takeover's commit: owners, and deposed sessions; bounded whatever happens."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import MASTER_SLOT, Entry, Key, Kind, Opened, Position, pack_offsets, unpack_offsets
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence, Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Caller, Session
from sidecar.takeover import records
from sidecar.takeover.records import DEPOSED_KEPT, STRANGERS_KEPT, FormerWriters
from sidecar.takeover.requests import NOBODY, Purpose, Request
from sidecar.takeover.succession import REMEMBERED_MS, Sequences
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


# Whose topic is shared ------------------------------------------------------------------------------------------------


def test_the_last_owner_of_a_topic_that_is_shared_loses_it_and_is_deposed_once() -> None:
    known = owned(deposed=[lost_by(8, NOW - 1)])
    found = records.freed(known, NOW, deposes=True)
    assert (found.session, found.name, found.released_ms, found.generation) == ("", "", NOW, 1)
    assert [(d.session, d.generation, d.last_try_ms) for d in found.deposed[1:]] == [(A, 1, NOW)]
    assert known.session == A, "what the view has stays as it is"
    again = records.freed(owned(deposed=[lost_by(1, NOW - 1)]), NOW, deposes=True)
    assert [(d.session, d.last_try_ms) for d in again.deposed] == [(A, NOW - 1)]


def test_a_plain_owner_and_one_whose_topic_is_split_are_not_listed() -> None:
    assert not records.freed(owned(PLAIN), NOW, deposes=True).deposed
    assert not records.freed(owned(), NOW, deposes=False).deposed
    nobody = owned("", released_ms=9)
    assert records.freed(nobody, NOW, deposes=True) is nobody


@pytest.mark.parametrize(("purpose", "deposed"), [(Purpose.SHARE, [A]), (Purpose.SPLIT, [])])
def test_who_owned_the_topic_before_it_was_shared_or_split_is_named_no_more(
    purpose: Purpose, deposed: list[str]
) -> None:
    found = ownership(Request(purpose), owned(), generation=1, keeps=True)
    assert (found.session, found.released_ms, [d.session for d in found.deposed]) == ("", NOW, deposed)


def test_a_topic_that_is_adopted_keeps_the_record_of_its_last_owner() -> None:
    released = owned(released_ms=9)
    assert ownership(Request(Purpose.ADOPT), released, generation=1, keeps=True) is released


def test_another_generation_of_the_same_session_is_a_new_ownership() -> None:
    found = ownership(wanted(), owned(), generation=2, keeps=True)
    assert (found.generation, found.since_ms) == (2, 5)
    again = ownership(wanted(), owned(start=pack_offsets({0: 7})), generation=2)
    assert (again.since_ms, unpack_offsets(again.start)) == (NOW, {0: 40})


def test_a_claimant_that_deposes_itself_or_nobody_lists_nobody() -> None:
    assert not ownership(wanted(A, deposes=True), owned()).deposed
    assert not ownership(wanted(A, deposes=True), owned("")).deposed
    assert not ownership(wanted(B), owned()).deposed
    (first,) = ownership(wanted(B, dismisses=(A,)), None, generation=1).deposed
    assert first.generation == 1, "who wrote beside others counts as one that wrote"


@pytest.mark.parametrize(("session", "is_deposed"), [(A, True), (B, False), (PLAIN, True)])
def test_a_plain_session_is_deposed_by_any_owner_after_it(session: Session, is_deposed: bool) -> None:
    assert records.was_deposed(owned(deposed=[lost_by(1, NOW)]), session) is is_deposed


# What opens an epoch --------------------------------------------------------------------------------------------------

STAMP = Stamp(ProducerId(900), ProducerEpoch(4))
PLACES = Sequences({0: Position(1, ClientSequence(3))}, {}, [], {})


def opening(generation: int | None, session: Session = A, **facts: Any) -> Opened:
    return records.opening(TOPIC_ID, 3, STAMP, (session, "billing"), generation, PLACES, NOW, **facts)


def test_the_record_of_an_epoch_has_all_that_a_takeover_reads_in_it() -> None:
    found = opening(
        7, retired_ids=[5, 6], former=[former(8, 2, "a")], ids_from={0: 10}, begins={0: 20},
        caller=Caller("User:app", "billing"), under=9,
    )  # fmt: skip
    assert isinstance(found, state.Serving)
    assert (found.generation, found.node, found.since_ms, found.topic_id) == (7, 3, NOW, TOPIC_ID.bytes)
    assert (found.producer_id, found.producer_epoch, found.session, found.name) == (900, 4, A, "billing")
    assert records.caller_of(found) == Caller("User:app", "billing")
    assert (unpack_offsets(found.ids_from), unpack_offsets(found.begins)) == ({0: 10}, {0: 20})
    assert (list(found.retired_producer_ids), list(found.former), found.under) == ([5, 6], [former(8, 2, "a")], 9)
    assert not found.HasField("own")


def test_the_record_of_a_shared_slot_has_no_generation_and_that_of_nobody_no_client() -> None:
    assert isinstance(opening(None, ids_from={0: 10}), state.Slot)
    nobody = opening(7, Session(""), caller=Caller("User:app", "billing"))
    assert records.caller_of(nobody) is None
    assert not nobody.HasField("begins")


def test_the_clients_of_sessions_are_read_from_the_record_of_the_epoch_and_of_those_that_left() -> None:
    found = opening(7, caller=Caller("User:app", "billing"))
    found.left.append(state.LeftSession(session=B, client_id="other", principal="User:b"))
    found.left.append(state.LeftSession(session="pid:3"))
    assert records.callers(found) == {A: Caller("User:app", "billing"), B: Caller("User:b", "other")}
    assert records.callers(opening(7, Session(""))) == {}


# Former writers -------------------------------------------------------------------------------------------------------


def former(producer_id: int, last_epoch: int, name: str = "", *, forgotten: bool = False) -> state.FormerWriter:
    return state.FormerWriter(producer_id=producer_id, last_epoch=last_epoch, name=name, forgotten=forgotten)


def serving(*formers: state.FormerWriter, session: str = A, name: str = "a", node: int = 1) -> state.Serving:
    return state.Serving(
        session=session, name=name, producer_id=900, producer_epoch=3, node=node, former=formers
    )  # fmt: skip


def listed(opened: Opened | None, name: str, *covered: int, most: int = 9) -> list[state.FormerWriter]:
    return records.former_writers(opened, STAMP, name, lambda producer_id, _: producer_id in covered, most)


def test_the_last_writer_joins_the_former_ones_unless_it_goes_on_under_its_name() -> None:
    assert listed(None, "b") == []
    assert listed(serving(), "a") == []
    assert listed(serving(session=""), "b") == []
    assert listed(serving(), "b") == [former(900, 3, "a")]
    other = Stamp(ProducerId(901), ProducerEpoch(0))
    assert records.former_writers(serving(), other, "a", lambda *_: False, 9) == [former(900, 3, "a")]


def test_of_writers_that_snapshots_cover_or_that_are_too_many_the_last_epoch_stays_without_a_name() -> None:
    before = serving(former(800, 1, "x"), former(800, 2, "y"), former(900, 1, "z"), former(900, 2, "u"))
    assert listed(before, "b", 800) == [
        former(800, 2, forgotten=True), former(900, 1, "z"), former(900, 2, "u"), former(900, 3, "a"),
    ]  # fmt: skip
    assert listed(before, "b", most=2) == [
        former(800, 2, forgotten=True), former(900, 1, forgotten=True), former(900, 2, "u"), former(900, 3, "a"),
    ]  # fmt: skip
    assert listed(serving(former(800, 2, forgotten=True)), "a") == [former(800, 2, forgotten=True)]


class Ids:
    """Sequence ids whose snapshots cover some producer ids."""

    since = 5

    def __init__(self, *covered: int) -> None:
        self.covered = covered
        self.told: list[str] = []

    def is_covered(self, producer_id: int, _: int) -> bool:
        return producer_id in self.covered

    def urge(self) -> None:
        self.told.append("urge")

    def distrust(self) -> None:
        self.told.append("distrust")


def at(offset: int, value: Opened) -> Entry[Opened]:
    return Entry(Key(Kind.SERVING, "orders", MASTER_SLOT), value, None, Offset(offset), NOW)


def test_a_topic_with_more_writers_than_a_record_names_waits_for_a_snapshot() -> None:
    """Batches of a writer without a name would be counted under another one's."""
    many = [former(800 + n, 0, "x") for n in range(200)]
    ids = Ids()
    writers = FormerWriters("orders", cast(Any, ids), _is_master=True)
    with pytest.raises(KafkaError, match="200 writers of orders") as refused:
        writers.check(1, at(9, serving(*many)))
    assert (refused.value.code, ids.told) == (ErrorCode.LEADER_NOT_AVAILABLE, ["urge"])
    writers.check(1, at(9, serving(*many[1:])))
    writers.check(1, at(9, serving(former(700, 0, forgotten=True), *many)))
    FormerWriters("orders", cast(Any, Ids(800)), _is_master=True).check(1, at(9, serving(*many)))
    assert ids.told == ["urge"]


@pytest.mark.parametrize(("node", "is_master", "told"), [(1, True, []), (2, True, ["distrust"]), (2, False, [])])
def test_ids_that_another_node_counted_meanwhile_are_read_again(node: int, is_master: bool, told: list[str]) -> None:
    ids = Ids()
    FormerWriters("orders", cast(Any, ids), is_master).check(1, at(9, serving(node=node)))
    FormerWriters("orders", cast(Any, ids), is_master).check(1, None)
    FormerWriters("orders", None, is_master).check(1, at(9, serving(node=node)))
    assert ids.told == told


def test_without_sequence_ids_a_few_former_writers_are_listed() -> None:
    many = serving(*[former(800 + n, 0, "x") for n in range(900)])
    without = FormerWriters("orders", None, _is_master=True).listed(many, STAMP, "a")
    assert [each.forgotten for each in without] == [True] * 880 + [False] * 20
    with_ids = FormerWriters("orders", cast(Any, Ids(1_699)), _is_master=True).listed(many, STAMP, "a")
    assert [each.forgotten for each in with_ids] == [True] * 501 + [False] * 399


def test_ids_begin_where_the_logs_ended_when_the_topic_got_them() -> None:
    writers, ends = FormerWriters("orders", cast(Any, Ids()), _is_master=True), {0: 70}
    began = serving()
    began.ids_from.CopyFrom(pack_offsets({0: 10}))
    assert writers.ids_from(at(5, began), ends) == {0: 10}
    assert writers.ids_from(at(4, began), ends) == {0: 70}, "of a time before the topic had ids"
    assert writers.ids_from(None, ends) == {0: 70}
    assert writers.ids_from(at(5, serving()), ends) == {0: 70}
    assert FormerWriters("orders", cast(Any, Ids()), _is_master=False).ids_from(at(5, began), ends) is None
    assert FormerWriters("orders", None, _is_master=True).ids_from(at(5, began), ends) is None
