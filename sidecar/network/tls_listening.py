"""A listening socket with TLS whose handshakes do not block the event loop.

A handshake takes about 1 ms of the loop, and after a network failure thousands of clients reconnect at once. So each
turn of the loop begins a few handshakes, and only with clients that have sent something; the others wait in the kernel
or here. Each connection gets the current TLS context: changed files need no restart. SNI is ignored.
"""

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from sidecar.network.admission import Admission, Seat
from sidecar.network.listening import BACKLOG, host_port
from sidecar.network.paced_tls import PacedTls

HANDSHAKE_S: Final = 10.0
PER_TURN: Final = 4
"""Handshakes that begin in one turn of the event loop: about 4 ms."""
UNFINISHED: Final = 1024
"""The most connections without a finished handshake."""
_READY: Final = 256
"""Clients that have sent something and wait for their handshake; from this number on no more are accepted."""
_ACCEPTED_PER_TURN: Final = 64
_SHUTDOWN_S: Final = 5.0
_NO_FILES_S: Final = 1.0
"""How long no connection is accepted after the process ran out of file descriptors."""


class HandshakeHooks(Protocol):
    """Gets the result of each handshake; implementations never raise. A handshake that was closed before it began has
    failed too, unless the client closed the connection.
    """

    def handshake_done(self) -> None: ...
    def handshake_failed(self, peer: str, reason: str) -> None: ...


class Seated(Protocol):
    """A connection that has a seat."""

    seat: Seat | None


class TlsListener:
    """A `listening.Listener` with TLS. `factory` makes a connection's protocol; `context` returns the current TLS
    context.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        hooks: HandshakeHooks,
        admission: Admission | None = None,
        handshake_s: float = HANDSHAKE_S,
        unfinished: int = UNFINISHED,
    ) -> None:
        """`admission`: gives each connection its seat, which its protocol gets when the handshake begins; None admits
        all. `handshake_s`: seconds from admission to the end of the handshake. `unfinished`: how many connections may
        be without a finished handshake; for one more, the oldest is closed.
        """
        self._most_unfinished = unfinished
        self._factory = factory
        self._admission = admission
        self._handshake_s = handshake_s
        self._seats: dict[socket.socket, Seat] = {}
        """The seats of connections without a finished handshake."""
        self._context = context
        self._hooks = hooks
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._closed = False
        self._unfinished: dict[socket.socket, Callable[[], bool]] = {}
        """Connections without a finished handshake, the oldest first, each with a function that closes it. The function
        returns False if the connection is being closed already, or its handshake is finished.
        """
        self._ready: deque[tuple[socket.socket, float]] = deque()
        self._beginning = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def unfinished(self) -> int:
        """Connections without a finished handshake."""
        return len(self._unfinished)

    async def bind(self, host: str, port: int) -> None:
        """See `Listener`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                bound = socket.socket(family, kind, protocol)
                self._sockets.append(bound)
                bound.setblocking(False)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                bound.bind(address)
                bound.listen(BACKLOG)
        except OSError:
            await self.close()
            raise

    @property
    def port(self) -> int:
        """See `Listener`."""
        return self._sockets[0].getsockname()[1]

    async def start(self) -> None:
        """See `Listener`."""
        self._accept_on()

    async def close(self) -> None:
        """See `Listener`. Connections whose handshake is not finished are closed, others stay."""
        self._accept_no_more()
        self._closed = True
        for bound in self._sockets:
            bound.close()
        self._ready.clear()
        for end in list(self._unfinished.values()):
            end()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Accepting ----------------------------------------------------------------------------------------------------

    def _accept_on(self) -> None:
        if not self._closed and not self._accepting:
            self._accepting = True
            for bound in self._sockets:
                asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _accept_no_more(self) -> None:
        if self._accepting:
            self._accepting = False
            for bound in self._sockets:
                asyncio.get_running_loop().remove_reader(bound)

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            if len(self._ready) >= _READY:
                self._accept_no_more()
                return
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._accept_no_more()
                asyncio.get_running_loop().call_later(_NO_FILES_S, self._accept_on)
                return
            if self._is_let_in(accepted, str(address[0])):
                self._wait_for_hello(accepted)

    def _is_let_in(self, accepted: socket.socket, host: str) -> bool:
        if self._admission is None:
            return True
        seat = self._admission.enter(host)
        if seat is None:
            accepted.close()
            return False
        self._seats[accepted] = seat
        return True

    def _leave(self, accepted: socket.socket) -> None:
        seat = self._seats.pop(accepted, None)
        if seat is not None:
            seat.leave()

    def _wait_for_hello(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        if len(self._unfinished) >= self._most_unfinished:
            self._end_oldest()
        timer = loop.call_later(self._handshake_s, self._give_up, accepted)
        self._unfinished[accepted] = partial(self._drop, accepted, timer)
        loop.add_reader(accepted, self._spoke, accepted, timer)

    def _end_oldest(self) -> None:
        oldest, end = next(iter(self._unfinished.items()))
        peer = _peer(oldest)
        if end():
            self._hooks.handshake_failed(peer, "too many without a finished handshake")

    def _give_up(self, accepted: socket.socket) -> None:
        self._hooks.handshake_failed(_peer(accepted), "said nothing in time")
        self._drop(accepted)

    def _drop(self, accepted: socket.socket, timer: asyncio.TimerHandle | None = None) -> bool:
        """Close a connection whose handshake has not begun: True."""
        if timer is not None:
            timer.cancel()
        asyncio.get_running_loop().remove_reader(accepted)
        self._unfinished.pop(accepted, None)
        self._leave(accepted)
        accepted.close()
        return True

    def _spoke(self, accepted: socket.socket, timer: asyncio.TimerHandle) -> None:
        try:
            said = accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:  # closed without sending anything, as a probe that only connects
            self._drop(accepted, timer)
            return
        timer.cancel()
        asyncio.get_running_loop().remove_reader(accepted)
        self._ready.append((accepted, timer.when()))
        self._begin_soon()

    # Handshakes ---------------------------------------------------------------------------------------------------

    def _begin_soon(self) -> None:
        if self._ready and not self._beginning:
            self._beginning = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the handshakes of this turn."""
        self._beginning = False
        for _ in range(min(PER_TURN, len(self._ready))):
            accepted, deadline = self._ready.popleft()
            if accepted.fileno() < 0:  # was closed meanwhile, as the oldest of too many
                continue
            task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, deadline))
            self._tasks.add(task)
            task.add_done_callback(partial(self._shaken, accepted))
            self._unfinished[accepted] = partial(_cancel, task)
        if len(self._ready) < _READY // 2:
            self._accept_on()
        self._begin_soon()

    async def _shake_hands(self, accepted: socket.socket, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        peer = "?"
        try:
            peer = host_port(accepted.getpeername())
            shake_s = max(deadline - loop.time(), 0.1)
            tls = PacedTls(self._seated(accepted), self._context(), shake_s, _SHUTDOWN_S)
            try:
                await loop.connect_accepted_socket(lambda: tls, accepted)
                await tls.shaken
            except BaseException:
                tls.end()
                raise
        except (OSError, TimeoutError) as error:
            self._leave(accepted)
            accepted.close()
            self._hooks.handshake_failed(peer, _reason(error))
        else:
            self._hooks.handshake_done()

    def _shaken(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """The handshake of the connection is over, or never began: a task may be cancelled before its first step."""
        self._tasks.discard(task)
        self._unfinished.pop(accepted, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            complaint = {"message": "a TLS handshake failed for a reason nobody foresaw", "exception": error}
            asyncio.get_running_loop().call_exception_handler(complaint)
        if error is not None or task.cancelled():
            self._leave(accepted)
            accepted.close()
        self._seats.pop(accepted, None)

    def _seated(self, accepted: socket.socket) -> asyncio.BaseProtocol:
        """Return a protocol that has the seat of its connection from now on. To leave a seat twice has no effect."""
        protocol = self._factory()
        seat = self._seats.get(accepted)
        if seat is not None:
            cast("Seated", protocol).seat = seat
        return protocol


def _cancel(task: asyncio.Task[None]) -> bool:
    return not task.cancelling() and task.cancel()


def _peer(accepted: socket.socket) -> str:
    try:
        return host_port(accepted.getpeername())
    except OSError:  # the peer has disconnected
        return "?"


def _reason(error: Exception) -> str:
    """The reason as OpenSSL words it, such as CERTIFICATE_VERIFY_FAILED, if OpenSSL has one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason
    return str(error) or "timed out"
