"""TLS for one accepted connection, in turns: a few records, then others have theirs.

What a record costs does not depend on its size. A KeyUpdate of TLS 1.3 has 27 bytes, costs 12 µs and is answered.
Whoever has shaken hands may send as many as it likes, without a login: 5 MB of them took 2.4 s of the event loop in one
turn. So records are counted before OpenSSL sees them, by the lengths in their headers.
"""

import asyncio
import asyncio.sslproto
import ssl
from typing import Any, Final, cast

import uvloop.loop

RECORDS: Final = 128
"""That are decrypted before others have a turn: 2 ms of the smallest; of the largest, which a transfer has, 2 MiB."""
_HEADER: Final = 5
"""Bytes of a record's header (RFC 8446, 5.1); the last two are the length of the rest."""


class PacedTls(asyncio.BufferedProtocol):
    """Between the transport of a socket and the event loop's own TLS, to which it is the transport."""

    def __init__(self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, shake_s: float, end_s: float) -> None:
        """`shake_s`, `end_s`: the time for a handshake and for the end. `protocol` is connected after the former, and
        `shaken` is done then; it raises OSError where there is no handshake.
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
        """What was read and TLS has not got yet."""
        self._count = 0
        """Records of this turn."""
        self._rest = 0
        """How much of a record has still to be read, or to be given to TLS."""
        self._head = b""
        """The beginning of a header of which the rest was not there."""
        self._is_held = self._has_turn = False
        """TLS wants nothing; a turn is to come."""

    def end(self) -> None:
        """Without a handshake."""
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
        """How many of so many bytes this turn may have."""
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
        """Read no more before the next turn."""
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
        """Give and read nothing."""
        self._is_held = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what waits, then with what is to be read."""
        self._is_held = False
        if self._waiting or self._has_turn:
            self._ask_turn()
        else:
            self._raw.resume_reading()

    def __getattr__(self, name: str) -> Any:
        """All else is the socket's: `write`, `close`, `get_extra_info` and more."""
        return getattr(self._raw, name)
