"""The users of a listener in their own file (`SIDECAR_SASL_AUTHENTICATION=file`): names and SCRAM's stored keys.

The file is TOML. Each user has a list of entries, one for each mechanism, in the form that PostgreSQL has them in:

    [users]
    alice = [
        "SCRAM-SHA-256$8192:<salt>$<stored key>:<server key>",
        "SCRAM-SHA-512$8192:<salt>$<stored key>:<server key>",
    ]

Salt and keys are in base64. No password can be read from it, but a thief of it can impersonate the *server*, and try
passwords: keep it as secret as a key. `user_line` makes a line. PLAIN is checked against the same entries.

An unknown name is answered like a known one: the same salt each time, the same iterations, the same work, and a refusal
at the end. Its salt is derived from the file's own secrets, so all nodes with the same file return the same.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from sidecar.security import scram
from sidecar.security.files import FileError
from sidecar.security.saslprep import saslprep
from sidecar.security.scram import KINDS, MAX_ITERATIONS, MIN_ITERATIONS, SALT_BYTES, Hash, StoredKeys

ITERATIONS: Final = 8_192
"""Of entries that are made here; Kafka's tools make 4,096."""
NAME_BYTES: Final = 255
_ENTRY: Final = re.compile(r"([A-Z0-9-]+)\$([0-9]{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


class UsersFileError(FileError):
    """A file of users that cannot be used; the message names file and user."""


class Credential(NamedTuple):
    """The keys to check a login with. If `known` is False there is no such user, and every login fails."""

    keys: StoredKeys
    known: bool


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a file; never changes."""

    entries: Mapping[str, Mapping[Hash, StoredKeys]] = field(repr=False)
    _secret: bytes = field(repr=False)
    _forms: Mapping[Hash, int]
    _plain: Hash

    @classmethod
    def of(cls, entries: Mapping[str, Mapping[Hash, StoredKeys]]) -> "Users":
        """Entries by name and mechanism."""
        every = [(kind, keys) for found in entries.values() for kind, keys in found.items()]
        digest = hashlib.sha256(b"salts of unknown names")
        for server_key in sorted(keys.server_key for _, keys in every):
            digest.update(server_key)
        forms = {kind: _commonest((keys.iterations for of, keys in every if of is kind), ITERATIONS) for kind in Hash}
        plain = _commonest((_for_plain(found) for found in entries.values()), Hash.SCRAM_SHA_256)
        return cls(entries, digest.digest(), forms, plain)

    def mechanisms(self) -> tuple[str, ...]:
        """Those that at least one user has an entry for."""
        kinds = {kind for found in self.entries.values() for kind in found}
        return tuple(kind.mechanism for kind in Hash if kind in kinds)

    def credential(self, username: str, kind: Hash) -> Credential:
        """What SCRAM checks a login with."""
        found = self.entries.get(username, {}).get(kind)
        if found is not None:
            return Credential(found, known=True)
        salt = hmac.digest(self._secret, f"{kind.mechanism},{username}".encode(), "sha256")[:SALT_BYTES]
        nothing = bytes(kind.size)
        return Credential(StoredKeys(salt, self._forms[kind], nothing, nothing), known=False)

    def is_password(self, username: str, password: str) -> bool:
        """What PLAIN checks. Derives keys: milliseconds, without Python's lock. Takes as long for an unknown name."""
        found = self.entries.get(username)
        kind = _for_plain(found) if found else self._plain
        keys, known = self.credential(username, kind)
        given = scram.stored_keys(kind, password, keys.salt, keys.iterations)
        return hmac.compare_digest(given.stored_key, keys.stored_key) and known


def _for_plain(found: Mapping[Hash, StoredKeys]) -> Hash:
    """The entry that PLAIN is checked against: the first in the order of `Hash`."""
    return next(kind for kind in Hash if kind in found)


def _commonest(values: Iterable[Any], absent: Any) -> Any:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else absent


# The file -------------------------------------------------------------------------------------------------------------


def read_users(text: str, name: str) -> Users:
    """The users in a file's text; `name` is the file's, for messages. Raises UsersFileError."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsersFileError(f"{name} is not TOML: {error}") from None
    users = values.pop("users", None)
    if values or not isinstance(users, dict):
        raise UsersFileError(f"{name} must have one table, [users], and nothing else")
    entries: dict[str, dict[Hash, StoredKeys]] = {}
    for username, listed in cast("dict[str, Any]", users).items():
        where = f"user {username[:100]!r} in {name}"
        if not _is_name(username):
            raise UsersFileError(f"{where}: a name has 1 to {NAME_BYTES} bytes, printable")
        if not isinstance(listed, list) or not listed:
            raise UsersFileError(f"{where} must have a list of entries")
        for entry in cast("list[Any]", listed):
            kind, keys = _read_entry(entry, where)
            if kind in entries.setdefault(username, {}):
                raise UsersFileError(f"{where} has two entries for {kind.mechanism}")
            entries[username][kind] = keys
    return Users.of(entries)


def load_users(path: Path) -> Users:
    """The users in a file, for `files.MadeOfFiles`. Raises UsersFileError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsersFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsersFileError(f"{path} is not UTF-8") from None
    return read_users(text, str(path))


def _read_entry(entry: object, where: str) -> tuple[Hash, StoredKeys]:
    match = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
    kind = KINDS.get(match[1]) if match is not None else None
    if match is None or kind is None:
        raise UsersFileError(f"{where}: an entry is MECHANISM$iterations:salt$stored key:server key, with {[*KINDS]}")
    try:
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in match.group(3, 4, 5))
    except (binascii.Error, ValueError):
        raise UsersFileError(f"{where}: salt and keys are in base64") from None
    if len(stored_key) != kind.size or len(server_key) != kind.size:
        raise UsersFileError(f"{where}: keys of {kind.mechanism} have {kind.size} bytes")
    iterations = int(match[2])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UsersFileError(f"{where}: {iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are possible")
    return kind, StoredKeys(salt, iterations, stored_key, server_key)


def user_line(username: str, password: str, iterations: int = ITERATIONS) -> str:
    """A line for the file, with an entry for each mechanism and salts that nobody else has. Raises ValueError.

    A password that SASLprep changes is refused: clients that do it and those that do not, Kafka's, would disagree.
    """
    if not _is_name(username):
        raise ValueError(f"a name has 1 to {NAME_BYTES} bytes, printable")
    if not password:
        raise ValueError("the password is empty")
    try:
        if saslprep(password) != password:
            raise ValueError("clients read it in two ways (SASLprep, RFC 4013)")
    except ValueError as error:
        raise ValueError(f"choose another password: {error}") from None
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are possible")
    entries: list[str] = []
    for kind in Hash:
        keys = scram.stored_keys(kind, password, secrets.token_bytes(SALT_BYTES), iterations)
        salt, stored_key, server_key = map(scram.base64_of, (keys.salt, keys.stored_key, keys.server_key))
        entries.append(f'"{kind.mechanism}${iterations}:{salt}${stored_key}:{server_key}"')
    quoted = username.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" = [{", ".join(entries)}]'


def _is_name(username: str) -> bool:
    return 0 < len(username.encode(errors="replace")) <= NAME_BYTES and username.isprintable()
