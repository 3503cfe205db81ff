"""Tokens checked against a set of keys: which are let in, and when keys are fetched."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from sidecar.security.jwks import (
    REFRESH_S,
    RETRY_S,
    SKEW_S,
    Expected,
    Jwks,
    KeySetError,
    UnknownKeyError,
    read_keys,
    verify,
)
from sidecar.security.servers import Identity, RefusedTokenError
from sidecar.security.web import WebAnswer, WebError

RSA = rsa.generate_private_key(65_537, 2_048)
SHORT = rsa.generate_private_key(65_537, 1_024)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
EXPECTED = Expected("kafka", "https://idp.example", "sub")


def jwk(key: Any, key_id: str | None = None, **more: Any) -> dict[str, Any]:
    algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    values: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    values.pop("key_ops", None)
    return values | ({"kid": key_id} if key_id else {}) | more


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


KEYS = read_keys(key_set(jwk(RSA, "r"), jwk(EC, "e")))


def token(key: Any = EC, key_id: str | None = "e", headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
    values = {"sub": "alice", "aud": "kafka", "iss": "https://idp.example", "exp": time.time() + 60} | claims
    values = {name: value for name, value in values.items() if value is not None}
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    return jwt.encode(values, key, algorithm, headers={**({"kid": key_id} if key_id else {}), **(headers or {})})


def part(values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


@pytest.mark.parametrize(("key", "key_id"), [(RSA, "r"), (EC, "e"), (RSA, None), (EC, None)])
def test_a_token_is_its_owners_until_its_end(key: Any, key_id: str | None) -> None:
    ends = int(time.time()) + 60
    assert verify(token(key, key_id, exp=ends), KEYS, EXPECTED) == Identity("alice", float(ends))


def test_what_is_not_set_is_not_looked_at() -> None:
    assert verify(token(aud="other", iss=None, sub=None, azp="bob"), KEYS, Expected(claim="azp")).username == "bob"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": time.time() - SKEW_S - 5}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"nbf": time.time() + SKEW_S + 86_400}, "not yet valid"),
        ({"aud": "other"}, "[Aa]udience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://idp.example.evil"}, "[Ii]ssuer"),
        ({"iss": "https://idp"}, "[Ii]ssuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "claim sub is no name"),
        ({"sub": ""}, "claim sub is no name"),
        ({"sub": "a\nb"}, "claim sub is no name"),
        ({"sub": "a" * 256}, "claim sub is no name"),
    ],
)
def test_a_token_that_says_something_else_is_refused(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedTokenError, match=why):
        verify(token(**claims), KEYS, EXPECTED)


def test_a_little_difference_of_clocks_does_not_matter() -> None:
    assert verify(token(exp=time.time() - SKEW_S + 10), KEYS, EXPECTED).username == "alice"


def test_a_token_of_somebody_elses_key_is_refused() -> None:
    with pytest.raises(RefusedTokenError, match=r"[Ss]ignature"):
        verify(token(OTHER, "e"), KEYS, EXPECTED)
    with pytest.raises(RefusedTokenError, match=r"[Ss]ignature"):
        verify(token(OTHER, None), KEYS, EXPECTED)
    with pytest.raises(UnknownKeyError):
        verify(token(OTHER, "o"), KEYS, EXPECTED)


def test_an_algorithm_cannot_be_chosen_by_a_stranger() -> None:
    """A token without a signature, one signed with the public key as a secret, one with the other kind of key."""
    claims = jwt.decode(token(), options={"verify_signature": False})
    unsigned = f"{part({'alg': 'none', 'kid': 'e'})}.{part(claims)}."
    secret = jwt.encode(claims, json.dumps(jwk(RSA)) * 2, "HS256", headers={"kid": "r"})
    for forged in (unsigned, secret):
        with pytest.raises(RefusedTokenError, match="neither RS256 nor ES256"):
            verify(forged, KEYS, EXPECTED)
    with pytest.raises(RefusedTokenError, match="no key is for its algorithm"):
        verify(token(EC, "r"), KEYS, EXPECTED)


def test_a_critical_extension_is_not_passed_over() -> None:
    with pytest.raises(RefusedTokenError, match="crit"):
        verify(token(headers={"crit": ["x"], "x": 1}), KEYS, EXPECTED)


@pytest.mark.parametrize("depth", [1_000, 20_000])
def test_a_deeply_nested_header_is_refused(depth: int) -> None:
    header = base64.urlsafe_b64encode(b"[" * depth).decode().rstrip("=")
    with pytest.raises(RefusedTokenError, match="no JWT") as caught:
        verify(f"{header}.e30.AAAA", KEYS, EXPECTED)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 10**400},
        {"sub": " alice"},
        {"sub": "alice\u2028"},
        {"sub": "ali\nce"},
        {"sub": "a" * 70_000},
        {"sub": ""},
    ],
    ids=["no time", "blank", "separator", "line", "long", "empty"],
)
def test_what_a_trusted_issuer_says_may_be_no_name_and_no_time(claims: dict[str, Any]) -> None:
    with pytest.raises(RefusedTokenError):
        verify(token(**claims), KEYS, EXPECTED)


def test_a_token_is_tried_with_a_few_keys_however_many_have_its_id() -> None:
    others = [jwk(ec.generate_private_key(ec.SECP256R1()), "e") for _ in range(4)]
    with pytest.raises(RefusedTokenError):
        verify(token(), read_keys(key_set(*others, jwk(EC, "e"))), EXPECTED)
    assert verify(token(), read_keys(key_set(*others[:3], jwk(EC, "e"))), EXPECTED).username == "alice"


def _endless(bits: int) -> dict[str, Any]:
    """A key whose signatures take long to check."""
    modulus = ((1 << bits - 1) | 1).to_bytes(bits // 8, "big")
    return {"kty": "RSA", "kid": "endless", "n": base64.urlsafe_b64encode(modulus).decode().rstrip("="), "e": "AQAB"}


def test_a_key_of_any_size_is_passed_over_but_what_is_usual() -> None:
    assert [key.key_id for key in read_keys(key_set(_endless(16_384), _endless(400_000), jwk(RSA, "r")))] == ["r"]
    assert [key.key_id for key in read_keys(key_set(_endless(8_192)))] == ["endless"]


pieces = st.lists(st.sampled_from([*token().split("."), "", "e30", "bnVsbA"]), max_size=4)


@given(st.text(max_size=40) | pieces.map(".".join))
@settings(max_examples=100)
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(RefusedTokenError):
        verify(text, KEYS, EXPECTED)


# The set --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        jwk(SHORT, "short"),
        jwk(EC, "enc", use="enc"),
        jwk(EC, "alg", alg="ES384"),
        jwk(RSA, "alg", alg="PS256"),
        jwk(ec.generate_private_key(ec.SECP384R1()), "curve"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
        {"kty": "RSA", "kid": "damaged", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "kid": "damaged"},
        {"kty": ["RSA"]},
        "no key",
    ],
)
def test_a_key_that_is_for_something_else_is_passed_over(other: object) -> None:
    assert [key.key_id for key in read_keys(key_set(other, jwk(EC, "e")))] == ["e"]
    with pytest.raises(KeySetError, match="no key for"):
        read_keys(key_set(other))


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"<html>", "not JSON"), (b"[" * 100_000, "not JSON"), (b"[]", "no list"), (b'{"keys": 1}', "no list")],
)
def test_what_is_no_set_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(KeySetError, match=why):
        read_keys(body)


@dataclass
class Web:
    body: bytes | WebError = field(default_factory=lambda: key_set(jwk(EC, "e")))
    status: int = 200
    asked: int = 0
    gate: asyncio.Event | None = None

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        assert url == "https://idp.example/keys"
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.body, WebError):
            raise self.body
        return WebAnswer(self.status, self.body)

    async def close(self) -> None:
        """There is nothing to close."""


@dataclass
class Checked:
    web: Web = field(default_factory=Web)
    now: float = 0.0
    told: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        url = "https://idp.example/keys"
        self.jwks = Jwks(url, EXPECTED, self.web, self.told.append, lambda: self.now)

    async def accepts(self, given: str) -> bool:
        try:
            await self.jwks.check(given)
        except RefusedTokenError:
            return False
        return True


async def test_keys_are_fetched_once_for_all_that_wait() -> None:
    checked = Checked(Web(gate=asyncio.Event()))
    waiting = [asyncio.create_task(checked.accepts(token())) for _ in range(5)]
    await asyncio.sleep(0)
    assert checked.web.gate is not None
    checked.web.gate.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert checked.web.asked == 1


async def test_a_new_key_is_found_when_a_token_names_it() -> None:
    checked = Checked()
    assert await checked.accepts(token())
    checked.web.body = key_set(jwk(OTHER, "new"))
    checked.now += RETRY_S
    assert await checked.accepts(token(OTHER, "new"))
    assert not await checked.accepts(token())  # its key is no longer trusted


async def test_strangers_cannot_make_a_node_ask_more_often() -> None:
    checked = Checked()
    assert await checked.accepts(token())
    for _ in range(20):
        assert not await checked.accepts(token(OTHER, "unknown"))
        checked.now += RETRY_S / 10
    assert checked.web.asked == 2


async def test_keys_are_fetched_anew_every_hour_and_nobody_waits_for_that() -> None:
    checked = Checked()
    assert await checked.accepts(token())
    checked.now += REFRESH_S
    checked.web.gate = asyncio.Event()
    assert await checked.accepts(token())
    await asyncio.sleep(0)
    assert checked.web.asked == 2
    await checked.jwks.close()


@pytest.mark.parametrize(
    ("web", "why"),
    [
        (Web(WebError("no route")), "no route"),
        (Web(status=500), "answers 500"),
        (Web(b"{}"), "no list of keys"),
    ],
)
async def test_while_keys_cannot_be_fetched_the_old_ones_serve(web: Web, why: str) -> None:
    checked = Checked()
    assert await checked.accepts(token())
    checked.web.body, checked.web.status = web.body, web.status
    checked.now += REFRESH_S
    assert not await checked.accepts(token(OTHER, "unknown"))
    assert await checked.accepts(token())
    assert len(checked.told) == 1
    assert why in str(checked.told[0])
    checked.web.body, checked.web.status = key_set(jwk(OTHER, "unknown")), 200
    checked.now += RETRY_S
    assert await checked.accepts(token(OTHER, "unknown"))
    assert checked.told[1:] == [None]


async def test_without_keys_nobody_is_let_in() -> None:
    checked = Checked(Web(WebError("no route")))
    assert not await checked.accepts(token())
    assert not await checked.accepts(token(key_id=None))
    assert checked.web.asked == 1


def test_a_node_without_key_sets_does_not_load_what_checks_signatures() -> None:
    """It takes 9 MB."""
    code = "import sys, sidecar.node.process; print([m for m in sys.modules if m == 'jwt' or m.startswith('jwt.')])"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
