"""What one connection was not let in with, so that none of it is taken for a duplicate when it comes again. Pure.

A client without idempotence has several batches under way and no sequences that would tell of a gap. If one is answered
with an error that makes it come again, and the next one is written, the first one's ids are at or below what the log
holds when it comes: it would be acknowledged as a duplicate and be nowhere. So what comes behind is told to come again
too, until the first one has come. One that does not come for half a minute, while others do, was given up.

What was given up, or refused for good, is *late* when the connection has written higher ids since: that is told, as an
error. Where another session wrote them it is a duplicate, as ever: a standby sends what the one before it sent.
"""

from __future__ import annotations

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


class _Ids(NamedTuple):
    """Ids of one name, `first` to `last`."""

    first: int
    last: int

    def without(self, others: _Ids) -> _Ids:
        """What is left, as far as that is one piece, where others come."""
        if others.last < self.first or self.last < others.first:
            return self
        if others.first <= self.first:
            return _Ids(others.last + 1, self.last)
        return _Ids(self.first, others.first - 1) if self.last <= others.last else self


class TurnedAway:
    """Of one connection in one partition. `now` arguments are monotonic seconds."""

    __slots__ = ("_late", "_late_count", "_lowest", "_seen", "_written")

    def __init__(self) -> None:
        self._lowest: dict[bytes, set[int]] = {}
        self._late: dict[bytes, list[_Ids]] = {}
        self._late_count = 0
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
        for name, last, _ in content.marks:
            self._is_late(name, _Ids(content.lowest[name], last))

    def written(self, content: Content) -> None:
        """A batch of this connection is in the log, and was not before."""
        for name, last, _ in content.marks:
            self._written[name] = max(last, self._written.get(name, last))

    def turn_of(self, content: Content, now: float) -> Turn:
        """What becomes of a batch; where it may go, it counts as come."""
        lowest = content.lowest
        if self._lowest and now - self._seen > PATIENCE_S:
            for name, each in self._lowest.items():
                for first in sorted(each):
                    self._is_late(name, _Ids(first, first))
            self._lowest.clear()
        if any(self._comes_late(name, _Ids(lowest[name], last)) for name, last, _ in content.marks):
            return Turn.LATE
        if any(name in self._lowest and first > min(self._lowest[name]) for name, first in lowest.items()):
            return Turn.AGAIN
        for name, last, _ in content.marks:
            self._comes(name, _Ids(lowest[name], last))
        self._seen = now
        return Turn.GO

    def _is_late(self, name: bytes, ids: _Ids) -> None:
        self._late.setdefault(name, []).append(ids)
        self._late_count += 1
        if self._late_count > _LATE_KEPT:
            oldest = next(iter(self._late))
            self._keep_late(oldest, self._late[oldest][1:])

    def _keep_late(self, name: bytes, left: list[_Ids]) -> None:
        self._late_count -= len(self._late[name]) - len(left)
        if left:
            self._late[name] = left
        else:
            del self._late[name]

    def _comes_late(self, name: bytes, ids: _Ids) -> bool:
        if name not in self._late:
            return False
        written = self._written.get(name, -1)
        return any(late.first <= min(ids.last, written) and ids.first <= late.last for late in self._late[name])

    def _comes(self, name: bytes, ids: _Ids) -> None:
        awaited = {first for first in self._lowest.get(name, ()) if not ids.first <= first <= ids.last}
        if awaited:
            self._lowest[name] = awaited
        else:
            self._lowest.pop(name, None)
        if name in self._late:
            left = [late.without(ids) for late in self._late[name]]
            self._keep_late(name, [late for late in left if late.first <= late.last])
