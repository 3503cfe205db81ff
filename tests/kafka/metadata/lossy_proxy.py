"""A TCP proxy in front of Redis that loses one reply: the request was carried out, the client never hears of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from sidecar.network.listening import close_server


class LossyProxy:
    """Passes everything until `lose_reply_to(marker)`: the reply to the next request with `marker` in it is swallowed
    once it came, and the client's connection is aborted. `lost` counts the replies that were lost."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._marker: bytes | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await close_server(self._server)
        for writer in self._streams:
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def lose_reply_to(self, marker: bytes) -> None:
        self._marker = marker

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(*self._upstream)
        self._streams |= {client_out, server_out}
        losing = asyncio.Event()

        async def requests() -> None:
            while data := await client_in.read(65536):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    losing.set()
                server_out.write(data)

        async def replies() -> None:
            while data := await server_in.read(65536):
                if losing.is_set():
                    self.lost += 1
                    client_out.transport.abort()
                    return
                client_out.write(data)

        with suppress(ConnectionError):
            both = {asyncio.ensure_future(requests()), asyncio.ensure_future(replies())}
            _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        client_out.transport.abort()
        server_out.transport.abort()
