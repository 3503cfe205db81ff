"""Both ends of the room `network` for its tests: a handler that records, a client's socket, and a broker that obeys."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop

from sidecar.network.client import ClientConnection
from sidecar.network.listening import close_server
from sidecar.network.request import Exchange, RejectError
from sidecar.network.upstream import UpstreamConnection, UpstreamLostError
from sidecar.protocol.primitives import I32

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from sidecar.network.framing import Frame
    from sidecar.network.memory import RequestMemory
    from sidecar.network.request import Request
    from sidecar.network.unread import AnswerMemory
    from sidecar.protocol.primitives import Octets

LOOPBACK = "127.0.0.1"


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the event loop that a node runs on."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))

    return run


def frame_of(body: bytes) -> bytes:
    return I32.pack(len(body)) + body


def request(
    correlation: int, *, key: int = 0, version: int = 0, client_id: str | None = "c", body: bytes = b""
) -> bytes:
    """A request frame; its correlation id is what tests know it by."""
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id.encode()
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation.to_bytes(4, "big")
    return frame_of(head + name + body)


def answer_frame(correlation: int, body: bytes = b"") -> bytes:
    return frame_of(correlation.to_bytes(4, "big") + body)


def answer(correlation: int, body: bytes = b"") -> list[Octets]:
    return [answer_frame(correlation, body)]


@dataclass
class Recorder:
    """A handler that takes a place for every request and leaves the answers to the test.

    Key 98 is rejected, key 99 has no answer; an answer may have `weight` bytes. Its connections share `memory` for
    requests, and `answers` for unread answers.
    """

    limit: int = 100 * 1024 * 1024
    weight: int = 0
    memory: RequestMemory | None = None
    answers: AnswerMemory | None = None
    connections: list[ClientConnection] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    rejected: list[tuple[str, str, bool]] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    closed: int = 0
    act: Callable[[ClientConnection, Request, Exchange], None] = lambda *_: None

    def factory(self) -> ClientConnection:
        return ClientConnection(self, len(self.connections) + 1, self.limit, self.memory, self.answers)

    def client_connected(self, connection: ClientConnection) -> None:
        self.connections.append(connection)

    def request_received(self, connection: ClientConnection, request: Request) -> None:
        if request.key == 98:
            raise RejectError("nonsense", f"request {request.correlation_id}")
        connection.first_request_valid()
        self.received.append(request.correlation_id)
        exchange = Exchange(connection, request)
        exchange.weight = self.weight
        if request.key != 99:
            connection.expect(exchange)
        self.exchanges[request.correlation_id] = exchange
        self.act(connection, request, exchange)

    def client_full(self, connection: ClientConnection, full: bool) -> None:
        self.full.append(full)

    def client_closed(self, connection: ClientConnection) -> None:
        self.closed += 1

    def client_rejected(self, connection: ClientConnection, reason: str, detail: str, *, closed: bool) -> None:
        self.rejected.append((reason, detail, closed))

    def error_answered(self, exchange: Exchange, code: int) -> None:
        """Not looked at."""

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        self.done.append(exchange.correlation_id)


def feed(receiver: asyncio.BufferedProtocol, data: bytes) -> None:
    """Hand data over as an event loop does: as much as the buffer takes at a time."""
    while data:
        room = memoryview(receiver.get_buffer(-1))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        room.release()
        receiver.buffer_updated(size)
        data = data[size:]


@dataclass
class Peer:
    """The other end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answers(self, count: int) -> list[int]:
        """The correlation ids of the next answers."""
        found: list[int] = []
        async with asyncio.timeout(5):
            for _ in range(count):
                size = I32.unpack(await self.reader.readexactly(4))[0]
                found.append(I32.unpack((await self.reader.readexactly(size))[:4])[0])
        return found

    async def ended(self) -> bool:
        """Wait until the other side has closed."""
        async with asyncio.timeout(5):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionResetError:
                pass
        return True

    def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def listening(recorder: Recorder) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Peer]]]:
    """A listening socket in front of the recorder; yields how to connect to it."""
    server = await asyncio.get_running_loop().create_server(recorder.factory, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Peer]:
        peer = Peer(*await asyncio.open_connection(LOOPBACK, port))
        try:
            yield peer
        finally:
            peer.close()

    try:
        yield connect
    finally:
        await close_server(server)
        for connection in recorder.connections:
            connection.abort()
        await asyncio.sleep(0)


@dataclass
class Asked:
    """A `Reply` that remembers what became of it."""

    correlation_id: int
    got: bytes | None = None
    lost: UpstreamLostError | None = None

    def answer_received(self, frame: Frame) -> None:
        self.got = bytes(frame.buffer[frame.start + 8 : frame.end])

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.lost = error

    @property
    def over(self) -> bool:
        return self.got is not None or self.lost is not None


@dataclass
class Owner:
    """To whom an upstream connection belongs."""

    opened: int = 0
    closed: int = 0
    full: list[bool] = field(default_factory=list)

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self.opened += 1

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        self.full.append(full)

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        self.closed += 1


@asynccontextmanager
async def broker(talk: Callable[[Peer], Coroutine[Any, Any, None]]) -> AsyncIterator[tuple[str, int]]:
    """A listening socket that runs `talk` for every connection; yields its address."""
    peers: list[Peer] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(Peer(reader, writer))
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(peers[-1])

    server = await asyncio.start_server(accept, LOOPBACK, 0, limit=2**20)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        await close_server(server)
        for peer in peers:
            peer.close()
        await asyncio.sleep(0)
