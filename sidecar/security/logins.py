"""Logins of clients: the interface of their checker, and the checker of nodes that check logins themselves.

With `gateway.relay` brokers check them.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sidecar.security import scram
from sidecar.security.credentials import MECHANISMS
from sidecar.security.errors import SaslError
from sidecar.security.files import MadeOfFiles
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.scram import Hash
from sidecar.security.servers import (
    OauthBearerServer,
    PlainServer,
    ScramServer,
    check_password,
    is_name,
    read_bearer,
    read_plain,
    refusal,
)
from sidecar.security.users import Users, load_users
from sidecar.security.web import WebClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.security.jwks import Jwks
    from sidecar.security.listener import ListenerSettings
    from sidecar.security.servers import ServerMechanism


def _nothing() -> None:
    """Nothing to close."""


class Offer(NamedTuple):
    """Answer to a client that names a mechanism: all mechanisms, and an exchange if it named one of them.

    `close` ends an exchange, whether it is complete or not.
    """

    mechanisms: tuple[str, ...]
    exchange: ServerMechanism | None
    close: Callable[[], None] = _nothing


class Authenticator(Protocol):
    """The checker of clients' logins. `under_way`: logins that are being checked. `waiting`: logins that wait."""

    @property
    def under_way(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    async def begin(self, mechanism: str, host: str) -> Offer:
        """Begin a login by this mechanism, of a client at this address. Raises UpstreamError if no broker can be
        reached.
        """
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...


class OwnLogins:
    """An `Authenticator` without brokers: `makers` has a factory of exchanges for each mechanism. No login waits."""

    under_way = waiting = 0

    def __init__(
        self,
        makers: Mapping[str, Callable[[], ServerMechanism]],
        keys: Jwks | None = None,
        web: WebClient | None = None,
    ) -> None:
        self._makers = makers
        self._keys = keys
        self._web = web

    async def begin(self, mechanism: str, host: str) -> Offer:
        """See `Authenticator`."""
        make = self._makers.get(mechanism)
        return Offer(tuple(self._makers), None if make is None else make())

    async def close(self) -> None:
        """See `Authenticator`."""
        if self._keys is not None:
            await self._keys.close()
        if self._web is not None:
            await self._web.close()


class OnChange(Protocol):
    """Called when the users or keys change: with the problem if they are not usable, or None if they are in use."""

    def __call__(self, problem: Exception | str | None) -> None: ...


def own_logins(settings: ListenerSettings, on_change: OnChange) -> OwnLogins | None:
    """From settings; None if brokers check logins, or there are none. Raises ValueError for an unusable file."""
    if not settings.security_protocol.startswith("SASL_") or settings.sasl_authentication == "relay":
        return None
    makers: dict[str, Callable[[], ServerMechanism]]
    keys = web = None
    if settings.sasl_authentication == "file":
        path = Path(settings.sasl_users_file or "")
        users = MadeOfFiles((path,), partial(load_users, path), on_change)
        makers = {PLAIN: partial(PlainServer, check_password(users))}
        makers |= {kind.mechanism: partial(ScramServer, kind, partial(_credential, users)) for kind in Hash}
    else:
        from sidecar.security.jwks import Expected, Jwks  # noqa: PLC0415 - loads 9 MB that no other node needs

        expected = Expected(settings.sasl_audience, settings.sasl_issuer, settings.sasl_principal_claim)
        web = WebClient()
        keys = Jwks(settings.sasl_jwks_url or "", expected, web, on_change)
        makers = {OAUTHBEARER: partial(OauthBearerServer, keys.check)}
    allowed = chosen(settings)
    return OwnLogins({name: make for name, make in makers.items() if name in allowed}, keys, web)


def _credential(users: Callable[[], Users], username: str, kind: Hash) -> Any:
    return users().credential(username, kind)


def chosen(settings: ListenerSettings) -> tuple[str, ...]:
    """Return the mechanisms that settings allow."""
    if settings.sasl_mechanisms is None:
        return MECHANISMS
    return tuple(name.strip() for name in settings.sasl_mechanisms.split(","))


# Names in relayed logins ----------------------------------------------------------------------------------------------


class Claimed(NamedTuple):
    """The name in a first message: a user's, or the id of a delegation token (KIP-48), whose owner brokers know."""

    name: str
    is_token: bool = False


def claimed_name(mechanism: str, message: bytes, claim: str = "sub") -> Claimed:
    """Return the name that a broker accepts if it accepts this first message. Raises LoginError.

    Ambiguous messages are refused: the rules apply to the name found here, and a broker must not read another.
    """
    is_token = False
    if mechanism == PLAIN:
        name = read_plain(message)[1]
    elif mechanism == OAUTHBEARER:
        name = _subject(read_bearer(message)[1], claim)
    else:
        try:
            first = scram.parse_client_first(message)
        except SaslError as error:
            raise refusal(mechanism, str(error)) from None
        is_token = "tokenauth" in first.extensions
        if is_token and first.extensions["tokenauth"] != "true":
            raise refusal(mechanism, "tokenauth is neither true nor left out")
        name = first.username
    if not is_name(name):
        raise refusal(mechanism, "the name is not printable, or too long")
    return Claimed(name, is_token)


def _subject(token: str, claim: str) -> str:
    try:
        payload = token.split(".")[1]
        found = json.loads(
            base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), object_pairs_hook=_without_doubles
        )
        name = found[claim]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise refusal(OAUTHBEARER, f"the token has no claim {claim}") from None
    if not isinstance(name, str):
        raise refusal(OAUTHBEARER, f"the token's claim {claim} is no text")
    return name


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
