"""A stream in pieces of any size: what frames it has does not depend on how it is cut, and nothing is set aside for
more than has arrived.

Input: how many bytes come in one piece, then the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.network.framing import Frame, FrameReceiver
from sidecar.protocol import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMIT: Final = 1024
_LARGEST: Final = 64 * 1024
_GRANTED: Final = 64 * 1024
"""What a receiver may set aside beyond four times of what it got."""


class _Receiver(FrameReceiver):
    def __init__(self) -> None:
        super().__init__(_LIMIT)
        self.largest_frame = _LARGEST
        self.seen: list[bytes] = []
        self.bad: list[int] = []

    def frame_received(self, frame: Frame) -> None:
        self.seen.append(bytes(frame.buffer[frame.start : frame.end]))

    def bad_length(self, size: int, head: bytes) -> None:
        self.bad.append(size)
        self.stop_receiving()

    def allows(self, size: int, key: int) -> bool:
        return size <= limits.frame_bytes(key, self.largest_frame)

    def take(self, data: bytes) -> None:
        while data and not self._stopped:
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            del buffer
            self.buffer_updated(size)
            data = data[size:]
            own = self._own
            assert own is None or len(own) <= 4 * self._position + _GRANTED, "more memory than was sent"


def play(data: bytes) -> None:
    if not data:
        return
    piece, stream = data[0] + 1, data[1:]
    whole, cut = _Receiver(), _Receiver()
    whole.take(stream)
    for start in range(0, len(stream), piece):
        cut.take(stream[start : start + piece])
    assert (whole.seen, whole.bad) == (cut.seen, cut.bad), "the pieces make a difference"
    together = b"".join(whole.seen)
    assert stream.startswith(together), "frames that nobody sent"


def seeds() -> Iterator[bytes]:
    frame = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
    yield b"\xff" + frame * 3
    yield b"\0" + frame + b"\0\0\0\0" + frame
    yield b"\6" + (2000).to_bytes(4, "big") + bytes(2000) + frame
    yield b"\1GET / HTTP/1.1\r\n\r\n"
    yield b"\2\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
