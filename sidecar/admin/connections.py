"""The connections to the admin port: how many there may be, and how long one may ask for nothing.

aiohttp waits an hour for the next request and, in 3.14.0, for ever for the first one. What is open needs files, and
a node without files accepts no client of Kafka. A connection with a request under way, a stream of events too, stays
open.
"""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from sidecar.settings import Address

_SILENT_S: Final = 75.0
"""Seconds for the head of a request, from the connection or the last answer on: more than between two scrapes."""
_LOOK_S: Final = 5.0
_MOST: Final = 256
_PART_OF_FILES: Final = 4


def most_connections(files: int) -> int:
    """The connection limit of a process with a limit of `files` open files, most of which Kafka clients need."""
    return _MOST if files == resource.RLIM_INFINITY else max(1, min(_MOST, files // _PART_OF_FILES))


class Connections:
    """Those that are open. Where there are too many, the one that is silent for longest goes."""

    def __init__(self) -> None:
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._open: set[web.RequestHandler] = set()
        self._silent: dict[web.RequestHandler, float] = {}
        """Since when, the longest first."""

    async def listen(self, server: web.Server, address: Address) -> asyncio.Server:
        """Accept for `server`. Raises OSError where the address is taken or is not one of this machine."""
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(partial(_Connection, server, self), address.host, address.port)
        self._look(listening)
        return listening

    @web.middleware
    async def under_way(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Around everything that answers."""
        self._silent.pop(request.protocol, None)
        try:
            return await handler(request)
        finally:
            if request.protocol in self._open:
                self._silent[request.protocol] = asyncio.get_running_loop().time()

    def came(self, connection: web.RequestHandler) -> None:
        """One was made."""
        self._open.add(connection)
        self._silent[connection] = asyncio.get_running_loop().time()
        if len(self._open) > self._most:
            self._close(next(iter(self._silent)))

    def went(self, connection: web.RequestHandler) -> None:
        """One is gone, or is about to be."""
        self._open.discard(connection)
        self._silent.pop(connection, None)

    def _close(self, connection: web.RequestHandler) -> None:
        self.went(connection)
        connection.force_close()

    def _look(self, listening: asyncio.Server) -> None:
        """Close those that are silent for too long, now and then until nobody listens."""
        if not listening.is_serving():
            return
        loop = asyncio.get_running_loop()
        for connection in [each for each, since in self._silent.items() if since + _SILENT_S <= loop.time()]:
            self._close(connection)
        loop.call_later(_LOOK_S, self._look, listening)


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
