"""What a session is written like, and what that says."""

from __future__ import annotations

import pytest

from sidecar.protocol.session import NO_SESSION, Session


def test_a_session_is_its_own_text() -> None:
    assert Session.by_producer_id(7) == "pid:7"
    assert Session.by_connection(1, "b00t", 3) == "conn:1-b00t-3"
    assert {"pid:7": "found"}[Session.by_producer_id(7)] == "found"


@pytest.mark.parametrize(
    ("text", "producer_id", "plain"),
    [("pid:0", 0, False), ("pid:9007199254740993", 2**53 + 1, False), ("conn:1-b00t-3", None, True)],
)
def test_it_is_by_producer_id_or_by_connection(text: str, producer_id: int | None, plain: bool) -> None:
    session = Session(text)
    assert (session.producer_id, session.is_plain, session.is_idempotent) == (producer_id, plain, not plain)


@pytest.mark.parametrize("nobody", [NO_SESSION, Session("admin:fence")])
def test_nobody_is_of_neither_kind(nobody: Session) -> None:
    assert (nobody.producer_id, nobody.is_plain, nobody.is_idempotent) == (None, False, False)
