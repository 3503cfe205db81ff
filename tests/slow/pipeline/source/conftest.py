"""Frames over a log, straight from Kafka and through a node."""

from __future__ import annotations

from typing import Any, Protocol

import pytest
from pyspark.sql import DataFrame, SparkSession

from sidecar.pipeline.source import FORMAT, register
from tests.services import Services


class Frame(Protocol):
    """`frame(topic, view="runs", splitOffsets=5)`: from Kafka, unless told a `bootstrap`."""

    def __call__(self, topic: str, *, bootstrap: str | None = None, **options: Any) -> DataFrame: ...


@pytest.fixture
def frame(spark: SparkSession, services: Services) -> Frame:
    register(spark)

    def load(topic: str, *, bootstrap: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format(FORMAT).option("topic", topic)
        return reader.options(**{"bootstrap.servers": bootstrap or services.kafka_bootstrap, **options}).load()

    return load
