"""One limit on the memory for answers that clients have not read, for all connections together.

A broker sends records from its page cache; a node has to store an answer until its client takes it. One connection has
little more than one answer, but there may be thousands of connections. So a large answer is read from its broker only
when there is room; answers get room in the order in which they began.

While answers wait for room, or the limit is exceeded, the node closes connections whose clients took nothing from one
look to the next, first the one with the most bytes. Above one and a half times the limit it closes the one with the
most bytes at once. A client that reads gets what it missed on its next connection.

A connection with less than 64 KiB does not count.
"""

import asyncio
from typing import Final, Protocol

from sidecar.network.framing import RECEIVE_BYTES

_PIECE: Final = 16 * 1024
"""Bytes that are read at a time while answers wait for memory: the node stores up to this much of each."""
LOOK_S: Final = 1.0
"""Seconds between two looks, while the limit is exceeded or answers wait."""
LEAST: Final = 64 * 1024
"""From this many bytes on a connection counts. A transport takes the same number before it reports that it is full."""


class Recipient(Protocol):
    """A connection of a client, which receives answers; see `sidecar.network.budget.Budget`."""

    @property
    def unread_bytes(self) -> int: ...
    @property
    def taken_bytes(self) -> int: ...
    def refuse(self, reason: str, detail: str, *, at_once: bool = False) -> None: ...


class Receiver(Protocol):
    """A connection to a broker, which receives answers for a client."""

    def admitted(self) -> None:
        """There is room for the answer that waits."""
        ...


class AnswerMemory:
    """`limit`: bytes for all connections. `used`: bytes that clients had not taken at the last look. `arriving`: bytes
    of the answers that are being received. `closed`: how many connections were closed. `read_at_once`: the most bytes
    to read of a broker at a time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit + limit // 2
        self.used = 0
        self.arriving = 0
        self.closed = 0
        self.read_at_once = RECEIVE_BYTES
        self._admitted: dict[Receiver, int] = {}
        self._queue: dict[Receiver, int] = {}
        self._sizes: dict[Recipient, int] = {}
        self._taken: dict[Recipient, int] = {}
        """`Recipient.taken_bytes` at the last look."""
        self._looking: asyncio.TimerHandle | None = None

    def note(self, recipient: Recipient) -> None:
        """The unread bytes of a connection have changed."""
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
        """A connection has ended."""
        self.used -= self._sizes.pop(recipient, 0)
        self._taken.pop(recipient, None)
        self._serve()

    # Answers that are being received --------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many answers wait because there is no room."""
        return len(self._queue)

    def admit(self, connection: Receiver, size: int) -> bool:
        """Whether an answer of `size` bytes may be received now; if not, `connection.admitted` is called later."""
        self.arrived(connection)
        if self._queue or not self._fits(size):
            self._queue[connection] = size
            self.read_at_once = _PIECE
            if self._looking is None:
                self._look_soon()
            return False
        self._take(connection, size)
        return True

    def arrived(self, connection: Receiver) -> None:
        """The answer has arrived, or never will. Does nothing for a connection without an answer that counts."""
        if self._queue.pop(connection, 0) or connection in self._admitted:
            self.arriving -= self._admitted.pop(connection, 0)
            self._serve()

    def _fits(self, size: int) -> bool:
        return not self._admitted or self.used + self.arriving + size <= self.limit

    def _take(self, connection: Receiver, size: int) -> None:
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
        if not self._queue:
            self.read_at_once = RECEIVE_BYTES

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
        unread = f"{recipient.unread_bytes} bytes of answers that it did not read"
        recipient.refuse("unread", f"{unread}, and too much of that in all", at_once=True)
