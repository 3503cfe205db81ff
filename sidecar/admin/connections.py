"""The connections to the admin port: TLS, their limit, and how long one may be without a request.

aiohttp waits an hour for the next request and, in 3.14.0, for ever for the first one. Open connections need files, and
a node without files accepts no Kafka clients. A connection that waits for an answer, also for a stream of events, is
never closed. One whose request has not arrived completely counts as silent. Health and metrics are always answered:
other requests never use all places, so there is always a silent connection to close for a new one.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from asyncio import BaseTransport
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.admin.replies import error
from sidecar.network.listening import Listener, PlainListener
from sidecar.network.tls_listening import TlsListener
from sidecar.node.connecting import log_of_files
from sidecar.security.distinguished_names import CertificateError, subject_of
from sidecar.security.files import MadeOfFiles
from sidecar.security.tls import ClientAuth, TlsFiles, client_context, has_expired, server_context
from sidecar.settings import Address, Settings

_SILENT_S: Final = 75.0
"""Seconds for the head of a request, since the connection was made or the last answer was sent: more than between two
scrapes.
"""
_LOOK_S: Final = 5.0
_BODY_S: Final = 30.0
"""Seconds for the body of a request."""
_MOST: Final = 256
_PART_OF_FILES: Final = 4
_SPARE: Final = 16
"""Connections beyond those that may have a running request."""
_HANDSHAKES: Final = 64
"""Connections in the TLS handshake, beyond those; the files reserved for the port are enough for all."""
_HEALTH: Final = frozenset({"/livez", "/readyz", "/metrics"})


def most_connections(files: int) -> int:
    """The connection limit of a process with a limit of `files` open files, most of which Kafka clients need."""
    return _MOST if files == resource.RLIM_INFINITY else max(1, min(_MOST, files // _PART_OF_FILES))


class Connections:
    """The open connections. If there are too many, the one that has been silent for longest is closed."""

    def __init__(self) -> None:
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._open: set[web.RequestHandler] = set()
        self._silent: dict[web.RequestHandler, float] = {}
        """When each silent connection will be closed; the one that has been silent for longest is first."""
        self._watching: asyncio.TimerHandle | None = None
        self._busy: set[web.RequestHandler] = set()
        """Connections with a running request other than health."""
        self._answering: set[web.RequestHandler] = set()
        """Connections with any running request."""

    async def listen(
        self, server: web.Server, address: Address, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> Listener:
        """Accept connections for `server`. Raises OSError if the address is taken or is not one of this machine."""
        new = partial(_Connection, server, self)
        listening: Listener = (
            PlainListener(new) if tls is None else TlsListener(new, tls, _Handshakes(), unfinished=_HANDSHAKES)
        )
        await listening.bind(address.host, address.port)
        await listening.start()
        self._watch()
        return listening

    def end(self) -> None:
        """Stop closing silent connections."""
        if self._watching is not None:
            self._watching.cancel()

    @web.middleware
    async def under_way(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Middleware around all handlers: counts running requests, and refuses one if there are too many."""
        connection, is_health = request.protocol, request.path in _HEALTH
        if not is_health and len(self._busy) >= self._most:
            refused = error(503, "too many requests are under way: come again", {"Retry-After": "1"})
            refused.force_close()
            return refused
        self._silent.pop(connection, None)
        if request.body_exists and not request.content.is_eof():
            self._is_silent(connection, _BODY_S)
            request.content.on_eof(partial(self._arrived, connection))
        self._answering.add(connection)
        if not is_health:
            self._busy.add(connection)
        try:
            return await handler(request)
        finally:
            self._answering.discard(connection)
            self._busy.discard(connection)
            if connection in self._open:
                self._is_silent(connection, _SILENT_S)

    def came(self, connection: web.RequestHandler) -> None:
        """Register a new connection."""
        self._open.add(connection)
        self._is_silent(connection, _SILENT_S)
        if len(self._open) > self._most + _SPARE:
            self._close(next(iter(self._silent)))

    def went(self, connection: web.RequestHandler) -> None:
        """Forget a connection that is closed, or is about to be."""
        self._open.discard(connection)
        self._silent.pop(connection, None)

    def _arrived(self, connection: web.RequestHandler) -> None:
        """The request's body is complete: the connection is no longer silent if its request still runs."""
        if connection in self._answering:
            self._silent.pop(connection, None)

    def _is_silent(self, connection: web.RequestHandler, seconds: float) -> None:
        self._silent.pop(connection, None)
        self._silent[connection] = asyncio.get_running_loop().time() + seconds

    def _close(self, connection: web.RequestHandler) -> None:
        self.went(connection)
        connection.force_close()

    def _watch(self) -> None:
        """Close connections that have been silent for too long, and plan the next check."""
        loop = asyncio.get_running_loop()
        for connection in [each for each, until in self._silent.items() if until <= loop.time()]:
            self._close(connection)
        self._watching = loop.call_later(_LOOK_S, self._watch)


class _Handshakes:
    """Hooks of the listener: a failed handshake is logged at level debug."""

    def handshake_done(self) -> None:
        """Nothing to log."""

    def handshake_failed(self, peer: str, reason: str) -> None:
        structlog.get_logger().debug("admin_handshake_failed", peer=peer, reason=reason[:200])


class _Connection(web.RequestHandler):
    """Reports when it opens and closes."""

    def __init__(self, server: web.Server, connections: Connections) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None)  # pyright: ignore[reportArgumentType] - as AppRunner does
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.came(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.went(self)
        super().connection_lost(exc)


class AdminTls(NamedTuple):
    """TLS contexts for new connections: of clients here, and of this node to another one."""

    of_clients: Callable[[], ssl.SSLContext]
    to_nodes: Callable[[], ssl.SSLContext]


def admin_tls(settings: Settings) -> AdminTls | None:
    """The contexts; None without a certificate. Raises ValueError for a file that cannot be used; the message names it.

    A client certificate is requested, and has to be valid if the client sends one. A client without one may only call
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
    log_change = log_of_files("admin_certificates_read", "admin_certificates_bad")
    return AdminTls(
        MadeOfFiles(own.paths, partial(server_context, own, asks), log_change),
        MadeOfFiles(to_nodes.paths, partial(client_context, to_nodes), log_change),
    )


def subject_at(transport: BaseTransport | None) -> str:
    """The subject of the client's certificate; "" if it sent none, or if it has expired since."""
    peer = None if transport is None else transport.get_extra_info("ssl_object")
    certificate = None if peer is None or has_expired(peer) else peer.getpeercert(binary_form=True)
    try:
        return "" if certificate is None else subject_of(certificate)
    except CertificateError:
        return "?"  # trusted, but in a format that is not understood here


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
