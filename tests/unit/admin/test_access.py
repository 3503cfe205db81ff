"""Who may do what: the rules as a table."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sidecar.admin.access import Caller, Right, Rules, judge, own_hosts

TOKEN = "a-token"
READ_TOKEN = "a-read-token"
OPEN = Rules(None, None)
BOTH = Rules(TOKEN, READ_TOKEN)
FAR = Caller("10.0.0.9", "10.0.0.1:18080")


def refused(caller: Caller, right: Right, rules: Rules = OPEN) -> int | None:
    refusal = judge(caller, right, rules).refusal
    return None if refusal is None else refusal.status


def status(caller: Caller, token: str | None = None) -> int | None:
    return refused(caller, Right.OPERATE, Rules(token, None))


def showing(token: str) -> Caller:
    return replace(FAR, authorization=f"Bearer {token}")


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


@pytest.mark.parametrize(
    ("caller", "right", "expected"),
    [
        (FAR, Right.HEALTH, None),
        (FAR, Right.FILES, None),
        (FAR, Right.READ, 401),
        (FAR, Right.OPERATE, 401),
        (showing(READ_TOKEN), Right.READ, None),
        (showing(READ_TOKEN), Right.OPERATE, 401),
        (showing(TOKEN), Right.READ, None),
        (showing(TOKEN), Right.OPERATE, None),
        (Caller("127.0.0.1", "127.0.0.1:18080"), Right.READ, 401),
    ],
)
def test_the_token_to_operate_reads_too_and_the_one_to_read_does_not_operate(
    caller: Caller, right: Right, expected: int | None
):
    assert refused(caller, right, BOTH) == expected


def test_with_a_token_to_operate_alone_reads_are_open():
    assert refused(FAR, Right.READ, Rules(TOKEN, None)) is None


def test_with_a_token_to_read_alone_writes_are_for_this_machine():
    rules = Rules(None, READ_TOKEN)
    assert refused(showing(READ_TOKEN), Right.OPERATE, rules) == 401
    assert refused(Caller("127.0.0.1", "localhost"), Right.OPERATE, rules) is None


HOSTS = own_hosts(["0.0.0.0", "Node-1.example.com"], "admin.example.com, .pods.example.com")


@pytest.mark.parametrize("right", [Right.READ, Right.FILES])
@pytest.mark.parametrize(
    "host",
    ["10.0.0.1:18080", "[::1]:18080", "localhost:18080", "sidecar-1:18080", "node-1.example.com:18080",
     "ADMIN.example.com", "a.pods.example.com.", "x.localhost"],
)  # fmt: skip
def test_reads_without_a_token_are_open_under_the_names_of_the_node(host: str, right: Right):
    assert refused(replace(FAR, host=host), right, replace(OPEN, hosts=HOSTS)) is None


@pytest.mark.parametrize("host", ["evil.example:18080", "pods.example.com", "evilpods.example.com", "", "[", "a b.c"])
def test_a_page_whose_name_was_made_to_mean_this_node_cannot_read(host: str):
    assert refused(replace(FAR, host=host), Right.READ, replace(OPEN, hosts=HOSTS)) == 403


@pytest.mark.parametrize(
    "rules",
    [replace(OPEN, hosts=own_hosts([], "*")), replace(OPEN, tls=True), Rules(None, "other")],
    ids=["any name", "a certificate says the name", "a token is needed"],
)
def test_the_name_does_not_matter_where_something_else_keeps_pages_out(rules: Rules):
    expected = 401 if rules.read else None
    assert refused(replace(FAR, host="evil.example"), Right.READ, rules) == expected


def test_with_a_token_the_name_does_not_matter():
    caller = replace(showing(READ_TOKEN), host="behind.a.proxy.example")
    assert refused(caller, Right.READ, BOTH) is None


def test_health_is_open_under_any_name_without_anything():
    rules = Rules(TOKEN, READ_TOKEN, frozenset(), tls=True, certificates=True)
    assert refused(Caller("10.0.0.9", "evil.example"), Right.HEALTH, rules) is None


@pytest.mark.parametrize("right", [Right.FILES, Right.READ, Right.OPERATE])
def test_a_certificate_that_is_asked_for_is_needed_besides_the_token_and_replaces_none(right: Right):
    rules = Rules(TOKEN, READ_TOKEN, tls=True, certificates=True)
    assert refused(showing(TOKEN), right, rules) == 403
    assert refused(replace(showing(TOKEN), certificate="CN=ops"), right, rules) is None
    assert refused(replace(FAR, certificate="CN=ops"), Right.OPERATE, rules) == 401


@pytest.mark.parametrize(
    ("change", "who"),
    [
        (lambda: showing(TOKEN), "token"),
        (lambda: showing(READ_TOKEN), "read-token"),
        (lambda: Caller("127.0.0.1", "localhost"), "loopback"),
        (lambda: Caller("127.0.0.1", "localhost", forwarded=True), "anonymous"),
        (lambda: FAR, "anonymous"),
    ],
)
def test_the_audit_log_says_by_what_somebody_was_known(change: Callable[[], Caller], who: str):
    assert judge(change(), Right.OPERATE, BOTH).who == who
