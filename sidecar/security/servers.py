"""The server's side of SASL, for nodes that check logins themselves: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER.

A mechanism is used once: `receive` with each message of the client until it is `accepted`, or raises LoginError. A
client gets the same message for every reason of a refusal. Passwords are checked in a thread: each takes milliseconds.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from sidecar.security import scram
from sidecar.security.errors import LoginError, SaslError
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.scram import Hash
from sidecar.security.users import Credential, Users

NAME_BYTES: Final = 255
"""The longest name of a user."""


class Identity(NamedTuple):
    """The user that has logged in. `expires_at`: Unix time in seconds at which the login ends, None for never."""

    username: str
    expires_at: float | None = None

    @property
    def principal(self) -> str:
        """As Kafka writes it."""
        return f"User:{self.username}"


def is_name(name: str) -> bool:
    """Whether this is a valid name of a user."""
    return name.isprintable() and name == name.strip() and 0 < len(name.encode()) <= NAME_BYTES


class RefusedTokenError(Exception):
    """A token is refused. The message is for the log and has no part of the token."""


class ServerMechanism(Protocol):
    """One exchange. Messages are at most as long as the frame that they came in."""

    accepted: Identity | None
    """The user, once logged in."""

    async def receive(self, message: bytes) -> bytes:
        """Return the answer for the client. Raises LoginError."""
        ...


def refusal(mechanism: str, reason: str) -> LoginError:
    """Return the error for the client, with Kafka's text; the reason is for the log."""
    message = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    return LoginError(message, reason=reason)


class PlainServer:
    """PLAIN (RFC 4616). `check` returns whether a password is that of a name."""

    def __init__(self, check: Callable[[str, str], Awaitable[bool]]) -> None:
        self._check = check
        self.accepted: Identity | None = None

    async def receive(self, message: bytes) -> bytes:
        """See `ServerMechanism`."""
        authorized, username, password = read_plain(message)
        if self.accepted is not None:
            raise refusal(PLAIN, "a message behind the end of PLAIN")
        if not await self._check(username, password):
            raise refusal(PLAIN, "no such name and password")
        if authorized not in ("", username):
            raise refusal(PLAIN, "acting for another name is not supported")
        self.accepted = Identity(username)
        return b""


def read_plain(message: bytes) -> tuple[str, str, str]:
    """Authorization id, empty where there is none, name and password. Raises LoginError."""
    try:
        authorized, username, password = message.decode().split("\0")
    except ValueError:
        raise refusal(PLAIN, "malformed PLAIN message") from None
    if not username or not password:
        raise refusal(PLAIN, "malformed PLAIN message")
    return authorized, username, password


def check_password(users: Callable[[], Users]) -> Callable[[str, str], Awaitable[bool]]:
    """Return a `check` for `PlainServer` that uses the current users."""

    async def check(username: str, password: str) -> bool:
        return await asyncio.to_thread(users().is_password, username, password)

    return check


class ScramServer:
    """SCRAM (RFC 5802, RFC 7677). `find` returns the keys of a name, also of an unknown one; `nonce` is for tests."""

    def __init__(self, kind: Hash, find: Callable[[str, Hash], Credential], nonce: str | None = None) -> None:
        self._kind = kind
        self._find = find
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._first: scram.ClientFirst | None = None
        self._answer = ""
        self._credential: Credential | None = None
        self.accepted: Identity | None = None

    async def receive(self, message: bytes) -> bytes:
        """See `ServerMechanism`."""
        try:
            return self._received(message)
        except SaslError as error:
            raise refusal(self._kind.mechanism, str(error)) from None

    def _received(self, message: bytes) -> bytes:
        if self._first is None:
            return self._challenge(scram.parse_client_first(message))
        if self._credential is None:
            raise SaslError("a message behind the end of SCRAM")
        credential, self._credential = self._credential, None
        return self._verify(self._first, credential, scram.parse_client_final(message))

    def _challenge(self, first: scram.ClientFirst) -> bytes:
        if "tokenauth" in first.extensions:
            raise SaslError("delegation tokens are checked by brokers alone")
        self._first = first
        self._credential = self._find(first.username, self._kind)
        keys = self._credential.keys
        self._answer = f"r={first.nonce}{self._nonce},s={scram.base64_of(keys.salt)},i={keys.iterations}"
        return self._answer.encode()

    def _verify(self, first: scram.ClientFirst, credential: Credential, final: scram.ClientFinal) -> bytes:
        if final.nonce != first.nonce + self._nonce:
            raise SaslError("the nonce is not that of this exchange")
        if final.binding != first.gs2.encode():
            raise SaslError("the header is not that of this exchange")
        message = scram.auth_message(first.bare, self._answer, final.without_proof)
        if not (scram.is_proof(self._kind, credential.keys, message, final.proof) and credential.known):
            raise SaslError("no such name and password")
        if first.authorization_id not in ("", first.username):
            raise SaslError("acting for another name is not supported")
        self.accepted = Identity(first.username)
        return f"v={scram.base64_of(self._kind.hmac(credential.keys.server_key, message))}".encode()


_GS2: Final = re.compile(r"n,(?:a=([^,\x01]+))?,")
_AUTH: Final = re.compile(r"(?i:bearer) +([-A-Za-z0-9._~+/]+=*)")
_ABORTED: Final = b"\x01"


class OauthBearerServer:
    """OAUTHBEARER (RFC 7628, KIP-255). `check` returns the owner of a token, or raises RefusedTokenError."""

    def __init__(self, check: Callable[[str], Awaitable[Identity]]) -> None:
        self._check = check
        self._refused: str | None = None
        self.accepted: Identity | None = None

    async def receive(self, message: bytes) -> bytes:
        """Answer a refused token with an error, and the client's next message with the refusal (RFC 7628, 3.2.3)."""
        if self._refused is not None or self.accepted is not None or message == _ABORTED:
            raise refusal(OAUTHBEARER, self._refused or "a message without a token")
        authorized, token = read_bearer(message)
        try:
            identity = await self._check(token)
        except RefusedTokenError as error:
            self._refused = str(error)
            return json.dumps({"status": "invalid_token"}).encode()
        if authorized not in ("", identity.username):
            raise refusal(OAUTHBEARER, "acting for another name is not supported")
        self.accepted = identity
        return b""


def read_bearer(message: bytes) -> tuple[str, str]:
    """Authorization id, empty where there is none, and token. Raises LoginError."""
    try:
        header, *pairs, end, last = message.decode().split("\x01")
    except ValueError:
        raise refusal(OAUTHBEARER, "malformed OAUTHBEARER message") from None
    found = _GS2.fullmatch(header)
    values = [value for pair in pairs for key, _, value in (pair.partition("="),) if key == "auth"]
    token = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if found is None or token is None or end or last:
        raise refusal(OAUTHBEARER, "malformed OAUTHBEARER message")
    try:
        return scram.name_of(found[1]) if found[1] else "", token[1]
    except SaslError as error:
        raise refusal(OAUTHBEARER, str(error)) from None
