"""A proxy in front of a node that advertises it, in the loop of the test: it cuts, blocks, and rewrites answers."""

from __future__ import annotations

import asyncio
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sidecar.network.listening import close_server

HOST = "127.0.0.1"
PRODUCE = 0
Edit = Callable[[int, bytes], bytes | None]


class Proxy:
    """`edit` is given the API key and the bytes of each answer, and may change them; None cuts the connection there.

    `asked` counts requests by API key, `accepted` connections.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._accepted: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self.edit: Edit = lambda key, answer: answer
        self.blocked = False
        self.silent = False
        """Whether answers are kept back."""
        self.accepted = 0
        self.asked: dict[int, int] = {}

    @property
    def open(self) -> int:
        """Connections that clients hold."""
        return len(self._writers) // 2

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.blocked:
            writer.transport.abort()
            return
        self._accepted.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))  # the server would complain of its own being cancelled
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        keys: dict[int, int] = {}
        ends = {writer, forth}
        self._writers |= ends
        pumps = [
            asyncio.create_task(self._requests(reader, forth, keys)),
            asyncio.create_task(self._answers(back, writer, keys)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._writers -= ends
            for each in ends:
                each.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keys: dict[int, int]) -> None:
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            key, _, correlation = struct.unpack_from(">hhi", frame)
            keys[correlation] = key
            self.asked[key] = self.asked.get(key, 0) + 1
            writer.write(struct.pack(">i", len(frame)) + frame)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keys: dict[int, int]) -> None:
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            found = self.edit(keys.pop(int.from_bytes(frame[:4], "big")), frame)
            if found is None:
                return
            if not self.silent:
                writer.write(struct.pack(">i", len(found)) + found)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._accepted:  # a task that is cancelled before it has begun closes nothing
            writer.transport.abort()


@asynccontextmanager
async def proxy(port: int, target: str) -> AsyncIterator[Proxy]:
    """Listens on `port` for as long as the block runs."""
    found = Proxy(target)
    server = await asyncio.start_server(found.accept, HOST, port)
    try:
        yield found
    finally:
        await close_server(server)
        await found.stop()
