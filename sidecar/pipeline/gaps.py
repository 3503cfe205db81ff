"""Compares offsets of partitions: which part of a batch an exported table lacks, and what retention deleted before it
was exported (pure). Also writes the table of such gaps beside the exported one, a row per gap. The caller has to accept
the gaps first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from sidecar.pipeline import tables
from sidecar.pipeline.errors import OffsetRangeError, PipelineError
from sidecar.pipeline.tables import Identity

Offsets = Mapping[int, int]
"""An offset per partition."""


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Offsets of a partition that were deleted before they came into the table: `first` to `last`, both included."""

    partition: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"partition {self.partition}, offsets {self.first} to {self.last} ({self.last - self.first + 1:,})"


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a batch that the table lacks: from where (only partitions of which the table has a part), up to
    where.
    """

    begins: Offsets
    ends: Offsets


class GapError(OffsetRangeError):
    """Records between those in a table and those still in the log are lost."""

    def __init__(self, topic: str, gaps: list[Gap]) -> None:
        listed = "; ".join(map(str, gaps))
        super().__init__(
            f"records of {topic} are gone before they were exported: {listed}. Retention has taken them. Export with"
            " --accept-gaps to note that beside the table and go on behind them"
        )
        self.gaps = gaps


def gaps(stands: Offsets, starts: Offsets) -> list[Gap]:
    """What retention deleted after the table's offset of each partition. A new partition begins at offset 0."""
    return [
        Gap(partition, stands.get(partition, 0), start - 1)
        for partition, start in sorted(starts.items())
        if start > stands.get(partition, 0)
    ]


def check_ends(topic: str, stands: Offsets, ends: Offsets) -> None:
    """Raise if a log ends before the table's offsets: it cannot be the same log any more."""
    for partition, stand in sorted(stands.items()):
        end = ends.get(partition)
        if end is None:
            raise OffsetRangeError(
                f"{topic} has no partition {partition} any more, and the table holds its offsets below {stand}: the"
                " topic was created anew. Export it to another path"
            )
        if end < stand:
            raise OffsetRangeError(
                f"partition {partition} of {topic} ends at offset {end}, and the table holds its offsets below"
                f" {stand}: the topic was created anew, or its end was lost. Export it to another path"
            )


def cut(begins: Offsets, ends: Offsets, stands: Offsets) -> Cut:
    """The part of a batch, `begins` to `ends`, that comes after what a table holds.

    Raises `PipelineError` if offsets between the table and the batch would be left out.
    """
    for partition, begin in sorted(begins.items()):
        stand = stands.get(partition, 0)
        if begin > stand:
            raise PipelineError(
                f"the stream goes on at offset {begin} of partition {partition}, and the table ends in front of {stand}"
                ": it was set back meanwhile. Nothing was written; start the export again"
            )
    moved = {partition: end for partition, end in ends.items() if end > stands.get(partition, 0)}
    kept = {partition: stands[partition] for partition in moved if stands.get(partition, 0) > begins.get(partition, 0)}
    return Cut(kept, moved)


KIND: Final = "gaps"
SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("first_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("noticed", TimestampType()),
    ]
)


def path_beside(path: str) -> str:
    """The path of the table of gaps for the table at `path`."""
    return f"{path.rstrip('/')}.gaps"


def check(spark: SparkSession, path: str, cluster_id: str, topic: str) -> bool:
    """Whether gaps were noted beside the table at `path`. Raises `TableError` for anything else at that path."""
    found = tables.look(spark, path_beside(path))
    if found is not None:
        tables.check(found, path_beside(path), Identity(KIND, cluster_id, topic))
    return found is not None


def note(spark: SparkSession, path: str, cluster_id: str, topic: str, gaps: Sequence[Gap]) -> None:
    """Append gaps. A gap that exists already, because the export died after this step, is extended, not repeated."""
    place = path_beside(path)
    if not check(spark, path, cluster_id, topic):
        tables.create(spark, place, Identity(KIND, cluster_id, topic), SCHEMA)
    rows = spark.createDataFrame([(topic, gap.partition, gap.first, gap.last, None) for gap in gaps], SCHEMA)
    new = rows.withColumn("noticed", F.current_timestamp())
    same = "old.topic = new.topic and old.partition = new.partition and old.first_offset = new.first_offset"
    while True:
        merge = DeltaTable.forPath(spark, place).alias("old").merge(new.alias("new"), same)
        merge = merge.whenMatchedUpdate(set={"last_offset": "new.last_offset"}).whenNotMatchedInsertAll()
        try:
            merge.execute()
        except Exception as error:
            if not tables.is_conflict(error):  # a conflict: another export has written gaps at the same time
                raise
        else:
            return
