"""How a node shows another one that a request was allowed: what a signature is good for, and what it is not."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from sidecar.admin.passing_on import SCHEME, Behalf, Nonces, Passed, challenge, checked, nonce_of, signed

TOKENS = ("operate", "read")
FENCE = Passed("10.0.0.2:18080", "POST", "/v1/topics/orders/fence?partition=3", '"7"', b"")
ALICE = Behalf("token", "10.0.0.9:5", "CN=alice")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sign(
    nonces: Nonces, passed: Passed = FENCE, tokens: tuple[str | None, str | None] = TOKENS, behalf: Behalf = ALICE
) -> str:
    found = signed(tokens, nonces.new(), passed, behalf)
    assert found is not None
    return found


def test_what_was_signed_with_the_common_token_is_taken_with_whom_it_is_for():
    nonces = Nonces()
    assert checked(TOKENS, nonces, sign(nonces), FENCE) == ("token", ALICE)


def test_the_token_to_read_signs_where_there_is_no_other_and_says_so():
    nonces = Nonces()
    assert checked(TOKENS, nonces, sign(nonces, tokens=(None, "read")), FENCE) == ("read-token", ALICE)


def test_without_a_token_nothing_is_signed():
    assert signed((None, None), "nonce", FENCE, ALICE) is None


def test_a_signature_is_good_once():
    nonces = Nonces()
    shown = sign(nonces)
    assert checked(TOKENS, nonces, shown, FENCE) is not None
    assert checked(TOKENS, nonces, shown, FENCE) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"receiver": "10.0.0.3:18080"},
        {"method": "DELETE"},
        {"target": "/v1/topics/payments/fence?partition=3"},
        {"target": "/v1/topics/orders/fence"},
        {"match": '"8"'},
        {"body": b"{}"},
    ],
)
def test_a_signature_is_for_one_request_at_one_node(changed: dict[str, str]):
    nonces = Nonces()
    assert checked(TOKENS, nonces, sign(nonces), replace(FENCE, **changed)) is None


@pytest.mark.parametrize("tokens", [("other", "read"), (None, "operate"), (None, None)])
def test_a_node_with_another_token_is_not_believed(tokens: tuple[str | None, str | None]):
    nonces = Nonces()
    assert checked(tokens, nonces, sign(nonces), FENCE) is None


def test_the_token_to_read_cannot_sign_as_the_one_to_operate():
    nonces = Nonces()
    shown = altered(sign(nonces, tokens=(None, "read")), role="token")
    assert checked(TOKENS, nonces, shown, FENCE) is None


@pytest.mark.parametrize("field", ["who", "peer", "certificate"])
def test_whom_a_request_is_for_cannot_be_changed(field: str):
    nonces = Nonces()
    assert checked(TOKENS, nonces, altered(sign(nonces), **{field: "somebody else"}), FENCE) is None


def test_a_nonce_of_another_node_or_of_before_a_restart_is_none():
    assert checked(TOKENS, Nonces(), sign(Nonces()), FENCE) is None


def test_a_nonce_is_good_for_half_a_minute_and_is_forgotten_then():
    clock = Clock()
    nonces = Nonces(clock)
    in_time, late = sign(nonces), sign(nonces)
    clock.now += 29
    assert checked(TOKENS, nonces, in_time, FENCE) is not None
    clock.now += 2
    assert checked(TOKENS, nonces, late, FENCE) is None
    assert checked(TOKENS, nonces, in_time, FENCE) is None
    clock.now += 30
    assert checked(TOKENS, nonces, in_time, FENCE) is None


def test_a_wrong_signature_does_not_use_up_the_nonce():
    nonces = Nonces()
    shown = sign(nonces)
    assert checked(TOKENS, nonces, altered(shown, signature="0" * 64), FENCE) is None
    assert checked(TOKENS, nonces, shown, FENCE) is not None


@pytest.mark.parametrize(
    "shown",
    ["", SCHEME, f"{SCHEME} ", f"{SCHEME} !", "Bearer operate", f"{SCHEME} {'A' * 9_000}",
     *(f"{SCHEME} {base64.b64encode(each).decode()}" for each in
       (b"[]", b"{}", b"[" * 4_000, b'{"role": 1}', b"\xff"))],
)  # fmt: skip
def test_what_is_no_signature_is_refused(shown: str):
    assert checked(TOKENS, Nonces(), shown, FENCE) is None


@pytest.mark.parametrize("nonce", ["", ".", "..", "zz.y.x", "64.00.\udcff"])
def test_what_is_no_nonce_is_refused(nonce: str):
    assert not Nonces().take(nonce)


def test_a_challenge_is_found_among_others():
    assert nonce_of(["Bearer", challenge("12.ab.cd")]) == "12.ab.cd"
    assert nonce_of(["Bearer", f"{SCHEME} realm=x"]) is None


def test_neither_token_nor_key_stands_in_what_is_sent():
    shown = base64.b64decode(sign(Nonces()).partition(" ")[2]).decode()
    assert "operate" not in shown
    assert "read" not in json.loads(shown).values()


def altered(shown: str, **fields: str) -> str:
    found = json.loads(base64.b64decode(shown.partition(" ")[2])) | fields
    return f"{SCHEME} {base64.b64encode(json.dumps(found).encode()).decode()}"
