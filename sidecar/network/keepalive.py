"""Find a peer that fell silent without closing (pulled cable, frozen machine, dropped packets) within 25 seconds.

Idle connections are probed by TCP keep-alive (first probe after 10 s, then every 5 s, 3 probes); connections with
unacknowledged data are ended by TCP_USER_TIMEOUT (RFC 5482), which keep-alive does not cover.
"""

from __future__ import annotations

import socket
from typing import Final

SILENCE_LIMIT_MS: Final = 25_000
_FIRST_PROBE_S: Final = 10
_PROBE_INTERVAL_S: Final = 5
_PROBES: Final = 3


def detect_silent_peer(sock: socket.socket) -> None:
    """Arm both timers on a connected TCP socket (Linux)."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _FIRST_PROBE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_MS)
