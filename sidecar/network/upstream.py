"""One connection to a broker: it sends requests and matches answers to them by order.

A broker answers the requests of a connection one after the other. An answer with another correlation id than expected
means that the order is lost, and the connection is closed. Nothing is retried here.

If brokers require a login (SASL), requests wait until it is done, and again while it is renewed before the session ends
(KIP-368): brokers accept no other requests on the connection meanwhile.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from itertools import count
from time import perf_counter
from typing import Final, Protocol, cast

from sidecar.network.framing import BadLength, Begun, Frame, Framer, Outbox
from sidecar.network.keepalive import end_when_stuck, probe_when_idle
from sidecar.network.login_frames import LoginFrames
from sidecar.network.memory import RequestMemory
from sidecar.network.paced_tls import PacedWire
from sidecar.network.turn import TURN
from sidecar.network.unread import LEAST, AnswerMemory
from sidecar.network.wire import LoopWire, Wire
from sidecar.protocol.caller import BadAnswerError
from sidecar.protocol.primitives import I32, MalformedFrameError, Octets
from sidecar.security.broker_access import PLAIN_TCP, BrokerAccess
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.exchange import Connection, Session, login
from sidecar.security.words import in_words

ANSWER_LIMIT: Final = 2**31 - 1
_CLIENT_ID: Final = "sidecar"
_GOODBYE_S: Final = 10.0
"""Seconds in which a broker may still read the last requests of a client that has disconnected."""
_WAITING_LIMIT: Final = 256 * 1024
"""Bytes that may wait for a connection to take requests before their sender is paused."""


class UpstreamLostError(ConnectionError):
    """The connection to a broker ended, or could not be opened, before the answer came.

    `sent`: whether the request may have reached the broker; if True, its outcome is unknown.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Reply(Protocol):
    """A waiter for an answer. Exactly one of the two methods is called, once."""

    correlation_id: int

    def answer_received(self, frame: Frame) -> None:
        """The answer's frame, borrowed for this call (see `sidecar.network`)."""
        ...

    def answer_lost(self, error: UpstreamLostError) -> None: ...


class Sender(Protocol):
    """Sends many requests at once, and takes their answers in the same way."""

    def take_answers(self, connection: "UpstreamConnection", framer: Framer) -> None:
        """Handle the next answers, up to the first that is not usual: take them from the framer's `rest`, and call
        `answered`.
        """
        ...


class Owner(Protocol):
    """The user of a connection: called at its first answer, for back-pressure, and at its end."""

    def upstream_opened(self, connection: "UpstreamConnection") -> None:
        """The first answer has arrived. A port forwarder that only accepts connections never gets this far."""
        ...

    def upstream_full(self, connection: "UpstreamConnection", full: bool) -> None:
        """The connection takes no more for now, or takes more again: pause or resume its senders. May be repeated."""
        ...

    def upstream_closed(self, connection: "UpstreamConnection") -> None: ...


class UpstreamConnection(asyncio.BufferedProtocol):
    """A connection to one broker. Requests may be sent at once; they wait until the connection takes requests."""

    def __init__(
        self,
        owner: Owner,
        address: tuple[str, int],
        connect_timeout: float,
        access: BrokerAccess = PLAIN_TCP,
        *,
        requests: RequestMemory | None = None,
        answers: AnswerMemory | None = None,
    ) -> None:
        """`connect_timeout`: seconds for TCP, TLS and the first login together. `requests`: where bytes count that are
        copied and not sent yet. `answers`: large answers wait until there is room in it.
        """
        self._framer = Framer(ANSWER_LIMIT, trusted=True)
        self._answers = answers
        self.address = address
        self._named = f"{address[0]}:{address[1]}"
        self._access = access
        self.closed = False
        self._finishing = False
        self.stood = False  # whether the connection ever took requests
        self.failure: str | None = None
        """Why the connection failed: it could not be opened, or ended without an answer."""
        self.lost = False  # whether it ended for another reason than `close` or `finish`
        self._answered = False
        self._waiting_bytes = 0
        self._waiting_full = self._full = self._paused = False
        self._owner = owner
        self._outbox = Outbox(requests)
        self.waiters: deque[Reply] = deque()
        self._sender: Sender | None = None
        self._sent_at: deque[float] = deque()
        self._wire: Wire | None = None
        self._connect_timeout = connect_timeout
        self._connecting: asyncio.Task[None] | None = None
        self._paced: PacedWire | None = None
        self._ready = False  # whether requests may be sent: it is open, and no login is under way
        self._login: LoginFrames | None = None
        self._renewal: asyncio.TimerHandle | None = None

    async def _connect(self) -> None:
        loop, tls = asyncio.get_running_loop(), self._access.tls
        doing = "connect to"
        try:
            async with asyncio.timeout(self._connect_timeout):
                if tls is None:
                    await loop.create_connection(lambda: self, *self.address)
                else:
                    name = self.address[0]
                    await loop.create_connection(lambda: self, *self.address, ssl=tls(), server_hostname=name)
                if self._login is not None:
                    doing = "log in at"
                    await self._log_in()
        except (OSError, TimeoutError, UnicodeError, LoginError, TokenError, BadAnswerError) as error:
            # UnicodeError: a host that cannot be a name.
            reason = "timed out" if isinstance(error, TimeoutError) else self._reason(error)
            # A late loop may see the timeout after the connection was opened and has sent the waiting requests.
            self._fail(f"cannot {doing} {self._named}: {reason}", sent=self.stood)
        finally:
            self._login_over(f"cannot {doing} {self._named}")

    def _reason(self, error: Exception) -> str:
        return str(error) if self._access.tls is None else in_words(error)

    async def _log_in(self) -> None:
        """Raises what `login` raises, and OSError if the connection ends."""
        assert self._access.credentials is not None
        assert self._login is not None
        connection = Connection(self._login.ask, count(), _CLIENT_ID)
        session: Session = await login(connection, self._access.credentials)
        if self.closed and not self._finishing:
            return
        self._login = None
        self._stand()
        if session.renew_after_s is not None:
            self._renewal = asyncio.get_running_loop().call_later(session.renew_after_s, self._renew)

    def _renew(self) -> None:
        """Log in again; requests wait meanwhile."""
        if self.closed or self._wire is None:
            return
        self._outbox.flush()
        self._outbox.wire = None
        self._ready, self._waiting_bytes = False, 0
        self._login = LoginFrames(self._wire, ahead=len(self.waiters))
        self._connecting = asyncio.get_running_loop().create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        try:
            await self._log_in()
        except (OSError, LoginError, TokenError, BadAnswerError) as error:
            self._fail(f"cannot renew the login at {self._named}: {error}", sent=True)
        finally:
            self._login_over(f"cannot renew the login at {self._named}")

    def _login_over(self, otherwise: str) -> None:
        """The connection attempt or the login is over. If it ended for an unexpected reason, the connection ends too:
        otherwise a waiter would wait for ever.
        """
        self._connecting = None
        if not self._ready:
            self._fail(otherwise, sent=self.stood)

    def open(self) -> None:
        """Start to connect; the waiters for answers get a failure."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    @property
    def connected(self) -> bool:
        return self._ready and not self.closed

    @property
    def unanswered(self) -> int:
        return len(self.waiters)

    @property
    def oldest_unanswered(self) -> Reply | None:
        """The waiter that has waited longest for its answer."""
        return self.waiters[0] if self.waiters else None

    def send_frame(self, frame: Frame, reply: Reply | None) -> None:
        """Send a frame unchanged. `reply` is None for requests without an answer (acks=0)."""
        if self.closed:
            self._refuse(reply)
            return
        if reply is not None:
            self.waiters.append(reply)
            self._sent_at.append(perf_counter())
        if not self._ready:
            frame = frame.own()
            self._wait(frame.size)
        self._outbox.add_frame(frame)

    def send_frames(self, start: int, end: int, replies: Sequence[Reply], sender: Sender) -> bool:
        """Send the requests from `start` to `end` in `framing.SHARED` unchanged. Returns False, and does nothing, if
        they cannot be sent at once. `sender` is asked to take the answers.
        """
        if not self._ready or self.closed:
            return False
        self._sender = sender
        self.waiters.extend(replies)
        self._sent_at.extend([perf_counter()] * len(replies))
        self._outbox.add_span(start, end)
        return True

    def answered(self, count: int) -> list[float]:
        """Take note that the next `count` waiters have their answers. Returns for how many seconds each has waited."""
        began, waiters, sent_at = TURN.began, self.waiters, self._sent_at
        waited: list[float] = []
        for _ in range(count):
            waiters.popleft()
            waited.append(began - sent_at.popleft())
        return waited

    def send_parts(self, parts: list[Octets], reply: Reply | None) -> None:
        """Send one request given as parts that stay valid until they are sent."""
        if self.closed:
            self._refuse(reply)
            return
        if reply is not None:
            self.waiters.append(reply)
            self._sent_at.append(perf_counter())
        if not self._ready:
            self._wait(sum(map(len, parts)))
        self._outbox.add_all(parts)

    def _wait(self, size: int) -> None:
        """Count the bytes that wait for the connection to take requests, and pause the sender if there are too many."""
        self._waiting_bytes += size
        if self._waiting_bytes > _WAITING_LIMIT and not self._waiting_full:
            self._waiting_full = True
            self._owner.upstream_full(self, True)

    def _refuse(self, reply: Reply | None) -> None:
        if reply is not None:
            reply.answer_lost(UpstreamLostError(f"connection to {self._named} is closed", sent=False))

    def pause(self) -> None:
        """Stop reading answers: their reader is full."""
        self._paused = True
        if self._wire is not None and self.stood:
            self._wire.read(False)

    def resume(self) -> None:
        self._paused = False
        if self._framer.is_behind:  # an answer waits for room
            return
        if self._wire is not None:
            self._wire.read(True)

    def _pause_again(self) -> None:
        """Needed for uvloop, which begins to read after `connection_made` even if reading was paused there."""
        if self._paused:
            self.pause()

    def close(self, reason: str = "closed by this node") -> None:
        """Close the connection at once; all waiters get `answer_lost`."""
        self._end(UpstreamLostError(f"{self._named}: {reason}", sent=self.stood))

    def finish(self) -> None:
        """Send all queued requests, then end the stream, so that requests without an answer still arrive. Waiters get
        `answer_lost` at once.

        The broker reads everything up to the end of the stream, as it does when a client closes; a reset would discard
        what it has not read yet.
        """
        if self.closed:
            return
        self.closed = self._finishing = True
        pending, self.waiters = self.waiters, deque()
        self._owner.upstream_closed(self)
        for reply in pending:
            reply.answer_lost(UpstreamLostError(f"{self._named}: nobody waits any more", sent=True))
        if self._ready and self._wire is not None:
            self._say_goodbye(self._wire)
        elif self.stood and self._wire is not None:  # a login is being renewed: read its answers
            self._wire.read(True)
            asyncio.get_running_loop().call_later(_GOODBYE_S, self._wire.close)

    def _say_goodbye(self, wire: Wire) -> None:
        self._stop()
        self._outbox.flush()
        wire.close(_GOODBYE_S, half=True)

    def _fail(self, reason: str, *, sent: bool) -> None:
        """The connection ended although this node did not close it."""
        if not self.closed:
            self.lost = True
            if not self._answered:
                self.failure = reason
        elif self._finishing and not self._ready and self._wire is not None:
            self._wire.close()
        self._end(UpstreamLostError(reason, sent=sent))

    def _end(self, error: UpstreamLostError) -> None:
        if self.closed:
            return
        self.closed = True
        self._stop()
        if self._connecting is not None and self._connecting is not asyncio.current_task():
            self._connecting.cancel()
        self._forget_login()
        if self._wire is not None:
            self._wire.close()
        pending, self.waiters = self.waiters, deque()
        self._owner.upstream_closed(self)
        now, before = perf_counter(), TURN.waited
        for reply, sent_at in zip(pending, self._sent_at, strict=True):
            TURN.waited = now - sent_at  # the node has waited for it, although no answer came
            reply.answer_lost(error)
        TURN.waited = before

    def _forget_login(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._login is not None:
            self._login.end()

    def _stop(self) -> None:
        """Ignore all further input."""
        self._framer.stop()
        if self._answers is not None:
            self._answers.arrived(self)

    # Answers ------------------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        framer, answers = self._framer, self._answers
        TURN.begin()
        try:
            if self._sender is not None and framer.rest and self._answered and self._login is None:
                self._sender.take_answers(self, framer)
                if not framer.rest:
                    return
            while (frame := framer.next_frame()) is not None:
                self._received(frame)
                if frame.owned and answers is not None:  # it counts until the client has it: as unread from then on
                    asyncio.get_running_loop().call_soon(self._passed_on)
                if not framer.rest:
                    return
            needs = framer.needs()
            if isinstance(needs, Begun):
                self._begin(needs.size)
            elif isinstance(needs, BadLength):
                self.close(f"answer of {needs.size} bytes")
        finally:
            TURN.end()

    def _begin(self, size: int) -> None:
        """Receive an answer of `size` bytes, now or when there is room."""
        if self._answers is None or size < LEAST or self._answers.admit(self, size):
            self._framer.receive()
            return
        self._framer.set_aside()
        if self._wire is not None:
            self._wire.read(False)

    def admitted(self) -> None:
        """See `sidecar.network.unread.Receiver`."""
        self._framer.receive()
        if not self._paused:
            self.resume()

    def _passed_on(self) -> None:
        if self._answers is not None and not (self._framer.missing_bytes or self._framer.is_behind):
            self._answers.arrived(self)

    def _received(self, frame: Frame) -> None:
        if self._login is not None:
            if self._login.ahead == 0:
                if not self._login.received(frame):
                    self.close("unexpected answer")
                return
            self._login.ahead -= 1
        start = frame.start
        if frame.end - start < 8 or not self.waiters:
            self.close("unexpected answer")
            return
        reply = self.waiters.popleft()
        if I32.unpack_from(frame.buffer, start + 4)[0] != reply.correlation_id:
            self.waiters.appendleft(reply)
            self.close("answer with a foreign correlation id")
            return
        if not self._answered:
            self._answered = True
            self._owner.upstream_opened(self)
        TURN.waited = TURN.began - self._sent_at.popleft()
        try:
            reply.answer_received(frame)
        except (MalformedFrameError, struct.error, IndexError) as error:
            self.close("an answer that makes no sense")
            reply.answer_lost(UpstreamLostError(f"an answer that makes no sense: {error}", sent=True))

    # asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        framer, answers = self._framer, self._answers
        if answers is not None:
            framer.read_at_once = answers.read_at_once
            if framer.is_behind:  # TLS had read more already: the answer is received although there is no room
                answers.arrived(self)
                framer.receive()
        return framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._framer.received(nbytes):
            self._take_up()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports have no base class
        if self.closed and not self._finishing:
            transport.abort()
            return
        if self._access.tls is not None:
            self._wire = self._paced = PacedWire(transport, lambda: self._full)
        else:
            self._wire = LoopWire(transport)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        probe_when_idle(sock)
        end_when_stuck(sock)
        if self._access.credentials is not None:
            self._login = LoginFrames(self._wire)
            return
        self._stand()

    def _stand(self) -> None:
        """Send requests from now on."""
        wire = self._wire
        assert wire is not None
        self.stood = self._ready = True
        self._outbox.wire = wire
        if self._finishing:
            self._say_goodbye(wire)
            return
        if self._paused:
            asyncio.get_running_loop().call_soon(self._pause_again)
        self._outbox.flush()
        if self._waiting_full:
            self._waiting_full = False
            self._owner.upstream_full(self, self._full)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_login()
        self._fail(f"{self._named} closed the connection" + (f": {self._reason(exc)}" if exc else ""), sent=self.stood)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._full = True
        self._owner.upstream_full(self, True)

    def resume_writing(self) -> None:
        self._full = False
        if self._paced is None or self._paced.pump():
            self._owner.upstream_full(self, self._full or self._waiting_full)
