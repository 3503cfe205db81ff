"""How a connection of a job begins: TLS and login, by the settings that librdkafka has, as nodes do it towards brokers.

`security.protocol` (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; PLAINTEXT where it is not given), `ssl.ca.location` (a
file of PEM certificates; else the system's), and the others of `OPTIONS`. Secrets never stand in a message.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.pipeline.errors import PipelineError, UnreachableError
from sidecar.security.broker_access import PLAIN_TCP, BrokerAccess, access_of
from sidecar.security.credentials import MECHANISMS
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.exchange import log_in
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.words import in_words

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
CHECK_HOST: Final = "ssl.endpoint.identification.algorithm"
PROVIDER: Final = "sasl.oauthbearer.token.provider"
"""An installed entry point, which librdkafka has no setting for."""
TEXTS: Final = {
    "sasl.username": "kafka_sasl_username",
    "sasl.password": "kafka_sasl_password",
    "sasl.oauthbearer.token.endpoint.url": "kafka_sasl_token_url",
    "sasl.oauthbearer.client.id": "kafka_sasl_client_id",
    "sasl.oauthbearer.client.secret": "kafka_sasl_client_secret",
    "sasl.oauthbearer.scope": "kafka_sasl_scope",
    PROVIDER: "kafka_sasl_token_provider",
    "ssl.ca.location": "kafka_ssl_ca",
    "ssl.certificate.location": "kafka_ssl_certificate",
    "ssl.key.location": "kafka_ssl_key",
    "ssl.key.password": "kafka_ssl_key_password",
}
OPTIONS: Final = (PROTOCOL, MECHANISM, CHECK_HOST, *TEXTS)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NEEDED: Final = {
    OAUTHBEARER: (
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
    )
}
_NAME_AND_PASSWORD: Final = ("sasl.username", "sasl.password")


@dataclass(frozen=True, slots=True)
class _Given:
    """`BrokerSettings` of these options."""

    kafka_security_protocol: str
    kafka_sasl_mechanism: str
    kafka_ssl_check_hostname: bool
    kafka_ssl_ca: str | None = None
    kafka_ssl_certificate: str | None = None
    kafka_ssl_key: str | None = None
    kafka_ssl_key_password: str | None = field(default=None, repr=False)
    kafka_sasl_username: str | None = None
    kafka_sasl_password: str | None = field(default=None, repr=False)
    kafka_sasl_password_file: str | None = None
    kafka_sasl_token_url: str | None = None
    kafka_sasl_client_id: str | None = None
    kafka_sasl_client_secret: str | None = field(default=None, repr=False)
    kafka_sasl_scope: str | None = None
    kafka_sasl_token_provider: str | None = None


class Security:
    """Checked settings of connections; without any, plain TCP."""

    def __init__(self, access: BrokerAccess = PLAIN_TCP) -> None:
        self._access = access

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security:
        """Raises `PipelineError` for a setting that is unknown, missing, or asks for what is not supported, and for a
        file that cannot be used.
        """
        unknown = sorted(set(settings) - set(OPTIONS))
        if unknown:
            raise PipelineError(f"unknown setting {unknown[0]}: there are {', '.join(OPTIONS)}")
        protocol = settings.get(PROTOCOL, "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise PipelineError(f"security.protocol {protocol!r}: it is one of {', '.join(_PROTOCOLS)}")
        tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        for name in settings:
            if (name.startswith("sasl.") and not sasl) or (name.startswith("ssl.") and not tls):
                raise PipelineError(f"{name} has no meaning with security.protocol {protocol}")
        mechanism = settings.get(MECHANISM, PLAIN).upper()
        if mechanism not in MECHANISMS:
            raise PipelineError(f"sasl.mechanism {mechanism!r}: it is one of {', '.join(MECHANISMS)}")
        needed = () if PROVIDER in settings else _NEEDED.get(mechanism, _NAME_AND_PASSWORD)
        for name in needed if sasl else ():
            if not settings.get(name):
                raise PipelineError(f"security.protocol {protocol} with {mechanism} needs {name}")
        check = settings.get(CHECK_HOST, "https")
        if check not in ("https", "none"):
            raise PipelineError(f"{CHECK_HOST} {check!r}: it is https or none")
        texts: dict[str, Any] = {TEXTS[name]: value for name, value in settings.items() if name in TEXTS}
        try:
            return cls(access_of(_Given(protocol, mechanism, check == "https", **texts)))
        except ValueError as error:
            raise PipelineError(str(error)) from None

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The socket to speak through. Raises `UnreachableError` for a handshake that fails, `PipelineError` for a
        certificate that is not the host's, or not trusted.
        """
        if self._access.tls is None:
            return connected
        try:
            return self._access.tls().wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise PipelineError(f"{host}: {in_words(error)} (ssl.ca.location)") from None
        except OSError as error:
            raise UnreachableError(f"{host} lets nobody in: {in_words(error)}") from None

    def log_in(self, round_trip: Callable[[bytes], bytes], correlation_ids: Iterator[int], client_id: str) -> None:
        """Log in where that is asked for. Raises `PipelineError` where it is refused."""
        if self._access.credentials is None:
            return
        try:
            log_in(round_trip, correlation_ids, client_id, self._access.credentials)
        except (LoginError, TokenError) as error:
            raise PipelineError(f"the login is refused: {error}") from None
