"""The refused batches of one connection, so that no retry of them is acknowledged as a duplicate. Pure.

A client without idempotence has several batches in flight and no sequences that would show a gap. Suppose that one is
answered with a retriable error and the next one is written. When the first is sent again, its ids are below those in
the log: it would be acknowledged as a duplicate, but never written. So later batches get a retriable error too, until
the first one has been sent again. If others are sent and it is not, for half a minute, the client has given it up.

The batches of a client that may not write are not opened for this: they are stored unopened, within `protocol.limits`,
until that client may write. Batches beyond these limits are not tracked.

A batch that was given up, or refused with a final error, is *late* if the connection has written higher ids since: it
is answered with an error. If another session wrote them, the batch is a duplicate as usual: a standby sends its
predecessor's records again.
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
"""The bytes in which a retry may differ from the first batch: those before 21, and the stamp (see `protocol.batch`)."""
_LATE_KEPT: Final = 1_000


class Turn(Enum):
    """The decision about a batch."""

    GO = "nothing is in its way"
    AGAIN = "a batch with lower ids has to come first"
    LATE = "it was not written when it came first, and higher ids have been since"


class IdsOf(NamedTuple):
    """The part of a `Content` that is needed while its batch is in flight."""

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
        """Return the room of one connection."""
        found = self._by_connection.get(connection)
        if found is None:
            found = self._by_connection[connection] = KeptRoom(self)
        return found

    def forget(self, connection: int) -> None:
        """Forget a closed connection and all its stored batches."""
        found = self._by_connection.pop(connection, None)
        if found is not None:
            self.in_all -= found.size


class KeptRoom:
    """Counts the stored batches of one connection."""

    __slots__ = ("_all", "batches", "size")

    def __init__(self, in_all: KeptBytes) -> None:
        self.size = self.batches = 0
        self._all = in_all

    def take(self, size: int) -> bool:
        """Reserve room for one more batch; returns whether there was room."""
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
        """Free the room of a batch that is not stored any more."""
        self.size -= size
        self.batches -= 1
        self._all.in_all -= size


class Kept(NamedTuple):
    """An unopened batch that was refused at the time `now`. `comes_again`: its client will retry it."""

    records: int
    comes_again: bool
    now: float


class _Ids(NamedTuple):
    """The ids of one name from `first` to `last`."""

    first: int
    last: int

    def without(self, others: _Ids) -> _Ids:
        """Return these ids without `others`; unchanged if the rest would be two pieces."""
        if others.last < self.first or self.last < others.first:
            return self
        if others.first <= self.first:
            return _Ids(others.last + 1, self.last)
        return _Ids(self.first, others.first - 1) if self.last <= others.last else self


class TurnedAway:
    """The refused batches of one connection in one partition. `now` arguments are monotonic seconds."""

    __slots__ = ("_kept", "_late", "_late_count", "_lowest", "_seen", "_written", "is_lost")

    def __init__(self) -> None:
        self._lowest: dict[bytes, list[int]] = {}
        """Sorted: thousands of batches may arrive before the first one is sent again."""
        self._late: dict[bytes, list[_Ids]] = {}
        self._late_count = 0
        self._written: dict[bytes, int] = {}
        self._seen = 0.0
        self._kept: dict[bytes, Kept] = {}
        self.is_lost = False
        """Whether a batch with unknown ids was refused with a retriable error."""

    def __bool__(self) -> bool:
        return bool(self._lowest or self._late or self._kept or self.is_lost)

    def keep(self, batch: memoryview, kept: Kept, room: KeptRoom) -> None:
        """Store a batch that was refused.

        Retries of one batch are stored once: a client that may not write may retry for hours. If there is no room, a
        batch that will be retried replaces those with a final error, because its records could be lost.
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
        """Open the stored batches, as the client may write now, within a limit of bytes. `opened` works as `Content`
        with `at_once`; a batch that fails may have decompressed up to its whole limit.
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
                continue  # the gate will refuse it for that
            left += limits.BATCH_AT_ONCE_BYTES - content.size
            if content.has_ids and comes_again:
                self.add(content, now)
            elif content.has_ids:
                self.refuse(content)

    def add(self, content: Ids, now: float) -> None:
        """Record that a batch of a plain client was refused with a retriable error."""
        for name, lowest in content.lowest.items():
            known = self._lowest.setdefault(name, [])
            if not known or lowest <= known[0]:
                self._seen = now
            at = bisect_left(known, lowest)
            if at == len(known) or known[at] != lowest:
                known.insert(at, lowest)

    def refuse(self, content: Ids) -> None:
        """Record that a batch was refused with a final error."""
        for name, last, _ in content.marks:
            self._is_late(name, _Ids(content.lowest[name], last))

    def written(self, content: Ids) -> None:
        """Record that a batch of this connection was written, and is not a duplicate."""
        for name, last, _ in content.marks:
            self._written[name] = max(last, self._written.get(name, last))

    def turn_of(self, content: Ids, now: float) -> Turn:
        """Decide about a batch; a batch that may be written counts as sent again."""
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
        return any(max(late.first, ids.first) <= min(late.last, ids.last, written) for late in self._late[name])

    def _comes(self, name: bytes, ids: _Ids) -> None:
        awaited = self._lowest.get(name)
        if awaited is not None:
            del awaited[bisect_left(awaited, ids.first) : bisect_right(awaited, ids.last)]
            if not awaited:
                del self._lowest[name]
        if name in self._late:
            left = [late.without(ids) for late in self._late[name]]
            self._keep_late(name, [late for late in left if late.first <= late.last])
