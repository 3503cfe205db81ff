"""One client's connection: its requests in order to the handler, its answers in the same order to the socket.

The handler may answer at once, later, or never (acks=0). It may also hold the connection while it looks something up,
as a broker does with every request: frames that arrive meanwhile wait, so that routing never reorders what the client
sent.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from enum import IntFlag
from struct import Struct
from typing import Any, Final, Protocol, cast

from sidecar.network.framing import Frame, FrameReceiver, Outbox
from sidecar.network.keepalive import detect_silent_peer
from sidecar.protocol.primitives import Octets

_HEAD: Final = Struct(">ihhih")
_HEAD_BYTES: Final = _HEAD.size
FIRST_FRAME_LIMIT: Final = 512 * 1024
_MAX_UNANSWERED: Final = 512
_MAX_HELD_ANSWER_BYTES: Final = 32 * 1024 * 1024


class Pause(IntFlag):
    """Why reading from a client stands still."""

    NONE = 0
    HELD = 1
    UPSTREAM_FULL = 2
    UNANSWERED = 4
    BUDGET = 8


class Exchange:
    """A request and the place of its answer. Rooms above derive from it to keep what they need until the answer comes.
    """

    __slots__ = (
        "_answer",
        "answered",
        "client_id",
        "connection",
        "correlation_id",
        "key",
        "request_bytes",
        "started",
        "version",
    )

    def __init__(
        self,
        connection: ClientConnection,
        key: int,
        version: int,
        correlation_id: int,
        client_id: bytes,
        request_bytes: int,
    ) -> None:
        self.connection = connection
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request_bytes = request_bytes
        self.started = time.perf_counter()
        self.answered = False
        self._answer: list[Octets] | None = None

    def answer(self, parts: list[Octets]) -> None:
        """Give the whole answer, length prefix included. A second answer is a bug."""
        assert not self.answered, "answered twice"
        self.answered = True
        self._answer = parts
        self.connection.answer_ready(self)

    def answer_frame(self, frame: Frame) -> None:
        """Give a broker's answer as it is."""
        assert not self.answered, "answered twice"
        self.answered = True
        if not self.connection.forward_now(self, frame):
            self._answer = [frame.own().buffer] if not frame.owned else [frame.view(frame.start, frame.end)]
            self.connection.answer_ready(self)

    @property
    def answer_bytes(self) -> int:
        """Size of the answer that waits to be written, in bytes."""
        return sum(len(part) for part in self._answer or ())

    def take_answer(self) -> list[Octets]:
        parts, self._answer = self._answer, None
        assert parts is not None
        return parts


class Handler(Protocol):
    """What a connection calls; the gateway implements it."""

    def client_connected(self, connection: ClientConnection) -> None: ...

    def request_received(self, connection: ClientConnection, frame: Frame, head: RequestHead) -> None:
        """One request. Raise `RejectError` to close the connection."""
        ...

    def client_full(self, connection: ClientConnection, full: bool) -> None:
        """The socket towards the client is full (or no more): pause what feeds it."""
        ...

    def client_closed(self, connection: ClientConnection) -> None: ...

    def client_rejected(self, connection: ClientConnection, reason: str, detail: str) -> None:
        """The connection is closed for what the client sent: one event for the log."""
        ...

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        """An answer was handed to the socket."""
        ...


class RejectError(Exception):
    """The request cannot be answered within the protocol: the connection is closed, as a broker does."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RequestHead:
    """The fixed part of a request header. `body` is the offset behind the client id in the frame's buffer."""

    __slots__ = ("body", "client_id", "correlation_id", "key", "version")

    def __init__(self, key: int, version: int, correlation_id: int, client_id: bytes, body: int) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body


class ClientConnection(FrameReceiver):
    """A client's socket. `state` belongs to the handler."""

    def __init__(self, handler: Handler, connection_id: int, request_limit: int) -> None:
        super().__init__(min(FIRST_FRAME_LIMIT, request_limit))
        self.id = connection_id
        self.state: Any = None
        self.peer = "?"
        self.closed = False
        self._handler = handler
        self._request_limit = request_limit
        self._outbox = Outbox()
        self._exchanges: deque[Exchange] = deque()
        self._waiting: deque[Frame] = deque()
        self._held_bytes = 0
        self._pause = Pause.NONE
        self._transport: asyncio.Transport | None = None
        self._client_id = b""

    # Answers ------------------------------------------------------------------------------------------------------

    def expect(self, exchange: Exchange) -> None:
        """Take a place in the order of answers."""
        exchanges = self._exchanges
        exchanges.append(exchange)
        if len(exchanges) >= _MAX_UNANSWERED:
            self.pause(Pause.UNANSWERED)

    def forward_now(self, exchange: Exchange, frame: Frame) -> bool:
        """Write a broker's answer straight through if it is this exchange's turn."""
        exchanges = self._exchanges
        if not exchanges or exchanges[0] is not exchange:
            return self.closed
        exchanges.popleft()
        self._outbox.add_frame(frame)
        self._handler.exchange_done(exchange, frame.end - frame.start)
        if exchanges and exchanges[0].answered:
            self._write_ready(held=True)
        elif self._pause:
            self._relieve()
        return True

    def answer_ready(self, exchange: Exchange) -> None:
        """Called by an exchange that has its answer: write it, and those that waited behind it, when its turn comes."""
        exchanges = self._exchanges
        if exchanges and exchanges[0] is exchange:
            self._write_ready()
        elif not self.closed:
            self._held_bytes += exchange.answer_bytes
            if self._held_bytes > _MAX_HELD_ANSWER_BYTES:
                self.pause(Pause.BUDGET)

    def _write_ready(self, held: bool = False) -> None:
        exchanges, outbox = self._exchanges, self._outbox
        while exchanges and exchanges[0].answered:
            exchange = exchanges.popleft()
            size = exchange.answer_bytes
            for part in exchange.take_answer():
                outbox.add(part)
            if held:
                self._held_bytes -= size
            held = True
            self._handler.exchange_done(exchange, size)
        self._relieve()

    def _relieve(self) -> None:
        if len(self._exchanges) < _MAX_UNANSWERED // 2:
            self.resume(Pause.UNANSWERED)
        if self._held_bytes <= _MAX_HELD_ANSWER_BYTES // 2:
            self.resume(Pause.BUDGET)

    # Back-pressure and order of requests --------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Stop reading requests for a reason; reasons add up."""
        if not self._pause and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pause |= reason

    def resume(self, reason: Pause) -> None:
        """Take a reason back; reading goes on when none is left."""
        if not self._pause & reason:
            return
        self._pause &= ~reason
        if not self._pause and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def hold(self) -> None:
        """Let later requests wait until `release`."""
        self.pause(Pause.HELD)

    def release(self) -> None:
        """Go on with what waited."""
        self._pause &= ~Pause.HELD
        while self._waiting and not self._pause & Pause.HELD and not self.closed:
            self._dispatch(self._waiting.popleft())
        if not self._pause & Pause.HELD:
            self._pause |= Pause.HELD
            self.resume(Pause.HELD)

    # FrameReceiver ------------------------------------------------------------------------------------------------

    def frame_received(self, frame: Frame) -> None:
        if self._pause & Pause.HELD:
            self._waiting.append(frame.own())
            return
        self._dispatch(frame)

    def _dispatch(self, frame: Frame) -> None:
        buffer, start = frame.buffer, frame.start
        try:
            if frame.end - start < _HEAD_BYTES:
                raise RejectError("truncated", f"a request of {frame.size - 4} bytes has no header")
            _, key, version, correlation_id, id_length = _HEAD.unpack_from(buffer, start)
            body = start + _HEAD_BYTES
            client_id = self._client_id
            if id_length > 0:
                body += id_length
                if body > frame.end:
                    raise RejectError("truncated", f"client id of {id_length} bytes in a frame of {frame.size - 4}")
                if id_length != len(client_id) or buffer[body - id_length : body] != client_id:
                    self._client_id = client_id = bytes(buffer[body - id_length : body])
            elif id_length < -1:
                raise RejectError("malformed", f"client id of {id_length} bytes")
            else:
                client_id = b""
            self._handler.request_received(self, frame, RequestHead(key, version, correlation_id, client_id, body))
        except RejectError as error:
            self.reject(error.reason, error.detail)

    def first_request_valid(self) -> None:
        """The client has shown that it speaks Kafka: larger frames are allowed from now on."""
        self.frame_limit = self._request_limit

    def bad_length(self, size: int, head: bytes) -> None:
        if head.startswith((b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN")):
            self.reject("http", "an HTTP request on the Kafka port")
        elif head[:2] == b"\x16\x03":
            self.reject("tls", "a TLS handshake on a plaintext Kafka port")
        elif size < 0:
            self.reject("malformed", f"a frame of {size} bytes")
        else:
            self.reject("too_large", f"a frame of {size} bytes, the limit is {self.frame_limit}")

    def reject(self, reason: str, detail: str) -> None:
        """Close for what the client sent, after what is answered already has left."""
        if self.closed:
            return
        self._handler.client_rejected(self, reason, detail)
        self.stop_receiving()
        self.close()

    def close(self) -> None:
        """Close after the answers written so far."""
        self._outbox.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing
        self._transport = transport
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        detect_silent_peer(sock)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._outbox.transport = transport
        self._handler.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.stop_receiving()
        self._exchanges.clear()
        self._waiting.clear()
        self._handler.client_closed(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._handler.client_full(self, True)

    def resume_writing(self) -> None:
        self._handler.client_full(self, False)
