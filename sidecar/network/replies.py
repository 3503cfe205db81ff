"""The answers to one client, written in the order of its requests, whatever the order in which they become ready."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.network.framing import Frame, Outbox
from sidecar.network.request import Exchange
from sidecar.network.unread import LEAST
from sidecar.protocol.primitives import Octets


class Replies:
    """The requests of a connection that are not answered, and the bytes of its answers.

    `exchanges`: the requests, the oldest first. `written`: bytes handed to the socket so far. `kept`: bytes of answers
    that wait for an earlier request. `done` is called for each answer that was handed to the socket, with its size.
    """

    __slots__ = ("_done", "_largest", "_largest_end", "_outbox", "_weight", "exchanges", "kept", "written")

    def __init__(self, outbox: Outbox, done: Callable[[Exchange, int], None]) -> None:
        self.exchanges: Final[deque[Exchange]] = deque()
        self.written = self.kept = 0
        self._weight = 0  # bytes of all answers that are not written, real or expected
        self._largest = self._largest_end = 0  # the largest unsent answer, and `written` at its end
        self._outbox = outbox
        self._done = done

    def expect(self, exchange: Exchange) -> int:
        """Give a request the last place. Returns how many requests have no answer."""
        exchanges = self.exchanges
        if exchanges and exchanges[-1].is_patient:
            exchanges[-1].hurry()
        exchanges.append(exchange)
        self._weight += exchange.weight
        return len(exchanges)

    def is_next(self, exchange: Exchange) -> bool:
        """Whether this answer is the next to be written."""
        exchanges = self.exchanges
        return bool(exchanges) and exchanges[0] is exchange

    def forward(self, exchange: Exchange, frame: Frame, head: Octets) -> bool:
        """Write `head` and a broker's answer if they are next, and the answers that are ready after it. Returns whether
        they were written.
        """
        exchanges = self.exchanges
        if not exchanges or exchanges[0] is not exchange:
            return False
        exchanges.popleft()
        size = len(head) + frame.end - frame.start
        self._weight -= exchange.weight
        self.written += size
        if size >= LEAST:
            self.note_large(size)
        if head:
            self._outbox.add(head)
        self._outbox.add_frame(frame)
        self._done(exchange, size)
        if exchanges and exchanges[0].answered:
            self.kept -= exchanges[0].answer_bytes
            self.write(exchanges[0])
        return True

    def forward_all(self, start: int, sizes: Sequence[int], waited: Sequence[float]) -> int:
        """Write brokers' answers to the next requests, which have these sizes and follow each other from `start` on in
        `framing.SHARED`. For each of them the node waited so many seconds. Returns their bytes.
        """
        exchanges, done = self.exchanges, self._done
        end = start
        for size, seconds in zip(sizes, waited, strict=True):
            exchange = exchanges.popleft()
            assert not exchange.answered, "answered twice"
            exchange.answered = True
            exchange.upstream = seconds
            end += size
            self.written += size
            if size >= LEAST:
                self.note_large(size)
            done(exchange, size)
        self._outbox.add_span(start, end)
        if exchanges and exchanges[0].answered:
            self.kept -= exchanges[0].answer_bytes
            self.write(exchanges[0])
        return end - start

    def write(self, exchange: Exchange) -> bool:
        """Write a ready answer if it is next, and those that are ready after it; else keep it. Returns whether it was
        written.
        """
        exchanges = self.exchanges
        size = exchange.answer_bytes
        if not exchanges or exchanges[0] is not exchange:
            self.kept += size
            self._weight += size - exchange.weight
            exchange.weight = size
            return False
        while True:
            exchanges.popleft()
            self._weight -= exchange.weight
            self.written += size
            if size >= LEAST:
                self.note_large(size)
            parts, exchange.parts = exchange.parts, None
            assert parts is not None, "written twice"
            self._outbox.send(parts)
            self._done(exchange, size)
            if not exchanges or not exchanges[0].answered:
                return True
            exchange = exchanges[0]
            size = exchange.answer_bytes
            self.kept -= size

    def forget(self) -> None:
        """The connection has ended: no answer can be written."""
        self.exchanges.clear()

    @property
    def weight_behind(self) -> int:
        """Bytes, real or expected, of the answers after the first one."""
        return self._weight - self.exchanges[0].weight if self.exchanges else 0

    @property
    def request_bytes(self) -> int:
        """Bytes of the requests without an answer."""
        return sum(exchange.request_bytes for exchange in self.exchanges)

    # What the client has taken ------------------------------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        """Bytes that the node stores for the client. An answer is one piece of memory until its last byte is sent,
        although the kernel may take three of its four megabytes at once.
        """
        unsent = self._outbox.unsent
        if unsent and self.written - unsent < self._largest_end:
            unsent = max(unsent, self._largest)
        return self.kept + unsent

    @property
    def taken_bytes(self) -> int:
        """Bytes of answers that the socket has taken so far."""
        return self.written - self._outbox.unsent

    def note_large(self, size: int) -> None:
        """Note that the socket gets a large answer of `size` bytes. The largest counts until its last byte is taken."""
        if size > self._largest or self.taken_bytes - size >= self._largest_end:
            self._largest, self._largest_end = size, self.written

    def all_taken(self) -> None:
        """The socket takes answers again."""
        self._largest = 0
