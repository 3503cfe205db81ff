"""A subscriber that costs next to nothing: one connection, one Fetch under way, of each batch the offsets alone."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sidecar.protocol import fetch

if TYPE_CHECKING:
    from collections.abc import Callable

SHARING: Final = 11
"""The version of Fetch whose readers may share a poll; 10 has the same fields here, and always goes alone."""

_POSITION: Final = Struct(">iiqqi")
_OFFSET: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_ERROR: Final = Struct(">ih")
_BATCH: Final = Struct(">qi")
_LAST_DELTA_AT: Final = 23
_ABORTED_AT: Final = 30
_AGAIN_S: Final = 0.1
"""How long a client waits after an error (Java's retry.backoff.ms)."""
_PARTITION_BYTES: Final = 1024 * 1024
_TOTAL_BYTES: Final = 16 * 1024 * 1024


class Limits(NamedTuple):
    """How a subscriber asks: the version of Fetch, how long it waits for a first byte, its isolation level."""

    wait_ms: int = 500
    version: int = SHARING
    isolation: int = 0


class Subscriber(asyncio.Protocol):
    """Reads partition 0 of a topic from an offset on, for as long as its connection lasts.

    `received(base, after)` is called for each batch with its first offset and the one behind it. What should not
    happen (a gap, an error code, what came already) is put into `faults` in words.
    """

    def __init__(
        self, name: str, offset: int, limits: Limits, received: Callable[[int, int], None] | None = None
    ) -> None:
        self.offset = offset
        self.answers = 0
        self.faults: list[str] = []
        self.connected = False
        self._received = received
        self._transport: asyncio.Transport | None = None
        self._kept = b""
        topic, version = name.encode(), limits.version
        element = _POSITION.pack(0, -1, offset, -1, _PARTITION_BYTES)
        asked = (limits.wait_ms, 1, _TOTAL_BYTES, limits.isolation)
        self._frame = bytearray(fetch.encode_request(1, b"subscriber", version, asked, [(topic, element)]))
        self._offset_at = self._frame.rindex(element) + 8
        self._element_at = 8 + 4 + 6 + 4 + 2 + len(topic) + 4
        self._behind_aborted = 4 if version >= SHARING else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing
        self.connected = True
        self._kept = b""
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connected = False
        self._transport = None

    def stall(self) -> None:
        """Read nothing any more."""
        assert self._transport is not None
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    def abort(self) -> None:
        """Hang up. Another connection of the same subscriber goes on where this one stopped."""
        if self._transport is not None:
            self._transport.abort()

    def _ask(self) -> None:
        if self._transport is None:
            return
        _OFFSET.pack_into(self._frame, self._offset_at, self.offset)
        self._transport.write(bytes(self._frame))

    def data_received(self, data: bytes) -> None:
        if self._kept:
            data = self._kept + data
        if len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
            self._kept = data
            return
        self._kept = b""
        self.answers += 1
        at = self._element_at
        _, error = _ERROR.unpack_from(data, at)
        if error:
            self.faults.append(f"error {error} at {self.offset}")
            asyncio.get_running_loop().call_later(_AGAIN_S, self._ask)
            return
        at += _ABORTED_AT
        at += 4 + 16 * max(0, _SIZE.unpack_from(data, at)[0]) + self._behind_aborted
        self._take(data, at + 4, at + 4 + _SIZE.unpack_from(data, at)[0])
        self._ask()

    def _take(self, data: bytes, at: int, end: int) -> None:
        while at < end:
            base, length = _BATCH.unpack_from(data, at)
            after = base + _SIZE.unpack_from(data, at + _LAST_DELTA_AT)[0] + 1
            if base != self.offset:
                self.faults.append(f"a batch from {base} on at {self.offset}")
            self.offset = after
            if self._received is not None:
                self._received(base, after)
            at += 12 + length
