"""`format("sidecar")`: Spark's Python DataSource API over `sidecar.pipeline.kafka`, Arrow record batches out.

The range is fixed when the frame is made: end offsets are pinned, so every action on the frame sees the same log, and
bad options fail at `load()`. Splits are ranges of offsets; a batch that is part of two is cut. Records of aborted
transactions are read too, and marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.source.batches import Range
from sidecar.pipeline.source.options import RUNS, Options, ranges, splits
from sidecar.pipeline.source.tables import COLUMNS, ddl, record_batches, run_batches
from sidecar.protocol.batch import batch_sizes
from sidecar.protocol.ids import TopicPartition

FORMAT: Final = "sidecar"
_FEW: Final = 20_000
"""Offsets."""


def register(spark: SparkSession) -> None:
    """Register the format `sidecar` in a session."""
    spark.dataSource.register(SidecarDataSource)


class Log(NamedTuple):
    """A topic's log as jobs read it: its address, the headers for sequence ids and producer names, and the settings of
    connections (`sidecar.pipeline.security`).
    """

    bootstrap: str
    topic: str
    sequence_id_header: str
    producer_name_header: str
    security: Mapping[str, str] = MappingProxyType({})


def view(spark: SparkSession, log: Log, name: str, ranges: Mapping[int, tuple[int, int]], **more: str) -> DataFrame:
    """A view of a log from the first offset of each partition up to the second, exclusive. `more`: further options.

    A few offsets are read at once, in this process: starting Python for a task takes longer.
    """
    options = {
        "bootstrap.servers": log.bootstrap,
        "topic": log.topic,
        "view": name,
        "partitions": ",".join(map(str, ranges)),
        "startingOffsets": json.dumps({index: first for index, (first, _) in ranges.items()}),
        "endingOffsets": json.dumps({index: behind for index, (_, behind) in ranges.items()}),
        "sequenceIdHeader": log.sequence_id_header,
        "producerNameHeader": log.producer_name_header,
        **log.security,
    }
    if is_small(ranges):
        return _read_here(spark, SidecarDataSource({**options, **more}))
    return spark.read.format(FORMAT).options(**options, **more).load()


def is_small(ranges: Mapping[int, tuple[int, int]]) -> bool:
    """Whether ranges hold so few offsets that one process reads them before Spark would begin."""
    return sum(behind - first for first, behind in ranges.values()) <= _FEW


def _read_here(spark: SparkSession, source: SidecarDataSource) -> DataFrame:
    schema = cast("StructType", DataType.fromDDL(source.schema()))
    reader = source.reader(schema)
    batches = (batch for split in reader.partitions() for batch in reader.read(split))
    table = pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))
    return spark.createDataFrame(table, schema)


@dataclass(frozen=True)
class Split(InputPartition):
    """A range of offsets of one partition, for one task."""

    partition: int
    within: Range


class SidecarDataSource(DataSource):
    """One frame: its options, and the offsets that it reads. The constructor raises `PipelineError`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.wanted = Options.of(dict(options), COLUMNS)
        with Kafka(self.wanted.bootstrap, security=self.wanted.security) as kafka:
            self.ranges = ranges(self.wanted, kafka.starts(self.wanted.topic), kafka.ends(self.wanted.topic))

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(self.wanted.view)

    def reader(self, schema: StructType) -> SidecarReader:
        if tuple(schema.fieldNames()) != COLUMNS[self.wanted.view]:
            raise PipelineError(f'format("{FORMAT}") has a schema of its own: leave out .schema(…), and select columns')
        return SidecarReader(self.wanted, self.ranges, schema)


class SidecarReader(DataSourceReader):
    """Reads ranges of offsets on the executors, to which Spark sends it."""

    def __init__(self, wanted: Options, found: dict[int, tuple[int, int]], schema: StructType) -> None:
        self._wanted = wanted
        self._ranges = found
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [
            Split(partition, Range(begin, stop, is_first=begin == start))
            for partition, (start, end) in self._ranges.items()
            for begin, stop in splits(start, end, self._wanted.split_offsets)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Raises `PipelineError`."""
        if not isinstance(partition, Split):
            return iter(())  # Spark passes another type if there are no splits
        wanted, where = self._wanted, TopicPartition(self._wanted.topic, partition.partition)
        batches = _batches(wanted, where, partition.within)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if wanted.view == RUNS:
            return run_batches(batches, where, partition.within, wanted.headers, schema)
        return record_batches(batches, where, partition.within, wanted.headers, wanted.columns, schema)


def _batches(wanted: Options, where: TopicPartition, within: Range) -> Iterator[memoryview]:
    with Kafka(wanted.bootstrap, security=wanted.security) as kafka:
        for records in kafka.read(where.topic, where.partition, within.start, within.end):
            for start, size in batch_sizes(records, 0, len(records)):
                yield records[start : start + size]
