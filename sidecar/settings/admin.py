"""Settings of the admin port: TLS, tokens, names, and how tools and other nodes reach it; and what is wrong with them
together (CONTRACT, Admin port).

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import AfterValidator

from sidecar.settings.checks import File, Needs, SettingsGroup, optional, setting
from sidecar.settings.values import Misfit, Settings, check_token

Token = Annotated[str | None, AfterValidator(check_token), Needs("text without spaces", "^[!-~]+$")]
_HOST: Final = r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"


def _hosts(value: str) -> str:
    names = [each.strip() for each in value.split(",") if each.strip()]
    wrong = next((each for each in names if not re.fullmatch(_HOST, each)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no host name")
    return value


class Admin(SettingsGroup):
    """The admin port, besides where it is (`Basics`)."""

    admin_token: Token = optional(
        "Bearer token for writes over HTTP. Without one they are accepted from loopback only.", "change-me"
    )
    admin_read_token: Token = optional(
        "Bearer token for reads over HTTP, metrics too; health stays open. Without one, reads need no token.",
        "change-me-too",
    )
    admin_hosts: Annotated[
        str, AfterValidator(_hosts), Needs("host names, separated by commas", "^[A-Za-z0-9_.*, -]*$")
    ] = setting(
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


def misfits(settings: Settings) -> Iterator[Misfit]:
    """What does not fit together: each names the setting that is missing, or of no use."""
    for name in ("admin_ssl_key", "admin_ssl_ca"):
        if getattr(settings, name) is not None and settings.admin_ssl_certificate is None:
            yield Misfit(name, "is of no use without SIDECAR_ADMIN_SSL_CERTIFICATE: the admin port has no TLS")
    if settings.admin_client_ssl_key is not None and settings.admin_client_ssl_certificate is None:
        yield Misfit("admin_client_ssl_certificate", "is missing: SIDECAR_ADMIN_CLIENT_SSL_KEY is the key of one")
    if settings.admin_token is not None and settings.admin_token == settings.admin_read_token:
        yield Misfit(
            "admin_read_token", "is the same as SIDECAR_ADMIN_TOKEN: who may read could then operate. Take another"
        )
