"""The refused batches of one connection, so that none of them is taken for a duplicate when it is sent again. Pure.

A client without idempotence has several batches in flight and no sequences that would show a gap. If one is answered
with a retriable error and the next one is written, the first one's ids are not above those in the log when it is sent
again: it would be acknowledged as a duplicate and be in no log. So later batches get a retriable error too, until the
first one has been sent again. If it is not sent for half a minute, while others are, the client has given it up.

A batch of a client that may not write is not opened for this: it is kept unread, within `protocol.limits`, until
that client may write. Batches beyond these limits are not tracked.

A batch that was given up, or refused for good, is *late* if the connection has written higher ids since: it is answered
with an error. If another session wrote them it is a duplicate as usual: a standby sends its predecessor's records
again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sidecar.dedup.content import Content, TooLargeAtOnceError
from sidecar.dedup.marks import Pushed
from sidecar.protocol import limits
from sidecar.protocol.errors import KafkaError

PATIENCE_S: Final = 30.0
_OPENED_BYTES: Final = 8 * limits.BATCH_AT_ONCE_BYTES
_SAME_FROM, _STAMP_FROM, _STAMP_TO = 21, 43, 57
"""What differs where the same batch comes again: up to its CRC, and the stamp (see `protocol.batch`)."""
_LATE_KEPT: Final = 1_000


class Turn(Enum):
    """What becomes of a batch."""

    GO = "nothing is in its way"
    AGAIN = "a batch with lower ids has to come first"
    LATE = "it was not written when it came first, and higher ids have been since"


class IdsOf(NamedTuple):
    """What is left of a `Content` when its batch is under way."""

    marks: tuple[Pushed, ...]
    lowest: Mapping[bytes, int]


Ids: TypeAlias = Content | IdsOf


class KeptBytes:
    """The bytes of refused batches, per connection and in total."""

    __slots__ = ("_by_connection", "in_all")

    def __init__(self) -> None:
        self.in_all = 0
        self._by_connection: dict[int, KeptRoom] = {}

    def of(self, connection: int) -> KeptRoom:
        """The room of one connection."""
        found = self._by_connection.get(connection)
        if found is None:
            found = self._by_connection[connection] = KeptRoom(self)
        return found

    def forget(self, connection: int) -> None:
        """A connection is gone, with all that was kept of it."""
        found = self._by_connection.pop(connection, None)
        if found is not None:
            self.in_all -= found.size


class KeptRoom:
    """The room of one connection, where its batches are counted that are kept."""

    __slots__ = ("_all", "batches", "size")

    def __init__(self, in_all: KeptBytes) -> None:
        self.size = self.batches = 0
        self._all = in_all

    def take(self, size: int) -> bool:
        """Room for one batch more; whether there is."""
        if (
            self.size + size > limits.KEPT_BYTES
            or self.batches >= limits.KEPT_BATCHES
            or self._all.in_all + size > limits.KEPT_IN_ALL_BYTES
        ):
            return False
        self.size += size
        self.batches += 1
        self._all.in_all += size
        return True

    def give_back(self, size: int) -> None:
        """A batch is kept no longer."""
        self.size -= size
        self.batches -= 1
        self._all.in_all -= size


class Kept(NamedTuple):
    """A batch that was not let in, not opened. `now`: when."""

    records: int
    comes_again: bool
    now: float


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

    __slots__ = ("_kept", "_late", "_late_count", "_lowest", "_seen", "_written", "is_lost")

    def __init__(self) -> None:
        self._lowest: dict[bytes, list[int]] = {}
        """In order: thousands of batches may come before the first one does."""
        self._late: dict[bytes, list[_Ids]] = {}
        self._late_count = 0
        self._written: dict[bytes, int] = {}
        self._seen = 0.0
        self._kept: dict[bytes, Kept] = {}
        self.is_lost = False
        """Whether a batch with unknown ids was refused for a retry."""

    def __bool__(self) -> bool:
        return bool(self._lowest or self._late or self._kept or self.is_lost)

    def keep(self, batch: memoryview, kept: Kept, room: KeptRoom) -> None:
        """A batch was not let in.

        One that comes again and again is kept once: a client that may not write may retry for hours. Those refused for
        good make room for one that will come again, as that may be lost without this.
        """
        same = bytearray(batch)
        same[:_SAME_FROM] = bytes(_SAME_FROM)
        same[_STAMP_FROM:_STAMP_TO] = bytes(_STAMP_TO - _STAMP_FROM)
        key = bytes(same)
        before = self._kept.pop(key, None)
        if before is not None:
            self._kept[key] = kept._replace(comes_again=kept.comes_again or before.comes_again)
            return
        has_room = room.take(len(key))
        while not has_room and kept.comes_again:
            refused = next((each for each, its in self._kept.items() if not its.comes_again), None)
            if refused is None:
                break
            del self._kept[refused]
            room.give_back(len(refused))
            has_room = room.take(len(key))
        if has_room:
            self._kept[key] = kept
        elif kept.comes_again:
            self.is_lost = True

    def open(self, opened: Callable[[memoryview, int], Content], room: KeptRoom) -> None:
        """Its client may write now: look into what was kept, as far as that takes no time. `opened` as `Content` with
        `at_once`; one that fails may have decompressed all that it was allowed to.
        """
        kept, self._kept = self._kept, {}
        left = _OPENED_BYTES
        for batch, (records, comes_again, now) in kept.items():
            room.give_back(len(batch))
            try:
                if left <= 0:
                    raise TooLargeAtOnceError
                left -= limits.BATCH_AT_ONCE_BYTES
                content = opened(memoryview(batch), records)
            except TooLargeAtOnceError:
                self.is_lost |= comes_again
                continue
            except KafkaError:
                continue  # it will be refused for that
            left += limits.BATCH_AT_ONCE_BYTES - content.size
            if content.has_ids and comes_again:
                self.add(content, now)
            elif content.has_ids:
                self.refuse(content)

    def add(self, content: Ids, now: float) -> None:
        """A batch of a plain client was refused for a retry."""
        for name, lowest in content.lowest.items():
            known = self._lowest.setdefault(name, [])
            if not known or lowest <= known[0]:
                self._seen = now
            at = bisect_left(known, lowest)
            if at == len(known) or known[at] != lowest:
                known.insert(at, lowest)

    def refuse(self, content: Ids) -> None:
        """A batch was refused for good."""
        for name, last, _ in content.marks:
            self._is_late(name, _Ids(content.lowest[name], last))

    def written(self, content: Ids) -> None:
        """A batch of this connection is in the log, and was not before."""
        for name, last, _ in content.marks:
            self._written[name] = max(last, self._written.get(name, last))

    def turn_of(self, content: Ids, now: float) -> Turn:
        """What becomes of a batch; where it may go, it counts as come."""
        lowest = content.lowest
        if self._lowest and now - self._seen > PATIENCE_S:
            for name, each in self._lowest.items():
                for first in each[-_LATE_KEPT:]:
                    self._is_late(name, _Ids(first, first))
            self._lowest.clear()
        if any(self._comes_late(name, _Ids(lowest[name], last)) for name, last, _ in content.marks):
            return Turn.LATE
        if any(name in self._lowest and first > self._lowest[name][0] for name, first in lowest.items()):
            return Turn.AGAIN
        for name, last, _ in content.marks:
            self._comes(name, _Ids(lowest[name], last))
        self._seen = now
        return Turn.GO

    def _is_late(self, name: bytes, ids: _Ids) -> None:
        self._late.setdefault(name, []).append(ids)
        self._late_count += 1
        if self._late_count > _LATE_KEPT:
            oldest, its = next(iter(self._late.items()))
            del its[0]
            self._late_count -= 1
            if not its:
                del self._late[oldest]

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
        awaited = self._lowest.get(name)
        if awaited is not None:
            del awaited[bisect_left(awaited, ids.first) : bisect_right(awaited, ids.last)]
            if not awaited:
                del self._lowest[name]
        if name in self._late:
            left = [late.without(ids) for late in self._late[name]]
            self._keep_late(name, [late for late in left if late.first <= late.last])
