"""Settings of clients' connections, TLS and login, and what is wrong with them together
(docs/reference/settings.md).

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator
from pydantic_settings import BaseSettings

from sidecar.security.credentials import MECHANISMS
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.settings.checks import URL, Needs, about
from sidecar.settings.towards_kafka import FILE, PROTOCOLS, TEXT, HttpUrl, Protocol, Text
from sidecar.settings.values import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.settings.values import Settings

Authentication = Literal["relay", "file", "jwks"]
ClientAuth = Literal["none", "requested", "required"]


def _mapping(value: str) -> str:
    PrincipalMapping(value)
    return value


def _mechanisms(value: str | None) -> str | None:
    wrong = [name for name in (value or "").split(",") if value is not None and name.strip() not in MECHANISMS]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no mechanism that is served")
    return value


class Listener(BaseSettings):
    """How connections of clients begin."""

    security_protocol: Annotated[
        Protocol, about("How connections of clients begin: TLS or not, login or not."), PROTOCOLS
    ] = "PLAINTEXT"
    ssl_certificate: Annotated[
        Text,
        about("PEM file of the certificate that clients are shown, its chain after it.", "/etc/sidecar/tls.pem"),
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
    sasl_mechanisms: Annotated[
        str | None,
        AfterValidator(_mechanisms),
        about("How clients may log in; by default with whatever brokers, or the file, take.", "SCRAM-SHA-512"),
        Needs("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, separated by commas", "^[A-Z0-9, -]+$"),
    ] = None
    sasl_authentication: Annotated[
        Authentication,
        about("Who checks logins: a broker (relay), or this node with a file of users or a set of keys (jwks)."),
        Needs("relay, file or jwks"),
    ] = "relay"
    sasl_users_file: Annotated[Text, about("file: the TOML file of users.", "/etc/sidecar/users.toml"), FILE] = None
    sasl_jwks_url: Annotated[
        HttpUrl,
        about("jwks: where the keys are that sign tokens of OAUTHBEARER.", "https://login.example/keys"),
        Needs("http://host:port/path or https://host/path", URL["http"]),
    ] = None
    sasl_audience: Annotated[Text, about("jwks: the audience that tokens have to name.", "kafka"), TEXT] = None
    sasl_issuer: Annotated[Text, about("jwks: the issuer that tokens have to name.", "https://login.example"), TEXT] = (
        None
    )
    sasl_principal_claim: Annotated[
        str, about("The claim of a token that names the principal; with relay, that which brokers take."), TEXT
    ] = "sub"


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
    _check_logins(settings, report)
    return found


_OF: Final = {"file": ("sasl_users_file",), "jwks": ("sasl_jwks_url", "sasl_audience", "sasl_issuer")}


def _check_logins(settings: Settings, report: Callable[[str, str], None]) -> None:
    protocol, how = settings.security_protocol, settings.sasl_authentication
    if not protocol.startswith("SASL_"):
        if how != "relay":
            report("sasl_authentication", f"takes a login: SIDECAR_SECURITY_PROTOCOL is {protocol}")
        for name in ("sasl_mechanisms", *_OF["file"], *_OF["jwks"]):
            if getattr(settings, name) is not None:
                report(name, f"is of no use: SIDECAR_SECURITY_PROTOCOL is {protocol}, without a login")
        return
    if how == "relay" and not settings.kafka_security_protocol.startswith("SASL_"):
        advice = "needs brokers that take logins: SIDECAR_KAFKA_SECURITY_PROTOCOL is "
        report("sasl_authentication", f"relay {advice}{settings.kafka_security_protocol}. Else take file or jwks")
    for other, names in _OF.items():
        for name in names:
            if other != how and getattr(settings, name) is not None:
                report(name, f"is of no use: SIDECAR_SASL_AUTHENTICATION is {how}")
    for name in _OF.get(how, ())[:1]:
        if getattr(settings, name) is None:
            report(name, f"is missing: SIDECAR_SASL_AUTHENTICATION is {how}")


def _check_tls(settings: Settings, report: Callable[[str, str], None]) -> None:
    if settings.ssl_certificate is None:
        report("ssl_certificate", f"is missing: SIDECAR_SECURITY_PROTOCOL is {settings.security_protocol}")
    if settings.ssl_client_auth == "none":
        if settings.ssl_ca is not None:
            report("ssl_ca", "is of no use: SIDECAR_SSL_CLIENT_AUTH is none, so clients are asked for no certificate")
    elif settings.ssl_ca is None:
        report("ssl_ca", "is missing: clients' certificates are checked against it")
