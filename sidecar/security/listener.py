"""How clients' connections begin: with or without TLS, as a node's settings say."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sidecar.security.files import FileError, MadeOfFiles
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.security.tls import ClientAuth, TlsFiles, principal_of, server_context


class ListenerSettings(Protocol):
    """A listener's security settings (docs/reference/settings.md), checked against each other (`sidecar.settings`)."""

    @property
    def security_protocol(self) -> str: ...
    @property
    def ssl_certificate(self) -> str | None: ...
    @property
    def ssl_key(self) -> str | None: ...
    @property
    def ssl_key_password(self) -> str | None: ...
    @property
    def ssl_ca(self) -> str | None: ...
    @property
    def ssl_client_auth(self) -> str: ...
    @property
    def ssl_principal_mapping_rules(self) -> str: ...
    @property
    def sasl_mechanisms(self) -> str | None: ...
    @property
    def sasl_authentication(self) -> str: ...
    @property
    def sasl_users_file(self) -> str | None: ...
    @property
    def sasl_jwks_url(self) -> str | None: ...
    @property
    def sasl_audience(self) -> str | None: ...
    @property
    def sasl_issuer(self) -> str | None: ...
    @property
    def sasl_principal_claim(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """TLS of a listener. `context` returns the context for a new connection."""

    context: Callable[[], ssl.SSLContext]
    mapping: PrincipalMapping

    def principal(self, peer: ssl.SSLObject) -> str:
        """The principal of a client's certificate, `User:ANONYMOUS` without one.

        Raises NoRuleError, CertificateError.
        """
        return principal_of(peer, self.mapping)


def listener_tls(settings: ListenerSettings, on_change: Callable[[FileError | None], None]) -> ListenerTls | None:
    """Return the TLS of a listener from settings; None if the protocol has no TLS. `on_change` is called when the files
    change (`MadeOfFiles`).

    Raises ValueError for an unusable file (the message names it), and for invalid rules.
    """
    if not settings.security_protocol.endswith("SSL"):
        return None
    files = TlsFiles.of(settings.ssl_certificate, settings.ssl_key, settings.ssl_ca, settings.ssl_key_password)
    make = partial(server_context, files, ClientAuth[settings.ssl_client_auth.upper()])
    return ListenerTls(
        MadeOfFiles(files.paths, make, on_change), PrincipalMapping(settings.ssl_principal_mapping_rules)
    )
