"""The frames of a login on a connection whose other requests wait for the login, or were sent before it."""

import asyncio

from sidecar.network.framing import Frame
from sidecar.network.wire import Wire
from sidecar.protocol.primitives import Octets


class LoginFrames:
    """A login in progress. `ahead`: how many requests before it are unanswered; their answers arrive first."""

    __slots__ = ("_answer", "_ended", "_wire", "ahead")

    def __init__(self, wire: Wire, ahead: int = 0) -> None:
        self.ahead = ahead
        self._wire = wire
        self._answer: asyncio.Future[Frame] | None = None
        self._ended = False

    async def ask(self, request: bytes) -> Octets:
        """Send a frame of the login; return its answer's frame. Raises ConnectionError if the connection ends."""
        if self._ended:
            raise ConnectionError("the connection ended")
        self._answer = asyncio.get_running_loop().create_future()
        self._wire.send([request])
        frame = await self._answer
        return bytes(memoryview(frame.buffer)[frame.start : frame.end])

    def received(self, frame: Frame) -> bool:
        """Accept an answer, whose frame is borrowed for this call. Return False if none is expected."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(frame.own())
        return True

    def end(self) -> None:
        """The connection has ended."""
        self._ended = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection ended"))
            self._answer.exception()  # marks it as retrieved: its waiter may be cancelled
