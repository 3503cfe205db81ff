"""A listening socket without TLS, and its end, without losing connections that were accepted a moment before."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

BACKLOG: Final = 4096

_TURNS = 3
"""Of the event loop, from the accepted socket to the transport that is attached to its server."""


async def close_server(server: asyncio.Server) -> None:
    """Accept no more; returns when every accepted socket has a connection, or is closed.

    `asyncio.Server.close` alone leaves a socket open that was accepted in the same turn: its transport finds no server
    to attach to (CPython 3.11 to 3.13), and the client waits until the garbage collector comes by.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()


class Listener(Protocol):
    """Accepts the connections of clients at one address."""

    @property
    def port(self) -> int:
        """The port that was taken, which is another than the one asked for where that was 0."""
        ...

    async def bind(self, host: str, port: int) -> None:
        """Take the address; clients wait until `start`. Raises OSError."""
        ...

    async def start(self) -> None:
        """Accept clients from now on."""
        ...

    async def close(self) -> None:
        """Accept nobody any more; harmless when repeated, and where nothing was bound."""
        ...


class PlainListener:
    """A `Listener` without TLS; `factory` makes the protocols of connections."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._server: asyncio.Server | None = None
        self._port = 0

    async def bind(self, host: str, port: int) -> None:
        """See `Listener`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._factory, host, port, backlog=BACKLOG, start_serving=False)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        """See `Listener`."""
        return self._port

    async def start(self) -> None:
        """See `Listener`."""
        assert self._server is not None
        await self._server.start_serving()

    async def close(self) -> None:
        """See `Listener`."""
        if self._server is not None:
            await close_server(self._server)


def host_port(peer: tuple[Any, ...]) -> str:
    """An address as people write it, from a socket's own."""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _TlsTransport(Protocol):
    """What transports with TLS have besides."""

    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


def hold_back_nothing(transport: asyncio.Transport) -> None:
    """Of a TLS transport: what it holds back it drops when the end comes. Without that the end is not read before all
    that was sent in front of it.
    """
    cast("_TlsTransport", transport).set_read_buffer_limits(1, 0)
