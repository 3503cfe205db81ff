"""The listener's side of SASL: with the client's side, with the RFCs' examples, and with what strangers send."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.security import scram
from sidecar.security.errors import LoginError
from sidecar.security.mechanisms import Mechanism, OauthBearerClient, PlainClient, ScramClient, ScramSecret
from sidecar.security.scram import Hash
from sidecar.security.servers import (
    Identity,
    OauthBearerServer,
    PlainServer,
    RefusedTokenError,
    ScramServer,
    ServerMechanism,
    check_password,
)
from sidecar.security.users import Users

SALT = b"0123456789abcdef"
USERS = Users.of({"alice": {kind: scram.stored_keys(kind, "secret", SALT, 4096) for kind in Hash}})
each_hash = pytest.mark.parametrize("kind", Hash)


async def owner_of(token: str) -> Identity:
    if token != "good":
        raise RefusedTokenError("its signature is wrong")
    return Identity("alice", 1_700_000_000.0)


def plain() -> PlainServer:
    return PlainServer(check_password(lambda: USERS))


def scram_server(kind: Hash = Hash.SCRAM_SHA_256) -> ScramServer:
    return ScramServer(kind, USERS.credential)


async def exchange(client: Mechanism, server: ServerMechanism) -> Identity | None:
    message: bytes | None = client.start()
    while message is not None:
        message = client.receive(await server.receive(message))
    assert client.complete
    return server.accepted


async def refused(server: ServerMechanism, *messages: bytes) -> str:
    """The reason why the last message is refused; what the client is told is always the same."""
    *first, last = messages
    for message in first:
        await server.receive(message)
    with pytest.raises(LoginError) as error:
        await server.receive(last)
    assert server.accepted is None
    assert error.value.code == 58
    assert error.value.message.startswith("Authentication failed during authentication due to invalid credentials")
    return error.value.reason


async def test_plain_lets_a_password_in() -> None:
    found = await exchange(PlainClient("alice", "secret"), plain())
    assert found is not None
    assert (found.principal, found.expires_at) == ("User:alice", None)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\0alice\0wrong", "no such"),
        (b"\0bob\0secret", "no such"),
        (b"bob\0alice\0secret", "another name"),
        (b"\0alice\0", "malformed"),
        (b"\0\0secret", "malformed"),
        (b"\0alice\0secret\0", "malformed"),
        (b"alice", "malformed"),
        (b"\0\xff\0secret", "malformed"),
        (b"", "malformed"),
    ],
)
async def test_plain_lets_nobody_else_in(message: bytes, why: str) -> None:
    assert why in await refused(plain(), message)


async def test_plain_may_name_the_same_name_twice() -> None:
    server = plain()
    await server.receive(b"alice\0alice\0secret")
    assert server.accepted == Identity("alice")


@each_hash
async def test_scram_lets_a_password_in(kind: Hash) -> None:
    client = ScramClient(kind, ScramSecret("alice", "secret"))
    assert await exchange(client, scram_server(kind)) == Identity("alice")


@each_hash
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "secret")])
async def test_scram_lets_nobody_else_in_and_asks_an_unknown_name_as_a_known_one(
    kind: Hash, name: str, password: str
) -> None:
    server, client = scram_server(kind), ScramClient(kind, ScramSecret(name, password))
    final = client.receive(await server.receive(client.start()))
    assert final is not None
    assert "no such" in await refused(server, final)


async def test_scram_is_the_exchange_of_rfc_7677() -> None:
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    found = Users.of({"user": {Hash.SCRAM_SHA_256: scram.stored_keys(Hash.SCRAM_SHA_256, "pencil", salt, 4096)}})
    server = ScramServer(Hash.SCRAM_SHA_256, found.credential, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert await server.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert await server.receive(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert server.accepted == Identity("user")


def final_of(first: bytes, challenge: bytes, gs2: bytes = b"n,,", *, nonce: str | None = None) -> bytes:
    """A last message with a right proof of what it says."""
    asked = scram.parse_server_first(challenge)
    without_proof = f"c={scram.base64_of(gs2)},r={nonce or asked.nonce}"
    keys = scram.client_keys(Hash.SCRAM_SHA_256, "secret", asked.salt, asked.iterations)
    message = scram.auth_message(scram.parse_client_first(first).bare, asked.text, without_proof)
    proof = scram.client_proof(Hash.SCRAM_SHA_256, keys, message)
    return f"{without_proof},p={scram.base64_of(proof)}".encode()


async def test_a_proof_for_another_nonce_or_header_is_refused() -> None:
    """CVE-2024-56128: a server that does not look at the nonce lets a recorded exchange in."""
    first = b"n,,n=alice,r=abc"
    for gs2, nonce, why in ((b"n,,", "abcother", "nonce"), (b"y,,", None, "header")):
        server = scram_server()
        assert why in await refused(server, final_of(first, await server.receive(first), gs2, nonce=nonce))


@pytest.mark.parametrize("first", [b"n,a=alice,n=alice,r=abc", b"y,,n=alice,r=abc,x=1"])
async def test_a_header_of_ones_own_is_fine(first: bytes) -> None:
    server = scram_server()
    gs2 = first[: first.index(b"n=alice")]
    await server.receive(final_of(first, await server.receive(first), gs2))
    assert server.accepted == Identity("alice")


async def test_nobody_acts_for_another_name_with_scram() -> None:
    first = b"n,a=root,n=alice,r=abc"
    server = scram_server()
    assert "another name" in await refused(server, final_of(first, await server.receive(first), b"n,a=root,"))


async def test_a_delegation_token_is_for_brokers() -> None:
    assert "delegation" in await refused(scram_server(), b"n,,n=alice,r=abc,tokenauth=true")


async def test_a_proof_may_be_tried_once() -> None:
    first = b"n,,n=alice,r=abc"
    server = scram_server()
    challenge = await server.receive(first)
    wrong = b"c=biws,r=" + scram.parse_server_first(challenge).nonce.encode() + b",p=QUJD"
    assert "no such" in await refused(server, wrong)
    assert "behind the end" in await refused(server, final_of(first, challenge))


async def test_a_token_says_who_somebody_is_and_how_long() -> None:
    assert await exchange(OauthBearerClient("good"), OauthBearerServer(owner_of)) == Identity("alice", 1_700_000_000.0)


async def test_a_refused_token_is_answered_as_rfc_7628_wants() -> None:
    server, client = OauthBearerServer(owner_of), OauthBearerClient("bad")
    answer = await server.receive(client.start())
    assert answer == b'{"status": "invalid_token"}'
    last = client.receive(answer)
    assert last is not None
    assert "signature" in await refused(server, last)


async def test_behind_a_refused_token_a_good_one_is_too_late() -> None:
    await refused(OauthBearerServer(owner_of), OauthBearerClient("bad").start(), OauthBearerClient("good").start())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"n,a=bob,\1auth=Bearer good\1\1", "another name"),
        (b"n,a=b=b,\1auth=Bearer good\1\1", "bare ="),
        (b"n,,\1auth=Basic good\1\1", "malformed"),
        (b"n,,\1auth=Bearer good\1", "malformed"),
        (b"n,,\1auth=Bearer good\1auth=Bearer good\1\1", "malformed"),
        (b"n,,\1host=x\1\1", "malformed"),
        (b"p=x,,\1auth=Bearer good\1\1", "malformed"),
        (b"\xff", "malformed"),
        (b"", "malformed"),
        (b"\1", "without a token"),
    ],
)
async def test_a_message_without_a_token_of_ones_own_is_refused(message: bytes, why: str) -> None:
    assert why in await refused(OauthBearerServer(owner_of), message)


async def test_a_token_may_name_its_owner_and_bring_extensions() -> None:
    server = OauthBearerServer(owner_of)
    assert await server.receive(b"n,a=alice,\1host=x\1auth=bearer  good\1\1") == b""
    assert server.accepted is not None


@given(st.lists(st.binary(max_size=60), max_size=3))
@settings(max_examples=50)
async def test_no_stranger_is_let_in_or_makes_a_server_raise_anything_else(messages: list[bytes]) -> None:
    for server in (plain(), scram_server(), OauthBearerServer(owner_of)):
        try:
            for message in messages:
                await server.receive(message)
        except LoginError:
            pass
        assert server.accepted is None
