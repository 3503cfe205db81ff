"""Listening sockets that end while clients come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from sidecar.network.listening import close_server
from tests.unit.network.peers import LOOPBACK


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_was_accepted_as_the_socket_ended_has_a_connection_or_is_closed(turns: int) -> None:
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    connected: list[asyncio.Transport] = []

    class Served(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            connected.append(transport)

    server = await loop.create_server(Served, LOOPBACK, 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await close_server(server)
        for transport in connected:
            transport.abort()
        client.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
    assert not complaints, complaints


async def test_an_ended_socket_accepts_nobody() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, LOOPBACK, 0)
    where = server.sockets[0].getsockname()
    await close_server(server)
    await close_server(server)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
