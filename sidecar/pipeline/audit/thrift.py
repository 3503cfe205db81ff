"""Settings of Spark for frames of few rows: compiling a plan would take many times as long as running it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def thrift(spark: SparkSession, *, is_due: bool) -> Iterator[None]:
    """What is planned within, `persist` included, is interpreted, in one task. Without effect unless `is_due`."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS} if is_due else {}
    try:
        for name in before:
            spark.conf.set(name, _SETTINGS[name])
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
