"""How connections to brokers begin: with or without TLS, with or without a login, as a node's settings say."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from sidecar.security.credentials import Credentials, PasswordCredentials, PasswordFile, TokenCredentials
from sidecar.security.files import FileError, MadeOfFiles
from sidecar.security.mechanisms import OAUTHBEARER
from sidecar.security.principal_mapping import ANONYMOUS
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.tokens import ClientCredentials, Tokens, load_provider
from sidecar.security.web import WebClient


class BrokerSettings(Protocol):
    """The settings `SIDECAR_KAFKA_…` (docs/reference/settings.md), checked against each other (`sidecar.settings`)."""

    @property
    def kafka_security_protocol(self) -> str: ...
    @property
    def kafka_ssl_ca(self) -> str | None: ...
    @property
    def kafka_ssl_certificate(self) -> str | None: ...
    @property
    def kafka_ssl_key(self) -> str | None: ...
    @property
    def kafka_ssl_key_password(self) -> str | None: ...
    @property
    def kafka_ssl_check_hostname(self) -> bool: ...
    @property
    def kafka_sasl_mechanism(self) -> str | None: ...
    @property
    def kafka_sasl_username(self) -> str | None: ...
    @property
    def kafka_sasl_password(self) -> str | None: ...
    @property
    def kafka_sasl_password_file(self) -> str | None: ...
    @property
    def kafka_sasl_token_url(self) -> str | None: ...
    @property
    def kafka_sasl_client_id(self) -> str | None: ...
    @property
    def kafka_sasl_client_secret(self) -> str | None: ...
    @property
    def kafka_sasl_scope(self) -> str | None: ...
    @property
    def kafka_sasl_token_provider(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """`tls` returns the context for a new connection; None: plain TCP. `credentials` None: no login."""

    tls: Callable[[], ssl.SSLContext] | None = None
    credentials: Credentials | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name for the security protocol."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        return transport if self.credentials is None else f"SASL_{transport}"


PLAIN_TCP: Final = BrokerAccess()


def broker_access(settings: BrokerSettings, on_change: Callable[[FileError | None], None]) -> BrokerAccess:
    """From settings; `on_change` is called when TLS files change (`MadeOfFiles`).

    Raises ValueError for an unusable file (the message names it), for a name or password that no mechanism can send,
    and for a token provider that is not installed.
    """
    protocol = settings.kafka_security_protocol
    tls = None
    if protocol in ("SSL", "SASL_SSL"):
        names = settings.kafka_ssl_certificate, settings.kafka_ssl_key, settings.kafka_ssl_ca
        files = TlsFiles.of(*names, settings.kafka_ssl_key_password)
        make = partial(client_context, files, check_hostname=settings.kafka_ssl_check_hostname)
        tls = MadeOfFiles(files.paths, make, on_change)
    credentials = _credentials(settings) if protocol.startswith("SASL_") else None
    return BrokerAccess(tls, credentials)


def user_at_brokers(settings: BrokerSettings) -> str | None:
    """The name that brokers have for this node's user, without `User:`. None if the node cannot know it: brokers map
    certificates and tokens to names by rules of their own.
    """
    if settings.kafka_security_protocol.startswith("SASL_"):
        return settings.kafka_sasl_username
    shows_certificate = settings.kafka_security_protocol == "SSL" and settings.kafka_ssl_certificate is not None
    return None if shows_certificate else ANONYMOUS


def access_of(settings: BrokerSettings) -> BrokerAccess:
    """As `broker_access`, for a command: unusable new files are not reported while it runs."""
    return broker_access(settings, lambda _: None)


def _credentials(settings: BrokerSettings) -> Credentials:
    if settings.kafka_sasl_mechanism == OAUTHBEARER:
        return TokenCredentials(_tokens(settings))
    password = (
        PasswordFile(Path(settings.kafka_sasl_password_file))
        if settings.kafka_sasl_password_file is not None
        else settings.kafka_sasl_password or ""
    )
    return PasswordCredentials(settings.kafka_sasl_mechanism or "", settings.kafka_sasl_username or "", password)


def _tokens(settings: BrokerSettings) -> Tokens:
    options = {
        "token_url": settings.kafka_sasl_token_url,
        "client_id": settings.kafka_sasl_client_id,
        "client_secret": settings.kafka_sasl_client_secret,
        "scope": settings.kafka_sasl_scope,
    }
    if settings.kafka_sasl_token_provider is not None:
        given = {name: value for name, value in options.items() if value is not None}
        return Tokens(load_provider(settings.kafka_sasl_token_provider, given))
    web = WebClient(partial(_web_context, settings.kafka_ssl_ca))
    return Tokens(
        ClientCredentials(
            settings.kafka_sasl_token_url or "",
            settings.kafka_sasl_client_id or "",
            settings.kafka_sasl_client_secret or "",
            settings.kafka_sasl_scope,
            web,
        )
    )


def _web_context(ca: str | None) -> ssl.SSLContext:
    """A token endpoint is trusted by the system's certificates, or by those for brokers."""
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(ca)
    return context
