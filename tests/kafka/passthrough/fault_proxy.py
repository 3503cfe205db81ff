"""A TCP proxy in front of a broker that does to its connections what networks do, when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from sidecar.network.listening import close_server

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

HOST = "127.0.0.1"


class Mode(Enum):
    """What becomes of a connection to the proxy, and of what is sent on it."""

    PASS = "everything goes on, both ways"
    SWALLOW = "requests are read and go nowhere"
    HANG_UP = "connections are accepted and closed at once"
    REFUSE = "nobody listens"
    BLACKHOLE = "connection attempts are not answered at all"


class FaultProxy:
    """Listens on `port` of its own and speaks to `target` (`host:port`); a context manager with a thread of its own.

    `accepted` counts connections, `swallowed` bytes that went nowhere, `cuts` connections that `cut` closed.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target: tuple[str, int] = ("", 0)
        self.accepted = 0
        self.swallowed = 0
        self.cuts = 0
        self._mode = Mode.PASS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._hole: list[socket.socket] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def become(self, mode: Mode) -> None:
        """Treat what comes from now on so; connections that stand stay."""
        self._run(self._become(mode))

    def cut(self) -> None:
        """End all connections."""
        self._run(self._cut())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _become(self, mode: Mode) -> None:
        listening = {Mode.PASS, Mode.SWALLOW, Mode.HANG_UP}
        if self._mode is Mode.BLACKHOLE:
            for one in self._hole:
                one.close()
            self._hole.clear()
        if mode not in listening and self._server is not None:
            await close_server(self._server)
            self._server = None
        self._mode = mode
        if mode is Mode.BLACKHOLE:
            self._dig()
        if mode in listening and self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port, limit=2**20)

    def _dig(self) -> None:
        """A listening socket whose queue is full: the kernel drops what else knocks."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, self.port))
        listener.listen(0)
        self._hole.append(listener)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((HOST, self.port))
            self._hole.append(filler)

    @property
    def fillers(self) -> set[int]:
        """Local ports of the connections that fill the queue."""
        return {one.getsockname()[1] for one in self._hole[1:]}

    async def _cut(self) -> None:
        self.cuts += len(self._writers) // 2
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._mode is Mode.HANG_UP:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            back, forth = await asyncio.open_connection(*self.target, limit=2**20)
            self._writers |= {writer, forth}
            directions = (self._pump(reader, forth, swallows=True), self._pump(back, writer, swallows=False))
            for direction in directions:
                task = asyncio.create_task(direction)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, swallows: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                if swallows and self._mode is Mode.SWALLOW:
                    self.swallowed += len(data)
                else:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
        self._writers.discard(writer)

    def __enter__(self) -> Self:
        self._thread.start()
        self.become(Mode.PASS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.become(Mode.REFUSE)
        self.cut()
        self._run(asyncio.sleep(0.05))  # the pumps end by themselves
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
