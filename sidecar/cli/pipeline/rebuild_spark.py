"""How a rebuild reads a portion of a log with Spark: the only part of it that needs PySpark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sidecar.cli.pipeline.rebuild_run import Told
from sidecar.cli.pipeline.rebuilding import Row
from sidecar.pipeline import rebuild, source
from sidecar.pipeline.rebuild import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from sidecar.cli.pipeline.rebuild_run import Range, Source

_NEEDED: Final = "partition,offset,producer_id,producer_epoch,is_transactional,control,sequence_id,producer_name"


class Reader:
    """Reads what a `Source` tells. What it collects is bounded by the names that are kept of each partition."""

    def __init__(self, spark: SparkSession, how: Source) -> None:
        self._spark = spark
        self._how = how
        self._writers = rebuild.writers_frame(spark, [Writer(*each) for each in how.writers])
        source.register(spark)

    def read(self, portion: Mapping[int, Range]) -> dict[int, Told]:
        """What these offsets tell, by partition. Raises `PipelineError`."""
        found = rebuild.by_name(self._view("runs", portion), self._writers, compacted=self._how.is_compacted).persist()
        try:
            totals = rebuild.totals(found).collect()
            told = {row.partition: Told(row.records, row.malformed, row.forgotten, []) for row in totals}
            names = rebuild.newest(found, self._how.names_limit)
            looked_up = self._look_up(names) if any(row.uncertain for row in totals) else {}
            for row in names.toLocalIterator():
                offset = row.offset if row.offset is not None else looked_up.get((row.partition, row.name), -1)
                told[row.partition].rows.append(Row(row.name.encode(), row.id, offset, row.seen))
        finally:
            found.unpersist()
        return told

    def _look_up(self, names: DataFrame) -> dict[tuple[int, str], int]:
        """The offsets that runs do not tell."""
        wanted = rebuild.uncertain(names)
        bounds = rebuild.bounds_of(wanted).collect()
        if not bounds:
            return {}
        ranges = {row.partition: (row.begin, row.behind) for row in bounds}
        records = self._view("records", ranges, columns=_NEEDED)
        found = rebuild.offsets_of(records, self._writers, wanted).collect()
        return {(row.partition, row.name): row.offset for row in found}

    def _view(self, view: str, ranges: Mapping[int, Range], **options: str) -> DataFrame:
        how = self._how
        return (
            self._spark.read.format(source.FORMAT)
            .options(
                **{
                    "bootstrap.servers": how.bootstrap,
                    "topic": how.topic,
                    "view": view,
                    "partitions": ",".join(map(str, ranges)),
                    "startingOffsets": json.dumps({index: first for index, (first, _) in ranges.items()}),
                    "endingOffsets": json.dumps({index: behind for index, (_, behind) in ranges.items()}),
                    "sequenceIdHeader": how.sequence_id_header,
                    "producerNameHeader": how.producer_name_header,
                    **options,
                }
            )
            .load()
        )
