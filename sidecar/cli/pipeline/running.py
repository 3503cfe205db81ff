"""What every job needs of the command line: where Kafka is, a Spark session, and failures said in one sentence."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import rich_click as click

from sidecar.cli.failure import CommandError, Exit, settings_error
from sidecar.cli.progress import Alive
from sidecar.cli.setting_flags import resolve_here
from sidecar.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from sidecar.pipeline.kafka import Kafka
    from sidecar.settings import Settings

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")

_LOCK: Final = "pipeline"
_INSTALL: Final = "pip install 'kafka-sidecar[pipeline]'"


def runs_on_spark(command: CommandT) -> CommandT:
    """The options of a command that runs a job: `master` and `conf`, as `spark_session` takes them."""
    conf = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's own, as for spark-submit; repeatable."
    )
    master = click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: this machine, or spark://HOST:PORT, yarn, k8s://… with this package on the executors.",
    )
    return master(conf(command))


def bootstrap_option(command: CommandT) -> CommandT:
    """`--bootstrap`: which Kafka or node the data is read from."""
    option = click.option(
        "--bootstrap",
        metavar="HOST:PORT,…",
        help="Whom to read from: Kafka, or a node (shadows are there alone). [default: SIDECAR_BOOTSTRAP_SERVERS]",
    )
    return option(command)


def html_option(command: CommandT) -> CommandT:
    """`--html`: a page. A place where none could be written in the end is refused before the work is done."""
    option = click.option(
        "--html",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        callback=_in_a_directory,
        help="Write a page with plots.",
    )
    return option(command)


def _in_a_directory(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and not os.access(file.absolute().parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{file.absolute().parent} is no directory that can be written to: name another file")
    return file


def settings_of(config: Path | None, given: dict[str, Any], *, tells: bool = True) -> Settings:
    """The settings of the nodes, as `serve` would use them here: Kafka, Redis, cluster; where nobody says which, those
    of `sidecar up`, which is told unless `tells` is off: for a job that asks neither. Raises CommandError.
    """
    try:
        resolved, origin = resolve_here(config, {name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise settings_error(error) from None
    if origin and tells:
        tell(origin)
    return resolved.settings


@contextmanager
def spark_session(master: str, conf: tuple[str, ...] = (), *, progress: bool = True) -> Iterator[SparkSession]:
    """A session for one job; says where Spark's page is, and now and then that the job goes on, unless `progress` is
    off: for jobs that have no end. What a job cannot do is a CommandError.
    """
    settings = dict(_setting(each) for each in conf)
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("delta") is None:
        raise CommandError(f"this needs PySpark and Delta Lake: {_INSTALL}")
    tell("starting Spark")
    found: list[SparkSession] = []
    with alive(lambda: _tasks(found)) if progress else nullcontext(), _opened(master, settings) as spark:
        found.append(spark)
        try:
            yield spark
        finally:
            found.clear()


@contextmanager
def _opened(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    from sidecar.local.errors import LocalError  # noqa: PLC0415 - an extra
    from sidecar.local.jars import resolve_lock  # noqa: PLC0415
    from sidecar.local.java import find_java  # noqa: PLC0415
    from sidecar.pipeline.errors import first_line  # noqa: PLC0415
    from sidecar.pipeline.session import open_session, ui_address  # noqa: PLC0415 - loads PySpark

    try:
        java, jars = find_java(), resolve_lock(_LOCK)
        with _interrupted_afterwards():
            spark = open_session(master, jars, settings, java_home=java.path.resolve().parents[1])
    except LocalError as error:
        raise CommandError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - Java's and PySpark's own, of many kinds
        raise CommandError(
            f"Spark cannot be started on {master} ({first_line(error)}): is --master right, is that cluster up, and is"
            " every --conf a value that Spark takes?"
        ) from None
    try:
        address = ui_address(spark)
        if address is not None:
            tell(f"Spark's page: {address}")
        with _failures_in_a_sentence():
            yield spark
    finally:
        spark.stop()


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Ctrl-C while PySpark starts Java would leave that behind for ever. A second one is not waited with."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _: Any) -> None:
        tell("ending as soon as Spark has started")
        heard.append(number)
        signal.signal(number, before)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


@contextmanager
def opened_kafka(bootstrap: str, topics: Collection[str] = ()) -> Iterator[Kafka]:
    """Kafka or a node for one job. To be entered in front of `spark_session`: an address where nobody answers and a
    topic that is not there are told at once, as a CommandError.
    """
    from sidecar.pipeline.kafka import Kafka  # noqa: PLC0415 - a part of jobs alone

    with _failures_in_a_sentence(), Kafka(bootstrap) as kafka:
        for topic in topics:
            kafka.partitions(topic)
        yield kafka


@contextmanager
def _failures_in_a_sentence() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (failure := failure_of(error)) is None:
            raise
        raise failure from None


def failure_of(error: Exception) -> CommandError | None:
    """How a command ends that could not go on, on the driver or on an executor; None for what is no word of ours."""
    from sidecar.pipeline import errors  # noqa: PLC0415

    found = error if isinstance(error, errors.PipelineError) else errors.told_by(error)
    if found is None:
        return None
    codes = {
        errors.UnknownTopicError: Exit.NOT_FOUND,
        errors.UnreachableError: Exit.UNREACHABLE,
        errors.PointError: Exit.USAGE,
    }
    return CommandError(str(found), codes.get(type(found), Exit.FAILURE))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise CommandError(f"--conf {text}: give a setting of Spark's as spark.NAME=VALUE", Exit.USAGE)
    return name, value


_running: Final[list[Alive]] = []
"""Of the job under way, if it has a progress."""


def tell(text: str) -> None:
    """One line about what goes on, on standard error; until the next one it is what goes on."""
    if not _running:
        click.echo(text, file=sys.stderr)
        return
    _running[-1].tell(text)
    _running[-1].doing(text)


@contextmanager
def alive(detail: Callable[[], str]) -> Iterator[None]:
    """What is told last is what goes on, said again now and then with `detail`."""
    with Alive("starting Spark", detail) as telling:
        _running.append(telling)
        try:
            yield
        finally:
            _running.remove(telling)


def _tasks(sessions: Sequence[SparkSession]) -> str:
    """How many tasks of its stages under way Spark has done."""
    try:
        tracker = sessions[0].sparkContext.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each)) is not None]
    except Exception:  # noqa: BLE001 - of no session yet, and of one that ends: Java's and Py4J's, of many kinds
        return ""
    total = sum(stage.numTasks for stage in stages)
    return f"{sum(stage.numCompletedTasks for stage in stages)} of {total} tasks" if total else ""


def tell_rate(records: int, seconds: float) -> None:
    """How many records a job read, and how fast, its start not counted; benchmarks read this line."""
    tell(f"{records:,} records in {seconds:.1f} s ({records / max(seconds, 0.001):,.0f} records/s)")
