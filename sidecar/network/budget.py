"""Decides whether a client's connection goes on: whether its requests are taken up, and whether more of them are read.

Requests are taken up while no `Pause` holds. More are read while requests are taken up, the last turn left none over,
and there is memory for them. Requests that were read meanwhile wait here.
"""

from collections import deque
from typing import Final, Protocol

from sidecar.network.framing import Frame, Framer
from sidecar.network.handling import Pause
from sidecar.network.memory import RequestMemory
from sidecar.network.replies import Replies
from sidecar.network.wire import Wire

MOST_UNANSWERED: Final = 512
_MOST_BEHIND: Final = 64 * 1024 * 1024
"""Bytes, real or expected, of the answers after the oldest unanswered request."""
_MOST_WAITING: Final = 32
"""Requests that are read after a parked one."""


class Refusal(Protocol):
    """Closes a connection after the answers written so far, or `at_once`."""

    def __call__(self, reason: str, detail: str, *, at_once: bool = False) -> None: ...


class Budget:
    """What one connection uses and may use. `sidecar.network.memory` and `sidecar.network.unread` see connections so.

    `pauses`: the reasons why requests are not taken up. `waiting`: requests that were read and not taken up. `is_read`:
    whether the connection is read. `is_parked`: whether the client decides when the first of its requests is answered.
    `starves`: whether the memory of all clients keeps it from being read. `refuse` closes the connection, for a reason
    and with a sentence for people: it uses what others wait for.
    """

    __slots__ = (
        "_framer",
        "_memory",
        "_replies",
        "is_parked",
        "is_read",
        "pauses",
        "refuse",
        "starves",
        "waiting",
        "wire",
    )

    def __init__(
        self,
        framer: Framer,
        replies: Replies,
        memory: RequestMemory | None,
        refuse: Refusal,
    ) -> None:
        self._framer = framer
        self._replies = replies
        self._memory = memory
        self.refuse = refuse
        self.wire: Wire | None = None
        self.pauses = 0
        self.waiting: Final[deque[Frame]] = deque()
        self.is_read = True
        self.is_parked = self.starves = False

    # Whether requests are taken up --------------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Take up no requests, for `reason`, until every reason was taken back."""
        self.pauses |= int(reason)
        self.settle()

    def resume(self, reason: Pause) -> bool:
        """Take a reason back. Returns whether none is left: then take up what waits, and call `settle`."""
        if not self.pauses & reason:
            return False
        self.pauses &= ~int(reason)
        if self.pauses:
            self.settle()
        return not self.pauses

    def wait(self, frame: Frame) -> None:
        """Keep a request until requests are taken up."""
        self.waiting.append(frame.own())
        if self.pauses and self.is_read:
            self.settle()

    def check(self) -> None:
        """Pause if too many requests have no answer, or if the answers after the first one have too many bytes."""
        if len(self._replies.exchanges) >= MOST_UNANSWERED:
            self.pause(Pause.UNANSWERED)
        if self._replies.weight_behind > _MOST_BEHIND:
            self.pause(Pause.BUDGET)

    def relieve(self) -> bool:
        """Answers were written while there was a pause or too little memory. Returns as `resume`."""
        may_go_on = False
        if len(self._replies.exchanges) < MOST_UNANSWERED // 2:
            may_go_on = self.resume(Pause.UNANSWERED)
        if self._replies.weight_behind <= _MOST_BEHIND // 2:
            may_go_on = self.resume(Pause.BUDGET) or may_go_on
        if self.starves and not may_go_on:
            self.settle()
        return may_go_on

    def park(self, is_parked: bool) -> None:
        """Whether the request that holds up the others is parked. Then the connection is read, to notice when the peer
        disconnects.
        """
        self.is_parked = is_parked
        if is_parked:
            self.settle()

    # Whether more is read -----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Read, or stop reading."""
        is_idle = self.is_parked and self.pauses == Pause.HELD and not self._is_crowded
        may_read = not self.pauses or is_idle
        if may_read and self.starves and self._memory is not None and not self.held_bytes:
            self._memory.let_go(self)
        if self.starves or self._framer.is_behind:
            may_read = False
        if may_read != self.is_read and self.wire is not None:
            self.is_read = may_read
            self.wire.read(may_read)

    @property
    def _is_crowded(self) -> bool:
        return len(self.waiting) >= _MOST_WAITING or self._waiting_bytes >= self._framer.read_at_once

    @property
    def _waiting_bytes(self) -> int:
        return sum(frame.size for frame in self.waiting)

    def starve(self) -> None:
        """Stop reading until `feed`. Requests that were read are handled, so that their memory becomes free."""
        self.starves = True
        self.settle()

    def feed(self) -> None:
        """There is memory: read on."""
        self.starves = False
        self.settle()

    # What it uses -------------------------------------------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the unfinished request that have arrived."""
        return self._framer.unfinished_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the requests that wait or have no answer yet."""
        return self._waiting_bytes + self._framer.bytes_set_aside + self._replies.request_bytes

    @property
    def is_awaited(self) -> bool:
        """Whether the node waits for the peer to send more, and not the peer for the node to read it. For how long a
        request is parked, the client decides.
        """
        return self.is_parked or self.is_read

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that wait for the socket, or for the turn of their request."""
        return self._replies.unread_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes of answers that the socket has taken so far."""
        return self._replies.taken_bytes
