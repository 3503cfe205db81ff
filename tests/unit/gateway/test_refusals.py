"""What clients were refused is kept for people: once for each kind, bounded, the newest first."""

from __future__ import annotations

from sidecar.gateway.refusals import MOST, Refusals
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
