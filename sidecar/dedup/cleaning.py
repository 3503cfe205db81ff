"""What Kafka's own cleaning may take from a log before a snapshot has the ids in it, and how often a snapshot is due
for that. Pure.

Retention and DeleteRecords delete the beginning of a log; compaction deletes records with a newer record of the same
key, in every segment but the active one (`LogCleanerManager.cleanableOffsets`). A segment rolls with any append, so
neither a number of bytes nor of batches limits what compaction takes. `min.compaction.lag.ms` does: a segment stays as
it is while its newest record is younger. Nodes raise it on compacted topics with ids (`sidecar.exclusive.cleaning`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

SNAPSHOT_BATCHES: Final = 1_000
SNAPSHOT_S: Final = 120.0
SNAPSHOT_LEAST_S: Final = 1.0
LAG: Final = "min.compaction.lag.ms"
SETTINGS: Final = ("cleanup.policy", LAG, "retention.ms", "retention.bytes", "max.message.bytes")
LAG_MS: Final = 24 * 3600 * 1000
"""The least time for which compaction has to leave records alone: all nodes may be down for so long."""
_SHARE: Final = 4
"""Snapshots are written this number of times before the log's cleaning can take what they cover."""
_BATCH_BYTES: Final = 1_048_588


class Pace(NamedTuple):
    """A snapshot of a changed partition is due after so many seconds, or batches."""

    seconds: float
    batches: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The settings of a topic by which Kafka deletes records. `lag_ms`: min.compaction.lag.ms; None: not compacted.
    `retention_ms`, `retention_bytes` (of a partition): None where nothing is deleted by them. `batch_bytes`: the
    largest batch.
    """

    lag_ms: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    batch_bytes: int = _BATCH_BYTES

    @classmethod
    def of(cls, settings: Mapping[str, str | None]) -> "Cleaning":
        """Read the values of `SETTINGS` as Kafka describes them; a missing one has Kafka's default."""
        policy = settings.get("cleanup.policy") or "delete"
        deletes = "delete" in policy
        return cls(
            _number(settings.get(LAG)) or 0 if "compact" in policy else None,
            _number(settings.get("retention.ms")) if deletes else None,
            _number(settings.get("retention.bytes")) if deletes else None,
            _number(settings.get("max.message.bytes")) or _BATCH_BYTES,
        )

    def lacks_lag(self, needed_ms: int) -> bool:
        """Whether compaction may take records sooner than it should."""
        return self.lag_ms is not None and self.lag_ms < needed_ms

    def pace(self, needed_ms: int) -> Pace:
        """How often a snapshot is due. `needed_ms`: see `lag_needed`."""
        seconds, batches = SNAPSHOT_S, SNAPSHOT_BATCHES
        if self.lacks_lag(needed_ms):
            seconds = SNAPSHOT_LEAST_S
        if self.retention_ms is not None:
            seconds = min(seconds, max(SNAPSHOT_LEAST_S, self.retention_ms / 1000 / _SHARE))
        if self.retention_bytes is not None:
            batches = min(batches, max(1, self.retention_bytes // _SHARE // self.batch_bytes))
        return Pace(seconds, batches)


def lag_needed(oldest_s: float, interval_s: float) -> int:
    """Return the least min.compaction.lag.ms for a topic that accepts records `oldest_s` seconds old (infinite: brokers
    set the times). Compaction counts the lag from the records' times, so their age is added. `interval_s`: see
    `sidecar.fencing.expiry.KeepAlive`.
    """
    return LAG_MS if oldest_s == float("inf") else max(LAG_MS, int(1000 * (oldest_s + interval_s)))


def _number(value: str | None) -> int | None:
    """A setting; None if it is absent or -1 (unlimited)."""
    return int(value) if value is not None and value.isdigit() else None
