"""TLS of the admin port, and towards other nodes'; made of a node's settings, and anew when the files change."""

from __future__ import annotations

import ssl
from asyncio import BaseTransport
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from sidecar.security.distinguished_names import CertificateError, subject_of
from sidecar.security.files import FileError, MadeOfFiles
from sidecar.security.tls import ClientAuth, TlsFiles, client_context, has_expired, server_context
from sidecar.settings import Settings


@dataclass(frozen=True, slots=True)
class AdminTls:
    """Contexts for a connection that begins: of clients here, and of this node to another one."""

    of_clients: Callable[[], ssl.SSLContext]
    to_nodes: Callable[[], ssl.SSLContext]


def admin_tls(settings: Settings) -> AdminTls | None:
    """None without a certificate. Raises ValueError for a file that cannot be used; the message names it.

    A client certificate is asked for and, where one is shown, has to be right. A client without one may only call
    health (`access`): an orchestrator's probes have none.
    """
    if settings.admin_ssl_certificate is None:
        return None
    certificate, key = _path(settings.admin_ssl_certificate), _path(settings.admin_ssl_key)
    own = TlsFiles(certificate, key, _path(settings.admin_ssl_ca))
    asks = ClientAuth.NONE if own.ca is None else ClientAuth.REQUESTED
    if settings.admin_client_ssl_certificate is not None:
        certificate, key = _path(settings.admin_client_ssl_certificate), _path(settings.admin_client_ssl_key)
    to_nodes = TlsFiles(certificate, key, _path(settings.admin_client_ssl_ca) or own.ca)
    log = structlog.get_logger()

    def log_change(error: FileError | None) -> None:
        if error is None:
            log.info("admin_certificates_read")
        else:
            log.error("admin_certificates_bad", problem=str(error), goes_on_with="those before")

    return AdminTls(
        MadeOfFiles(own.paths, partial(server_context, own, asks), log_change),
        MadeOfFiles(to_nodes.paths, partial(client_context, to_nodes), log_change),
    )


def subject_at(transport: BaseTransport | None) -> str:
    """The subject of the certificate that a client showed; "" where none was, or it has expired since."""
    peer = None if transport is None else transport.get_extra_info("ssl_object")
    certificate = None if peer is None or has_expired(peer) else peer.getpeercert(binary_form=True)
    try:
        return "" if certificate is None else subject_of(certificate)
    except CertificateError:
        return "?"  # trusted, and of a form that only its authority knows


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
