"""Who may write: the rules as a table."""

import pytest

from sidecar.admin.access import Caller, refusal_of_write

TOKEN = "a-token"


def status(caller: Caller, token: str | None = None) -> int | None:
    refusal = refusal_of_write(caller, token)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1:18080", "localhost:18080", "[::1]:18080", "localhost"])
def test_without_a_token_programs_on_the_same_machine_may(peer: str, host: str):
    assert status(Caller(peer, host)) is None


@pytest.mark.parametrize("peer", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "", "unix"])
def test_without_a_token_others_may_not(peer: str):
    assert status(Caller(peer, "127.0.0.1:18080")) == 403


def test_without_a_token_a_proxy_on_the_same_machine_does_not_lend_its_address():
    assert status(Caller("127.0.0.1", "127.0.0.1:18080", forwarded=True)) == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:18080", "http://evil.example"),
        ("127.0.0.1:18080", "null"),
        ("127.0.0.1:18080", "http://["),
        ("127.0.0.1:18080", "http://127.0.0.1:3000"),
        ("evil.example:18080", "http://evil.example:18080"),
        ("evil.example:18080", ""),
        ("", ""),
        ("[", ""),
    ],
)
def test_without_a_token_a_page_of_somebody_else_cannot_use_the_browser(host: str, origin: str):
    assert status(Caller("127.0.0.1", host, origin)) == 403


def test_without_a_token_a_page_of_the_node_itself_may():
    assert status(Caller("127.0.0.1", "127.0.0.1:18080", "http://127.0.0.1:18080")) is None


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_whoever_shows_the_token_may_from_anywhere(authorization: str):
    assert status(Caller("10.0.0.1", "node.example", authorization=authorization), TOKEN) is None


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer other", f"Basic {TOKEN}", TOKEN, "Bearer \udcff"])
def test_with_a_token_nobody_else_may_not_even_from_here(authorization: str):
    assert status(Caller("127.0.0.1", "127.0.0.1:18080", authorization=authorization), TOKEN) == 401
