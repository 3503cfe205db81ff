"""What clients were refused is kept for people: once for each kind, bounded, the newest first."""

from __future__ import annotations

from sidecar.gateway.refusals import BURST, MOST, REST_S, Refusals
from sidecar.protocol.errors import ErrorCode

POLICY = ErrorCode.POLICY_VIOLATION


def test_the_same_again_is_counted_and_comes_first_with_its_newest_reason() -> None:
    refusals = Refusals()
    refusals.note(b"billing", "10.0.0.1", b"orders", POLICY, "a owns it")
    refusals.note(b"billing", "10.0.0.1", b"other", POLICY, "c owns it")
    refusals.note(b"billing", "10.0.0.1", b"orders", POLICY, "b owns it")
    newest, older = refusals.newest()
    assert (newest.topic, newest.count, newest.reason, newest.host) == ("orders", 2, "b owns it", "10.0.0.1")
    assert newest.first_ms <= older.last_ms <= newest.last_ms
    assert (older.topic, older.count) == ("other", 1)


def test_what_is_to_be_tried_again_is_no_refusal() -> None:
    refusals = Refusals()
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE):
        refusals.note(b"billing", "10.0.0.1", b"orders", code, "in a moment")
    assert not list(refusals.newest())


def test_strangers_cannot_fill_the_memory() -> None:
    refusals = Refusals()
    for number in range(MOST + 10):
        refusals.note(b"%d" % number + b"x" * 30_000, "10.0.0.1", b"orders", POLICY, "y" * 30_000)
    kept = list(refusals.newest())
    assert len(kept) == MOST
    assert kept[0].client_id.startswith(str(MOST + 9))
    assert max(len(each.client_id) + len(each.reason) for each in kept) <= 1_000


def test_an_answer_without_a_reason_gets_one() -> None:
    refusals = Refusals()
    refusals.note(b"", "10.0.0.1", b"shadow", ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert "allow list" in next(refusals.newest()).reason


def test_each_client_topic_error_and_reason_is_one_event() -> None:
    refusals = Refusals()
    for host in ("10.0.0.1", "10.0.0.2"):
        for reason in ("a owns it", "b owns it", "a owns it"):
            refusals.note(b"billing", host, b"orders", POLICY, reason)
    assert [(each.topic, each.reason) for each in refusals.take_new(0)] == [
        ("orders", "a owns it"),
        ("orders", "b owns it"),
    ]
    refusals.note(b"billing", "10.0.0.1", b"orders", POLICY, "a owns it")
    assert refusals.take_new(0) == []
    refusals.note(b"billing", "10.0.0.1", b"orders", ErrorCode.PRODUCER_FENCED, "a owns it")
    refusals.note(b"another", "10.0.0.1", b"orders", POLICY, "a owns it")
    assert [each.client_id for each in refusals.take_new(0)] == ["billing", "another"]


def test_clients_with_ever_new_names_do_not_fill_the_events() -> None:
    refusals = Refusals()

    def again() -> None:
        for number in range(5 * BURST):
            refusals.note(b"%d" % number, "10.0.0.1", b"orders", POLICY, "a owns it")

    again()
    assert len(refusals.take_new(0)) == BURST
    assert refusals.take_new(REST_S / 2) == []
    assert [each.client_id for each in refusals.take_new(REST_S / 2)] == [str(BURST)]
    assert len(refusals.take_new(REST_S * 10 * BURST)) == BURST


def test_what_finds_no_room_among_the_new_is_new_when_it_happens_again() -> None:
    refusals = Refusals()
    for _ in range(2):
        for number in range(MOST):
            refusals.note(b"%d" % number, "10.0.0.1", b"orders", POLICY, "a owns it")
    found = 0
    while taken := refusals.take_new(REST_S * BURST):
        found += len(taken)
    assert 0 < found < MOST
    refusals.note(b"%d" % (MOST - 1), "10.0.0.1", b"orders", POLICY, "a owns it")
    assert [each.client_id for each in refusals.take_new(REST_S)] == [str(MOST - 1)]


def test_who_makes_up_names_hides_nobody_elses_refusals_and_events() -> None:
    refusals = Refusals()
    refusals.note(b"early", "10.0.0.2", b"orders", POLICY, "a owns it")
    for number in range(2 * MOST):
        refusals.note(b"%d" % number, "10.0.0.1", b"orders", POLICY, "a owns it")
    refusals.note(b"late", "10.0.0.2", b"orders", POLICY, "a owns it")
    assert {"early", "late"} <= {each.client_id for each in refusals.newest()}
    assert len(list(refusals.newest())) == MOST
    assert {each.client_id for each in refusals.take_new(0)[:4]} == {"early", "0", "late", "1"}


def test_addresses_that_nobody_hears_of_any_more_leave_nothing_behind() -> None:
    refusals = Refusals()
    for number in range(3 * MOST):
        refusals.note(b"same", f"10.0.{number >> 8}.{number & 255}", b"orders", POLICY, "a owns it")
    assert len(refusals._hosts) == len(list(refusals.newest())) == MOST
