"""Topics read by Spark's own Kafka source: `python spark_reads.py JARS OUT` with the readings on stdin, as JSON.

A reading is {"bootstrap", "topic", "isolation", "stream"}. Each is answered in the file OUT by its rows: partition,
offset, timestamp in ms, key, value and headers, and the name of the topic as Spark tells it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession  # pyright: ignore[reportMissingImports]
from pyspark.sql import functions as F  # noqa: N812  # pyright: ignore[reportMissingImports]

POLL_MS = 10_000
"""Spark waits so long for a record that it believes to be there: 120 s by default."""


def session(jars: str) -> SparkSession:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    builder = SparkSession.builder.master("local[2]").appName("shadows")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def options(reading: dict[str, Any]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": reading["bootstrap"],
        "subscribe": reading["topic"],
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": reading["isolation"],
        "kafkaConsumer.pollTimeoutMs": str(POLL_MS),
    }


def rows(frame: DataFrame) -> list[list[Any]]:
    found = frame.select(
        "topic", "partition", "offset", F.unix_millis("timestamp"), F.hex("key"), F.hex("value"),
        F.transform("headers", lambda header: F.concat_ws("=", header.key, F.hex(header.value))),
    )  # fmt: skip
    return [list(row) for row in found.collect()]


def read(spark: SparkSession, reading: dict[str, Any]) -> list[list[Any]]:
    """All rows: of a batch, or of a stream that ends when it has what there is (`Trigger.AvailableNow`)."""
    if not reading["stream"]:
        return rows(spark.read.format("kafka").options(**options(reading)).load())
    found: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        source = spark.readStream.format("kafka").options(**options(reading), maxOffsetsPerTrigger="20").load()
        query = (
            source.writeStream.foreachBatch(lambda frame, _: found.extend(rows(frame)))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return found


if __name__ == "__main__":
    spark = session(sys.argv[1])
    Path(sys.argv[2]).write_text(json.dumps([read(spark, reading) for reading in json.load(sys.stdin)]))
    spark.stop()
