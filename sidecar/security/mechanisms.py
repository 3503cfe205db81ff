"""The client's side of SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER. Bytes in, bytes out, no IO.

A mechanism is used once: `start`, then `receive` with each answer of the server until it has nothing more to send. It
has succeeded when the server accepts *and* it is `complete`: a SCRAM server that accepts before it has proved that it
knows the password is not the right server.
"""

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol

from sidecar.security import scram
from sidecar.security.errors import SaslError
from sidecar.security.scram import ClientKeys, Hash

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class Mechanism(Protocol):
    """One exchange. `is_slow`: `receive` may compute for milliseconds, without Python's lock."""

    is_slow: ClassVar[bool]

    @property
    def name(self) -> str:
        """The name in SaslHandshake."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the server has sent all that this side requires."""
        ...

    def start(self) -> bytes:
        """The first message."""
        ...

    def receive(self, challenge: bytes) -> bytes | None:
        """Return the next message, or None. Raises SaslError."""
        ...


class PlainClient:
    """PLAIN (RFC 4616): name and password in one message. Raises ValueError for what it cannot carry."""

    is_slow: ClassVar[bool] = False

    def __init__(self, username: str, password: str) -> None:
        if not username or "\0" in username:
            raise ValueError("a name for PLAIN is not empty and holds no NUL")
        if not password or "\0" in password:
            raise ValueError("a password for PLAIN is not empty and holds no NUL")
        self.name: Final = PLAIN
        self._message = f"\0{username}\0{password}".encode()
        self.complete = False

    def start(self) -> bytes:
        """See `Mechanism`."""
        return self._message

    def receive(self, challenge: bytes) -> bytes | None:
        """See `Mechanism`."""
        if challenge:
            raise SaslError("the server asks something, which PLAIN does not have")
        self.complete = True
        return None


class ScramSecret:
    """A name and its password, with the keys that were derived from it. Servers of one cluster have one salt for a
    user, so only the first login has to derive the keys.
    """

    _KEPT: ClassVar[int] = 8
    __slots__ = ("_keys", "_password", "username")

    def __init__(self, username: str, password: str) -> None:
        if not username or "\0" in username:
            raise ValueError("a name for SCRAM is not empty and holds no NUL")
        if not password:
            raise ValueError("a password for SCRAM is not empty")
        self.username: Final = username
        self._password: Final = password
        self._keys: dict[tuple[Hash, bytes, int], ClientKeys] = {}

    def keys(self, kind: Hash, salt: bytes, iterations: int) -> ClientKeys:
        """Return the keys, from a cache if possible. Raises ValueError as `scram.client_keys`."""
        found = self._keys.get((kind, salt, iterations))
        if found is None:
            found = scram.client_keys(kind, self._password, salt, iterations)
            if len(self._keys) >= self._KEPT:
                self._keys = {}
            self._keys[kind, salt, iterations] = found
        return found


class ScramClient:
    """SCRAM (RFC 5802, RFC 7677). `token_auth`: the name is a delegation token's id, its HMAC the password (KIP-48).

    `nonce` is for tests with a known exchange.
    """

    is_slow: ClassVar[bool] = True

    def __init__(self, kind: Hash, secret: ScramSecret, *, token_auth: bool = False, nonce: str | None = None) -> None:
        self.name: Final = kind.mechanism
        self._kind = kind
        self._secret = secret
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._bare = f"n={scram.sasl_name(secret.username)},r={self._nonce}" + (",tokenauth=true" if token_auth else "")
        self._signature: bytes | None = None
        self.complete = False

    def start(self) -> bytes:
        """See `Mechanism`."""
        return f"n,,{self._bare}".encode()

    def receive(self, challenge: bytes) -> bytes | None:
        """See `Mechanism`."""
        if self._signature is None:
            return self._prove(challenge)
        if self.complete:
            raise SaslError("the server goes on behind the end of SCRAM")
        final = scram.parse_server_final(challenge)
        if final.error:
            raise SaslError(f"the server refuses: {final.error[:100]}")
        if not hmac.compare_digest(final.signature, self._signature):
            raise SaslError("the server does not know the password: its signature is wrong")
        self.complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        asked = scram.parse_server_first(challenge)
        if not asked.nonce.startswith(self._nonce) or len(asked.nonce) == len(self._nonce):
            raise SaslError("the server's nonce does not continue the client's")
        keys = self._secret.keys(self._kind, asked.salt, asked.iterations)
        without_proof = f"c={scram.base64_of(b'n,,')},r={asked.nonce}"
        message = scram.auth_message(self._bare, asked.text, without_proof)
        self._signature = self._kind.hmac(keys.server_key, message)
        proof = scram.client_proof(self._kind, keys, message)
        return f"{without_proof},p={scram.base64_of(proof)}".encode()


_TOKEN: Final = re.compile(r"[-A-Za-z0-9._~+/]+=*")
"""RFC 6750, 2.1."""
_EXTENSION: Final = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_SEPARATOR: Final = "\x01"


class OauthBearerClient:
    """OAUTHBEARER (RFC 7628, KIP-255). `extensions` are KIP-342's. Raises ValueError for what it cannot carry."""

    is_slow: ClassVar[bool] = False

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise ValueError("a token for OAUTHBEARER is letters, digits and -._~+/ (RFC 6750)")
        pairs = {"auth": f"Bearer {token}"}
        for key, value in (extensions or {}).items():
            if key == "auth" or not _EXTENSION[0].fullmatch(key) or not _EXTENSION[1].fullmatch(value):
                raise ValueError(f"{key[:40]!r} is no extension of OAUTHBEARER (RFC 7628, 3.1)")
            pairs[key] = value
        self.name: Final = OAUTHBEARER
        listed = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
        self._message = f"n,,{_SEPARATOR}{listed}{_SEPARATOR}".encode()
        self._refusal: str | None = None
        self.complete = False

    def start(self) -> bytes:
        """See `Mechanism`."""
        return self._message

    def receive(self, challenge: bytes) -> bytes | None:
        """A challenge is an error; the server's refusal follows the answer to it (RFC 7628, 3.2.3)."""
        if self._refusal is not None:
            raise SaslError(f"the server refuses the token: {self._refusal}")
        if challenge:
            self._refusal = _status(challenge)
            return _SEPARATOR.encode()
        self.complete = True
        return None


def _status(challenge: bytes) -> str:
    """The status in a server's error, such as invalid_token."""
    try:
        answer = json.loads(challenge)
    except ValueError:
        return "without a reason"
    status = answer.get("status") if isinstance(answer, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(status)[:100] if status else "without a reason"  # pyright: ignore[reportUnknownArgumentType]
