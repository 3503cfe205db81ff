"""Spark for frames of a few rows: compiling a plan takes longer than running it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

FRUGAL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(autouse=True)
def frugal(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in FRUGAL}
    for name, value in FRUGAL.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
