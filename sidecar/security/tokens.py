"""Tokens to log in with at brokers (OAUTHBEARER): their providers, and when a new one is requested.

A provider is built in: OAuth's client credentials (RFC 6749, 4.4; KIP-768). Others are entry points of the group
`sidecar.token_providers`, so that a package can bring the IAM of a cloud:

    [project.entry-points."sidecar.token_providers"]
    mycloud = "mypackage.kafka:provider"

The entry point is called with the options that the node has (`token_url`, `client_id`, `client_secret`, `scope`, as far
as they are set) and returns a `TokenProvider`.
"""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final, Protocol, cast
from urllib.parse import quote_plus

from sidecar.security.errors import TokenError
from sidecar.security.web import Fetch, WebAnswer, WebError

PROVIDERS: Final = "sidecar.token_providers"
REFRESH_AT: Final = 0.8
"""The part of its life after which a token is replaced, as Kafka's `sasl.login.refresh.window.factor`."""
RETRY_S: Final = 10.0
"""Seconds between two attempts to replace a token that is still valid."""
TIMEOUT_S: Final = 30.0
"""Seconds for a provider to return a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, never shown. `lifetime_s`: how long it is valid from now on; None if unknown: then it is used for
    one login. `extensions` are sent with it (KIP-342).
    """

    value: str = field(repr=False)
    lifetime_s: float | None
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])


class TokenProvider(Protocol):
    """Returns tokens. `Tokens` stores them, not the provider."""

    async def token(self) -> Token:
        """A new token, within `TIMEOUT_S`. Raises TokenError or any other exception."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class NoSuchProviderError(ValueError):
    """No installed package has an entry point of that name."""


def load_provider(name: str, options: Mapping[str, str]) -> TokenProvider:
    """The provider of an entry point. Raises NoSuchProviderError, or what the package raises."""
    found = metadata.entry_points(group=PROVIDERS)
    if name not in found.names:
        known = ", ".join(sorted(found.names)) or "none"
        raise NoSuchProviderError(f"no installed package has the token provider {name!r}; there are: {known}")
    make: Callable[[Mapping[str, str]], TokenProvider] = found[name].load()
    return make(options)


class Tokens:
    """Returns the current token. After `REFRESH_AT` of its life a call replaces it, with one request for all callers.
    While the provider is unreachable the old token is used until its end.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, provider: TokenProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._clock = clock
        self._token: Token | None = None
        self._refresh_at = self._ends_at = 0.0
        self._asking: asyncio.Task[Token] | None = None

    async def get(self) -> Token:
        """Raises TokenError."""
        if self._token is not None and self._clock() < self._refresh_at:
            return self._token
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        try:
            return await asyncio.shield(self._asking)
        except TokenError:
            if self._token is None or self._clock() >= self._ends_at:
                raise
            self._refresh_at = min(self._clock() + RETRY_S, self._ends_at)
            return self._token

    async def close(self) -> None:
        """End what is under way, and the provider."""
        if self._asking is not None:
            self._asking.cancel()
        await self._provider.close()

    async def _ask(self) -> Token:
        began = self._clock()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                token = await self._provider.token()
        except TokenError:
            raise
        except TimeoutError:
            raise TokenError(f"the token provider gave no token within {TIMEOUT_S:g} s") from None
        except Exception as error:  # noqa: BLE001 - a provider of somebody else's; its message may hold a secret
            raise TokenError(f"the token provider failed with {type(error).__name__}") from None
        if not isinstance(token, Token):  # pyright: ignore[reportUnnecessaryIsInstance] - somebody else's code
            raise TokenError(f"the token provider gave a {type(token).__name__} in place of a token")
        if token.lifetime_s is not None:
            self._token = token
            self._refresh_at = began + token.lifetime_s * REFRESH_AT
            self._ends_at = began + token.lifetime_s
        return token

    def _asked(self, task: asyncio.Task[Token]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # all callers may have been cancelled


class ClientCredentials:
    """Tokens for a client id and its secret, from a token endpoint (RFC 6749, 4.4; KIP-768).

    Id and secret are form-encoded before they become Basic authentication (RFC 6749, 2.3.1): without that `:`, `%` and
    `+` in them would be read as others.
    """

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str | None, fetch: Fetch) -> None:
        self._url = url
        self._form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        named = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
        self._headers = {
            "Authorization": f"Basic {base64.b64encode(named.encode()).decode()}",
            "Accept": "application/json",
        }
        self._fetch = fetch

    async def token(self) -> Token:
        """See `TokenProvider`."""
        try:
            answer = await self._fetch(self._url, form=self._form, headers=self._headers)
        except WebError as error:
            raise TokenError(str(error)) from None
        return read_token(self._url, answer, time.time())

    async def close(self) -> None:
        """See `TokenProvider`."""
        await self._fetch.close()


def read_token(url: str, answer: WebAnswer, now: float) -> Token:
    """The token in an endpoint's answer (RFC 6749, 5.1). `now` is Unix time. Raises TokenError.

    Its life is the shorter of `expires_in` and what a JWT says of itself; the latter is not verified, as brokers do.
    """
    values = _object(answer.body)
    if answer.status != 200:
        reason = str(values.get("error", ""))[:100]
        raise TokenError(f"{url} answers {answer.status}" + (f": {reason}" if reason.isprintable() and reason else ""))
    value = values.get("access_token")
    if not isinstance(value, str) or not value:
        raise TokenError(f"{url} answers without an access_token")
    ends = [_seconds(values.get("expires_in"))]
    exp = _seconds(_claims(value).get("exp"))
    if exp is not None:
        ends.append(exp - now)
    lives = [life for life in ends if life is not None]
    if lives and min(lives) <= 0:
        raise TokenError(f"{url} answers with a token that has ended")
    return Token(value, min(lives, default=None))


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _claims(token: str) -> dict[str, Any]:
    """What a JWT says, unverified; nothing where it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def _seconds(value: object) -> float | None:
    """A number, as a string too: endpoints differ."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < 1e12 else None
