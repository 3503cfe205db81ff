"""Tokens of OAUTHBEARER checked by a node itself against a set of keys (RFC 7517, 7519; KIP-768's broker side).

RS256 and ES256 alone, each with its own kind of keys: a token's algorithm can only choose between
these. A token needs an end (`exp`), the configured audience and issuer, and the claim that names its owner.

The keys come from one URL. They are fetched every hour, and when a token names an unknown key, but at most every ten
seconds: strangers cannot cause more requests. While the server is unreachable the old keys stay in use.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import jwt

from sidecar.security.servers import Identity, RefusedTokenError, is_name
from sidecar.security.web import Fetch, WebError

REFRESH_S: Final = 3_600.0
"""As Kafka's `sasl.oauthbearer.jwks.endpoint.refresh.ms`."""
RETRY_S: Final = 10.0
SKEW_S: Final = 30.0
"""Between the clocks here and there, as Kafka's `sasl.oauthbearer.clock.skew.seconds`."""
RSA_BITS: Final = range(2_048, 8_192 + 1)
"""The RSA keys that are trusted: none that is shorter (RFC 7518, 3.3), or takes a millisecond and more for a look."""
KEYS: Final = 100
"""Of one set."""
_TRIED: Final = 4
"""Keys that a token is tried with: those of its key id, or any where it names none."""
_KINDS: Final[dict[tuple[str, str | None], str]] = {("RSA", None): "RS256", ("EC", "P-256"): "ES256"}


class Key(NamedTuple):
    """A public key, its id if it has one, and the one algorithm that it is for."""

    key_id: str | None
    algorithm: str
    key: jwt.PyJWK


class KeySetError(ValueError):
    """A set of keys that cannot be used."""


class Expected(NamedTuple):
    """The required values of a token; None is not checked. `claim`: the claim that names its owner."""

    audience: str | None = None
    issuer: str | None = None
    claim: str = "sub"


class UnknownKeyError(RefusedTokenError):
    """No key of the set has the id that a token names."""


def read_keys(body: bytes) -> tuple[Key, ...]:
    """The keys of a set that are for signatures with RS256 or ES256; others are passed over. Raises KeySetError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise KeySetError("the key set is not JSON") from None
    listed = cast("dict[str, Any]", found).get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise KeySetError("the key set has no list of keys")
    keys = [key for each in cast("list[Any]", listed)[:KEYS] if (key := _read_key(each)) is not None]
    if not keys:
        raise KeySetError("the key set has no key for RS256 or ES256")
    return tuple(keys)


def _read_key(found: object) -> Key | None:
    if not isinstance(found, dict):
        return None
    values = cast("dict[str, Any]", found)
    kind, curve = values.get("kty"), values.get("crv")
    algorithm = _KINDS.get((str(kind), str(curve) if curve is not None else None))
    if algorithm is None or values.get("use", "sig") != "sig" or values.get("alg", algorithm) != algorithm:
        return None
    try:
        key = jwt.PyJWK(values, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if algorithm == "RS256" and getattr(key.key, "key_size", 0) not in RSA_BITS:
        return None
    key_id = values.get("kid")
    return Key(key_id if isinstance(key_id, str) else None, algorithm, key)


def verify(token: str, keys: tuple[Key, ...], expected: Expected) -> Identity:
    """Return the owner of a token and its end. Raises RefusedTokenError, UnknownKeyError."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise RefusedTokenError(f"no JWT: {str(error)[:200]}") from None
    if "crit" in header:
        raise RefusedTokenError("it has critical extensions, none of which is known here")
    claims = _claims(token, _candidates(header, keys), expected)
    name = claims.get(expected.claim)
    if not isinstance(name, str) or not is_name(name):
        raise RefusedTokenError(f"its claim {expected.claim} is no name")
    try:
        return Identity(name, float(claims["exp"]))
    except OverflowError:
        raise RefusedTokenError("its end is no time") from None


def _candidates(header: dict[str, Any], keys: tuple[Key, ...]) -> list[Key]:
    """The keys that may have signed a token. Raises RefusedTokenError."""
    algorithm = header.get("alg")
    if algorithm not in _KINDS.values():
        raise RefusedTokenError("its algorithm is neither RS256 nor ES256")
    key_id = header.get("kid")
    if key_id is None:
        return [key for key in keys if key.algorithm == algorithm][:_TRIED]
    found = [key for key in keys if key.key_id == key_id]
    if not found:
        raise UnknownKeyError("it names a key that is not in the set")
    return [key for key in found if key.algorithm == algorithm][:_TRIED]


def _claims(token: str, keys: list[Key], expected: Expected) -> dict[str, Any]:
    reason = "no key is for its algorithm"
    for key in keys:
        try:
            return jwt.decode(
                token,
                key.key.key,
                algorithms=[key.algorithm],
                audience=expected.audience,
                issuer=expected.issuer,
                leeway=SKEW_S,
                options={
                    "require": ["exp", *(["iss"] if expected.issuer else [])],
                    "verify_aud": expected.audience is not None,
                    "verify_iss": expected.issuer is not None,
                },
            )
        except jwt.PyJWTError as error:
            reason = str(error)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            reason = f"malformed: {type(error).__name__}"
    raise RefusedTokenError(reason)


class Jwks:
    """The keys at a URL, and tokens checked by them: `check` is for `servers.OauthBearerServer`.

    `on_change` is called with the reason why keys could not be fetched, None once they are there again. `clock` is
    monotonic, in seconds.
    """

    def __init__(
        self,
        url: str,
        expected: Expected,
        fetch: Fetch,
        on_change: Callable[[str | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._expected = expected
        self._fetch = fetch
        self._on_change = on_change
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._asked_at: float | None = None
        self._fetched_at = 0.0
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None

    async def check(self, token: str) -> Identity:
        """Return the owner of a token. Raises RefusedTokenError."""
        if not self._keys:
            await self._refreshed()
        elif self._clock() - self._fetched_at >= REFRESH_S:
            self._refresh()  # no login waits for it
        try:
            return verify(token, self._keys, self._expected)
        except UnknownKeyError:
            if not await self._refreshed():
                raise
            return verify(token, self._keys, self._expected)

    async def close(self) -> None:
        """Cancel the request that is under way."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _refreshed(self) -> bool:
        """Whether the keys were requested, by this call or by another one meanwhile."""
        fetching = self._refresh()
        if fetching is None:
            return False
        await asyncio.shield(fetching)
        return True

    def _refresh(self) -> asyncio.Task[None] | None:
        """The request that is under way, or None if the last one was less than `RETRY_S` ago."""
        if self._fetching is None:
            now = self._clock()
            if self._asked_at is not None and now - self._asked_at < RETRY_S:
                return None
            self._asked_at = now
            self._fetching = asyncio.create_task(self._ask())
            self._fetching.add_done_callback(self._asked)
        return self._fetching

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _ask(self) -> None:
        try:
            answer = await self._fetch(self._url, headers={"Accept": "application/json"})
            if answer.status != 200:
                raise KeySetError(f"{self._url} answers {answer.status}")
            self._keys = read_keys(answer.body)
        except (WebError, KeySetError) as error:
            self._failed = True
            self._on_change(str(error))
        else:
            self._fetched_at = self._clock()
            if self._failed:
                self._failed = False
                self._on_change(None)
