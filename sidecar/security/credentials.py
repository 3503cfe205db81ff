"""A node's credentials for brokers: a mechanism for each login, from a password, a password file, or tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sidecar.security.errors import TokenError
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN, OauthBearerClient, PlainClient, ScramClient, ScramSecret
from sidecar.security.scram import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sidecar.security.mechanisms import Mechanism
    from sidecar.security.tokens import Tokens

MECHANISMS = (PLAIN, *KINDS, OAUTHBEARER)


class Credentials(Protocol):
    """Credentials for any number of logins."""

    async def mechanism(self) -> Mechanism:
        """A mechanism for one login. Raises TokenError if there is no token or password."""
        ...

    def refused(self, reason: str) -> None:
        """A broker refused the credentials of the last mechanism. The next login may use others, or the same, as the
        broker may not know them yet.
        """

    async def close(self) -> None:
        """Close connections, if there are any."""


class PasswordFile:
    """A password in its own file, read for each login: a new one needs no restart. A line break at its end is not
    part of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> str:
        """Raises TokenError."""
        try:
            password = self._path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise TokenError(f"the password file {self._path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenError(f"the password file {self._path} is not UTF-8") from None
        if not password or "\0" in password:
            raise TokenError(f"the password file {self._path} is empty or holds a NUL")
        return password


class PasswordCredentials(Credentials):
    """A name and a password, for PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises ValueError for another mechanism.

    `token_auth`: name and password are a delegation token's id and HMAC, which only SCRAM accepts (KIP-48).
    """

    def __init__(
        self, mechanism: str, username: str, password: str | Callable[[], str], *, token_auth: bool = False
    ) -> None:
        if mechanism != PLAIN and mechanism not in KINDS:
            raise ValueError(f"{mechanism!r} is no mechanism with a password: PLAIN, {', '.join(KINDS)}")
        if token_auth and mechanism == PLAIN:
            raise ValueError("a delegation token is for SCRAM")
        self._kind = KINDS.get(mechanism)
        self._username = username
        self._read = password if callable(password) else None
        self._password = "" if callable(password) else password
        self._token_auth = token_auth
        self._secret: ScramSecret | None = None
        if self._read is None:
            self._made()  # raises at once for what no mechanism can send

    async def mechanism(self) -> Mechanism:
        """See `Credentials`."""
        if self._read is not None:
            password = self._read()
            if password != self._password:
                self._password, self._secret = password, None
        return self._made()

    def _made(self) -> Mechanism:
        if self._kind is None:
            return PlainClient(self._username, self._password)
        if self._secret is None:
            self._secret = ScramSecret(self._username, self._password)
        return ScramClient(self._kind, self._secret, token_auth=self._token_auth)


class TokenCredentials(Credentials):
    """Tokens, for OAUTHBEARER."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def mechanism(self) -> Mechanism:
        """See `Credentials`."""
        token = await self._tokens.get()
        try:
            return OauthBearerClient(token.value, token.extensions)
        except ValueError as error:
            raise TokenError(f"the provider's token cannot be sent: {error}") from None

    async def close(self) -> None:
        """See `Credentials`."""
        await self._tokens.close()
