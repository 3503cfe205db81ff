"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): keys, proofs and the four messages. Pure.

Nothing here decides which users may log in: `mechanisms` is the client's side, `servers` the server's. There is
no channel binding, as in Kafka. Passwords are hashed as UTF-8, unchanged, as in Kafka: see `saslprep`.
"""

import base64
import binascii
import hashlib
import hmac
from enum import Enum
from typing import Final, NamedTuple

from sidecar.security.errors import SaslError

MIN_ITERATIONS: Final = 4_096
"""RFC 7677, 4; Kafka's `ScramMechanism` has the same."""
MAX_ITERATIONS: Final = 100_000
"""A limit against servers that overload clients: 60 ms of SHA-512. Kafka uses at most 16,384."""
SALT_BYTES: Final = 16


class Hash(Enum):
    """A mechanism by its name; `value` is the hash function's name in `hashlib`."""

    SCRAM_SHA_256 = "sha256"
    SCRAM_SHA_512 = "sha512"

    @property
    def mechanism(self) -> str:
        """The name in SaslHandshake: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def size(self) -> int:
        """Bytes of a key."""
        return hashlib.new(self.value).digest_size

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """HMAC(key, message)."""
        return hmac.digest(key, message, self.value)

    def hash(self, data: bytes) -> bytes:
        """H(data)."""
        return hashlib.new(self.value, data).digest()


KINDS: Final = {kind.mechanism: kind for kind in Hash}


class ClientKeys(NamedTuple):
    """The keys that a client derives from its password."""

    client_key: bytes
    server_key: bytes


class StoredKeys(NamedTuple):
    """The keys that a server stores for a password: enough to check a proof, not enough to make one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def client_keys(kind: Hash, password: str, salt: bytes, iterations: int) -> ClientKeys:
    """Derive the keys: 1 ms and more for 4,096 iterations, without Python's lock. Raises ValueError for other than 1 to
    `MAX_ITERATIONS`.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations; 1 to {MAX_ITERATIONS} are possible")
    salted = hashlib.pbkdf2_hmac(kind.value, password.encode(), salt, iterations)
    return ClientKeys(kind.hmac(salted, b"Client Key"), kind.hmac(salted, b"Server Key"))


def stored_keys(kind: Hash, password: str, salt: bytes, iterations: int) -> StoredKeys:
    """Return the keys that a server stores for this password. Raises ValueError as `client_keys`."""
    keys = client_keys(kind, password, salt, iterations)
    return StoredKeys(salt, iterations, kind.hash(keys.client_key), keys.server_key)


def auth_message(client_first_bare: str, server_first: str, without_proof: str) -> bytes:
    """Return the message that both sides sign."""
    return f"{client_first_bare},{server_first},{without_proof}".encode()


def client_proof(kind: Hash, keys: ClientKeys, message: bytes) -> bytes:
    """The client key, readable only with the stored key."""
    return _xor(keys.client_key, kind.hmac(kind.hash(keys.client_key), message))


def is_proof(kind: Hash, stored: StoredKeys, message: bytes, proof: bytes) -> bool:
    """Whether the client that made a proof knows the password. Takes the same time for every proof."""
    if len(proof) != kind.size:
        return False
    client_key = _xor(proof, kind.hmac(stored.stored_key, message))
    return hmac.compare_digest(kind.hash(client_key), stored.stored_key)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


# Messages -------------------------------------------------------------------------------------------------------------


class ClientFirst(NamedTuple):
    """`gs2` is its header, with both commas; `bare` the rest as it came; `extensions` such as tokenauth=true."""

    gs2: str
    bare: str
    authorization_id: str
    username: str
    nonce: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    """The whole message as it came, and what it says."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`without_proof` is all before `,p=`; `binding` the header that the client says it sent."""

    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


class ServerFinal(NamedTuple):
    """A signature, or an error in its place."""

    signature: bytes
    error: str


def sasl_name(name: str) -> str:
    """Return a name in the form of messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def name_of(text: str) -> str:
    """Return the name in a `sasl_name`. Raises SaslError."""
    if "=" in text.replace("=2C", "").replace("=3D", ""):
        raise SaslError("malformed SCRAM message: a name with a bare =")
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or "\0" in name:
        raise SaslError("malformed SCRAM message: no name")
    return name


def parse_client_first(data: bytes) -> ClientFirst:
    """Raises SaslError; for channel binding too, which Kafka does not have."""
    flag, authorization, bare = _parts(_text(data), 3)
    if flag not in ("n", "y"):
        raise SaslError("SCRAM with channel binding is not supported")
    if authorization and not authorization.startswith("a="):
        raise SaslError("malformed SCRAM message: no authorization id where one must be")
    (first, name), (second, nonce), *more = _attributes(bare, 2)
    if (first, second) != ("n", "r"):
        raise SaslError("malformed SCRAM message: name and nonce must come first")
    authorized = name_of(authorization[2:]) if authorization else ""
    return ClientFirst(f"{flag},{authorization},", bare, authorized, name_of(name), _nonce(nonce), dict(more))


def parse_server_first(data: bytes) -> ServerFirst:
    """Raises SaslError; for iterations outside `MIN_ITERATIONS` to `MAX_ITERATIONS` too."""
    text = _text(data)
    (first, nonce), (second, salt), (third, iterations), *_ = _attributes(text, 3)
    if (first, second, third) != ("r", "s", "i") or not salt:
        raise SaslError("malformed SCRAM message: nonce, salt and iterations must come first")
    if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 10):
        raise SaslError("malformed SCRAM message: iterations are no number")
    count = int(iterations)
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise SaslError(f"the server asks for {count} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted")
    return ServerFirst(text, _nonce(nonce), _bytes(salt), count)


def parse_client_final(data: bytes) -> ClientFinal:
    """Raises SaslError."""
    text = _text(data)
    (first, binding), (second, nonce), *_, (last, proof) = _attributes(text, 3)
    if (first, second, last) != ("c", "r", "p"):
        raise SaslError("malformed SCRAM message: binding, nonce and proof expected")
    return ClientFinal(text[: text.rindex(",p=")], _bytes(binding), _nonce(nonce), _bytes(proof))


def parse_server_final(data: bytes) -> ServerFinal:
    """Raises SaslError."""
    (kind, value), *_ = _attributes(_text(data), 1)
    if kind == "e":
        return ServerFinal(b"", value)
    if kind != "v":
        raise SaslError("malformed SCRAM message: neither a signature nor an error")
    return ServerFinal(_bytes(value), "")


def base64_of(data: bytes) -> str:
    """Return bytes in the form of messages."""
    return base64.b64encode(data).decode()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslError("malformed SCRAM message: not UTF-8") from None


def _parts(text: str, count: int) -> list[str]:
    parts = text.split(",", count - 1)
    if len(parts) < count:
        raise SaslError("malformed SCRAM message: too short")
    return parts


def _attributes(text: str, least: int) -> list[tuple[str, str]]:
    """Names and values. An unknown one at the front that must be understood (`m=`) is refused (RFC 5802, 5.1)."""
    parts = text.split(",")
    if len(parts) < least:
        raise SaslError("malformed SCRAM message: too short")
    found: list[tuple[str, str]] = []
    for part in parts:
        name, equals, value = part.partition("=")
        if not (equals and name.isascii() and name.isalpha()):
            raise SaslError("malformed SCRAM message: attributes are a letter, = and a value")
        found.append((name, value))
    if found[0][0] == "m":
        raise SaslError("a mandatory extension of SCRAM that is not supported")
    return found


def _nonce(text: str) -> str:
    if not text or not all("!" <= each <= "~" for each in text):
        raise SaslError("malformed SCRAM message: a nonce is printable ASCII")
    return text


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("malformed SCRAM message: not in base64") from None
