"""The end of a listening socket, without losing whoever was accepted a moment before."""

from __future__ import annotations

import asyncio

_TURNS = 3
"""Of the event loop, from the accepted socket to the transport that is attached to its server."""


async def close_server(server: asyncio.Server) -> None:
    """Accept nobody any more; returns when everyone who was accepted has a connection, or is closed.

    `asyncio.Server.close` alone leaves a socket open that was accepted in the same turn: its transport finds no server
    to attach to (CPython 3.11 to 3.13), and the client waits until the garbage collector comes by.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
