"""Settings of connections to brokers, TLS and login, and what is wrong with them together (docs/operations.md).

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from sidecar.settings.checks import (
    URL,
    File,
    Flag,
    Needs,
    SettingsGroup,
    Text,
    as_it_is,
    check_http_url,
    optional,
    setting,
)
from sidecar.settings.values import Misfit, Settings

HTTP_URL: Final = Needs("http://host:port/path or https://host/path", URL["http"])
Protocol = Annotated[
    Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Needs("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
]
Mechanism = Annotated[
    Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None,
    Needs("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
]

TokenMechanism = Annotated[Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] | None, Needs("SCRAM-SHA-256 or SCRAM-SHA-512")]


def _check_token_url(value: str) -> None:
    """What the endpoint answers is logged with its URL, so that holds no password."""
    check_http_url(value)
    if "@" in urlsplit(value).netloc:
        raise ValueError("names a user; with SIDECAR_KAFKA_SASL_CLIENT_SECRET that is SIDECAR_KAFKA_SASL_CLIENT_ID")


class TowardsKafka(SettingsGroup):
    """How this node connects to brokers, and its identity there."""

    kafka_security_protocol: Protocol = setting(
        "PLAINTEXT", "How connections to brokers begin: TLS or not, login or not."
    )
    kafka_ssl_ca: File = optional(
        "PEM file of the certificates that brokers' are checked against; those of the system by default.",
        "/etc/sidecar/ca.pem",
    )
    kafka_ssl_certificate: File = optional(
        "PEM file of the certificate that this node shows to brokers, its chain after it.", "/etc/sidecar/node.pem"
    )
    kafka_ssl_key: File = optional(
        "PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/node.key"
    )
    kafka_ssl_key_password: Text = optional("Password of that key, where it is encrypted.", "change-me")
    kafka_ssl_check_hostname: Flag = setting(
        True, "Whether a broker's certificate has to name the host that was connected to."
    )
    kafka_sasl_mechanism: Mechanism = optional("How this node logs in at brokers.", "SCRAM-SHA-512")
    kafka_sasl_username: Text = optional("The name to log in with.", "sidecar")
    kafka_sasl_password: Text = optional("Its password.", "change-me")
    kafka_sasl_password_file: File = optional(
        "A file with its password, read for each login, in place of the setting.", "/run/secrets/kafka"
    )
    kafka_sasl_token_url: Annotated[str | None, as_it_is(_check_token_url), HTTP_URL] = optional(
        "OAUTHBEARER: the token endpoint (OAuth client credentials, KIP-768).", "https://login.example/token"
    )
    kafka_sasl_client_id: Text = optional("OAUTHBEARER: the client id.", "sidecar")
    kafka_sasl_client_secret: Text = optional("OAUTHBEARER: the client's secret.", "change-me")
    kafka_sasl_scope: Text = optional("OAUTHBEARER: the scope to ask for.", "kafka")
    kafka_sasl_token_provider: Text = optional(
        "OAUTHBEARER: an installed entry point of `sidecar.token_providers` that gives the tokens instead.", "mycloud"
    )
    kafka_delegation_tokens: TokenMechanism = optional(
        "How clients' own connections to brokers log in as their principals, by delegation tokens that this node has"
        " made for them (KIP-373); as the node by default.",
        "SCRAM-SHA-512",
    )


def misfits(settings: Settings) -> Iterator[Misfit]:
    """What does not fit together: each names the setting that is missing, or of no use."""
    protocol = settings.kafka_security_protocol

    def is_set(name: str) -> bool:
        return getattr(settings, name) is not None

    if protocol.startswith("SASL_"):
        yield from _of_login(settings)
    else:
        for name in filter(is_set, (*_PASSWORD, *_TOKEN, "kafka_sasl_mechanism", "kafka_delegation_tokens")):
            yield Misfit(name, f"is of no use: SIDECAR_KAFKA_SECURITY_PROTOCOL is {protocol}. SASL_SSL has a login")
    if not protocol.endswith("SSL"):
        for name in filter(is_set, _TLS):
            advice = f"is of no use: SIDECAR_KAFKA_SECURITY_PROTOCOL is {protocol}. SSL and SASL_SSL have TLS"
            yield Misfit(name, advice)
    if is_set("kafka_delegation_tokens") and not settings.enforces_acls:
        yield Misfit(
            "kafka_delegation_tokens",
            "needs clients that authenticate, and SIDECAR_AUTHORIZER kafka: some of their requests stay this node's",
        )
    if is_set("kafka_ssl_key") and not is_set("kafka_ssl_certificate"):
        yield Misfit("kafka_ssl_certificate", "is missing: SIDECAR_KAFKA_SSL_KEY is the key of one")


_TLS: Final = ("kafka_ssl_ca", "kafka_ssl_certificate", "kafka_ssl_key", "kafka_ssl_key_password")
_PASSWORD: Final = ("kafka_sasl_username", "kafka_sasl_password", "kafka_sasl_password_file")
_TOKEN: Final = (
    "kafka_sasl_token_url",
    "kafka_sasl_client_id",
    "kafka_sasl_client_secret",
    "kafka_sasl_scope",
    "kafka_sasl_token_provider",
)


def _of_login(settings: Settings) -> Iterator[Misfit]:
    mechanism = settings.kafka_sasl_mechanism
    if mechanism is None:
        yield Misfit("kafka_sasl_mechanism", "is missing: it says how this node logs in at brokers")
    elif mechanism != "OAUTHBEARER":
        if settings.kafka_sasl_username is None:
            yield Misfit("kafka_sasl_username", f"is missing: {mechanism} takes a name and a password")
        if settings.kafka_sasl_password is None and settings.kafka_sasl_password_file is None:
            yield Misfit(
                "kafka_sasl_password", f"is missing: {mechanism} takes it, or SIDECAR_KAFKA_SASL_PASSWORD_FILE"
            )
        if settings.kafka_sasl_password is not None and settings.kafka_sasl_password_file is not None:
            yield Misfit(
                "kafka_sasl_password_file", "is the second password: take this or SIDECAR_KAFKA_SASL_PASSWORD out"
            )
    elif settings.kafka_sasl_token_provider is None:
        for name in ("kafka_sasl_token_url", "kafka_sasl_client_id", "kafka_sasl_client_secret"):
            if getattr(settings, name) is None:
                yield Misfit(
                    name, "is missing: OAUTHBEARER asks a token endpoint, or SIDECAR_KAFKA_SASL_TOKEN_PROVIDER"
                )
