"""A client's socket that speaks frames: what all raw clients of tests are made on."""

from __future__ import annotations

import contextlib
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT = 30.0
"""Seconds a test waits for an answer at most: far more than any takes."""


class ClosedError(ConnectionError):
    """The other side closed the connection."""


class Frames:
    """A connection to `host:port`, to the first of several."""

    def __init__(
        self, address: str, *, receive_buffer: int | None = None, connected: socket.socket | None = None
    ) -> None:
        """`receive_buffer`: of the system, in bytes; `connected`: a connection that another one uses in turns."""
        self.socket = connected or self._connect(address, receive_buffer)
        self.opened = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        """When, as logs write it: the system gives the port of a client that is gone to a later one."""
        self._received = bytearray()

    def _connect(self, address: str, receive_buffer: int | None) -> socket.socket:
        host, port = address.split(",", maxsplit=1)[0].rsplit(":", 1)
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if receive_buffer is not None:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            opened.settimeout(TIMEOUT)
            opened.connect((host, int(port)))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            opened.close()
            raise
        return opened

    @property
    def name(self) -> str:
        """`host:port` of this end: what the other calls its peer."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def send_bytes(self, data: bytes) -> None:
        """All of them. Raises `ClosedError`."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClosedError(str(error)) from None

    def receive_frame(self) -> bytes:
        """The next frame, with its length. Raises `ClosedError`."""
        size = 4 + int.from_bytes(self._at_least(4)[:4], "big")
        frame = bytes(self._at_least(size)[:size])
        del self._received[:size]
        return frame

    def _at_least(self, size: int) -> bytearray:
        """No more is taken from the socket: what follows may be another one's."""
        while len(self._received) < size:
            try:
                chunk = self.socket.recv(size - len(self._received))
            except ConnectionResetError as error:
                raise ClosedError(str(error)) from None
            if not chunk:
                raise ClosedError("closed by the other side")
            self._received += chunk
        return self._received

    def is_closed(self) -> bool:
        """Wait until the other side closes. Raises TimeoutError where it does not, AssertionError where it answers."""
        with contextlib.suppress(ClosedError):
            raise AssertionError(f"answered: {bytes(self._at_least(4))!r}")
        return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long, not even the end of the connection."""
        if self._received:
            return False
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        except ConnectionResetError:
            return False
        else:
            return False
        finally:
            self.socket.settimeout(TIMEOUT)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
