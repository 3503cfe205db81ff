"""One replica's log: batches in order, segments, leader epochs, aborted transactions (`UnifiedLog`, `LocalLog`,
`LeaderEpochFileCache`, `TransactionIndex`).

Knows bytes and offsets and nothing of who may write them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tests.sim.kafka import batches
from tests.sim.kafka.batches import Batch


class Aborted(NamedTuple):
    """An aborted transaction of a segment's index: its data from `first` on, its marker at `marker`."""

    pid: int
    first: int
    marker: int


class Log:
    """`start` is the log start offset, `end` the log end offset (LEO); both are moved here alone."""

    __slots__ = (
        "aborted", "batches", "cleaned_to", "closed_at", "end", "epochs", "lasts", "rolls", "segment_bytes", "start",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.lasts: list[int] = []
        """The last offset of each batch, for searching."""
        self.start = 0
        self.end = 0
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, its first offset), both rising (KIP-101)."""
        self.rolls: list[int] = [0]
        """Base offsets of the segments; the last one is active."""
        self.closed_at: dict[int, tuple[int, int]] = {}
        """Base offset of a segment with batches -> wall clock of its first append, and the newest time in that batch:
        segment.ms counts from there.
        """
        self.segment_bytes = 0
        self.aborted: list[Aborted] = []
        self.cleaned_to = 0
        """Up to where compaction has been (`cleaner-offset-checkpoint`)."""

    def append(self, batch: Batch, now_ms: int, segment_bytes: int, segment_ms: int) -> bool:
        """Put a batch behind the end. True where a new segment was opened for it (`LocalLog.roll`)."""
        first = self.closed_at.get(self.rolls[-1])
        rolled = first is not None and (
            self.segment_bytes + batch.size > segment_bytes or _waited(first, batch, now_ms) > segment_ms
        )
        if rolled:
            self.roll()
        if self.rolls[-1] not in self.closed_at:
            self.closed_at[self.rolls[-1]] = now_ms, batch.max_ts
        self.segment_bytes += batch.size
        self.batches.append(batch)
        self.lasts.append(batch.last)
        self.end = batch.last + 1
        self.begin_epoch(batch.epoch, batch.base)
        return rolled

    def roll(self) -> None:
        """Close the active segment."""
        if self.end > self.rolls[-1]:
            self.rolls.append(self.end)
            self.segment_bytes = 0

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """`LeaderEpochFileCache.assign`: epochs in which nothing was appended are forgotten."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            while self.epochs and self.epochs[-1][1] >= offset:
                self.epochs.pop()
            self.epochs.append((epoch, offset))

    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch` and where it ends (`LeaderEpochFileCache.endOffsetFor`).

        (-1, -1) where nothing is known of it.
        """
        if epoch == -1 or not self.epochs or epoch > self.epochs[-1][0]:
            return (-1, -1)
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        if epoch < self.epochs[0][0]:
            return epoch, self.epochs[0][1]  # an epoch older than any known: all of it lies before
        at = bisect_right(self.epochs, (epoch, 2**63))
        return self.epochs[at - 1][0], self.epochs[at][1]

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was, or will be, appended."""
        found = -1
        for epoch, first in self.epochs:
            if first > offset:
                break
            found = epoch
        return found

    def index_of(self, offset: int) -> int:
        """Where the batch that holds `offset`, or the first one behind it, stands."""
        return bisect_left(self.lasts, offset)

    def segment_end(self, offset: int) -> int:
        """The end of the segment that a read at `offset` stays in (`LocalLog.read`)."""
        at = bisect_right(self.rolls, offset)
        return self.rolls[at] if at < len(self.rolls) else self.end

    def read(self, offset: int, upper: int, max_bytes: int, *, one_at_least: bool) -> bytes:
        """Bytes from the batch that holds `offset`, of one segment, below `upper`, cut at `max_bytes` (KIP-74)."""
        at = self.index_of(offset)
        found = self.batches
        if at >= len(found) or found[at].last >= upper:
            return b""
        first = found[at]
        if max_bytes < first.size:
            if not one_at_least:
                return b""  # `firstEntryIncomplete`: since version 3 an incomplete first batch is left out
            max_bytes = first.size
        upper = min(upper, self.segment_end(first.base))
        parts: list[bytes] = []
        size = 0
        while at < len(found) and found[at].last < upper and size < max_bytes:
            parts.append(found[at].data)
            size += found[at].size
            at += 1
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return data if size <= max_bytes else data[:max_bytes]

    def since(self, offset: int, most: int) -> list[Batch]:
        """Whole batches for a follower."""
        at = self.index_of(offset)
        return self.batches[at : at + most]

    def by_time(self, timestamp: int) -> Batch | None:
        """The first batch with a record that is not older (`UnifiedLog.fetchOffsetByTimestamp`)."""
        for batch in self.batches:
            if batch.max_ts >= timestamp and batch.last >= self.start and batch.count:
                return batch
        return None

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on (`UnifiedLog.truncateTo`)."""
        if offset >= self.end:
            # an epoch that began here when this was a leader, and in which it appended nothing
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
            return
        if offset < self.rolls[0]:
            self.restart_at(offset)
            return
        at = self.index_of(offset)
        del self.batches[at:], self.lasts[at:]
        self.end, self.start = offset, min(self.start, offset)
        self.cleaned_to = min(self.cleaned_to, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.aborted = [entry for entry in self.aborted if entry.marker < self.end]
        self._keep_segments([base for base in self.rolls if base < self.end])

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset` (`UnifiedLog.truncateFullyAndStartAt`)."""
        self.batches.clear()
        self.lasts.clear()
        self.epochs.clear()
        self.aborted.clear()
        self.start = self.end = offset
        self.cleaned_to = min(self.cleaned_to, offset)
        self._keep_segments([offset])

    def _keep_segments(self, bases: list[int]) -> None:
        self.rolls = bases or [self.start]
        self.closed_at = {base: at for base, at in self.closed_at.items() if base in self.rolls}
        first = self.index_of(self.rolls[-1])
        self.segment_bytes = sum(batch.size for batch in self.batches[first:])

    def advance_start(self, offset: int) -> tuple[list[int], list[Batch]] | None:
        """Move the log start; whole segments below it go (`UnifiedLog.maybeIncrementLogStartOffset`,
        `deleteLogStartOffsetBreachedSegments`). Returns their base offsets, and the batches that are in front of the
        start now; None: it is not behind.
        """
        if offset <= self.start:
            return None
        batches = self.batches[self.index_of(self.start) : self.index_of(offset)]
        self.start = offset
        keep = bisect_right(self.rolls, offset) - 1
        gone = self.rolls[:keep]
        if keep > 0:
            first = self.index_of(self.rolls[keep])
            del self.batches[:first], self.lasts[:first]
            self.rolls = self.rolls[keep:]
            self.closed_at = {base: at for base, at in self.closed_at.items() if base >= self.rolls[0]}
        known = [entry for entry in self.epochs if entry[1] > offset]
        earlier = [entry for entry in self.epochs if entry[1] <= offset]
        self.epochs = ([(earlier[-1][0], offset)] if earlier else []) + known
        self.aborted = [entry for entry in self.aborted if entry.marker >= offset]
        return gone, batches

    def segments(self) -> list[tuple[int, int]]:
        """(base offset, end) of each segment; the last one is active."""
        ends = [*self.rolls[1:], self.end]
        return list(zip(self.rolls, ends, strict=True))

    def in_segment(self, base: int, end: int) -> list[Batch]:
        return self.batches[self.index_of(base) : self.index_of(end)]

    def replace(self, below: int, kept: list[Batch], aborted: list[Aborted]) -> None:
        """Compaction: all batches below `below` become `kept`; offsets stay."""
        first = self.index_of(below)
        self.batches[:first] = kept
        self.lasts[:first] = [batch.last for batch in kept]
        self.aborted, self.cleaned_to = aborted, below

    def aborted_between(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader of this range must skip."""
        return [(entry.pid, entry.first) for entry in self.aborted if entry.marker >= offset and entry.first < upper]

    def size(self) -> int:
        return sum(batch.size for batch in self.batches)


def _waited(first: tuple[int, int], batch: Batch, now_ms: int) -> int:
    """How long a segment waits to be closed: by the times of its records (`LogSegment.timeWaitedForRoll`)."""
    created, newest = first
    return batch.max_ts - newest if newest >= 0 else now_ms - created


def valid_crc(batch: Batch) -> bool:
    """For tests: whether the CRC of a batch in the log fits its bytes."""
    return batches.crc32c(memoryview(batch.data)[21:]) == int.from_bytes(batch.data[17:21], "big")
