"""A compaction: the newest value of each key of a log at a point in time, or what changed between two points."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sidecar.jobs.session import rate
from sidecar.pipeline.clients import by_partition, for_java
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.points import NOW, Extent, check_order, extent, listed, resolve

if TYPE_CHECKING:
    from sidecar.jobs.session import Say, Sessions
    from sidecar.pipeline.compact import Counts


@dataclass(frozen=True, slots=True)
class Compacted:
    """What came of it: `until` is the point, `before` the one that it was compared with, both resolved to offsets."""

    topic: str
    path: str | None
    until: Mapping[int, int]
    before: Mapping[int, int] | None
    counts: Counts

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        counts = asdict(self.counts)
        rows: Mapping[str, int] = counts.pop("rows")
        found: dict[str, Any] = {"topic": self.topic, "path": self.path, "as_of": by_partition(self.until), **counts}
        if self.before is None:
            return found | {"keys": rows.get("key", 0)}
        found["from"] = by_partition(self.before)
        return found | {name: rows.get(name, 0) for name in ("added", "changed", "removed")}


def compact(
    bootstrap: str,
    topic: str,
    sessions: Sessions,
    say: Say,
    *,
    path: str | None = None,
    as_of: str = NOW,
    since: str | None = None,
    security: Mapping[str, str] = MappingProxyType({}),
) -> Compacted:
    """Replace the Delta table at `path`, where one is named, by the newest values as of a point; with `since` by what
    changed from that point on. Points are as `sidecar.pipeline.points` has them. `security`: settings of
    `sidecar.pipeline.security`. Raises `PipelineError`.
    """
    with Kafka(bootstrap, security=security) as kafka:
        log = extent(kafka, topic)
        until = resolve(as_of, kafka, log)
        before = resolve(since, kafka, log) if since else None
        check_order(topic, before or {}, until)
        cluster_id = kafka.cluster_id
    with sessions() as spark:
        from sidecar.pipeline.compact import Compaction, read  # noqa: PLC0415 - loads PySpark

        _say_points(log, until, before, say)
        began = time.perf_counter()
        counts = Compaction(read(spark, bootstrap, log, until, for_java(security)), log, cluster_id, until, before).run(
            path
        )
        say(rate(counts.records, time.perf_counter() - began))
    _warn(counts, say)
    return Compacted(topic, path, until, before, counts)


def _say_points(log: Extent, until: Mapping[int, int], before: Mapping[int, int] | None, say: Say) -> None:
    say(f"reading {log.topic} up to {listed(until)}")
    if before is not None:
        say(f"comparing with {listed(before)}")
    lost = {partition: start for partition, start in log.starts.items() if start}
    if lost:
        say(f"what lies in front of {listed(lost)} is gone: keys that were written there alone are not seen")


def _warn(counts: Counts, say: Say) -> None:
    if counts.null_keys:
        say(f"{counts.null_keys:,} records have no key: left out")
    if counts.keys_in_several_partitions:
        say(
            f"{counts.keys_in_several_partitions:,} keys are in several partitions: of each the record with the newer"
            " timestamp was taken"
        )
