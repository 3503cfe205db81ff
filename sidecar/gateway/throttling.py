"""How a client is throttled, as by brokers since KIP-219: the answer leaves at once, its `throttle_time_ms` is the time
by which the client is over a quota, and its connection is not read for that time. There are no errors.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final

from sidecar.protocol.api import ApiKey
from sidecar.protocol.primitives import MalformedFrameError, Reader
from sidecar.protocol.produce_upstream import throttle_at

_I32: Final = Struct(">i")
_HEAD_BYTES: Final = 8
"""Length prefix and correlation id."""
SAYING: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""APIs whose answers have a `throttle_time_ms` from version 1 on."""
_FETCH_FLEXIBLE: Final = 12


class Mute:
    """Pauses reading of a connection for the longest of the requested times."""

    __slots__ = ("_pause", "_resume", "_timer", "_until")

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Pause for at least `seconds` from now on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if until > self._until:
            self.end()
            self._until, self._timer = until, loop.call_at(until, self._resume)
            self._pause()

    def end(self) -> None:
        """Cancel the timer that ends the pause."""
        if self._timer is not None:
            self._timer.cancel()


def with_throttle(answer: bytes, key: int, version: int, wait_ms: int) -> bytes:
    """The answer to Produce or Fetch with a `throttle_time_ms` of at least `wait_ms`, if its version has the field."""
    if version < 1 or key not in SAYING:
        return answer
    try:
        at = throttle_at(answer, version) if key == ApiKey.PRODUCE else _behind_head(answer, version)
    except MalformedFrameError:  # the client gets the broker's answer unchanged
        return answer
    if _I32.unpack_from(answer, at)[0] >= wait_ms:
        return answer
    found = bytearray(answer)
    _I32.pack_into(found, at, wait_ms)
    return bytes(found)


def _behind_head(answer: bytes, version: int) -> int:
    reader = Reader(answer, _HEAD_BYTES)
    reader.tags(version >= _FETCH_FLEXIBLE)
    return reader.position
