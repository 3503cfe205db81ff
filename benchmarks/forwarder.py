"""The least that a Python program in a node's place costs: `python -m benchmarks.forwarder LISTEN UPSTREAM`, two ports
of this machine.

On uvloop, with one connection upstream for each client's. Passes whole frames and rewrites correlation ids, as any
program has to that asks for itself on the same connections. Checks nothing, bounds nothing: no part of the product.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

import uvloop

from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

_I32: Final = Struct(">i")
_REQUEST_ID_AT: Final = 8
_ANSWER_ID_AT: Final = 4


class _Side(asyncio.Protocol):
    """One of the two connections. `rewrite` gets the buffer and where a whole frame begins; `gone` is called when the
    connection ends. What is to be sent before it stands waits.
    """

    def __init__(self, rewrite: Callable[[bytearray, int], None], gone: Callable[[], None]) -> None:
        self.peer: _Side | None = None
        self._rewrite = rewrite
        self._gone = gone
        self._part = b""
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes | bytearray] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing
        for data in self._waiting:
            self._transport.write(data)
        self._waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def send(self, data: bytes | bytearray) -> None:
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        buffer = bytearray(self._part + data)
        at, have = 0, len(buffer)
        while have - at >= _I32.size:
            end = at + _I32.size + _I32.unpack_from(buffer, at)[0]
            if end > have:
                break
            self._rewrite(buffer, at)
            at = end
        self._part = bytes(buffer[at:])
        if at and self.peer is not None:
            self.peer.send(buffer if at == have else buffer[:at])


class _Pair:
    """A client and its connection upstream: which correlation id of the client's belongs to each answer."""

    def __init__(self, upstream: int) -> None:
        self._ids: deque[bytes] = deque()
        self._next = 0
        self._upstream = upstream
        self.client = _Side(self._asked, self._close)
        self._broker = _Side(self._answered, self._close)
        self.client.peer, self._broker.peer = self._broker, self.client
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self._broker, HOST, self._upstream)

    def _asked(self, buffer: bytearray, at: int) -> None:
        place = slice(at + _REQUEST_ID_AT, at + _REQUEST_ID_AT + _I32.size)
        self._ids.append(bytes(buffer[place]))
        self._next = (self._next + 1) & 0x7FFFFFFF
        _I32.pack_into(buffer, place.start, self._next)

    def _answered(self, buffer: bytearray, at: int) -> None:
        buffer[at + _ANSWER_ID_AT : at + _ANSWER_ID_AT + _I32.size] = self._ids.popleft()

    def _close(self) -> None:
        self.client.close()
        self._broker.close()


async def _serve(listen: int, upstream: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Pair(upstream).client, HOST, listen)
    await server.serve_forever()


def main() -> None:
    """Until it is killed."""
    uvloop.run(_serve(*map(int, sys.argv[1:3])))


if __name__ == "__main__":
    main()
