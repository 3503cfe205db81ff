"""A stream in pieces of any size: what frames it has does not depend on how it is cut, and nothing is set aside for
more than has arrived.

Input: how many bytes come in one piece, then the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.network.framing import BadLength, Begun, Framer

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMIT: Final = 1024
_LARGEST: Final = 64 * 1024
_GRANTED: Final = 64 * 1024
"""What a receiver may set aside beyond four times of what it got."""


class _Receiver:
    def __init__(self) -> None:
        self.framer = Framer(_LIMIT)
        self.framer.largest_frame = _LARGEST
        self.seen: list[bytes] = []
        self.bad: list[int] = []

    def take(self, data: bytes) -> None:
        framer = self.framer
        while data and not framer.is_stopped:
            buffer = framer.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            del buffer
            framer.received(size)
            data = data[size:]
            while (frame := framer.next_frame()) is not None:
                self.seen.append(bytes(frame.buffer[frame.start : frame.end]))
            needs = framer.needs()
            if isinstance(needs, Begun):
                framer.receive()
            elif isinstance(needs, BadLength):
                self.bad.append(needs.size)
                framer.stop()
            own = framer._own
            assert own is None or len(own) <= 4 * framer.unfinished_bytes + _GRANTED, "more memory than was sent"


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
