"""Find within 25 seconds a peer that fell silent without closing (pulled cable, frozen machine, dropped packets).

Idle connections are probed by TCP keep-alive: first probe after 10 s, then every 5 s, 3 probes. Keep-alive does not
cover connections with unacknowledged data; TCP_USER_TIMEOUT (RFC 5482) does, and is used for brokers. It cannot be
used for clients: with it Linux also ends a connection whose peer acknowledges every probe but reads nothing for this
time, such as a consumer that is busy with its records. A broker would wait for that consumer. So `idling.ClientWatch`
checks the connections of clients.

That check also finds clients that have disconnected while their connection is not read: an event loop does not report
the end of a stream that it does not read.
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
"""Seconds between two checks of the connections of clients."""

_CLOSED: Final = 7
_PEER_CLOSED: Final = 8
"""TCP states of Linux (`include/net/tcp_states.h`): CLOSE, as after a reset; CLOSE_WAIT: only the peer has closed."""
_NONE: Final = bytes(4)
"""TIOCOUTQ's C int for an empty queue: no bytes are unsent or unacknowledged."""
_TCP_INFO: Final = Struct("=2x2B52xI")
"""Fields of Linux's `tcp_info`: unanswered retransmits and probes, milliseconds since the last acknowledgement."""


def probe_when_idle(sock: socket.socket) -> None:
    """Turn keep-alive on for a connected TCP socket (Linux)."""
    if not _is_tcp(sock):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _FIRST_PROBE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def end_when_stuck(sock: socket.socket) -> None:
    """Make the kernel end the connection if its peer takes no data for 25 s, for whatever reason."""
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_S * 1000)


def has_silent_peer(transport: asyncio.BaseTransport, limit_s: float) -> bool:
    """As `is_silent`; False if the connection has ended and `connection_lost` is about to be called."""
    try:
        sock = transport.get_extra_info("socket")
        return sock is not None and is_silent(sock, limit_s)  # TLS has no socket after the end of its stream
    except (OSError, RuntimeError, ValueError):  # uvloop: the handle is closed, or has no descriptor
        return False


def is_silent(sock: socket.socket, limit_s: float) -> bool:
    """Return whether the peer has acknowledged nothing for `limit_s` seconds, neither data that was retransmitted nor
    probes of its closed window.
    """
    if not _is_tcp(sock) or fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _NONE) == _NONE:
        return False  # all is acknowledged: keep-alive probes it
    retransmits, probes, last_ack_ms = _TCP_INFO.unpack(
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    )
    return max(retransmits, probes) >= _UNANSWERED and last_ack_ms > limit_s * 1000


def unread_at_end(transport: asyncio.BaseTransport) -> int | None:
    """Return how many bytes of a peer that has closed its stream are unread; None while the peer may send more. With
    TLS, bytes that are read but not decrypted are not counted.
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
