"""A TCP proxy that knows Kafka's frames: it loses, holds or cuts the request or the reply that a test names.

Between a client and a node, or a node and a broker: where a server names its own address (Metadata, FindCoordinator,
DescribeCluster) the proxy puts its own, so that whoever comes by it stays with it. It speaks to one server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sidecar.network.listening import close_server
from tests.raw import RawClient, metadata

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType
    from uuid import UUID

HOST = "127.0.0.1"
PRODUCE, METADATA = 0, 3
_NAMING = {METADATA, 10, 60}
_RESET = struct.pack("ii", 1, 0)
_HEAD = 120
"""Bytes of a Produce frame that may name its first topic. Records behind them may hold names of others."""
_PATIENCE = 30.0


class Way(Enum):
    """The direction of a frame."""

    REQUEST = "to the server"
    REPLY = "to the client"


class Seen(NamedTuple):
    """A frame on its way. A reply bears the API key of its request; `data` has the length in front."""

    way: Way
    api_key: int
    correlation: int
    data: bytes


class _BrokenError(ConnectionError):
    """The connection is to be reset."""


@dataclass
class Fault:
    """Something that happens to one frame, the first that it `fits`."""

    way: Way
    fits: Callable[[Seen], bool]
    cut_at: int | None = None
    """Deliver so many bytes, then reset both connections. None: hold the frame, and what is behind it."""
    hit: Seen | None = None
    _reached: threading.Event = field(default_factory=threading.Event)
    _release: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: bool = False
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def happened(self) -> bool:
        return self.hit is not None

    def wait(self, timeout: float = _PATIENCE) -> Seen:
        """Wait until it has happened; to which frame."""
        assert self._reached.wait(timeout), "the fault did not happen"
        assert self.hit is not None
        return self.hit

    def release(self, *, lost: bool = False) -> None:
        """Let a held frame go on; `lost`: reset its connection instead."""
        assert self._loop is not None
        self._lost = lost
        self._loop.call_soon_threadsafe(self._release.set)

    async def strike(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        """Do it to a frame that is meant for `writer`. Raises `_BrokenError`."""
        self.hit = seen
        if self.cut_at is not None:
            writer.write(seen.data[: self.cut_at])
            await writer.drain()
            self._reached.set()
            raise _BrokenError
        self._reached.set()
        await self._release.wait()
        if self._lost:
            raise _BrokenError


class FrameProxy:
    """Listens on a port of its own and speaks to `target` (`host:port`); a context manager with a thread of its own.

    `passed` counts whole frames by way and API key, `resets` connections that a fault broke.
    """

    def __init__(self, target: str) -> None:
        host, port = target.split(",", maxsplit=1)[0].rsplit(":", 1)
        self.address = ""
        self.passed: Counter[tuple[Way, int]] = Counter()
        self.resets = 0
        self._target = host, int(port)
        self._faults: list[Fault] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="frame-proxy", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._own_address = (b"", b"")

    # What a test asks for -------------------------------------------------------------------------------------------

    def cut(self, way: Way, at: int, fits: Callable[[Seen], bool] | None = None) -> Fault:
        """Deliver `at` bytes of the next frame that fits (of any Produce), then reset its connections."""
        return self._add(Fault(way, fits or _is_produce, at))

    def drop_reply(self, correlation: int | None = None) -> Fault:
        """Lose the reply of the next Produce, or of the one with this correlation id, and reset its connections."""
        if correlation is None:
            return self.cut(Way.REPLY, 0)
        return self.cut(Way.REPLY, 0, lambda seen: seen.correlation == correlation)

    def hold(self, way: Way, fits: Callable[[Seen], bool] | None = None) -> Fault:
        """Hold the next frame that fits until it is released."""
        return self._add(Fault(way, fits or _is_produce))

    def produce_to(self, topic: str) -> Callable[[Seen], bool]:
        """Fits the Produce of a topic that the server has. Nodes name topics to brokers by name and by id."""
        with RawClient(f"{self._target[0]}:{self._target[1]}") as client:
            (found,) = client.ask(metadata([topic], version=12)).topics
        assert found.topic_id is not None, f"{topic} has no id"
        return produce_to(topic, found.topic_id)

    def forget(self) -> None:
        """Nothing that has not happened yet shall happen."""
        self._loop.call_soon_threadsafe(self._faults.clear)
        self._run(asyncio.sleep(0))

    def _add(self, fault: Fault) -> Fault:
        fault._loop = self._loop
        self._loop.call_soon_threadsafe(self._faults.append, fault)
        self._run(asyncio.sleep(0))
        return fault

    # Connections ----------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = [writer]
        try:
            back, forth = await asyncio.open_connection(*self._target)
            writers.append(forth)
            asked: dict[int, int] = {}
            pumps = [
                asyncio.create_task(self._pump(Way.REQUEST, reader, forth, asked)),
                asyncio.create_task(self._pump(Way.REPLY, back, writer, asked)),
            ]
            try:
                done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                if any(isinstance(pump.exception(), _BrokenError) for pump in done):
                    self.resets += 1
                    for each in writers:
                        _reset_on_close(each)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, so is whoever speaks for it; or the proxy ends
        finally:
            for each in writers:
                each.transport.abort()

    async def _pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                data = head + await reader.readexactly(int.from_bytes(head, "big"))
                seen = self._see(way, data, asked)
                fault = next((each for each in self._faults if each.way is way and each.fits(seen)), None)
                if fault is not None:
                    self._faults.remove(fault)
                    await fault.strike(seen, writer)
                writer.write(seen.data)
                await writer.drain()
                self.passed[way, seen.api_key] += 1

    def _see(self, way: Way, data: bytes, asked: dict[int, int]) -> Seen:
        if way is Way.REQUEST:
            api_key, _, correlation = struct.unpack_from(">hhi", data, 4)
            asked[correlation] = api_key
            return Seen(way, api_key, correlation, data)
        (correlation,) = struct.unpack_from(">i", data, 4)
        api_key = asked.pop(correlation, -1)
        if api_key in _NAMING:
            real, own = self._own_address
            data = data.replace(real, own)
        return Seen(way, api_key, correlation, data)

    # Life -----------------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        port = self._server.sockets[0].getsockname()[1]
        host, real = self._target
        self.address = f"{host}:{port}"
        self._own_address = host.encode() + struct.pack(">i", real), host.encode() + struct.pack(">i", port)

    async def _end(self) -> None:
        assert self._server is not None
        await close_server(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def _is_produce(seen: Seen) -> bool:
    return seen.api_key == PRODUCE


def produce_to(topic: str, topic_id: UUID) -> Callable[[Seen], bool]:
    """Fits the Produce of one topic in any version: by name to 8, by compact name to 12, by id from 13 on. Between node
    and broker there are those of internal topics, too.
    """
    name = topic.encode()
    assert len(name) < 127
    words = (struct.pack(">h", len(name)) + name, bytes([len(name) + 1]) + name, topic_id.bytes)
    return lambda seen: seen.api_key == PRODUCE and any(seen.data.find(each, 4, _HEAD) >= 0 for each in words)


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Its peer shall see RST, not the end of a stream."""
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
