"""TLS that receives a limited number of records of one connection in a turn, so that others are served in between. It
sends in pieces, the next when the peer has taken the last.

A record costs the same whatever its size. A KeyUpdate of TLS 1.3 has 27 bytes, costs 12 µs and needs an answer. A
client may send any number of them after the handshake, without a login: 5 MB of them took 2.4 s of the event loop in
one turn. So records are counted before OpenSSL gets them, by the lengths in their headers.

TLS encrypts at once all that is written to it, and stores it until the peer reads: a 40 MB request took 80 MB that
were not counted, and its writer was not paused. Here data that is not written yet stays in its own memory and is still
counted there (`sidecar.network.memory`).
"""

import asyncio
import asyncio.sslproto
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

import uvloop.loop

from sidecar.protocol.primitives import Octets

PIECE: Final = 64 * 1024
RECORDS: Final = 128
"""Records of a connection that are decrypted in one turn: 2 ms of the smallest, or 2 MiB of the largest."""
_HEADER: Final = 5
"""Bytes of a record's header (RFC 8446, 5.1); the last two are the length of the rest."""


class PacedTls(asyncio.BufferedProtocol):
    """A protocol between a socket's transport and the event loop's own TLS; that TLS has it as its transport."""

    def __init__(self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, shake_s: float, end_s: float) -> None:
        """`shake_s`, `end_s`: seconds for the handshake and for the shutdown. After the handshake `protocol` is
        connected and `shaken` is done; `shaken` raises OSError if the handshake failed.
        """
        loop = asyncio.get_running_loop()
        self.shaken: Final[asyncio.Future[None]] = loop.create_future()
        is_uvloop = type(loop).__module__.startswith("uvloop")
        made: Any = cast("Any", uvloop.loop if is_uvloop else asyncio.sslproto).SSLProtocol
        self._tls: Final[Any] = made(
            loop, protocol, context, self.shaken, True, ssl_handshake_timeout=shake_s, ssl_shutdown_timeout=end_s
        )
        self._raw: Any = None
        self._view = memoryview(b"")
        self._waiting = b""
        """Bytes that were read and not given to TLS yet."""
        self._count = 0
        """Records in this turn so far."""
        self._rest = 0
        """Bytes of the current record that are still to be read, or to be given to TLS."""
        self._head = b""
        """The first bytes of a header whose rest has not arrived."""
        self._is_held = self._has_turn = False
        """`_is_held`: TLS has paused reading. `_has_turn`: the next turn is scheduled."""

    def end(self) -> None:
        """Give up: the handshake did not succeed."""
        self.shaken.cancel()
        if self._raw is not None:
            self._raw.abort()

    # BufferedProtocol, to the socket ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = transport
        self._tls.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._view = view = memoryview(self._tls.get_buffer(sizehint))
        return view

    def buffer_updated(self, nbytes: int) -> None:
        cut = self._cut(self._view, nbytes)
        if cut < nbytes:
            self._waiting = bytes(self._view[cut:nbytes])
        if self._count >= RECORDS:
            self._ask_turn()
        self._tls.buffer_updated(cut)

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = b""
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    # Turns --------------------------------------------------------------------------------------------------------

    def _cut(self, view: memoryview, end: int) -> int:
        """Return how many of the first `end` bytes of `view` may be given to TLS in this turn."""
        at, count = self._rest, self._count
        if self._head:
            more = _HEADER - len(self._head)
            head = self._head + bytes(view[: min(more, end)])
            if len(head) < _HEADER:
                self._head = head
                return end
            self._head = b""
            at, count = more + int.from_bytes(head[3:]), count + 1
        while at < end and count < RECORDS:
            if end - at < _HEADER:
                self._head = bytes(view[at:end])
                at = end
                break
            at += _HEADER + (view[at + 3] << 8 | view[at + 4])
            count += 1
        self._count = count
        self._rest = max(0, at - end)
        return min(at, end)

    def _ask_turn(self) -> None:
        """Stop reading until the next turn."""
        if not self._raw.is_closing():
            self._raw.pause_reading()
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._has_turn, self._count = False, 0
        if self._is_held or self._raw.is_closing():
            return
        if waiting := self._waiting:
            cut = self._cut(memoryview(waiting), len(waiting))
            self._waiting = waiting[cut:]
            memoryview(self._tls.get_buffer(len(waiting)))[:cut] = waiting[:cut]
            if self._count >= RECORDS:
                self._ask_turn()
            self._tls.buffer_updated(cut)
        if not (self._has_turn or self._is_held or self._raw.is_closing()):
            self._raw.resume_reading()

    # Transport, to TLS --------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading, and give nothing to TLS."""
        self._is_held = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Give TLS the bytes that wait, then read again."""
        self._is_held = False
        if self._waiting or self._has_turn:
            self._ask_turn()
        else:
            self._raw.resume_reading()

    def __getattr__(self, name: str) -> Any:
        """Everything else is done by the socket's transport: `write`, `close`, `get_extra_info` and more."""
        return getattr(self._raw, name)


class PacedWire:
    """A `Wire` that writes to a transport in pieces. The protocol of that transport returns by `is_full` whether to
    pause, and calls `pump` when writing may continue.
    """

    def __init__(self, inner: asyncio.Transport, is_full: Callable[[], bool]) -> None:
        inner.set_write_buffer_limits(PIECE)
        self._inner = inner
        self._is_full = is_full
        self._rest: deque[memoryview] = deque()
        self._closing = False

    def pump(self) -> bool:
        """Write what is left. Returns whether all of it was written to the transport."""
        rest = self._rest
        while rest and not self._is_full():
            part = rest.popleft()
            if len(part) > PIECE:
                rest.appendleft(part[PIECE:])
            self._inner.write(part[:PIECE])
        if self._closing and not rest:
            self._inner.close()
        return not rest

    def try_send(self, data: memoryview) -> int:
        """See `Wire`."""
        return 0

    def send(self, parts: list[Octets]) -> None:
        """See `Wire`."""
        if self._closing or self._inner.is_closing():
            return
        if len(parts) > 1 and sum(map(len, parts)) <= PIECE:
            parts = [b"".join(parts)]
        self._rest.extend(map(memoryview, parts))
        self.pump()

    def unsent(self) -> int:
        """See `Wire`."""
        return sum(map(len, self._rest)) + self._inner.get_write_buffer_size()

    def read(self, on: bool) -> None:
        """See `Wire`."""
        if not (self._closing or self._inner.is_closing()):
            (self._inner.resume_reading if on else self._inner.pause_reading)()

    def close(self, within_s: float = 0.0, *, half: bool = False) -> None:
        """See `Wire`. TLS ends both directions together."""
        self.read(True)
        self._closing = True
        if not within_s:
            self._rest.clear()
            self._inner.abort()
            return
        asyncio.get_running_loop().call_later(within_s, self.close)
        self.pump()
