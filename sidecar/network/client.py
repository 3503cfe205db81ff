"""One client's connection: passes its requests in order to the handler, and writes its answers in the same order.

The handler may answer at once, later, or never (acks=0). It may also hold the connection during a lookup, as a broker
does with every request: frames that arrive meanwhile wait, so routing never reorders a client's requests.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, cast

from sidecar.network.admission import Seat
from sidecar.network.budget import MOST_UNANSWERED, Budget
from sidecar.network.framing import LEAST_GRANT, RECEIVE_BYTES, BadLength, Begun, Frame, Framer, Need, Outbox
from sidecar.network.handling import Handler, Meter, Pause, Repeating, Usual
from sidecar.network.keepalive import LOOK_S, has_silent_peer, probe_when_idle, unread_at_end
from sidecar.network.listening import hold_back_nothing, host_port
from sidecar.network.memory import RequestMemory
from sidecar.network.replies import Replies
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.network.turn import TURN
from sidecar.network.unread import LEAST, AnswerMemory
from sidecar.network.wire import LoopWire
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import Octets

FIRST_FRAME_LIMIT: Final = 512 * 1024
FRAMES_A_TURN: Final = range(32)
"""Requests of a connection that are taken up in one turn: 0.3 to 3 ms."""
_HEAD: Final = Struct(">ihhih")
_HEAD_BYTES: Final = _HEAD.size
_GOODBYE_S: Final = 10.0  # how long a client may take to read the answers written before `close`
_STRANGERS: Final = 2 * 1024
"""Bytes that are read at a time, or after a parked request, from a client that has not sent a valid first request.
Requests of a login have a few hundred bytes, and thousands of strangers may wait for one.
"""
_HELD_BACK: Final = 512 * 1024
"""Bytes that TLS may have read from a socket and not passed on: one read of 256 KiB, and more than a record's rest."""


class ClientConnection(asyncio.BufferedProtocol):
    """A client's socket. `state` and `listener` (the one that accepted it) belong to the handler. `since_ms` is in Unix
    milliseconds. `requests` and `bytes_in` count dispatched requests, `bytes_out` answers, both with length prefixes.
    """

    __slots__ = (
        "__weakref__",
        "_budget",
        "_client_id",
        "_framer",
        "_going_on",
        "_handler",
        "_has_turn",
        "_looks_left",
        "_outbox",
        "_relieving",
        "_reported",
        "_request_limit",
        "_requests_seen",
        "_transport",
        "answers",
        "bytes_in",
        "closed",
        "get_buffer",
        "host",
        "id",
        "largest_frame",
        "listener",
        "memory",
        "meter",
        "peer",
        "repeating",
        "replies",
        "requests",
        "seat",
        "since_ms",
        "state",
        "tls",
        "usual",
    )

    def __init__(
        self,
        handler: Handler[Any],
        connection_id: int,
        request_limit: int,
        memory: RequestMemory | None = None,
        answers: AnswerMemory | None = None,
        listener: Any = None,
    ) -> None:
        """`memory` and `answers`: what the requests and the unread answers of all clients share; None: no limit."""
        self.id = connection_id
        self.memory = memory
        self.answers = answers
        self.state: Any = None
        self.listener = listener
        self.peer = "?"
        self.host = ""  # the address in `peer`
        self.seat: Seat | None = None  # its share of the connection limits
        self.tls: ssl.SSLObject | None = None  # the TLS session
        self.since_ms = int(time.time() * 1000)
        self.requests = self._requests_seen = self._looks_left = 0
        self.bytes_in = 0
        self.closed = False
        self.repeating: Repeating | None = None
        self.usual: Usual | None = None
        self.meter: Meter | None = None
        self._handler = handler
        self._request_limit = self.largest_frame = request_limit
        self._transport: asyncio.Transport | None = None
        self._outbox = Outbox()
        self._framer = Framer(request_limit, memory=memory)
        self._framer.read_at_once = _STRANGERS
        self.limit_frames(FIRST_FRAME_LIMIT)
        self.get_buffer = self._framer.buffer  # the event loop asks it directly
        self.replies = Replies(self._outbox, handler.exchange_done)
        self._budget = Budget(self._framer, self.replies, memory, self.reject)
        self._going_on = self._has_turn = self._relieving = False
        self._reported: set[str] = set()
        self._client_id = b""

    # What there is of it ------------------------------------------------------------------------------------------

    @property
    def bytes_out(self) -> int:
        """See the class."""
        return self.replies.written

    @property
    def unanswered(self) -> int:
        """Requests that have no answer yet."""
        return len(self.replies.exchanges)

    @property
    def pending(self) -> Iterator[Exchange]:
        """The requests without an answer, the oldest first."""
        return iter(self.replies.exchanges)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have arrived of an unfinished request."""
        return self._framer.unfinished_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the requests that wait or have no answer yet."""
        return self._budget.held_bytes

    def first_request_valid(self) -> None:
        """Allow larger frames, and more bytes at a time: the client has sent a valid Kafka request."""
        self.limit_frames(self._request_limit)
        self._framer.read_at_once = RECEIVE_BYTES

    def limit_frames(self, size: int) -> None:
        """Limit each frame to `size` bytes from now on, and to the limit of its API in `protocol.limits`."""
        self.largest_frame = min(size, self._request_limit)
        self._framer.limit_frames(self.largest_frame)

    # Answers ------------------------------------------------------------------------------------------------------

    def error_answered(self, exchange: Exchange, code: int) -> None:
        """Called by an exchange if its answer has an error code."""
        self._handler.error_answered(exchange, code)

    def expect(self, exchange: Exchange) -> None:
        """Take a place in the order of answers."""
        unanswered = self.replies.expect(exchange)
        if self.meter is not None:
            self.meter.expected(exchange)
        if exchange.weight or unanswered >= MOST_UNANSWERED:
            self._budget.check()

    def expect_all(self, exchanges: Sequence[Exchange], size: int) -> None:
        """Take places for requests that `usual` handles, whose frames have `size` bytes together. No meter counts them,
        and their answers have no expected size.
        """
        self.requests += len(exchanges)
        self.bytes_in += size
        order = self.replies.exchanges
        if order and order[-1].is_patient:
            order[-1].hurry()
        order.extend(exchanges)
        if len(order) >= MOST_UNANSWERED:
            self._budget.check()

    def answers_written(self) -> None:
        """The owner of `usual` has written answers by `replies`; no meter has counted them."""
        if self._budget.pauses or self._budget.starves:
            self._relieve()

    def forward_now(self, exchange: Exchange, frame: Frame, head: Octets = b"") -> bool:
        """Write `head` and a broker's answer if this exchange is next. Return whether the answer needs no more work."""
        replies, budget = self.replies, self._budget
        if self.meter is not None and replies.is_next(exchange):
            amended = self.meter.forwarded(exchange, frame, head)
            if amended is not None:
                frame, head = amended, b""
        if not replies.forward(exchange, frame, head):
            return self.closed
        if budget.pauses or budget.starves:
            self._relieve()
        return True

    def answer_ready(self, exchange: Exchange) -> None:
        """Called by an exchange that has its answer. If the exchange is the next to be answered, write the answer and
        the ready ones after it; else count the waiting answer.
        """
        if self.closed:
            return
        if self.meter is not None:
            self.meter.answered(exchange)
        budget = self._budget
        if self.replies.write(exchange):
            if budget.pauses or budget.starves:
                self._relieve()
            return
        budget.check()
        if self.answers is not None and self.replies.kept >= LEAST:
            self.answers.note(budget)

    def _relieve(self) -> None:
        """Check at the end of this turn whether reading can go on: all answers lost together are known then."""
        if not self._relieving:
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieved)

    def _relieved(self) -> None:
        self._relieving = False
        if self._budget.relieve():
            self._go_on()

    # Back-pressure and order of requests --------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Dispatch no more requests, for `reason`, until every reason was taken back with `resume`."""
        self._budget.pause(reason)

    def resume(self, reason: Pause) -> None:
        """Take a reason back. When no reason is left, dispatch the waiting requests, then read more."""
        if self._budget.resume(reason):
            self._go_on()

    def hold(self) -> None:
        """Keep later requests waiting until `release`."""
        self._budget.pause(Pause.HELD)

    def park(self) -> None:
        """Keep reading while the held request waits, to notice when the peer disconnects; later requests wait."""
        self._budget.park(True)

    def release(self) -> None:
        """Go on with the waiting requests."""
        self._budget.park(False)
        self.resume(Pause.HELD)

    def _go_on(self) -> None:
        """Dispatch as many waiting requests as one turn allows; the rest in the next turns; then read more."""
        if self._going_on:
            return
        self._going_on = True
        budget = self._budget
        try:
            for _ in FRAMES_A_TURN:
                if not budget.waiting or budget.pauses or self._framer.is_stopped or TURN.elements > BOUNDS.turn:
                    break
                self._dispatch(budget.waiting.popleft())
        finally:
            self._going_on = False
        if budget.pauses or self._framer.is_stopped:
            return
        if budget.waiting or self._framer.is_behind:
            self._ask_turn()
        else:
            budget.settle()

    def _ask_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            TURN.cut += 1
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Go on after other connections had their turns. If the connection is paused now, `resume` goes on later."""
        self._has_turn = False
        budget, framer = self._budget, self._framer
        if budget.pauses or framer.is_stopped:
            return
        if budget.waiting:
            TURN.run(self._go_on)
        elif framer.is_behind:
            framer.go_on()
            self._take_up()
            if not (budget.pauses or framer.is_behind or framer.is_stopped):
                budget.settle()

    # Requests -----------------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Handle the requests that were read, as many as one turn allows."""
        framer, budget = self._framer, self._budget
        TURN.begin()
        try:
            turns = FRAMES_A_TURN
            if self.usual is not None and framer.rest and not (budget.pauses or budget.waiting):
                turns = turns[self.usual.take(framer, min(len(turns), MOST_UNANSWERED - len(self.replies.exchanges))) :]
                if not framer.rest:
                    return
            for _ in turns:
                frame = framer.next_frame()
                if frame is None:
                    self._is_incomplete()
                    return
                if frame.owned and self.memory is not None:
                    self.memory.end(budget)
                if budget.pauses or budget.waiting:
                    budget.wait(frame)
                else:
                    self._dispatch(frame)
                if not framer.rest:
                    return
                if TURN.elements > BOUNDS.turn:
                    break
            if framer.set_aside():
                budget.settle()
                if not budget.pauses:
                    self._ask_turn()
        finally:
            TURN.end()

    def _is_incomplete(self) -> None:
        """No whole request is left of what was read."""
        framer, memory, budget = self._framer, self.memory, self._budget
        needs = framer.needs()
        if isinstance(needs, Begun):
            least = min(LEAST_GRANT, framer.read_at_once)
            framer.receive(None if memory is None else memory.begin(budget, *needs, least))
        elif needs is Need.MEMORY and memory is not None:
            memory.more(budget)
        elif isinstance(needs, BadLength):
            if budget.pauses & Pause.HELD and 0 <= needs.size <= self._request_limit:
                framer.set_aside()  # the request before it may be a login, which raises the limit
                budget.settle()
            else:
                self.reject(*needs.reason)

    def _dispatch(self, frame: Frame) -> None:
        buffer, start = frame.buffer, frame.start
        self.requests += 1
        self.bytes_in += frame.end - start
        try:
            if frame.end - start < _HEAD_BYTES:
                raise RejectError("truncated", f"a request of {frame.size - 4} bytes has no header")
            if self.repeating is not None and not self.replies.exchanges and self.repeating.again(frame):
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

    def reject(self, reason: str, detail: str, *, at_once: bool = False) -> None:
        """Close because of what the client sent or did not read, after the answers written so far or `at_once`."""
        if self._framer.is_stopped:
            return
        self._handler.client_rejected(self, reason, detail, closed=True)
        if at_once:
            self.abort()
        else:
            self.close()

    def report(self, reason: str, detail: str) -> None:
        """Report input that is answered with an error, once per connection and reason: clients may repeat it."""
        if reason not in self._reported:
            self._reported.add(reason)
            self._handler.client_rejected(self, reason, detail, closed=False)

    def close(self) -> None:
        """Close after the answers written so far; further input is ignored."""
        self._stop()
        self._budget.waiting.clear()
        self._outbox.flush()
        if self._outbox.wire is not None:
            self._outbox.wire.close(_GOODBYE_S)

    def abort(self) -> None:
        """Close at once."""
        self._stop()
        if self._outbox.wire is not None:
            self._outbox.wire.close()

    def _stop(self) -> None:
        self._framer.stop()
        if self.memory is not None:
            self.memory.end(self._budget)

    # Whether anybody is there (`sidecar.network.idling`) ----------------------------------------------------------

    def is_silent(self, limit_s: float) -> bool:
        """Whether the client's machine no longer answers. Called every `keepalive.LOOK_S` seconds.

        A client's packets acknowledge what it has received. So there is no system call for a client that sent a request
        less than half the limit ago, as thousands of idle readers do.
        """
        if self.requests != self._requests_seen:
            self._requests_seen, self._looks_left = self.requests, int(limit_s / 2 / LOOK_S)
        if self._looks_left:
            self._looks_left -= 1
            return False
        return self._transport is not None and not self.closed and has_silent_peer(self._transport, limit_s)

    @property
    def has_left(self) -> bool:
        """Whether the peer has closed while the connection was not read, and has sent no whole request that was not
        handled. A request without an answer (acks=0) must be handled although nobody waits for it.
        """
        budget, framer = self._budget, self._framer
        if budget.is_read or framer.is_stopped or self._transport is None:
            return False
        if not budget.is_parked and (budget.waiting or framer.is_behind or budget.pauses & Pause.HELD):
            return False
        unread = unread_at_end(self._transport)
        if unread is None:
            return False
        held_back = _HELD_BACK if self.tls is not None else 0
        return unread + held_back < max(framer.missing_bytes, 1)

    @property
    def has_left_muted(self) -> bool:
        """Whether the peer has closed while its requests wait for its quota alone, maybe for days. Its claims last as
        long as the connection, and the connection as long as a request waits (`has_left`).
        """
        is_muted = self._budget.pauses == Pause.THROTTLED and not self._framer.is_stopped
        return is_muted and self._transport is not None and unread_at_end(self._transport) is not None

    # asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        if self._framer.received(nbytes):
            self._take_up()
        memory = self.memory
        if memory is not None and memory.used > memory.limit and not self._framer.is_stopped:
            memory.hold_up(self._budget)

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
        self._outbox.wire = self._budget.wire = LoopWire(transport)
        if self.memory is not None:
            self.memory.connections.add(self._budget)
        self._handler.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if exc is None:  # the only sign of the end of a TLS stream without close_notify
                self._take_up_rest()
        finally:
            self.closed = True
            if self.memory is not None:
                self.memory.connections.discard(self._budget)
            if self.answers is not None:
                self.answers.forget(self._budget)
            self._stop()
            self.replies.forget()
            self._budget.waiting.clear()
            self.repeating = self.usual = None
            self._handler.client_closed(self)

    def eof_received(self) -> bool:
        self._take_up_rest()
        if self.unfinished_bytes and not self._framer.is_behind:
            self.reject("truncated", f"the client ended its stream behind {self.unfinished_bytes} bytes of a frame")
        return False

    def _take_up_rest(self) -> None:
        """Dispatch at once all frames that were read: TLS reports the end of a stream even while reading is paused."""
        while self._framer.is_behind and not (self._budget.pauses or self._budget.waiting):
            self._framer.go_on()
            self._take_up()

    def pause_writing(self) -> None:
        self.pause(Pause.CLIENT_FULL)
        self._handler.client_full(self, True)
        if self.answers is not None:
            self.answers.note(self._budget)

    def resume_writing(self) -> None:
        self.replies.all_taken()
        self._handler.client_full(self, False)
        if self.answers is not None:
            self.answers.note(self._budget)
        self.resume(Pause.CLIENT_FULL)
