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


class Arriving(Protocol):
    """A connection to a broker, with a large answer of which the beginning is here."""

    def admitted(self) -> None:
        """Read on."""
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
        self._admitted: dict[Arriving, int] = {}
        self._queue: dict[Arriving, int] = {}
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

    def admit(self, connection: Arriving, size: int) -> bool:
        """Whether an answer of `size` bytes may be received now; `admitted` is called later otherwise."""
        if self._queue or not self._fits(size):
            self._queue[connection] = size
            if self._looking is None:
                self._look_soon()
            return False
        self._take(connection, size)
        return True

    def arrived(self, connection: Arriving) -> None:
        """The answer is here, or never will be."""
        self._queue.pop(connection, None)
        self.arriving -= self._admitted.pop(connection, 0)
        self._serve()

    def _fits(self, size: int) -> bool:
        return not self._admitted or self.used + self.arriving + size <= self.limit

    def _take(self, connection: Arriving, size: int) -> None:
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
