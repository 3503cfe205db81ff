"""A Spark session for one job, with its Java and its jars; it leaves no files or processes behind when it ends.

Each session has Delta Lake and the Kafka source, few partitions and a quiet log: Spark 4.2, Delta Lake 4.4;
`sidecar/local/locks/pipeline.txt` lists their jars.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import SparkSession

from sidecar.local.errors import LocalError
from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark
from sidecar.pipeline.errors import PipelineError, first_line

Say: TypeAlias = Callable[[str], None]
"""Takes a line about the progress, for the user."""

Sessions: TypeAlias = Callable[[], AbstractContextManager[SparkSession]]
"""Opens Spark for a job. The job calls it as late as it can, because a start takes long. To use an existing session,
give `lambda: nullcontext(spark)`.
"""

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

    `master` is Spark's: `local[2]`, `spark://host:port`, `yarn`. `jars` go to the driver and every executor. `settings`
    are Spark's own (`spark.executor.memory`) and override the defaults here. Executors need this package and its
    dependencies. Raises PySpark's errors if Java cannot be started or the cluster cannot be reached.
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


@contextmanager
def opened(master: str, settings: Mapping[str, str], say: Say) -> Iterator[SparkSession]:
    """A session on `master` with `settings` of Spark's own; reports the address of Spark's page. Raises `PipelineError`
    if no session can be started.
    """
    say("starting Spark")
    try:
        java, jars = find_java_for_spark(), resolve_lock("pipeline")
        with _interrupted_afterwards(say):
            spark = open_session(master, jars, settings, java_home=java.path.resolve().parents[1])
    except LocalError as error:
        raise PipelineError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - Java's and PySpark's own, of many kinds
        raise PipelineError(
            f"Spark cannot be started on {master} ({first_line(error)}): is --master right, is that cluster up, and is"
            " every --conf a value that Spark takes?"
        ) from None
    try:
        address = spark.sparkContext.uiWebUrl  # None if it is switched off
        if address is not None:
            say(f"Spark's page: {address}")
        yield spark
    finally:
        spark.stop()


@contextmanager
def _interrupted_afterwards(say: Say) -> Iterator[None]:
    """Delays Ctrl-C while PySpark starts Java, which would otherwise keep running. A second Ctrl-C takes effect at
    once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _: Any) -> None:
        say("ending as soon as Spark has started")
        heard.append(number)
        signal.signal(number, before)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def rate(records: int, seconds: float) -> str:
    """How many records a job read, and how fast, without the time to start; benchmarks read this line."""
    return f"{records:,} records in {seconds:.1f} s ({records / max(seconds, 0.001):,.0f} records/s)"
