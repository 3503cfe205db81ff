"""Settings of the admin port, of connections to brokers, and of what clients may do (CONTRACT, Admin port;
docs/operate/operations.md; docs/operate/access.md). What is wrong with them together is in `misfits`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Final
from urllib.parse import urlsplit

from sidecar.settings.checks import (
    HTTP_URL,
    File,
    Flag,
    Needs,
    Protocol,
    Text,
    as_it_is,
    check_http_url,
    check_token,
    one_of,
    optional,
    setting,
)

Token = Annotated[str | None, Needs("text without spaces", "^[!-~]+$", check_token)]
Mechanism = Annotated[str | None, one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")]
TokenMechanism = Annotated[str | None, one_of("SCRAM-SHA-256", "SCRAM-SHA-512")]
_HOST: Final = r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"


def _hosts(value: str) -> str:
    names = [each.strip() for each in value.split(",") if each.strip()]
    wrong = next((each for each in names if not re.fullmatch(_HOST, each)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no host name")
    return value


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Admin:
    """The admin port, besides where it is (`Basics`)."""

    admin_token: Token = optional(
        "Bearer token for writes over HTTP. Without one they are accepted from loopback only.", "change-me", secret=True
    )
    admin_read_token: Token = optional(
        "Bearer token for reads over HTTP, metrics too; health stays open. Without one, reads need no token.",
        "change-me-too",
        secret=True,
    )
    admin_hosts: Annotated[str, Needs("host names, separated by commas", "^[A-Za-z0-9_.*, -]*$", _hosts)] = setting(
        "",
        "More host names that requests without a token may be sent to, separated by commas; `.example.com` stands"
        " for every name below it, `*` for any. IP addresses, names without a dot and the node's own names are"
        " always allowed. With TLS names are not checked.",
    )
    admin_ssl_certificate: File = optional(
        "PEM file of the certificate of the admin port, its chain behind it. With one, the port speaks only TLS.",
        "/etc/sidecar/admin.pem",
    )
    admin_ssl_key: File = optional(
        "PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/admin.key"
    )
    admin_ssl_ca: File = optional(
        "PEM file of the certificates that clients' are checked against. With it, everything but health needs a"
        " client certificate, besides the token.",
        "/etc/sidecar/admin-ca.pem",
    )
    admin_client_ssl_ca: File = optional(
        "For tools, and for a node that asks another one: PEM file of the certificates that the admin port's is"
        " checked against. By default SIDECAR_ADMIN_SSL_CA, or those of the system.",
        "/etc/sidecar/ca.pem",
    )
    admin_client_ssl_certificate: File = optional(
        "For tools, and for a node that asks another one: PEM file of the certificate to show. By default"
        " SIDECAR_ADMIN_SSL_CERTIFICATE.",
        "/etc/sidecar/operator.pem",
    )
    admin_client_ssl_key: File = optional(
        "PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/operator.key"
    )


def _check_token_url(value: str) -> None:
    """What the endpoint answers is logged with its URL, so that holds no password."""
    check_http_url(value)
    if "@" in urlsplit(value).netloc:
        raise ValueError("names a user; with SIDECAR_KAFKA_SASL_CLIENT_SECRET that is SIDECAR_KAFKA_SASL_CLIENT_ID")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TowardsKafka:
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
    kafka_ssl_key_password: Text = optional("Password of that key, where it is encrypted.", "change-me", secret=True)
    kafka_ssl_check_hostname: Flag = setting(
        True, "Whether a broker's certificate has to name the host that was connected to."
    )
    kafka_sasl_mechanism: Mechanism = optional("How this node logs in at brokers.", "SCRAM-SHA-512")
    kafka_sasl_username: Text = optional("The name to log in with.", "sidecar")
    kafka_sasl_password: Text = optional("Its password.", "change-me", secret=True)
    kafka_sasl_password_file: File = optional(
        "A file with its password, read for each login, in place of the setting.", "/run/secrets/kafka"
    )
    kafka_sasl_token_url: Annotated[str | None, replace(HTTP_URL, check=as_it_is(_check_token_url))] = optional(
        "OAUTHBEARER: the token endpoint (OAuth client credentials, KIP-768).", "https://login.example/token"
    )
    kafka_sasl_client_id: Text = optional("OAUTHBEARER: the client id.", "sidecar")
    kafka_sasl_client_secret: Text = optional("OAUTHBEARER: the client's secret.", "change-me", secret=True)
    kafka_sasl_scope: Text = optional("OAUTHBEARER: the scope to ask for.", "kafka")
    kafka_sasl_token_provider: Text = optional(
        "OAUTHBEARER: an installed entry point of `sidecar.token_providers` that gives the tokens instead.", "mycloud"
    )
    kafka_delegation_tokens: TokenMechanism = optional(
        "How clients' own connections to brokers log in as their principals, by delegation tokens that this node has"
        " made for them (KIP-373); as the node by default.",
        "SCRAM-SHA-512",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Rules:
    """Whether and how Kafka's ACLs are enforced on clients."""

    authorizer: Annotated[str | None, one_of("none", "kafka")] = optional(
        "kafka: clients may do what Kafka's ACLs allow them, as at a broker. none: all that this node may do."
        " By default kafka where clients authenticate, else none.",
        "kafka",
    )
    super_users: Annotated[
        str,
        Needs("TYPE:NAME;TYPE:NAME, such as User:admin;User:CN=ops", r"^(\s*;|[^:;]+:[^;]*(;|$))*\s*$"),
    ] = setting(
        "",
        "Principals that may do everything: what `super.users` of the brokers says, with ; between them. Where no"
        " ACLs are enforced, they alone may change brokers, ACLs, SCRAM credentials and Kafka's own topics.",
    )
    allow_if_no_acl_found: Flag = setting(
        False,
        "Whether what no ACL names is open to everybody: what `allow.everyone.if.no.acl.found` of the brokers says.",
    )
    govern_by_client_id: Flag = setting(
        True,
        "Whether a client that asks for a mode puts a topic without a policy under one. false: only operators do;"
        " such a client is refused with 44 POLICY_VIOLATION.",
    )
    take_over_operation: Annotated[str, one_of("WRITE", "ALTER")] = setting(
        "ALTER", "What it takes on a governed topic to depose others or to name a generation."
    )
