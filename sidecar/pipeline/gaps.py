"""The table of gaps beside an exported table: offsets that retention deleted before they were exported.

It has a row per gap. This module decides nothing: the caller has to accept gaps before (`ranges.gaps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from sidecar.pipeline import tables
from sidecar.pipeline.ranges import Gap
from sidecar.pipeline.tables import Identity

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
    """Whether gaps were noted beside the table at `path`. Raises `TableError` for anything else in that place."""
    found = tables.look(spark, path_beside(path))
    if found is not None:
        tables.check(found, path_beside(path), Identity(KIND, cluster_id, topic))
    return found is not None


def note(spark: SparkSession, path: str, cluster_id: str, topic: str, gaps: Sequence[Gap]) -> None:
    """Append gaps. A gap that is there already, because the export died after this step, is widened, not repeated."""
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
            if not tables.is_conflict(error):  # another export has written gaps at the same time
                raise
        else:
            return
