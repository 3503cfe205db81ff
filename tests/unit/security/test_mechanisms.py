"""The client's side of SASL, with the examples of the RFCs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.security import scram
from sidecar.security.errors import SaslError
from sidecar.security.mechanisms import OauthBearerClient, PlainClient, ScramClient, ScramSecret
from sidecar.security.scram import Hash

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram_client(password: str = "pencil") -> ScramClient:
    return ScramClient(Hash.SCRAM_SHA_256, ScramSecret("user", password), nonce=NONCE)


def test_plain_is_the_message_of_rfc_4616() -> None:
    client = PlainClient("tim", "tanstaaftanstaaf")
    assert client.start() == b"\0tim\0tanstaaftanstaaf"
    assert not client.complete
    assert client.receive(b"") is None
    assert client.complete


def test_plain_answers_no_question() -> None:
    with pytest.raises(SaslError, match="asks something"):
        PlainClient("tim", "secret").receive(b"?")


@pytest.mark.parametrize(("name", "password"), [("", "p"), ("n", ""), ("a\0b", "p"), ("n", "a\0b")])
def test_plain_carries_no_nul_and_nothing_empty(name: str, password: str) -> None:
    with pytest.raises(ValueError, match="for PLAIN"):
        PlainClient(name, password)


def test_scram_is_the_exchange_of_rfc_7677() -> None:
    client = scram_client()
    assert client.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.receive(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not client.complete
    assert client.receive(SERVER_FINAL) is None
    assert client.complete


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = scram_client("crayon")
    client.receive(SERVER_FIRST)
    with pytest.raises(SaslError, match="does not know the password"):
        client.receive(SERVER_FINAL)
    assert not client.complete


@pytest.mark.parametrize("final", [b"v=", b"v=QQ==", b"e=other-error", b"x=y", b""])
def test_nothing_but_the_signature_completes_scram(final: bytes) -> None:
    client = scram_client()
    client.receive(SERVER_FIRST)
    with pytest.raises(SaslError):
        client.receive(final)
    assert not client.complete


@pytest.mark.parametrize("nonce", ["other", NONCE, NONCE[:-1]])
def test_a_nonce_that_does_not_continue_the_clients_is_refused(nonce: str) -> None:
    with pytest.raises(SaslError, match="nonce"):
        scram_client().receive(f"r={nonce},s=QQ==,i=4096".encode())


def test_a_server_may_not_go_on_behind_the_end() -> None:
    client = scram_client()
    client.receive(SERVER_FIRST)
    client.receive(SERVER_FINAL)
    with pytest.raises(SaslError, match="behind the end"):
        client.receive(SERVER_FINAL)


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    secret = ScramSecret("user", "pencil")
    assert len({ScramClient(Hash.SCRAM_SHA_256, secret).start() for _ in range(20)}) == 20


def test_a_delegation_token_says_that_it_is_one() -> None:
    client = ScramClient(Hash.SCRAM_SHA_512, ScramSecret("id", "hmac"), token_auth=True, nonce="abc")
    assert client.start() == b"n,,n=id,r=abc,tokenauth=true"


def test_keys_are_derived_once_for_a_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[int] = []
    derive = scram.client_keys

    def counted(kind: Hash, password: str, salt: bytes, iterations: int) -> scram.ClientKeys:
        derived.append(iterations)
        return derive(kind, password, salt, iterations)

    monkeypatch.setattr(scram, "client_keys", counted)
    secret = ScramSecret("user", "pencil")
    for iterations in (4096, 4096, 4097, 4096):
        ScramClient(Hash.SCRAM_SHA_256, secret, nonce="a").receive(f"r=ab,s=QQ==,i={iterations}".encode())
    assert derived == [4096, 4097]
    for salt in range(40):
        secret.keys(Hash.SCRAM_SHA_256, bytes([salt]), 1)
    assert len(secret._keys) <= ScramSecret._KEPT


def test_a_token_is_sent_as_rfc_7628_has_it() -> None:
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    client = OauthBearerClient(token, {"host": "server.example.com", "port": "143"})
    assert client.start() == b"n,,\1auth=Bearer " + token.encode() + b"\1host=server.example.com\1port=143\1\1"
    assert client.receive(b"") is None
    assert client.complete


@pytest.mark.parametrize(
    ("challenge", "status"), [(b'{"status":"invalid_token"}', "invalid_token"), (b"no", "without"), (b"[]", "without")]
)
def test_a_refused_token_is_answered_as_the_rfc_wants_and_never_completes(challenge: bytes, status: str) -> None:
    client = OauthBearerClient("token")
    assert client.receive(challenge) == b"\1"
    with pytest.raises(SaslError, match=status):
        client.receive(b"")
    assert not client.complete


@pytest.mark.parametrize("token", ["", "a b", "a\1b", "a\nb", "=", "ä"])
def test_a_token_cannot_end_its_message(token: str) -> None:
    with pytest.raises(ValueError, match="RFC 6750"):
        OauthBearerClient(token)


@pytest.mark.parametrize("extension", [{"auth": "x"}, {"a b": "x"}, {"a": ""}, {"a": "x\1auth=Bearer y"}])
def test_an_extension_cannot_replace_the_token(extension: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no extension"):
        OauthBearerClient("token", extension)


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_no_server_makes_a_client_raise_anything_else(challenges: list[bytes]) -> None:
    for client in (scram_client(), PlainClient("a", "b"), OauthBearerClient("t")):
        try:
            for challenge in challenges:
                client.receive(challenge)
        except SaslError:
            pass
