"""What takes records out of a replica's log: retention, DeleteRecords, compaction (`UnifiedLog.deleteOldSegments`,
`Cleaner`). Each replica cleans by itself, at its own time; the active segment always stays.

Kafka's own topics (`INTERNAL`) are left alone: their records are objects without bytes (`batches.noted`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.kafka import batches
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.log import Aborted
from tests.sim.kafka.records import Record, moved, parse
from tests.sim.kafka.topics import INTERNAL

if TYPE_CHECKING:
    from tests.sim.kafka.replica import Replica

_KEEPS_LAST: Final = (4, 0)


def roll(replica: Replica) -> None:
    """Close the active segment; producers are snapshotted (`UnifiedLog.roll`)."""
    end = replica.log.end
    if end > replica.log.rolls[-1]:
        replica.log.roll()
        replica.producers.snapshot(end)


def retain(replica: Replica) -> None:
    """Drop old segments by retention.ms (of their newest record) and retention.bytes, below the high watermark."""
    config, log = replica.config, replica.log
    if not config.deleted or replica.topic.name in INTERNAL:
        return
    now = replica.broker.wall_ms()
    total = log.size() if config.retention_bytes >= 0 else 0
    keep = log.start
    for base, end in log.segments():
        found = log.in_segment(base, end)
        if end > replica.high_watermark or not found:
            break
        size = sum(batch.size for batch in found)
        newest = max(batch.max_ts for batch in found)
        old = config.retention_ms >= 0 and now - newest > config.retention_ms
        large = config.retention_bytes >= 0 and total - size >= config.retention_bytes
        if not old and not large:
            break
        if end == log.end:  # the active one is closed first, so that it may go
            roll(replica)
        total -= size
        keep = end
    if keep > log.start:
        replica.broker.cluster.effect("retention")
        replica.advance_start(keep)


def compact(replica: Replica, *, by_itself: bool = False) -> None:
    """Keep the last record of each key in whole closed segments (`Cleaner.clean`), if there is one that was not cleaned
    before. `by_itself`: only where enough is dirty (`LogCleanerManager.grabFilthiestCompactedLog`). What goes is kept
    for a checker.
    """
    config, log = replica.config, replica.log
    if not config.compacted or replica.topic.name in INTERNAL:
        return
    dirty = log.cleaned_to if log.start <= log.cleaned_to <= log.end else log.start
    below = _uncleanable_from(replica, dirty)
    if below <= dirty or (by_itself and not _is_dirty(replica, dirty, below)):
        return
    found = [batch for batch in log.batches if batch.last < below]
    cleaning = _Cleaning(replica, below)
    parsed = [[] if batch.control or not batch.count else parse(batch) for batch in found]
    for batch, records in zip(found, parsed, strict=True):
        if batch.last >= dirty:
            cleaning.map(batch, records, dirty)
    kept = [cleaning.clean(batch, records) for batch, records in zip(found, parsed, strict=True)]
    left = [batch for batch in kept if batch is not None]
    log.replace(
        below, left, [entry for entry in log.aborted if entry.marker >= below or entry in cleaning.open_aborted]
    )
    if sum(batch.count for batch in left) < sum(batch.count for batch in found):
        replica.broker.cluster.effect("compacted")
        replica.broker.trace("compacted", replica, f"{len(found)} -> {len(left)} batches")
        replica.broker.cluster.cleaned(replica.topic.id, replica.index, found)
        stay = {batch.base + record.delta for batch in left if batch.count for record in parse(batch)}
        offsets = [batch.base + each.delta for batch, records in zip(found, parsed, strict=True) for each in records]
        gone = [offset for offset in offsets if offset not in stay]
        replica.broker.cluster.removed(replica.topic.id, replica.index, gone)


def _uncleanable_from(replica: Replica, dirty: int) -> int:
    """Where the segment begins that holds the last stable offset, is active, or, of those that were not cleaned before,
    has a record younger than min.compaction.lag.ms (KIP-58; `LogCleanerManager.cleanableOffsets`).
    """
    log, lag = replica.log, replica.config.min_compaction_lag_ms
    limit = min(log.rolls[-1], replica.stable_offset())
    for base, end in log.segments()[:-1] if lag > 0 else ():
        newest = max((batch.max_ts for batch in log.in_segment(base, end)), default=0)
        if end > dirty and newest > replica.broker.wall_ms() - lag:
            limit = min(limit, base)
            break
    return max(base for base in (log.rolls[0], *log.rolls) if base <= max(limit, dirty, log.rolls[0]))


def _is_dirty(replica: Replica, dirty: int, below: int) -> bool:
    """Whether what was not cleaned is large, by min.cleanable.dirty.ratio, or old, by max.compaction.lag.ms."""
    log, config = replica.log, replica.config
    clean = sum(batch.size for batch in log.in_segment(log.rolls[0], dirty))
    news = log.in_segment(dirty, below)
    size = sum(batch.size for batch in news)
    oldest = min((batch.max_ts for batch in news[:1]), default=0)
    is_late = 0 < oldest < replica.broker.wall_ms() - config.max_compaction_lag_ms
    return size > 0 and (is_late or size / (clean + size) > config.min_cleanable_ratio)


class _Cleaning:
    """One pass over a log: `map` of every batch, then `clean` of every batch, both in order."""

    def __init__(self, replica: Replica, below: int) -> None:
        self._below = below
        self._keeps_last = replica.broker.cluster.settings.version >= _KEEPS_LAST
        self._now = replica.broker.wall_ms()
        self._horizon = self._now + replica.config.delete_retention_ms
        self._producers = replica.producers.entries
        self._aborted = replica.log.aborted
        self._newest: dict[bytes, int] = {}
        self._begun: set[int] = set()
        """Producer ids with data of a transaction whose marker comes later (`CleanedTransactionMetadata`)."""
        self.open_aborted: set[Aborted] = set()
        """Aborted transactions of which there still are batches: the index keeps these."""

    def map(self, batch: Batch, records: list[Record], dirty: int) -> None:
        """Note the last offset of each key, but for records of aborted transactions (`buildOffsetMapForSegment`)."""
        if self._aborted_by(batch) is None:
            for record in records:
                if record.key is not None and batch.base + record.delta >= dirty:
                    self._newest[record.key] = batch.base + record.delta

    def clean(self, batch: Batch, records: list[Record]) -> Batch | None:
        """What is left of a batch, None for nothing (`checkBatchRetention`, `MemoryRecords.filterTo`)."""
        if batch.control:
            return self._clean_marker(batch)
        if batch.transactional:
            self._begun.add(batch.pid)
        aborted = self._aborted_by(batch)
        if aborted is not None:
            self.open_aborted.add(aborted)
        kept = [] if aborted is not None else [record for record in records if self._stays(batch, record)]
        has_tombstones = any(record.value is None for record in kept)
        horizon = self._horizon if has_tombstones and batch.delete_horizon is None else None
        if kept and len(kept) == len(records) and horizon is None:
            return batch
        if kept:
            base = batch.base_ms if horizon is None else horizon
            section = b"".join(moved(record, base) for record in kept)
            return batches.rebuilt(batch, section, len(kept), horizon, max(record.time for record in kept))
        return self._emptied(batch)

    def _clean_marker(self, batch: Batch) -> Batch | None:
        """A marker stays as long as data of its transaction was there; then for delete.retention.ms from the first pass
        that found none (KIP-534). One that its producer's epoch depends on stays, empty.
        """
        has_data = batch.marker >= 0 and batch.pid in self._begun
        self._begun.discard(batch.pid)
        if has_data:
            return batch
        if batch.delete_horizon is None and batch.count:
            section = b"".join(moved(record, self._horizon) for record in parse(batch))
            return batches.rebuilt(batch, section, batch.count, self._horizon, batch.max_ts)
        if batch.count and self._now < (batch.delete_horizon or 0):
            return batch
        return self._emptied(batch)

    def _emptied(self, batch: Batch) -> Batch | None:
        """The last batch of a producer stays, and, since 4.0, the last one that is cleaned (KAFKA-17076)."""
        ends_here = self._keeps_last and batch.last + 1 == self._below
        return batches.rebuilt(batch, b"", 0) if ends_here or self._is_last(batch) else None

    def _stays(self, batch: Batch, record: Record) -> bool:
        """`shouldRetainRecord`."""
        if record.key is None or self._newest.get(record.key, -1) > batch.base + record.delta:
            return False
        return record.value is not None or batch.delete_horizon is None or self._now < batch.delete_horizon

    def _aborted_by(self, batch: Batch) -> Aborted | None:
        """The aborted transaction that a batch is part of."""
        if not batch.transactional or batch.control:
            return None
        of = (each for each in self._aborted if each.pid == batch.pid and each.first <= batch.base < each.marker)
        return next(of, None)

    def _is_last(self, batch: Batch) -> bool:
        """Whether the batch has the last sequence of a producer that is remembered, or, where that has none, its epoch
        (`UnifiedLog.lastRecordsOfActiveProducers`).
        """
        entry = self._producers.get(batch.pid)
        if entry is None:
            return False
        if entry.window:
            return batch.last == entry.window[-1].last
        return batch.control and batch.producer_epoch == entry.epoch
