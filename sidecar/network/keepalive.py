"""Find a peer that fell silent without closing (pulled cable, frozen machine, dropped packets) within 25 seconds.

Idle connections are probed by TCP keep-alive: first probe after 10 s, then every 5 s, 3 probes. Keep-alive does not
cover connections with unacknowledged data. For brokers TCP_USER_TIMEOUT (RFC 5482) does. For clients it must not: Linux
also ends a connection by it whose other end acknowledges every probe and merely reads nothing for this time, as a
consumer does that works on what it has; a broker would wait for it. So clients are looked at (`idling.ClientWatch`).

The same look finds clients that have gone while they are not read: no event loop reports the end of a stream that it
does not read.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from struct import Struct
from typing import Final

SILENCE_LIMIT_S: Final = 25
_FIRST_PROBE_S: Final = 10
_PROBE_INTERVAL_S: Final = 5
_PROBES: Final = 3
_UNANSWERED: Final = 3
LOOK_S: Final = 2.0
"""Between two looks at the connections of clients, in seconds."""

_CLOSED: Final = 7
_PEER_CLOSED: Final = 8
"""Of a connection's states (Linux, `include/net/tcp_states.h`): reset; ended by the peer alone."""
_NONE: Final = bytes(4)
"""Bytes in a socket's queue, as the kernel writes a C int: those that are not sent, or not acknowledged."""
_TCP_INFO: Final = Struct("=2x2B52xI")
"""Of Linux's `tcp_info`: retransmits and probes that nobody answered, milliseconds since the last acknowledgement."""


def probe_when_idle(sock: socket.socket) -> None:
    """Arm keep-alive on a connected TCP socket (Linux)."""
    if not _is_tcp(sock):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _FIRST_PROBE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def end_when_stuck(sock: socket.socket) -> None:
    """Have the kernel end a connection whose peer takes nothing for 25 s, for whatever reason."""
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_S * 1000)


def has_silent_peer(transport: asyncio.BaseTransport, limit_s: float) -> bool:
    """As `is_silent`; False where the connection has ended and `connection_lost` is about to report it."""
    try:
        sock = transport.get_extra_info("socket")
        return sock is not None and is_silent(sock, limit_s)  # TLS has none from the end of its stream on
    except (OSError, RuntimeError, ValueError):  # uvloop: a handle that is closed, or without its descriptor
        return False


def is_silent(sock: socket.socket, limit_s: float) -> bool:
    """Whether the peer has acknowledged nothing for `limit_s` seconds of what was sent to it again and again: neither
    data nor the probes of its closed window.
    """
    if not _is_tcp(sock) or fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _NONE) == _NONE:
        return False  # all is acknowledged: keep-alive probes it
    retransmits, probes, last_ack_ms = _TCP_INFO.unpack(
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    )
    return max(retransmits, probes) >= _UNANSWERED and last_ack_ms > limit_s * 1000


def unread_at_end(transport: asyncio.BaseTransport) -> int | None:
    """How many bytes there are to read of a peer that sends no more; None while it may send more. With TLS they are
    those that were not decrypted yet.
    """
    try:
        sock = transport.get_extra_info("socket")
        if sock is None or not _is_tcp(sock):
            return None
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _CLOSED:
            return 0
        if state != _PEER_CLOSED:
            return None
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
    except (OSError, RuntimeError, ValueError):  # as in `has_silent_peer`
        return None


def _is_tcp(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6)
