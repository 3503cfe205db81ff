"""The session of the pipeline: Delta tables and the Kafka source work in it, and its workers have this package."""

from __future__ import annotations

import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


def test_a_delta_table_is_written_and_read_by_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.format("delta").save(str(tmp_path / "table"))
    assert sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["id"].to_pylist()) == list(range(10))


def test_workers_run_the_python_that_this_is_and_have_this_package(spark: SparkSession) -> None:
    def executable(_: object) -> str:
        import sidecar.protocol.records  # noqa: F401, PLC0415

        return sys.executable

    assert spark.sparkContext.parallelize([0], 1).map(executable).collect() == [sys.executable]


def test_times_are_utc(spark: SparkSession) -> None:
    assert spark.range(1).select(F.lit("2026-01-01 00:00:00").cast("timestamp").cast("long")).first() == (1767225600,)
