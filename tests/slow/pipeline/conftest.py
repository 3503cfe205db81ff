"""One Spark session for all tests of the pipeline: starting it takes longer than most of them.

Even then Spark takes seconds to plan what is nothing to compute, so none that needs it is marked `smoke`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.jobs.session import open_session
from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark

QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
# In this process, for a few hundred rows: no code is worth compiling, and no plan is worth changing under way. Commands
# of tests run with what they have by default.
_INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_PATIENCE_S = 600


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A query that Spark has not seen takes seconds, and a minute where many others want the processor."""
    for item in items:
        if not item.nodeid.startswith("tests/slow/pipeline/"):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_PATIENCE_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two cores of this machine, with the jars of the pipeline."""
    warehouse: Path = tmp_path_factory.mktemp("spark")
    home = find_java_for_spark().path.resolve().parents[1]
    settings = {**QUICK, **_INTERPRETED, "spark.sql.warehouse.dir": str(warehouse), "spark.local.dir": str(warehouse)}
    session = open_session("local[2]", resolve_lock("pipeline"), settings, java_home=home)
    yield session
    session.stop()
