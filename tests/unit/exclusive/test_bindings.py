"""Whose a producer id is, by what is known of it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from sidecar.changelog import (
    MASTER_SLOT,
    Change,
    Entry,
    Key,
    Kind,
    Opened,
    Record,
    SlotName,
    View,
    partition_slot,
    shared_slot,
)
from sidecar.exclusive import bindings
from sidecar.exclusive.bindings import Bindings
from sidecar.ownership.state import Claimant
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Caller, Session
from sidecar.v1 import state_pb2 as state

PRINCIPAL = "User:app"


def client(client_id: str, principal: str = PRINCIPAL) -> Caller:
    return Caller(principal, client_id)


CLAIMANT = Claimant(Session("pid:7"), "billing", is_named=True, connection=1, caller=client("billing"))
STRANGER = replace(CLAIMANT, name="attacker", connection=2, caller=client("attacker"))
OTHER_USER = replace(CLAIMANT, connection=3, caller=client("billing", "User:other"))


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def known(view: View) -> Bindings:
    return follow(view)


FOLLOWING: WeakKeyDictionary[View, list[Bindings]] = WeakKeyDictionary()
"""Who hears of the changes of each view."""


def follow(view: View) -> Bindings:
    """What a node knows that reads the log up to here, and from here on."""
    found = Bindings(view)
    for entry in (*view.entries(Kind.SERVING), *view.entries(Kind.SLOT)):
        found.changed(entry.key)
    FOLLOWING.setdefault(view, []).append(found)
    return found


def note(view: View, offset: int, record: Record) -> None:
    change = view.apply(Offset(offset), 0, Stamp(ProducerId(900), ProducerEpoch(offset)), record.encode())
    tell(view, [] if change is None else [change])


def tell(view: View, changes: list[Change]) -> None:
    for known in FOLLOWING[view]:
        for change in changes:
            known.changed(change.key)


def serving(session: str, client_id: str | None, *left: state.LeftSession) -> Record:
    record = state.Serving(session=session, client_id=client_id, left=left, principal=PRINCIPAL)
    return Record(Key(Kind.SERVING, "orders", MASTER_SLOT), record)


def test_who_comes_first_has_it_on_that_topic(known: Bindings) -> None:
    assert known.admitted("orders", CLAIMANT) is CLAIMANT
    assert known.admitted("orders", STRANGER) is None
    assert known.admitted("orders", replace(CLAIMANT, connection=9)) is not None
    assert known.admitted("payments", STRANGER) is STRANGER


def test_a_look_binds_nothing(known: Bindings) -> None:
    assert known.look("orders", STRANGER) is STRANGER
    assert known.admitted("orders", CLAIMANT) is CLAIMANT


def test_what_kafka_gave_counts_more_than_who_came_first(known: Bindings) -> None:
    assert known.admitted("orders", STRANGER) is STRANGER
    known.given(7, client("billing"))
    assert known.admitted("orders", STRANGER) is None
    assert known.admitted("orders", CLAIMANT) is CLAIMANT


def test_what_is_written_down_counts_most_until_the_record_says_otherwise(view: View, known: Bindings) -> None:
    note(view, 1, serving(Session("pid:7"), "billing"))
    known.given(7, client("attacker"))
    assert known.bound("orders", Session("pid:7")) == client("billing")
    note(
        view,
        2,
        serving(
            Session("pid:8"),
            "other",
            state.LeftSession(session=Session("pid:7"), client_id="billing", principal=PRINCIPAL),
        ),
    )
    assert known.bound("orders", Session("pid:7")) == client("billing")
    note(
        view,
        3,
        Record(
            Key(Kind.SLOT, "orders", shared_slot(1)),
            state.Slot(session=Session("pid:7"), client_id="renamed", principal=PRINCIPAL),
        ),
    )
    assert known.bound("orders", Session("pid:7")) == client("renamed")
    note(view, 4, serving(Session("pid:8"), "other"))
    note(view, 5, Record(Key(Kind.SLOT, "orders", shared_slot(1)), state.Slot(session=Session("pid:9"))))
    assert known.bound("orders", Session("pid:7")) == client("attacker")


def test_a_record_without_a_client_binds_to_nobody(view: View, known: Bindings) -> None:
    note(view, 1, serving(Session("pid:7"), None))
    assert known.bound("orders", Session("pid:7")) is None


def test_an_empty_client_id_is_one_like_any_other(view: View, known: Bindings) -> None:
    note(view, 1, serving(Session("pid:7"), ""))
    assert known.admitted("orders", STRANGER) is None
    assert known.admitted("orders", replace(CLAIMANT, caller=client(""))) is not None


def test_a_producer_id_belongs_to_a_principal_too_whatever_another_one_calls_itself(
    view: View, known: Bindings
) -> None:
    known.given(7, client("billing"))
    assert known.admitted("orders", OTHER_USER) is None
    note(view, 1, serving(Session("pid:7"), "billing"))
    for bindings_of_another_node in (known, follow(view)):
        assert bindings_of_another_node.admitted("orders", OTHER_USER) is None
        assert bindings_of_another_node.check(Session("pid:7"), client("billing", "User:other")) is not None
        assert bindings_of_another_node.check_claim(Session("pid:8"), client("billing", "User:other")) is None
    follows = replace(OTHER_USER, session=Session("pid:8"), succeeds=Session("pid:7"))
    assert known.look("orders", follows) == replace(follows, succeeds=None)


def test_a_session_of_a_client_that_left_stays_its_principals(view: View, known: Bindings) -> None:
    left = state.LeftSession(session=Session("pid:7"), client_id="billing", principal=PRINCIPAL)
    note(view, 1, serving(Session("pid:8"), "other", left))
    assert known.admitted("orders", OTHER_USER) is None
    assert known.admitted("orders", CLAIMANT) is CLAIMANT


def test_a_plain_session_is_bound_to_its_connection_alone(known: Bindings) -> None:
    plain = replace(CLAIMANT, session=Session("conn:1"))
    assert known.admitted("orders", plain) is plain
    assert known.bound("orders", Session("conn:1")) is None


def test_nobody_follows_anothers_session(view: View, known: Bindings) -> None:
    note(view, 1, serving(Session("pid:7"), "billing"))
    follows = replace(STRANGER, session=Session("pid:8"), succeeds=Session("pid:7"))
    assert known.look("orders", follows) == replace(follows, succeeds=None)
    own = replace(follows, caller=client("billing"))
    assert known.look("orders", own) is own


def test_a_session_named_outside_of_a_topic_has_to_be_ones_own_somewhere(view: View, known: Bindings) -> None:
    assert known.check(Session("pid:7"), client("anybody")) is None
    note(view, 1, serving(Session("pid:7"), "attacker"))
    refused = known.check(Session("pid:7"), client("billing"))
    assert refused is not None
    assert refused.code == 44
    known.claimed(Session("pid:7"), client("billing"), 1)
    assert known.check(Session("pid:7"), client("billing")) is None
    known.given(7, client("billing"))
    assert known.check(Session("pid:7"), client("attacker")) is not None


def test_what_is_remembered_is_bounded(known: Bindings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "_GIVEN_KEPT", 10)
    monkeypatch.setattr(bindings, "_FIRST_KEPT", 10)
    for number in range(100):
        known.given(number, client("a"))
        known.first("orders", Session(f"pid:{number + 1000}"), client("a"))
    assert (len(known._given), len(known._first)) == (10, 10)
    assert known.bound("orders", Session("pid:99")) == known.bound("orders", Session("pid:1099")) == client("a")


def test_who_writes_under_what_kafka_gave_replaces_whoever_guessed_it(known: Bindings) -> None:
    assert known.admitted("orders", STRANGER) is STRANGER
    known.given(7, client("billing"))
    assert known.admitted("orders", CLAIMANT) is CLAIMANT
    assert known.written("orders", Session("pid:7")) == client("billing")


def test_a_claim_by_request_binds_nothing_and_yields_to_what_was_written(known: Bindings) -> None:
    claim = replace(STRANGER, names_session=True)
    known.given(7, client("billing"))
    assert known.admitted("orders", claim) is claim
    assert known.written("orders", Session("pid:7")) is None
    assert known.admitted("orders", CLAIMANT) is CLAIMANT
    assert known.admitted("orders", claim) is None


def test_who_writes_after_a_claim_by_request_is_known_if_kafka_gave_its_client_the_producer_id(known: Bindings) -> None:
    claim = replace(CLAIMANT, names_session=True)
    assert known.writer_of("orders", claim) is None
    known.given(7, client("billing"))
    assert known.writer_of("orders", claim) == client("billing")
    assert known.writer_of("orders", replace(STRANGER, names_session=True)) is None


def test_who_wrote_writes_after_a_claim_by_request(view: View, known: Bindings) -> None:
    known.given(7, client("attacker"))
    note(view, 1, serving(Session("pid:7"), "billing"))
    assert known.writer_of("orders", replace(STRANGER, names_session=True)) == client("billing")


def test_a_plain_session_is_written_by_its_own_connection(known: Bindings) -> None:
    plain = replace(CLAIMANT, session=Session("conn:1-a-5"), name="the boss")
    assert known.writer_of("orders", plain) == client("billing")


class CountedView(View):
    """Counts the slots that are looked at."""

    looked = 0

    def opened(self, topic: str) -> Mapping[SlotName, Entry[Opened]]:
        return _Counted(self, super().opened(topic))


class _Counted(dict[SlotName, Entry[Opened]]):
    def __init__(self, view: CountedView, opened: Mapping[SlotName, Entry[Opened]]) -> None:
        super().__init__(opened)
        self._view = view

    def items(self) -> Any:
        self._view.looked += len(self)
        return super().items()

    def get(self, slot: SlotName, default: Any = None) -> Any:
        self._view.looked += 1
        return super().get(slot, default)


def owned(topic: str, partition: int, session: str) -> Record:
    return Record(
        Key(Kind.SERVING, topic, partition_slot(partition)),
        state.Serving(session=session, client_id="billing", principal=PRINCIPAL),
    )


def test_a_strangers_batches_cost_no_look_at_every_slot() -> None:
    view = CountedView()
    known = follow(view)
    for partition in range(100):
        note(view, partition, owned("orders", partition, Session("pid:7")))
    assert known.admitted("orders", STRANGER) is None
    assert view.looked == 100
    for _ in range(10):
        assert known.admitted("orders", STRANGER) is None
        assert known.check_claim(Session("pid:7"), client("attacker")) is not None
    assert view.looked == 100
    note(view, 100, owned("orders", 3, Session("pid:8")))
    assert (known.bound("orders", Session("pid:8")), known.bound("orders", Session("pid:7"))) == (
        client("billing"),
        client("billing"),
    )
    assert view.looked == 101


def test_what_is_taken_away_or_lost_from_the_log_binds_nobody(view: View, known: Bindings) -> None:
    for partition in range(3):
        note(view, partition, owned("orders", partition, Session(f"pid:{partition}")))
    note(view, 3, owned("payments", 0, Session("pid:1")))
    assert [known.bound("orders", Session(f"pid:{number}")) for number in range(3)] == [client("billing")] * 3
    tell(view, view.truncate(Offset(1)))
    assert [known.bound("orders", Session(f"pid:{number}")) for number in range(3)] == [client("billing"), None, None]
    assert known.check_claim(Session("pid:1"), client("attacker")) is None
    note(view, 1, owned("orders", 1, Session("pid:2")))
    assert [known.bound("orders", Session(f"pid:{number}")) for number in range(3)] == [
        client("billing"),
        None,
        client("billing"),
    ]
    tell(view, view.truncate(Offset(0)))
    assert known.bound("orders", Session("pid:0")) is None
    assert known.check_claim(Session("pid:2"), client("attacker")) is None
    assert (known._recorded, known._topics) == ({}, {})


def test_a_claim_by_request_takes_a_producer_id_from_nobody_whom_kafka_gave_it_to(known: Bindings) -> None:
    known.given(7, client("billing"))
    assert known.check_claim(Session("pid:7"), client("attacker")) is None, (
        "it may be the producer's of another client.id"
    )
    known.claimed(Session("pid:7"), client("attacker"), 2)
    assert known.check_claim(Session("pid:7"), client("billing")) is None
    assert known.check_claim(Session("pid:7"), client("somebody")) is not None


def test_what_a_connection_has_claimed_is_bounded_goes_with_it_and_displaces_nobody(
    known: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "_CLAIMED_KEPT", 10)
    known.claimed(Session("pid:7"), client("billing"), 1)
    for number in range(100, 200):
        known.claimed(Session(f"pid:{number}"), client("attacker"), 2)
    assert known.check_claim(Session("pid:7"), client("attacker")) is not None
    assert known.check_claim(Session("pid:100"), client("somebody")) is None
    assert known.check_claim(Session("pid:199"), client("somebody")) is not None
    known.connection_closed(2)
    assert known.check_claim(Session("pid:199"), client("somebody")) is None
    known.connection_closed(1)
    assert known.check_claim(Session("pid:7"), client("attacker")) is None
    assert not known._claimed


def test_who_claims_again_by_another_connection_keeps_it_when_the_first_one_closes(known: Bindings) -> None:
    for connection in (1, 1, 2):
        known.claimed(Session("pid:7"), client("billing"), connection)
    known.connection_closed(1)
    assert known.check_claim(Session("pid:7"), client("attacker")) is not None
    known.connection_closed(2)
    assert known.check_claim(Session("pid:7"), client("attacker")) is None


def test_nothing_is_kept_of_a_topic_that_is_gone(view: View, known: Bindings) -> None:
    """The master slot's record is taken away first, those of shared sessions after it."""
    slots = [Key(Kind.SLOT, "orders", shared_slot(number)) for number in (1, 2)]
    for asked in (False, True):
        for offset, key in enumerate(slots):
            note(view, 10 * asked + offset + 1, Record(key, state.Slot(session=Session(f"pid:{offset}"))))
        note(view, 10 * asked + 4, serving(Session("pid:7"), "billing"))
        if asked:
            assert known.bound("orders", Session("pid:7")) == client("billing")
        for offset, key in enumerate([Key(Kind.SERVING, "orders", MASTER_SLOT), *slots]):
            note(view, 10 * asked + 6 + offset, Record(key, None))
            if key.slot == MASTER_SLOT:  # what a node does then
                known.forget("orders")
        assert (known._unread, known._recorded, known._topics) == ({}, {}, {})


def test_records_that_the_log_lost_bind_nobody_however_their_loss_is_told(view: View, known: Bindings) -> None:
    """The view has lost all of them when the first loss is told; at that of the master slot the topic is forgotten."""
    note(view, 1, serving(Session("pid:7"), "billing"))
    note(view, 2, owned("orders", 0, Session("pid:8")))
    assert known.bound("orders", Session("pid:8")) == client("billing")
    changes = view.truncate(Offset(0))
    for change in sorted(changes, key=lambda each: each.key.slot != MASTER_SLOT):
        known.changed(change.key)
        if change.key.slot == MASTER_SLOT:
            known.forget("orders")
    assert known.check_claim(Session("pid:8"), client("attacker")) is None
    assert (known._unread, known._recorded, known._topics) == ({}, {}, {})


def test_a_claim_that_was_refused_displaces_nobody_and_leaves_another_connections_alone(known: Bindings) -> None:
    known.claimed(Session("pid:7"), client("attacker"), 2)
    known.claim_refused(Session("pid:7"), 1)
    assert known.check_claim(Session("pid:7"), client("billing")) is not None
    known.claim_refused(Session("pid:7"), 2)
    known.claim_refused(Session("pid:7"), 2)
    assert known.check_claim(Session("pid:7"), client("billing")) is None
    known.connection_closed(2)
    assert not known._claimed


def test_a_plain_session_is_bound_by_nothing_that_is_claimed_or_comes_first(known: Bindings) -> None:
    plain = Session("conn:1-a-5")
    known.claimed(plain, client("attacker"), 2)
    known.first("orders", plain, client("attacker"))
    assert known.check_claim(plain, client("billing")) is None
    assert known.bound("orders", plain) is None
    assert not known.was_given(plain, client("billing"))
