"""How a rebuild reads a portion of a log with Spark: the only part of it that needs PySpark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.jobs.progress import PortionIds, Range, Row
from sidecar.pipeline import rebuild
from sidecar.pipeline.rebuild import Writer
from sidecar.pipeline.source import Log, register, view

_NEEDED: Final = "partition,offset,producer_id,producer_epoch,is_transactional,control,sequence_id,producer_name"


class Reader:
    """Reads portions of `log`, which `writers` wrote. What it collects is bounded by the names that are kept of each
    partition, `limit`. `compacted` as `sidecar.pipeline.rebuild.by_name` has it.
    """

    def __init__(
        self, spark: SparkSession, log: Log, writers: Iterable[Writer], limit: int, *, compacted: bool
    ) -> None:
        self._spark = spark
        self._log = log
        self._writers = rebuild.writers_frame(spark, writers)
        self._limit = limit
        self._compacted = compacted
        register(spark)

    def read(self, portion: Mapping[int, Range]) -> dict[int, PortionIds]:
        """What the log holds at these offsets, by partition. Raises `PipelineError`."""
        runs = view(self._spark, self._log, "runs", portion)
        found = rebuild.by_name(runs, self._writers, compacted=self._compacted).persist()
        try:
            totals = rebuild.totals(found).collect()
            by_partition = {row.partition: PortionIds(row.records, row.malformed, row.forgotten, []) for row in totals}
            names = rebuild.newest(found, self._limit)
            looked_up = self._look_up(names) if any(row.uncertain for row in totals) else {}
            for row in names.toLocalIterator():
                offset = row.offset if row.offset is not None else looked_up.get((row.partition, row.name), -1)
                by_partition[row.partition].rows.append(Row(row.name.encode(), row.id, offset, row.seen))
        finally:
            found.unpersist()
        return by_partition

    def _look_up(self, names: DataFrame) -> dict[tuple[int, str], int]:
        """The offsets that runs do not hold."""
        wanted = rebuild.uncertain(names)
        bounds = rebuild.bounds_of(wanted).collect()
        if not bounds:
            return {}
        ranges = {row.partition: (row.begin, row.behind) for row in bounds}
        records = view(self._spark, self._log, "records", ranges, columns=_NEEDED)
        found = rebuild.offsets_of(records, self._writers, wanted).collect()
        return {(row.partition, row.name): row.offset for row in found}
