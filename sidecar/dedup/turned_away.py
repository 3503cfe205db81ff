"""What one connection was not let in with, so that none of it is taken for a duplicate when it comes again. Pure.

A client without idempotence has several batches under way and no sequences that would tell of a gap. If one is answered
with an error that makes it come again, and the next one is written, the first one's ids are at or below what the log
holds when it comes: it would be acknowledged as a duplicate and be nowhere. So what comes behind is told to come again
too, until the first one has come. One that does not come for half a minute, while others do, was given up.

What was given up, or refused for good, is *late* when the connection has written higher ids since: that is told, as an
error. Where another session wrote them it is a duplicate, as ever: a standby sends what the one before it sent.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sidecar.dedup.content import Content

PATIENCE_S: Final = 30.0
_LATE_KEPT: Final = 1_000


class Turn(Enum):
    """What becomes of a batch."""

    GO = "nothing is in its way"
    AGAIN = "a batch with lower ids has to come first"
    LATE = "it was not written when it came first, and higher ids have been since"


class _Late(NamedTuple):
    """Ids of a name that were not written when they came: `first` to `last`."""

    name: bytes
    first: int
    last: int

    def without(self, name: bytes, first: int, last: int) -> _Late:
        """What is left, as far as that is one piece, where these ids come after all."""
        if name != self.name or last < self.first or self.last < first:
            return self
        if first <= self.first:
            return self._replace(first=last + 1)
        return self._replace(last=first - 1) if self.last <= last else self


class TurnedAway:
    """Of one connection in one partition. `now` arguments are monotonic seconds."""

    __slots__ = ("_late", "_lowest", "_seen", "_written")

    def __init__(self) -> None:
        self._lowest: dict[bytes, set[int]] = {}
        self._late: deque[_Late] = deque(maxlen=_LATE_KEPT)
        self._written: dict[bytes, int] = {}
        self._seen = 0.0

    def __bool__(self) -> bool:
        return bool(self._lowest or self._late)

    def add(self, content: Content, now: float) -> None:
        """A batch of a plain client was told to come again."""
        for name, lowest in content.lowest.items():
            known = self._lowest.setdefault(name, set())
            if not known or lowest <= min(known):
                self._seen = now
            known.add(lowest)

    def refuse(self, content: Content) -> None:
        """A batch was refused for good."""
        self._late.extend(_Late(name, content.lowest[name], last) for name, last, _ in content.marks)

    def written(self, content: Content) -> None:
        """A batch of this connection is in the log, and was not before."""
        for name, last, _ in content.marks:
            self._written[name] = max(last, self._written.get(name, last))

    def turn_of(self, content: Content, now: float) -> Turn:
        """What becomes of a batch; where it may go, it counts as come."""
        lowest = content.lowest
        if self._lowest and now - self._seen > PATIENCE_S:
            self._late.extend(
                _Late(name, first, first) for name, each in self._lowest.items() for first in sorted(each)
            )
            self._lowest.clear()
        if self._late and self._is_late(content):
            return Turn.LATE
        if any(name in self._lowest and first > min(self._lowest[name]) for name, first in lowest.items()):
            return Turn.AGAIN
        for name, last, _ in content.marks:
            left = {first for first in self._lowest.get(name, ()) if not lowest[name] <= first <= last}
            if left:
                self._lowest[name] = left
            else:
                self._lowest.pop(name, None)
            if self._late:
                rest = [late.without(name, lowest[name], last) for late in self._late]
                self._late = deque((late for late in rest if late.first <= late.last), _LATE_KEPT)
        self._seen = now
        return Turn.GO

    def _is_late(self, content: Content) -> bool:
        return any(
            late.name == name
            and late.first <= min(last, self._written.get(name, -1))
            and content.lowest[name] <= late.last
            for late in self._late
            for name, last, _ in content.marks
        )
