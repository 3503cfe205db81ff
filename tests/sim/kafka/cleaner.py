"""What takes records out of a replica's log: retention, DeleteRecords, compaction (`UnifiedLog.deleteOldSegments`,
`Cleaner`). Each replica cleans by itself, at its own time; the active segment always stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.kafka import batches
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.records import Record, parse

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
    if not config.deleted or replica.topic.name.startswith("__"):
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
    """Keep the last record of each key in the closed segments. An emptied batch stays where it is the last one of its
    producer, so that a rebuilt replica still knows it; markers and tombstones lose their content when they are older
    than delete.retention.ms.
    """
    config, log = replica.config, replica.log
    below = min(log.rolls[-1], replica.stable_offset())
    if not config.compacted or below <= log.start or replica.topic.name.startswith("__"):
        return
    found = [batch for batch in log.batches if batch.last < below]
    if only_dirty and not _is_dirty(found):
        return
    horizon = replica.broker.wall_ms() - config.delete_retention_ms
    newest: dict[bytes, int] = {}
    parsed: list[list[Record]] = []
    for batch in found:
        records = [] if batch.control or not batch.count else parse(batch)
        parsed.append(records)
        for record in records:
            if record.key is not None:
                newest[record.key] = batch.base + record.delta
    last_of = {batch.pid: batch.base for batch in log.batches if batch.pid >= 0}
    kept: list[Batch] = []
    for batch, records in zip(found, parsed, strict=True):
        cleaned = _clean(batch, records, newest, horizon, is_last=last_of.get(batch.pid) == batch.base)
        if cleaned is not None:
            kept.append(cleaned)
    if sum(batch.size for batch in kept) != sum(batch.size for batch in found):
        replica.broker.cluster.effect("compacted")
        replica.broker.trace("compacted", replica, f"{len(found)} -> {len(kept)} batches")
        log.replace(below, kept)


def _is_dirty(found: list[Batch]) -> bool:
    """Whether there is a key, or a control batch, to be cleaned away at all: cheap, so that a timer may ask."""
    return len(found) > 1


def _clean(
    batch: Batch, records: list[Record], newest: dict[bytes, int], horizon: int, *, is_last: bool
) -> Batch | None:
    if batch.control:
        if batch.max_ts >= horizon or (batch.marker < 0 and is_last):
            return batch
        return batches.rebuilt(batch, b"", 0, uncompressed=False) if is_last else None
    kept = [
        record.data
        for record in records
        if record.key is not None
        and newest[record.key] == batch.base + record.delta
        and (record.value is not None or batch.max_ts >= horizon)
    ]
    if len(kept) == len(records) and kept:
        return batch
    if kept or is_last:
        return batches.rebuilt(batch, b"".join(kept), len(kept))
    return None
