"""Writes to a TLS transport in 64 KiB pieces, the next when the peer has taken the last.

TLS encrypts at once what it is given, and keeps it until the peer reads: a 40 MB request took 80 MB that nobody
counted, and its writer was not stopped. What has not been written yet stays where it was, and counts as it did
(`sidecar.network.memory`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from sidecar.protocol.primitives import Octets

PIECE: Final = 64 * 1024


class PacedTransport(asyncio.Transport):
    """In front of `inner`, whose protocol says by `is_full` whether its writer is to stop, and calls `send` when
    it may go on.
    """

    def __init__(self, inner: asyncio.Transport, is_full: Callable[[], bool]) -> None:
        super().__init__()
        inner.set_write_buffer_limits(PIECE)
        self._inner = inner
        self._is_full = is_full
        self._rest: deque[memoryview] = deque()
        self._closing = False

    def send(self) -> bool:
        """Go on with what is left. Returns whether all of it is sent."""
        rest = self._rest
        while rest and not self._is_full():
            part = rest.popleft()
            if len(part) > PIECE:
                rest.appendleft(part[PIECE:])
            self._inner.write(part[:PIECE])
        if self._closing and not rest:
            self._inner.close()
        return not rest

    def write(self, data: Octets) -> None:
        """See `asyncio.Transport`; `data` must not change before it is sent."""
        if not self._rest and len(data) <= PIECE and not self._is_full():
            self._inner.write(data)
        else:
            self._rest.append(memoryview(data))
            self.send()

    def writelines(self, list_of_data: Iterable[Octets]) -> None:
        """See `asyncio.Transport`."""
        parts = list(list_of_data)
        if sum(map(len, parts)) <= PIECE:
            self.write(b"".join(parts))
        else:
            for part in parts:
                self.write(part)

    def close(self) -> None:
        """Close once all is sent."""
        if not self._closing:
            self._closing = True
            self.send()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._rest.clear()
        self._inner.abort()

    def is_closing(self) -> bool:
        """Whether `close` was called, or it has ended."""
        return self._closing or self._inner.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent yet."""
        return sum(map(len, self._rest)) + self._inner.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """TLS ends both directions together."""
        return False

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return self._inner.get_extra_info(name, default)
