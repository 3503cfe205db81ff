"""Answers that clients have not read: one bound for those of all connections.

A broker sends records from its page cache; a node has to keep an answer until its client takes it. One connection holds
little more than an answer, but there may be thousands. So a large answer is read from its broker when there is room, in
the order in which they began. While others wait for room, or more than the limit is taken, connections are closed whose
clients take nothing of what waits for them from one look to the next, first the one with the most; beyond one and a
half times the limit the one with the most, at once. A client that reads takes up what it missed on its next connection.

Less than 64 KiB of a connection do not count.
"""

import asyncio
from typing import Final, Protocol

from sidecar.network.framing import RECEIVE_BYTES, Frame
from sidecar.network.upstream import UpstreamConnection

_PIECE: Final = 16 * 1024
"""What is read at once while answers wait for memory: so much of each is kept."""
LOOK_S: Final = 1.0
"""Between two looks, while more than the limit is taken."""
LEAST: Final = 64 * 1024
"""Bytes of a connection that count: as many as a transport takes before it says that it is full."""


class Recipient(Protocol):
    """A connection."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the socket, or the turn of their request, holds up."""
        ...

    @property
    def taken_bytes(self) -> int:
        """Bytes of answers that the socket has taken so far."""
        ...

    def too_much_unread(self) -> None:
        """Close it."""
        ...


class AnswerMemory:
    """`limit` bytes for all. `used`: those that clients had not taken when they were last looked at; `arriving`: those
    of answers that are being received; `closed`: how many connections were.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit + limit // 2
        self.used = 0
        self.arriving = 0
        self.closed = 0
        self._admitted: dict[ClientUpstream, int] = {}
        self._queue: dict[ClientUpstream, int] = {}
        self._sizes: dict[Recipient, int] = {}
        self._taken: dict[Recipient, int] = {}
        """Until the last look."""
        self._looking: asyncio.TimerHandle | None = None

    def note(self, recipient: Recipient) -> None:
        """It has more to read than before, or less."""
        self._measure(recipient)
        if self.used <= self.limit:
            self._serve()
            return
        if self.used > self._most:
            self._measure_all()
            while self.used > self._most:
                self._close(max(self._sizes, key=self._sizes.__getitem__))
        if self._looking is None:
            self._look_soon()

    def forget(self, recipient: Recipient) -> None:
        """It has ended."""
        self.used -= self._sizes.pop(recipient, 0)
        self._taken.pop(recipient, None)
        self._serve()

    # Answers that are being received --------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many answers are not read because there is no room."""
        return len(self._queue)

    def admit(self, connection: "ClientUpstream", size: int) -> bool:
        """Whether an answer of `size` bytes may be received now; `admitted` is called later otherwise."""
        if self._queue or not self._fits(size):
            self._queue[connection] = size
            if self._looking is None:
                self._look_soon()
            return False
        self._take(connection, size)
        return True

    def arrived(self, connection: "ClientUpstream") -> None:
        """The answer is here, or never will be."""
        self._queue.pop(connection, None)
        self.arriving -= self._admitted.pop(connection, 0)
        self._serve()

    def _fits(self, size: int) -> bool:
        return not self._admitted or self.used + self.arriving + size <= self.limit

    def _take(self, connection: "ClientUpstream", size: int) -> None:
        self._admitted[connection] = size
        self.arriving += size

    def _serve(self) -> None:
        while self._queue:
            connection, size = next(iter(self._queue.items()))
            if not self._fits(size):
                break
            del self._queue[connection]
            self._take(connection, size)
            connection.admitted()

    # Looks ----------------------------------------------------------------------------------------------------------

    def _measure(self, recipient: Recipient) -> None:
        size = recipient.unread_bytes
        self.used += size - self._sizes.pop(recipient, 0)
        if size >= LEAST:
            self._sizes[recipient] = size
        else:
            self.used -= size

    def _measure_all(self) -> None:
        for recipient in list(self._sizes):
            self._measure(recipient)

    def _look_soon(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self._measure_all()
        now = {recipient: recipient.taken_bytes for recipient in self._sizes}
        idle = [recipient for recipient, taken in now.items() if self._taken.get(recipient) == taken]
        for recipient in sorted(idle, key=self._sizes.__getitem__, reverse=True):
            if self.used <= self.limit and not self._queue:
                break
            self._close(recipient)
        self._serve()
        self._taken = {}
        if self.used > self.limit or self._queue:
            self._taken = {recipient: taken for recipient, taken in now.items() if recipient in self._sizes}
            self._look_soon()

    def _close(self, recipient: Recipient) -> None:
        self.closed += 1
        self.forget(recipient)
        recipient.too_much_unread()


class ClientUpstream(UpstreamConnection):
    """A client's own connection to a broker: a large answer is received when there is memory for it."""

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
