"""A listening socket without TLS. Closing it loses no connection that was accepted a moment before."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

BACKLOG: Final = 4096

_TURNS = 3
"""Turns of the event loop from accepting a socket to attaching its transport to the server."""


async def close_server(server: asyncio.Server) -> None:
    """Stop accepting. Returns when every accepted socket has a connection, or is closed.

    `asyncio.Server.close` alone leaves a socket open that was accepted in the same turn: its transport cannot attach
    to the server (CPython 3.11 to 3.13), and the client waits until the garbage collector closes the socket.
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
        """The port that is bound; chosen by the system if `bind` got port 0."""
        ...

    async def bind(self, host: str, port: int) -> None:
        """Bind the address; clients wait until `start`. Raises OSError."""
        ...

    async def start(self) -> None:
        """Start to accept clients."""
        ...

    async def close(self) -> None:
        """Stop accepting. May be called more than once, and if nothing was bound."""
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
    """Return `host:port` of a socket's address, with an IPv6 host in brackets."""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _TlsTransport(Protocol):
    """The method that only TLS transports have."""

    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


def hold_back_nothing(transport: asyncio.Transport) -> None:
    """Make a TLS transport keep no decrypted bytes back: it drops those when the stream ends. With the smallest buffer
    it reads the end of the stream only after all bytes before it.
    """
    cast("_TlsTransport", transport).set_read_buffer_limits(1, 0)
