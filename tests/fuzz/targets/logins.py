"""Messages of logins, both ways: what a client sends to a node that checks it, or relays it; and what a broker, or
whoever is in its place, sends to a node that logs in.

Input: which exchange, then its messages, each behind its length (two bytes).
"""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from sidecar.protocol.caller import BadAnswerError, UpstreamError
from sidecar.security import jwks, scram
from sidecar.security.credentials import MECHANISMS
from sidecar.security.errors import LoginError
from sidecar.security.exchange import Connection, login
from sidecar.security.logins import claimed_name
from sidecar.security.mechanisms import PLAIN, OauthBearerClient, PlainClient, ScramClient, ScramSecret
from sidecar.security.scram import Hash
from sidecar.security.servers import OauthBearerServer, PlainServer, ScramServer
from sidecar.security.users import Users

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from sidecar.security.servers import Identity, ServerMechanism

_SALT: Final = bytes(16)
_KEYS: Final = {kind: scram.stored_keys(kind, "secret", _SALT, 4_096) for kind in Hash}
_USERS: Final = Users.of({"alice": _KEYS})
_SECRET: Final = ScramSecret("alice", "secret")
_PRIVATE: Final = ec.derive_private_key(7, ec.SECP256R1())
_KEY: Final = jwks.read_keys(
    json.dumps(
        {"keys": [{**json.loads(ECAlgorithm.to_jwk(_PRIVATE.public_key())), "kid": "a", "alg": "ES256"}]}
    ).encode()
)
_EXPECTED: Final = jwks.Expected()
_EXCHANGES: Final = 12


async def _is_password(username: str, password: str) -> bool:
    return (username, password) == ("alice", "secret")


async def _owner(token: str) -> Identity:
    return jwks.verify(token, _KEY, _EXPECTED)


def play(data: bytes) -> None:
    if not data:
        return
    which, messages = data[0] % _EXCHANGES, _messages(data[1:])
    if which < 4:
        _serve(which, messages)
    elif which < 8:
        for message in messages[:1]:
            _claim(MECHANISMS[which - 4], message)
    else:
        _log_in(which - 8, messages)


def _messages(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while len(data) >= 2:
        size = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


def _serve(which: int, messages: list[bytes]) -> None:
    made: tuple[Any, ...] = (
        PlainServer(_is_password),
        ScramServer(Hash.SCRAM_SHA_256, _USERS.credential, "nonce"),
        ScramServer(Hash.SCRAM_SHA_512, _USERS.credential, "nonce"),
        OauthBearerServer(_owner),
    )
    server: ServerMechanism = made[which]
    for message in messages:
        try:
            _run(server.receive(message))
        except LoginError:
            break
        if server.accepted is not None:
            assert server.accepted.username == "alice", "somebody is let in who is nobody"
            assert which != 0 or message.endswith(b"\0alice\0secret")


def _claim(mechanism: str, message: bytes) -> None:
    try:
        name = claimed_name(mechanism, message).name
    except LoginError:
        return
    assert name
    assert name.isprintable()
    if mechanism == PLAIN:
        assert name.encode() in message


def _log_in(which: int, answers: list[bytes]) -> None:
    """`answers`: frames of a broker, as they come."""
    made: tuple[Any, ...] = (
        PlainClient("alice", "secret"),
        ScramClient(Hash.SCRAM_SHA_256, _SECRET, nonce="nonce"),
        ScramClient(Hash.SCRAM_SHA_512, _SECRET, nonce="nonce"),
        OauthBearerClient("token"),
    )
    mechanism = made[which]
    left = iter(answers)

    class Credentials:
        def refused(self, reason: str) -> None:
            """See `Credentials`: the next login shows what there is then."""

        async def mechanism(self) -> Any:
            mechanism.is_slow = False
            return mechanism

    async def send(request: bytes) -> bytes:
        found = next(left, None)
        if found is None:
            raise ConnectionError("the connection ended")
        correlation_id = request[8:12]
        return (4 + len(found)).to_bytes(4, "big") + correlation_id + found

    credentials: Any = Credentials()
    try:
        session = _run(login(Connection(send, count(1), "sidecar"), credentials, lambda: 0.5))
    except (LoginError, BadAnswerError, UpstreamError, ConnectionError):
        return
    assert session.renew_after_s is None or session.renew_after_s >= 1


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """What waits for nothing ends at once."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def seeds() -> Iterator[bytes]:
    token = jwt.encode({"sub": "alice", "exp": 4_000_000_000}, _PRIVATE, algorithm="ES256", headers={"kid": "a"})
    bearer = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    plain = b"\0alice\0secret"
    deep = base64.urlsafe_b64encode(b"[" * 15_000).decode()
    nested = f"n,,\x01auth=Bearer {deep}.{deep}.x\x01\x01".encode()
    for which in (0, 4):
        yield _input(which, plain)
    for which, kind in ((1, Hash.SCRAM_SHA_256), (2, Hash.SCRAM_SHA_512)):
        client = ScramClient(kind, _SECRET, nonce="client")
        server = ScramServer(kind, _USERS.credential, "nonce")
        first = client.start()
        final = client.receive(_run(server.receive(first))) or b""
        yield _input(which, first, final)
        yield _input(4 + which, first)
        # and as a broker answers
        challenge = f"r=nonce+more,s={scram.base64_of(_SALT)},i=4096".encode()
        yield _input(8 + which, _offer(kind.mechanism), _token(challenge), _token(b"v=" + bytes(44)))
    for which in (3, 7):
        yield _input(which, bearer)
        yield _input(which, nested)
    yield _input(8, _offer(PLAIN), _token(b""))
    yield _input(8, b"\0\x21\0\0\0\0")
    yield _input(11, _offer("OAUTHBEARER"), _token(b'{"status":"invalid_token"}'), _token(b""))


def _input(which: int, *messages: bytes) -> bytes:
    return bytes((which,)) + b"".join(len(message).to_bytes(2, "big") + message for message in messages)


def _offer(name: str) -> bytes:
    return b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name.encode()


def _token(data: bytes) -> bytes:
    """An answer to SaslAuthenticate v2."""
    return b"\0\0\0\0" + bytes((len(data) + 1,)) + data + bytes(8) + b"\0"
