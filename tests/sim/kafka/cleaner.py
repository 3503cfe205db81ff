"""What takes records out of a replica's log: retention, DeleteRecords, compaction (`UnifiedLog.deleteOldSegments`,
`Cleaner`). Each replica cleans by itself, at its own time; the active segment always stays.

Kafka's own topics (`INTERNAL`) are left alone: their records are objects without bytes (`batches.noted`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.kafka import batches
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.records import Record, moved, parse
from tests.sim.kafka.topics import INTERNAL

if TYPE_CHECKING:
    from tests.sim.kafka.replica import Replica


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


def compact(replica: Replica, *, only_dirty: bool = False) -> None:
    """Keep the last record of each key in the closed segments below the last stable offset, up to the first one with a
    record younger than min.compaction.lag.ms (`LogCleanerManager.cleanableOffsets`, `Cleaner.cleanInto`). What goes is
    kept for a checker.
    """
    config, log = replica.config, replica.log
    below = min(log.rolls[-1], replica.stable_offset(), _young_from(replica))
    if not config.compacted or below <= log.start or replica.topic.name in INTERNAL:
        return
    found = [batch for batch in log.batches if batch.last < below]
    if only_dirty and not _is_dirty(found):
        return
    cleaning = _Cleaning(replica)
    parsed = [[] if batch.control or not batch.count else parse(batch) for batch in found]
    for batch, records in zip(found, parsed, strict=True):
        cleaning.map(batch, records)
    kept = [cleaning.clean(batch, records) for batch, records in zip(found, parsed, strict=True)]
    log.replace(below, [batch for batch in kept if batch is not None])
    if sum(batch.count for batch in kept if batch is not None) < sum(batch.count for batch in found):
        replica.broker.cluster.effect("compacted")
        replica.broker.trace("compacted", replica, f"{len(found)} -> {len(kept) - kept.count(None)} batches")
        replica.broker.cluster.cleaned(replica.topic.id, replica.index, found)


def _young_from(replica: Replica) -> int:
    """Where the first segment begins that is too young to be compacted."""
    lag, log = replica.config.min_compaction_lag_ms, replica.log
    if lag:
        for base, end in log.segments():
            if max((batch.max_ts for batch in log.in_segment(base, end)), default=0) > replica.broker.wall_ms() - lag:
                return base
    return log.end


def _is_dirty(found: list[Batch]) -> bool:
    """Whether there is a key, or a control batch, to be cleaned away at all: cheap, so that a timer may ask."""
    return len(found) > 1


class _Cleaning:
    """One pass over a log: `map` of every batch, then `clean` of every batch, both in order."""

    def __init__(self, replica: Replica) -> None:
        self._now = replica.broker.wall_ms()
        self._horizon = self._now + replica.config.delete_retention_ms
        self._producers = replica.producers.entries
        self._aborted = replica.log.aborted
        self._newest: dict[bytes, int] = {}
        self._begun: set[int] = set()
        """Producer ids with data of a transaction whose marker comes later (`CleanedTransactionMetadata`)."""

    def map(self, batch: Batch, records: list[Record]) -> None:
        """Note the last offset of each key, but for records of aborted transactions (`buildOffsetMapForSegment`)."""
        if not self._is_aborted(batch):
            for record in records:
                if record.key is not None:
                    self._newest[record.key] = batch.base + record.delta

    def clean(self, batch: Batch, records: list[Record]) -> Batch | None:
        """What is left of a batch, None for nothing (`checkBatchRetention`, `MemoryRecords.filterTo`)."""
        if batch.control:
            return self._clean_marker(batch)
        if batch.transactional:
            self._begun.add(batch.pid)
        kept = [] if self._is_aborted(batch) else [record for record in records if self._stays(batch, record)]
        has_tombstones = any(record.value is None for record in kept)
        horizon = self._horizon if has_tombstones and batch.delete_horizon is None else None
        if kept and len(kept) == len(records) and horizon is None:
            return batch
        if kept:
            base = batch.base_ms if horizon is None else horizon
            section = b"".join(moved(record, base) for record in kept)
            return batches.rebuilt(batch, section, len(kept), horizon, max(record.time for record in kept))
        return batches.rebuilt(batch, b"", 0) if self._is_last(batch) else None

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
        return batches.rebuilt(batch, b"", 0) if self._is_last(batch) else None

    def _stays(self, batch: Batch, record: Record) -> bool:
        """`shouldRetainRecord`."""
        if record.key is None or self._newest[record.key] > batch.base + record.delta:
            return False
        return record.value is not None or batch.delete_horizon is None or self._now < batch.delete_horizon

    def _is_aborted(self, batch: Batch) -> bool:
        return (
            batch.transactional
            and not batch.control
            and any(each.pid == batch.pid and each.first <= batch.base < each.marker for each in self._aborted)
        )

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
