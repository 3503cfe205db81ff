"""A client's own connection to a broker: a large answer is received when there is memory for it."""

import asyncio
from typing import Final

from sidecar.network.framing import RECEIVE_BYTES, Frame
from sidecar.network.unread import LEAST, AnswerMemory
from sidecar.network.upstream import UpstreamConnection

_PIECE: Final = 16 * 1024
"""What is read at once while answers wait for memory: so much of each is kept."""


class ClientUpstream(UpstreamConnection):
    """Implements `sidecar.network.unread.Arriving`."""

    answers: AnswerMemory | None = None
    _begun = 0
    """Bytes of an answer that waits for memory: its beginning is here, and nothing more is read."""
    _is_counted = False

    def resume(self) -> None:
        if self._begun:
            self._paused = False
        else:
            super().resume()

    def admitted(self) -> None:
        begin, self._left = self._left, b""
        size, self._begun = self._begun, 0
        super()._keep(memoryview(begin), size)
        if not self._paused:
            super().resume()

    # FrameReceiver ------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.answers is not None:
            self.read_at_once = _PIECE if self.answers.waiting else RECEIVE_BYTES
        if self._begun:  # TLS had more: the answer is received although there is no room
            begin, size = self._left, self._begun
            self._arrived()
            self._left = b""
            super()._keep(memoryview(begin), size)
        return super().get_buffer(sizehint)

    def frame_received(self, frame: Frame) -> None:
        super().frame_received(frame)
        if self._is_counted:  # until this turn is over: then it counts as what its client has not taken
            asyncio.get_running_loop().call_soon(self._passed_on)

    def _passed_on(self) -> None:
        if self._is_counted and self._own is None and not self._begun:
            self._arrived()

    def stop_receiving(self) -> None:
        super().stop_receiving()
        if self._is_counted:
            self._arrived()

    def _arrived(self) -> None:
        assert self.answers is not None
        self._is_counted, self._begun = False, 0
        self.answers.arrived(self)

    def _keep(self, begin: memoryview, size: int) -> None:
        if self.answers is None or size < LEAST:
            super()._keep(begin, size)
            return
        if self._is_counted:
            self._arrived()
        self._is_counted = True
        if self.answers.admit(self, size):
            super()._keep(begin, size)
            return
        self._left, self._begun = bytes(begin), size
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
