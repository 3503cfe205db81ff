"""What every job needs of the command line: where Kafka is, a Spark session, and failures said in one sentence."""

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
    """The options of a command that runs a job and prints data: `master` and `conf`, as `spark_session` takes them;
    what was said comes as the first argument.
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
"""A place where no page could be written in the end is refused before the work is done."""


def source_of(config: Path | None, bootstrap: str | None, client_config: Path | None) -> tuple[str, dict[str, str]]:
    """Where to read, and how connections begin there, as `sidecar.pipeline.security` has it: `--bootstrap` and
    `--client-config`, or what the settings say. Raises CommandError.
    """
    settings = settings_here(config, say if bootstrap is None else None)
    return bootstrap or ",".join(map(str, settings.bootstrap_servers)), security_of(settings, client_config)


def security_of(settings: Settings, client_config: Path | None) -> dict[str, str]:
    """How connections to what `--bootstrap` names begin. Raises CommandError."""
    with failures_in_a_sentence():
        return of_settings(settings) if client_config is None else of_file(client_config)


@contextmanager
def spark_session(
    master: str, conf: tuple[str, ...] = (), *, progress: bool = True, brief: bool = False
) -> Iterator[SparkSession]:
    """A session for one job; says where Spark's page is, and now and then that the job goes on, unless `progress` is
    off: for jobs that have no end. `brief`: the job ends before it would pay to compile for speed.
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
    """What a job cannot do is a CommandError."""
    try:
        yield
    except Exception as error:
        if (failure := failure_of(error)) is None:
            raise
        raise failure from None


def failure_of(error: Exception) -> CommandError | None:
    """How a command ends that could not go on, on the driver or on an executor; None for what is no word of ours."""
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
    """What `--conf` says, and for a brief job on this machine Java's first compiler alone: half of the time of a small
    audit. Raises CommandError.
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
"""Of the job under way, if it has a progress."""


def say(text: str) -> None:
    """One line about what goes on, on standard error; until the next one it is what goes on."""
    if not _running:
        click.echo(text, file=sys.stderr)
        return
    _running[-1].print(text)
    _running[-1].doing(text)


@contextmanager
def alive(detail: Callable[[], str]) -> Iterator[None]:
    """The last message is what goes on now; it is repeated now and then with `detail`."""
    with Alive("starting Spark", detail) as shown:
        _running.append(shown)
        try:
            yield
        finally:
            _running.remove(shown)


def _tasks(sessions: Sequence[SparkSession]) -> str:
    """How many tasks of its stages under way Spark has done."""
    try:
        tracker = sessions[0].sparkContext.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each)) is not None]
    except Exception:  # noqa: BLE001 - of no session yet, and of one that ends: Java's and Py4J's, of many kinds
        return ""
    total = sum(stage.numTasks for stage in stages)
    return f"{sum(stage.numCompletedTasks for stage in stages)} of {total} tasks" if total else ""
