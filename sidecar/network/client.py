"""One client's connection: passes its requests in order to the handler, and writes its answers in the same order.

The handler may answer at once, later, or never (acks=0). It may also hold the connection during a lookup, as a broker
does with every request: frames that arrive meanwhile wait, so routing never reorders a client's requests.
"""

import asyncio
import socket
import ssl
import time
from struct import Struct
from typing import Any, Final, cast

from sidecar.network.admission import Seat
from sidecar.network.framing import FRAMES_A_TURN, Frame, Outbox
from sidecar.network.handling import Handler, Meter, Pause, Repeating
from sidecar.network.keepalive import probe_when_idle
from sidecar.network.listening import hold_back_nothing, host_port
from sidecar.network.memory import RequestMemory
from sidecar.network.reading import Reading, reason_of
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.network.turn import TURN, descriptor_of
from sidecar.network.unread import LEAST, AnswerMemory
from sidecar.protocol import limits
from sidecar.protocol.primitives import Octets

_HEAD: Final = Struct(">ihhih")
_HEAD_BYTES: Final = _HEAD.size
_MAX_UNANSWERED: Final = 512
_GOODBYE_S: Final = 10.0  # how long a client may take to read the answers written before `close`
_BUDGET: Final = 64 * 1024 * 1024  # bytes, real or expected, of the answers after the oldest unanswered request


class ClientConnection(Reading):
    """A client's socket. `state` and `listener` (the one that accepted it) belong to the handler. `since_ms` is in Unix
    milliseconds. `requests` and `bytes_in` count dispatched requests, `bytes_out` answers, both with length prefixes.
    """

    __slots__ = (
        "__weakref__",
        "_client_id",
        "_going_on",
        "_handler",
        "_has_turn",
        "_outbox",
        "_relieving",
        "_reported",
        "answers",
        "bytes_in",
        "host",
        "id",
        "listener",
        "meter",
        "peer",
        "repeating",
        "seat",
        "since_ms",
        "state",
        "tls",
    )
    frames_a_turn = FRAMES_A_TURN

    def __init__(
        self, handler: Handler[Any], connection_id: int, request_limit: int, memory: RequestMemory | None = None
    ) -> None:
        super().__init__(request_limit, memory)
        self.id = connection_id
        self.answers: AnswerMemory | None = None
        """The memory that the unread answers of all clients share; None if it has no limit."""
        self.state: Any = None
        self.listener: Any = None
        self.peer = "?"
        self.host = ""  # the address in `peer`
        self.seat: Seat | None = None  # its share of the connection limits
        self.tls: ssl.SSLObject | None = None  # the TLS session
        self.since_ms = int(time.time() * 1000)
        self.bytes_in = 0
        self.repeating: Repeating | None = None
        self.meter: Meter | None = None
        self._handler = handler
        self._outbox = Outbox()
        self._going_on = self._has_turn = self._relieving = False
        self._reported: set[str] = set()
        self._client_id = b""

    # Answers ------------------------------------------------------------------------------------------------------

    def error_answered(self, exchange: Exchange, code: int) -> None:
        """Called by an exchange if its answer has an error code."""
        self._handler.error_answered(exchange, code)

    def expect(self, exchange: Exchange) -> None:
        """Take a place in the order of answers."""
        exchanges = self._exchanges
        if exchanges and exchanges[-1].is_patient:
            exchanges[-1].hurry()
        exchanges.append(exchange)
        if self.meter is not None:
            self.meter.expected(exchange)
        if exchange.weight:
            self._weight += exchange.weight
            if len(exchanges) > 1:
                self._check_budget()
        if len(exchanges) >= _MAX_UNANSWERED:
            self.pause(Pause.UNANSWERED)

    def forward_now(self, exchange: Exchange, frame: Frame, head: Octets = b"") -> bool:
        """Write `head` and a broker's answer if this exchange is next. Return whether the answer needs no more work."""
        exchanges = self._exchanges
        if not exchanges or exchanges[0] is not exchange:
            return self.closed
        if self.meter is not None and (amended := self.meter.forwarded(exchange, frame, head)) is not None:
            frame, head = amended, b""
        exchanges.popleft()
        self._weight -= exchange.weight
        size = len(head) + frame.end - frame.start
        self.bytes_out += size
        if size >= LEAST:
            self._note_large(size)
        if head:
            self._outbox.add(head)
        self._outbox.add_frame(frame)
        self._handler.exchange_done(exchange, size)
        if exchanges or self._pause or self._starves:
            self._answered()
        return True

    def _answered(self) -> None:
        """After an answer was written: write the ready answers after it."""
        exchanges = self._exchanges
        if exchanges and exchanges[0].answered:
            self._write_ready()
        elif self._pause or self._starves:
            self._relieve()

    def answer_ready(self, exchange: Exchange) -> None:
        """Called by an exchange that has its answer. If the exchange is the next to be answered, write the answer and
        the ready ones after it; else count the waiting answer.
        """
        if self.meter is not None and not self.closed:
            self.meter.answered(exchange)
        exchanges, size = self._exchanges, exchange.answer_bytes
        if exchanges and exchanges[0] is exchange:
            exchanges.popleft()
            self._weight -= exchange.weight
            self.bytes_out += size
            if size >= LEAST:
                self._note_large(size)
            self._outbox.send(exchange.take_answer())
            self._handler.exchange_done(exchange, size)
            if exchanges or self._pause or self._starves:
                self._answered()
        elif not self.closed:
            self._kept += size
            self._weight += size - exchange.weight
            exchange.weight = size
            self._check_budget()
            if self.answers is not None and self._kept >= LEAST:
                self.answers.note(self)

    def _write_ready(self) -> None:
        exchanges = self._exchanges
        while exchanges and exchanges[0].answered:
            exchange = exchanges.popleft()
            self._weight -= exchange.weight
            size = exchange.answer_bytes
            self._kept -= size
            self.bytes_out += size
            if size >= LEAST:
                self._note_large(size)
            self._outbox.send(exchange.take_answer())
            self._handler.exchange_done(exchange, size)
        if self._pause or self._starves:
            self._relieve()

    def _check_budget(self) -> None:
        if self._behind() > _BUDGET:
            self.pause(Pause.BUDGET)

    def _relieve(self) -> None:
        """Check at the end of this turn whether reading can go on: all answers lost together are known then."""
        if not self._relieving:
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieved)

    def _relieved(self) -> None:
        self._relieving = False
        if len(self._exchanges) < _MAX_UNANSWERED // 2:
            self.resume(Pause.UNANSWERED)
        if self._behind() <= _BUDGET // 2:
            self.resume(Pause.BUDGET)
        if self._starves and not self._pause:
            self._read_on()

    # Back-pressure and order of requests --------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Dispatch no more requests, for `reason`, until every reason was taken back with `resume`."""
        self._pause |= int(reason)
        self._stop_reading()

    def resume(self, reason: Pause) -> None:
        """Take a reason back. When no reason is left, dispatch the waiting requests, then read more."""
        if not self._pause & reason:
            return
        self._pause &= ~int(reason)
        if self._is_parked and self._pause == Pause.HELD and not self._is_crowded():
            self._read_on()
        if not self._pause:
            self._go_on()

    def _go_on(self) -> None:
        """Dispatch as many waiting requests as one turn allows; the rest in the next turns; then read more."""
        if self._going_on:
            return
        self._going_on = True
        try:
            for _ in FRAMES_A_TURN:
                if not self._waiting or self._pause or self._stopped or TURN.elements > limits.BOUNDS.turn:
                    break
                self._dispatch(self._waiting.popleft())
        finally:
            self._going_on = False
        if self._pause or self._stopped:
            return
        if self._waiting or self.is_behind:
            self._ask_turn()
        else:
            self._read_on()

    def _ask_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            TURN.cut += 1
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Go on after other connections had their turns. If the connection is paused now, `resume` goes on later."""
        self._has_turn = False
        if self._pause or self._stopped:
            return
        if self._waiting:
            TURN.run(self._go_on)
        elif self.is_behind:
            self.cut_on()
            if not (self.is_behind or self._pause or self._stopped):
                self._read_on()

    def fell_behind(self) -> None:
        self._stop_reading()
        if not self._pause:
            self._ask_turn()

    def hold(self) -> None:
        """Keep later requests waiting until `release`."""
        self.pause(Pause.HELD)

    def park(self) -> None:
        """Keep reading while the held request waits, to notice when the peer disconnects; later requests wait."""
        self._is_parked = True
        if self._pause == Pause.HELD and not self._is_crowded():
            self._read_on()

    def release(self) -> None:
        """Go on with the waiting requests."""
        self._is_parked = False
        self.resume(Pause.HELD)

    # FrameReceiver ------------------------------------------------------------------------------------------------

    def frame_received(self, frame: Frame) -> None:
        if self._pause or self._waiting:
            self._waiting.append(frame.own())
            if self._pause and self._reading and self._is_crowded():
                self._stop_reading()
            return
        self._dispatch(frame)

    def _dispatch(self, frame: Frame) -> None:
        buffer, start = frame.buffer, frame.start
        self.requests += 1
        self.bytes_in += frame.end - start
        try:
            if frame.end - start < _HEAD_BYTES:
                raise RejectError("truncated", f"a request of {frame.size - 4} bytes has no header")
            if self.repeating is not None and not self._exchanges and self.repeating.again(frame):
                return
            _, key, version, correlation_id, id_length = _HEAD.unpack_from(buffer, start)
            body = start + _HEAD_BYTES
            client_id = self._client_id
            if id_length > 0:
                body += id_length
                if body > frame.end:
                    raise RejectError("truncated", f"client id of {id_length} bytes in a frame of {frame.size - 4}")
                if id_length != len(client_id) or buffer[body - id_length : body] != client_id:
                    self._client_id = client_id = bytes(buffer[body - id_length : body])
                    self.repeating = None
            elif id_length < -1:
                raise RejectError("malformed", f"client id of {id_length} bytes")
            else:
                client_id = b""
            self._handler.request_received(self, Request(key, version, correlation_id, client_id, frame, body))
        except RejectError as error:
            self.reject(error.reason, error.detail)
        except Exception:  # in a later turn than the read's the event loop does not close the connection
            self.abort()
            raise

    def bad_length(self, size: int, head: bytes) -> bool:
        if self._pause & Pause.HELD and 0 <= size <= self._request_limit:
            return True  # the request before it may be a login, which raises the limit
        self.reject(*reason_of(size, head, self.largest_frame))
        return False

    def reject(self, reason: str, detail: str) -> None:
        """Close because of what the client sent, after the answers written so far."""
        if self._stopped:
            return
        self._handler.client_rejected(self, reason, detail, closed=True)
        self.close()

    def report(self, reason: str, detail: str) -> None:
        """Report input that is answered with an error, once per connection and reason: clients may repeat it."""
        if reason not in self._reported:
            self._reported.add(reason)
            self._handler.client_rejected(self, reason, detail, closed=False)

    def close(self) -> None:
        """Close after the answers written so far; further input is ignored."""
        self.stop_receiving()
        self._waiting.clear()
        self._outbox.flush()
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_GOODBYE_S, self._transport.abort)
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.stop_receiving()
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing
        self._transport = transport
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        probe_when_idle(sock)
        if peer := transport.get_extra_info("peername"):
            self.peer, self.host = host_port(peer), str(peer[0])
        self.tls = transport.get_extra_info("ssl_object")
        if self.tls is not None:
            hold_back_nothing(transport)
        self._outbox.transport, self._outbox.descriptor = transport, descriptor_of(transport)
        if self.memory is not None:
            self.memory.connections.add(self)
        self._handler.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if exc is None:  # the only sign of the end of a TLS stream without close_notify
                self._take_up_rest()
        finally:
            self.closed = True
            if self.memory is not None:
                self.memory.connections.discard(self)
            if self.answers is not None:
                self.answers.forget(self)
            self.stop_receiving()
            self._exchanges.clear()
            self._waiting.clear()
            self.repeating = None
            self._handler.client_closed(self)

    def eof_received(self) -> bool:
        self._take_up_rest()
        if self.unfinished_bytes and not self.is_behind:
            self.reject("truncated", f"the client ended its stream behind {self.unfinished_bytes} bytes of a frame")
        return False

    def _take_up_rest(self) -> None:
        """Dispatch at once all frames that were read: TLS reports the end of a stream even while reading is paused."""
        while self.is_behind and not (self._pause or self._waiting):
            self.cut_on()

    def pause_writing(self) -> None:
        self.pause(Pause.CLIENT_FULL)
        self._handler.client_full(self, True)
        if self.answers is not None:
            self.answers.note(self)

    def resume_writing(self) -> None:
        self._largest = 0
        self._handler.client_full(self, False)
        if self.answers is not None:
            self.answers.note(self)
        self.resume(Pause.CLIENT_FULL)
