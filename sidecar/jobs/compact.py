"""A compaction: the newest value of each key of a log at a point in time, or what changed between two points.

*Newest.* Within a partition it is the record with the highest offset: timestamps may be wrong, the order of a log is
not. A key is in two partitions if partitions were added, or if its writers use different partitioners. Then the newer
timestamp decides, and among equal ones the higher partition, which was added later. Such keys are counted, because
Kafka itself promises no order between partitions.

A key whose newest record has no value (a tombstone) is left out. Records without a key are left out too, because no
compaction can match them; they are counted. Only committed records count (read_committed).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sidecar.jobs.session import Say, Sessions, rate
from sidecar.pipeline.errors import PipelineError, causes
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.points import NOW, Extent, check_order, extent, listed, resolve
from sidecar.pipeline.security import by_partition, for_java, of_spark
from sidecar.pipeline.tables import Identity, make_or_check

KIND: Final = "compact"
DIFF_KIND: Final = "diff"
_RECORD: Final = ("partition", "offset", "timestamp", "value", "headers")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one run: records, records without a key, keys whose newest record is a tombstone, keys in more than one
    partition, and rows of the result by kind (`key`; of a diff `added`, `changed`, `removed`).
    """

    records: int
    null_keys: int
    tombstones: int
    keys_in_several_partitions: int
    rows: Mapping[str, int] = field(default_factory=dict)


def newest(records: DataFrame, before: Mapping[int, int] | None = None) -> DataFrame:
    """A row per key: `new`, its newest record (partition, offset, timestamp, value, headers), its number of `records`,
    and its number of `partitions`. All records without a key are one row, whose key is null.

    With `before`, offsets per partition, also `old`: the key's newest record below these offsets, null if there is
    none.
    """
    record = F.struct(*_RECORD)
    newest_of = [F.max_by(record, "offset").alias("new")]
    if before is not None:
        is_old = F.col("offset") < _offset_of(before)
        newest_of.append(F.max_by(F.when(is_old, record), F.when(is_old, F.col("offset"))).alias("old"))
    in_partitions = records.groupBy("key", "partition").agg(*newest_of, F.count("*").alias("records"))
    over_all = [F.max_by(name, _newer(name)).alias(name) for name in ("new", "old")[: len(newest_of)]]
    counts = F.sum("records").alias("records"), F.count("*").alias("partitions")
    return in_partitions.groupBy("key").agg(*over_all, *counts)


def _newer(name: str) -> Column:
    """The value by which records of different partitions are compared; null if there is no record."""
    return F.when(F.col(name).isNotNull(), F.struct(f"{name}.timestamp", f"{name}.partition"))


def _offset_of(offsets: Mapping[int, int]) -> Column:
    found = F.when(F.lit(False), F.lit(0).cast("bigint"))
    for partition, offset in offsets.items():
        found = found.when(F.col("partition") == partition, F.lit(offset).cast("bigint"))
    return found


def values(found: DataFrame) -> DataFrame:
    """The rows of a compacted table: key, value, headers, and the record's position; without keys that end in a
    tombstone.
    """
    columns = [F.col(f"new.{name}") for name in ("value", "headers", "partition", "offset", "timestamp")]
    return found.where(F.col("key").isNotNull() & F.col("new.value").isNotNull()).select("key", *columns)


def changes(found: DataFrame) -> DataFrame:
    """The rows of a diff: key, `change` (added, changed, removed), old_value, new_value, and the newer record's
    position.

    A key that was written again with the same value has not changed; headers are not compared.
    """
    was, is_ = F.col("old.value"), F.col("new.value")
    change = (
        F.when(was.isNull() & is_.isNotNull(), "added")
        .when(was.isNotNull() & is_.isNull(), "removed")
        .when(was != is_, "changed")
    )
    where = [F.col(f"new.{name}") for name in ("partition", "offset", "timestamp")]
    rows = found.select("key", change.alias("change"), was.alias("old_value"), is_.alias("new_value"), *where)
    return rows.where(F.col("key").isNotNull() & F.col("change").isNotNull())


def read(
    spark: SparkSession, bootstrap: str, log: Extent, until: Mapping[int, int], options: Mapping[str, str]
) -> DataFrame:
    """All committed records below the offsets `until`, as in the log. `options` go to Spark's Kafka source."""
    offsets = {"startingOffsets": log.starts, "endingOffsets": until}
    asked = of_spark(bootstrap, log.topic, spark, options, **offsets)
    return spark.read.format("kafka").options(**asked).load().select("key", *_RECORD)


class Compaction:
    """One job, which reads up to `until` (for a diff also up to `before`) and counts while it writes.

    Raises `OffsetRangeError` if `before` is after `until` in a partition.
    """

    def __init__(
        self,
        records: DataFrame,
        log: Extent,
        cluster_id: str,
        until: Mapping[int, int],
        before: Mapping[int, int] | None = None,
    ) -> None:
        check_order(log.topic, before or {}, until)
        self._spark, self._until, self._before = records.sparkSession, until, before
        self._found = newest(records, before)
        self._identity = Identity(KIND if before is None else DIFF_KIND, cluster_id, log.topic)

    def rows(self) -> DataFrame:
        """The rows for the table."""
        return values(self._found) if self._before is None else changes(self._found)

    def run(self, path: str | None) -> Counts:
        """Count, and replace the table at `path`, if given, in one commit. Raises `TableError` before it reads, and
        `PipelineError` if the log cannot be read to its end or the table cannot be written.
        """
        if path is not None:
            make_or_check(self._spark, path, self._identity, self.rows().schema)
        self._found = self._found.persist()
        try:
            kind = F.lit("key") if self._before is None else F.col("change")
            rows = {str(row[0]): int(row[1]) for row in self.rows().groupBy(kind).count().collect()}
            if path is not None:
                self._write(path)
            return self._counts(rows)
        except Exception as error:
            raise PipelineError(
                f"{self._identity.topic} cannot be compacted ({causes(error)}). Where retention has taken records"
                " meanwhile, start it again"
            ) from error
        finally:
            self._found.unpersist()

    def _write(self, path: str) -> None:
        offsets = {"until": by_partition(self._until)}
        if self._before is not None:
            offsets["from"] = by_partition(self._before)
        self.rows().write.format("delta").mode("overwrite").option("userMetadata", json.dumps(offsets)).save(path)

    def _counts(self, rows: Mapping[str, int]) -> Counts:
        is_key = F.col("key").isNotNull()
        asked = (
            F.sum("records"),
            F.sum(F.when(~is_key, F.col("records"))),
            F.count_if(is_key & F.col("new.value").isNull()),
            F.count_if(is_key & (F.col("partitions") > 1)),
        )
        records, null_keys, tombstones, in_several = (int(each or 0) for each in self._found.agg(*asked).collect()[0])
        return Counts(records, null_keys, tombstones, in_several, dict(rows))


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result: `until` is the point, `before` the earlier point of a diff, both as offsets."""

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
    """Replace the Delta table at `path`, if given, by the newest values at a point; with `since`, by the changes from
    that point on. Points are as in `sidecar.pipeline.points`. `security`: settings of `sidecar.pipeline.security`.
    Raises `PipelineError`.
    """
    with Kafka(bootstrap, security=security) as kafka:
        log = extent(kafka, topic)
        until = resolve(as_of, kafka, log)
        before = resolve(since, kafka, log) if since else None
        check_order(topic, before or {}, until)
        cluster_id = kafka.cluster_id
    with sessions() as spark:
        _say_points(log, until, before, say)
        began = time.perf_counter()
        records = read(spark, bootstrap, log, until, for_java(security))
        counts = Compaction(records, log, cluster_id, until, before).run(path)
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
