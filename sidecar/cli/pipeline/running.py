"""What every job needs from the command line: Kafka's address, a Spark session, and failures as one sentence."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click

from sidecar.cli.options import config_option, output_option, pass_shared
from sidecar.cli.output import CommandError, Exit
from sidecar.cli.progress import Alive
from sidecar.cli.setting_flags import settings_here
from sidecar.pipeline import errors
from sidecar.pipeline.security import of_file, of_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from sidecar.settings import Settings

_INSTALL: Final = (
    "this needs PySpark and Delta Lake: they come with the wheel's extra `pipeline`, in a clone by `make spark`"
)
_JAVA: Final = "spark.driver.extraJavaOptions"


def runs_on_spark(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that runs a job and prints data. `master` and `conf` are as in `spark_session`; the
    shared options are the first argument.
    """
    conf = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's own, as for spark-submit; repeatable."
    )
    master = click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: this machine, or spark://HOST:PORT, yarn, k8s://… with this package on the executors.",
    )
    return master(conf(config_option(output_option(pass_shared(function)))))


bootstrap_option = click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="What to read from: Kafka, or a node (only nodes have shadows). [default: SIDECAR_BOOTSTRAP_SERVERS]",
)
client_config_option = click.option(
    "--client-config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="TLS and login for --bootstrap: lines as security.protocol=SASL_SSL, in the names of librdkafka."
    " [default: as SIDECAR_KAFKA_… says]",
)


def _in_a_directory(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and not os.access(file.absolute().parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{file.absolute().parent} is no directory that can be written to: name another file")
    return file


html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    callback=_in_a_directory,
    help="Write a page with plots.",
)
"""A path where the page could not be written is refused before the work begins."""


def source_of(config: Path | None, bootstrap: str | None, client_config: Path | None) -> tuple[str, dict[str, str]]:
    """Where to read, and the settings of connections there, as in `sidecar.pipeline.security`: from `--bootstrap` and
    `--client-config`, or from the settings. Raises CommandError.
    """
    settings = settings_here(config, say if bootstrap is None else None)
    return bootstrap or ",".join(map(str, settings.bootstrap_servers)), security_of(settings, client_config)


def security_of(settings: Settings, client_config: Path | None) -> dict[str, str]:
    """The settings of connections to `--bootstrap`. Raises CommandError."""
    with failures_in_a_sentence():
        return of_settings(settings) if client_config is None else of_file(client_config)


@contextmanager
def spark_session(
    master: str, conf: tuple[str, ...] = (), *, progress: bool = True, brief: bool = False
) -> Iterator[SparkSession]:
    """A session for one job. Prints the address of Spark's page, and from time to time that the job continues, unless
    `progress` is off (for jobs without an end). `brief`: the job is too short for compiling for speed.
    """
    settings = settings_of_spark(master, conf, brief=brief)
    from sidecar.jobs.session import opened  # noqa: PLC0415 - takes as long as all the rest

    found: list[SparkSession] = []
    with alive(lambda: _tasks(found)) if progress else nullcontext(), opened(master, settings, say) as spark:
        found.append(spark)
        try:
            yield spark
        finally:
            found.clear()


@contextmanager
def failures_in_a_sentence() -> Iterator[None]:
    """Turns a failure of a job into CommandError."""
    try:
        yield
    except Exception as error:
        if (failure := failure_of(error)) is None:
            raise
        raise failure from None


def failure_of(error: Exception) -> CommandError | None:
    """The command's error for a job that could not continue, on the driver or on an executor; None for an unexpected
    error.
    """
    if isinstance(error, ModuleNotFoundError) and error.name in ("pyspark", "delta"):
        return CommandError(_INSTALL)
    found = errors.pipeline_error_of(error)
    if found is None:
        return None
    codes = {
        errors.UnknownTopicError: Exit.NOT_FOUND,
        errors.UnreachableError: Exit.UNREACHABLE,
        errors.PointError: Exit.USAGE,
        errors.UsageError: Exit.USAGE,
    }
    return CommandError(str(found), codes.get(type(found), Exit.FAILURE))


def settings_of_spark(master: str, conf: Sequence[str], *, brief: bool) -> dict[str, str]:
    """The settings in `--conf`. For a brief job on this machine also Java's first compiler only, which halves the time
    of a small audit. Raises CommandError.
    """
    settings = dict(_setting(each) for each in conf)
    if brief and master.startswith("local"):
        settings[_JAVA] = f"-XX:TieredStopAtLevel=1 {settings.get(_JAVA, '')}".strip()
    return settings


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise CommandError(f"--conf {text}: give a setting of Spark's as spark.NAME=VALUE", Exit.USAGE)
    return name, value


_running: Final[list[Alive]] = []
"""The progress of the running job, if it has one."""


def say(text: str) -> None:
    """Print one line about the progress on standard error; it is the present step until the next line."""
    if not _running:
        click.echo(text, file=sys.stderr)
        return
    _running[-1].print(text)
    _running[-1].doing(text)


@contextmanager
def alive(detail: Callable[[], str]) -> Iterator[None]:
    """Repeats the last message from time to time, with `detail`, until the block ends."""
    with Alive("starting Spark", detail) as shown:
        _running.append(shown)
        try:
            yield
        finally:
            _running.remove(shown)


def _tasks(sessions: Sequence[SparkSession]) -> str:
    """How many tasks of its running stages Spark has finished."""
    try:
        tracker = sessions[0].sparkContext.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each)) is not None]
    except Exception:  # noqa: BLE001 - of no session yet, and of one that ends: Java's and Py4J's, of many kinds
        return ""
    total = sum(stage.numTasks for stage in stages)
    return f"{sum(stage.numCompletedTasks for stage in stages)} of {total} tasks" if total else ""
