"""Spark for one job: its own session, with Java and the jars that it takes, and no traces left when it ends."""

from __future__ import annotations

import importlib.util
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sidecar.local.errors import LocalError
from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark
from sidecar.pipeline.errors import PipelineError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say: TypeAlias = Callable[[str], None]
"""Takes a line about what goes on, for a person."""

Sessions: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"
"""Opens Spark for a job, which does that as late as it can: a start takes long. A session that is there already is
lent by `lambda: nullcontext(spark)`.
"""

_LOCK: Final = "pipeline"
_INSTALL: Final = "they come with the wheel's extra `pipeline`, in a clone by `make spark`"


def check_installed() -> None:
    """Raise `PipelineError` where PySpark or Delta Lake are missing, without loading them."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("delta") is None:
        raise PipelineError(f"this needs PySpark and Delta Lake: {_INSTALL}")


@contextmanager
def opened(master: str, settings: Mapping[str, str], say: Say) -> Iterator[SparkSession]:
    """A session on `master` with `settings` of Spark's own; says where Spark's page is. Raises `PipelineError` where
    there is none to be had.
    """
    check_installed()
    from sidecar.pipeline.session import open_session, ui_address  # noqa: PLC0415 - an extra, which may be missing

    say("starting Spark")
    try:
        java, jars = find_java_for_spark(), resolve_lock(_LOCK)
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
        address = ui_address(spark)
        if address is not None:
            say(f"Spark's page: {address}")
        yield spark
    finally:
        spark.stop()


@contextmanager
def _interrupted_afterwards(say: Say) -> Iterator[None]:
    """Ctrl-C while PySpark starts Java would leave that behind for ever. A second one is not waited with."""
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
    """How many records a job read, and how fast, its start not counted; benchmarks read this line."""
    return f"{records:,} records in {seconds:.1f} s ({records / max(seconds, 0.001):,.0f} records/s)"
