"""A Spark session as every job needs one: with Delta Lake and the Kafka source, few partitions, a quiet log. Reads and
writes nothing by itself.

Spark 4.2, Delta Lake 4.4; `sidecar/local/locks/pipeline.txt` lists their jars.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # by default 50 tasks for a table's small log
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def open_session(
    master: str, jars: Iterable[Path], settings: Mapping[str, str] | None = None, *, java_home: Path | None = None
) -> SparkSession:
    """Start Spark in this process, or connect to a cluster. One session at a time per process; `stop()` ends it.

    `master` is Spark's: `local[2]`, `spark://host:port`, `yarn`. `jars` go to the driver and every executor.
    `settings` are Spark's own (`spark.executor.memory`) and win. Executors need this package and what it depends on.
    Raises PySpark's errors if Java cannot be started or the cluster cannot be reached.
    """
    is_local = master.startswith("local")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take the first python3 on PATH
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    found = {
        **_SETTINGS,
        **(_LOOPBACK if is_local else {}),
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        **(settings or {}),
    }
    log = f"-Dlog4j2.configurationFile={_LOG.as_uri()}"
    found["spark.driver.extraJavaOptions"] = f"{log} {found.get('spark.driver.extraJavaOptions', '')}".strip()
    builder = SparkSession.builder.master(master).appName("sidecar pipeline")
    for name, value in found.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def ui_address(spark: SparkSession) -> str | None:
    """The address of Spark's own page; None if it is switched off."""
    return spark.sparkContext.uiWebUrl
