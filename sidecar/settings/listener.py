"""Settings of clients' connections, TLS and login, and what is wrong with them together (CONTRACT, Security of the
listener).

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator
from pydantic_settings import BaseSettings

from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.settings.checks import Needs, about
from sidecar.settings.towards_kafka import FILE, TEXT, Text
from sidecar.settings.values import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.settings.values import Settings

Protocol = Literal["PLAINTEXT", "SSL"]
ClientAuth = Literal["none", "requested", "required"]


def _mapping(value: str) -> str:
    PrincipalMapping(value)
    return value


class Listener(BaseSettings):
    """How connections of clients begin."""

    security_protocol: Annotated[
        Protocol, about("How clients connect: with TLS or without."), Needs("PLAINTEXT or SSL")
    ] = "PLAINTEXT"
    ssl_certificate: Annotated[
        Text,
        about("PEM file of the certificate that clients are shown, its chain behind it.", "/etc/sidecar/tls.pem"),
        FILE,
    ] = None
    ssl_key: Annotated[
        Text,
        about("PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/tls.key"),
        FILE,
    ] = None
    ssl_key_password: Annotated[Text, about("Password of that key, where it is encrypted.", "change-me"), TEXT] = None
    ssl_ca: Annotated[
        Text,
        about("PEM file of the certificates that clients' are checked against.", "/etc/sidecar/clients-ca.pem"),
        FILE,
    ] = None
    ssl_client_auth: Annotated[
        ClientAuth,
        about("Whether clients show a certificate: Kafka's `ssl.client.auth`."),
        Needs("none, requested or required"),
    ] = "none"
    ssl_principal_mapping_rules: Annotated[
        str,
        AfterValidator(_mapping),
        about("What the holder of a certificate is called: Kafka's `ssl.principal.mapping.rules`."),
        Needs("DEFAULT, or RULE:pattern/replacement/[LU], separated by commas", "DEFAULT|RULE:"),
    ] = "DEFAULT"


_TLS: Final = ("ssl_certificate", "ssl_key", "ssl_key_password", "ssl_ca")


def problems(settings: Settings, origins: Mapping[str, str]) -> list[Problem]:
    """What does not fit together: each names the setting that is missing, or of no use."""
    found: list[Problem] = []

    def report(name: str, advice: str) -> None:
        found.append(Problem(f"SIDECAR_{name.upper()}", origins.get(name, "not set"), "", advice))

    if settings.security_protocol.endswith("SSL"):
        _check_tls(settings, report)
    else:
        for name in _TLS:
            if getattr(settings, name) is not None:
                report(name, f"is of no use: SIDECAR_SECURITY_PROTOCOL is {settings.security_protocol}, without TLS")
        if settings.ssl_client_auth != "none":
            report("ssl_client_auth", f"takes TLS: SIDECAR_SECURITY_PROTOCOL is {settings.security_protocol}")
    return found


def _check_tls(settings: Settings, report: Callable[[str, str], None]) -> None:
    if settings.ssl_certificate is None:
        report("ssl_certificate", f"is missing: SIDECAR_SECURITY_PROTOCOL is {settings.security_protocol}")
    if settings.ssl_client_auth == "none":
        if settings.ssl_ca is not None:
            report("ssl_ca", "is of no use: SIDECAR_SSL_CLIENT_AUTH is none, so clients are asked for no certificate")
    elif settings.ssl_ca is None:
        report("ssl_ca", "is missing: clients' certificates are checked against it")
