"""TLS and login of connections to nodes, by parameters that have aiokafka's names.

A reader's own connections are made by aiokafka; `NodeAccess.settings` are its parameters.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypedDict

from sidecar.security.credentials import Credentials, PasswordCredentials
from sidecar.security.errors import TokenError
from sidecar.security.mechanisms import OAUTHBEARER, Mechanism, OauthBearerClient

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class TokenProvider(Protocol):
    """Returns tokens for OAUTHBEARER, as aiokafka's `AbstractTokenProvider` does."""

    async def token(self) -> str:
        """Return a valid token; called at each login."""
        ...

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions that are sent with the token (KIP-342)."""
        ...


class AccessParameters(TypedDict, total=False):
    """The parameters for TLS and login, as a user passes them."""

    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


class NodeAccess:
    """The checked parameters. If `tls` is None connections are plain TCP; if `credentials` is None there is no login.
    Raises ValueError for parameters that contradict each other.
    """

    def __init__(
        self,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_oauth_token_provider: TokenProvider | None = None,
    ) -> None:
        if security_protocol not in _PROTOCOLS:
            raise ValueError(f"security_protocol {security_protocol!r} is none of {', '.join(_PROTOCOLS)}")
        has_tls, has_login = security_protocol.endswith("SSL"), security_protocol.startswith("SASL_")
        if ssl_context is not None and not has_tls:
            raise ValueError(f"ssl_context is of no use: security_protocol is {security_protocol}")
        named = (sasl_plain_username, sasl_plain_password, sasl_oauth_token_provider)
        if not has_login and any(each is not None for each in named):
            raise ValueError(f"there is no login with security_protocol {security_protocol}: SASL_SSL has one")
        self.tls: ssl.SSLContext | None = (ssl_context or ssl.create_default_context()) if has_tls else None
        self.credentials: Credentials | None = None
        if has_login and sasl_mechanism == OAUTHBEARER:
            if sasl_oauth_token_provider is None:
                raise ValueError(f"sasl_oauth_token_provider is missing: {OAUTHBEARER} takes its tokens")
            self.credentials = _ProvidedTokens(sasl_oauth_token_provider)
        elif has_login:
            if sasl_plain_username is None or sasl_plain_password is None:
                raise ValueError(f"{sasl_mechanism} takes sasl_plain_username and sasl_plain_password")
            self.credentials = PasswordCredentials(sasl_mechanism, sasl_plain_username, sasl_plain_password)
        self.settings: dict[str, Any] = {"security_protocol": security_protocol, "ssl_context": self.tls}
        if has_login:
            self.settings |= {
                "sasl_mechanism": sasl_mechanism,
                "sasl_plain_username": sasl_plain_username,
                "sasl_plain_password": sasl_plain_password,
                "sasl_oauth_token_provider": sasl_oauth_token_provider,
            }


class _ProvidedTokens:
    """`Credentials` from an application's token provider, which stores its tokens itself."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    def refused(self, reason: str) -> None:
        """See `Credentials`. Nothing to do: the next login requests a token again."""

    async def mechanism(self) -> Mechanism:
        token = await self._provider.token()
        try:
            return OauthBearerClient(token, self._provider.extensions())
        except ValueError as error:
            raise TokenError(f"the provider's token cannot be sent: {error}") from None

    async def close(self) -> None:
        """See `Credentials`: the provider belongs to the caller."""


PLAIN_TCP: Final = NodeAccess()
