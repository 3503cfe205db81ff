"""The five methods by which connections use the event loop. A network that exists only in memory, and TLS that paces
itself (`sidecar.network.paced_tls`), have the same.
"""

import asyncio
import os
from typing import Final, Protocol

from sidecar.protocol.primitives import Octets

NO_DESCRIPTOR: Final = -1
_PARTS_AT_ONCE: Final = 16
"""Buffers written by one system call; Linux allows 1024."""


class Wire(Protocol):
    """One end of an open connection. Once it is closing, it drops what is sent, and reads nothing."""

    def try_send(self, data: memoryview) -> int:
        """Send what the socket takes at once of borrowed bytes. Returns how many bytes need no more work."""
        ...

    def send(self, parts: list[Octets]) -> None:
        """Send bytes that stay valid until they are sent."""
        ...

    def unsent(self) -> int:
        """Return how many bytes the socket has not taken yet."""
        ...

    def read(self, on: bool) -> None:
        """Read, or stop reading."""
        ...

    def close(self, within_s: float = 0.0, *, half: bool = False) -> None:
        """Close when all is sent, at the latest after `within_s` seconds. `half`: the peer may end the stream, too,
        after it has read all of it: a reset would discard what it has not read yet.
        """
        ...


class LoopWire:
    """A transport of the event loop. To a plain socket of uvloop it writes itself, without the copy that the transport
    makes of borrowed bytes.
    """

    __slots__ = ("_descriptor", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._descriptor = _descriptor_of(transport)

    def try_send(self, data: memoryview) -> int:
        """See `Wire`."""
        if self._descriptor == NO_DESCRIPTOR:
            return 0
        if self._transport.is_closing():  # another socket may have its descriptor already
            return len(data)
        if self._transport.get_write_buffer_size():
            return 0
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0  # full, or broken: the transport finds the error and reports it

    def send(self, parts: list[Octets]) -> None:
        """See `Wire`."""
        transport = self._transport
        if transport.is_closing():
            return
        if self._descriptor >= 0 and len(parts) <= _PARTS_AT_ONCE and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, parts[0]) if len(parts) == 1 else os.writev(self._descriptor, parts)
            except OSError:
                sent = 0  # as above
            if sent == (len(parts[0]) if len(parts) == 1 else sum(map(len, parts))):
                return
            parts = _unsent(parts, sent)
        if len(parts) == 1:
            transport.write(parts[0])
        elif parts:
            transport.writelines(parts)

    def unsent(self) -> int:
        """See `Wire`."""
        return self._transport.get_write_buffer_size()

    def read(self, on: bool) -> None:
        """See `Wire`."""
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self, within_s: float = 0.0, *, half: bool = False) -> None:
        """See `Wire`. TLS sends its own end of the stream after all queued data, and closes both directions."""
        transport = self._transport
        if not within_s:
            transport.abort()
            return
        if half:
            transport.resume_reading()
        if half or transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(within_s, transport.abort)
        if half and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()


def _descriptor_of(transport: asyncio.Transport) -> int:
    """Return the descriptor to write to. None for TLS, and for asyncio's own transports, as in simulations."""
    is_plain = type(transport).__module__ == "uvloop.loop" and transport.get_extra_info("ssl_object") is None
    return transport.get_extra_info("socket").fileno() if is_plain else NO_DESCRIPTOR


def _unsent(parts: list[Octets], sent: int) -> list[Octets]:
    """Return the rest of `parts` after the first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:] if sent else part, *parts[index + 1 :]]
        sent -= len(part)
    return []
