"""`sidecar pipeline export`: a shadow, or a topic, as a stream into a Delta table."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import config_option, output_option, pass_shared
from sidecar.cli.output import pairs, write
from sidecar.cli.pipeline.running import (
    bootstrap_option,
    opened_kafka,
    runs_on_spark,
    settings_of,
    spark_session,
    tell,
    tell_rate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from sidecar.cli.options import Shared
    from sidecar.pipeline.columns import Form
    from sidecar.pipeline.export import Exporter, Progress, Summary

_MILLION = 1_000_000


@examples(
    "sidecar pipeline export orders-audit --to /lake/orders --bootstrap node:9092 --available-now",
    "sidecar pipeline export orders --to s3a://lake/orders --format json --schema 'id bigint, name string'",
)
@click.command()
@click.argument("shadow")
@click.option("--to", "path", required=True, metavar="PATH", help="The Delta table: a directory, s3a://…, hdfs://…")
@click.option("--available-now", is_flag=True, help="End at the end of the log of now; else it goes on until SIGTERM.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["bytes", "string", "json"]),
    default="bytes",
    show_default=True,
    help="What values are: string and json make keys text too, and keep what is neither in a column `corrupt`.",
)
@click.option(
    "--schema", metavar="FILE|DDL", help='Of json: "id bigint, name string", or a file with that or Spark\'s JSON.'
)
@click.option("--checkpoint", metavar="PATH", help="Spark's checkpoint.  [default: PATH of the table + .checkpoint]")
@click.option(
    "--partition-by", metavar="topic,date", help="Columns that the table is laid out by; date: of the timestamp, UTC."
)
@click.option(
    "--max-offsets",
    type=click.IntRange(min=1),
    default=5 * _MILLION,
    show_default=True,
    help="Offsets in one commit at most.",
)
@click.option(
    "--trigger",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="From commit to commit; 0: without a pause.",
)
@click.option(
    "--accept-gaps",
    is_flag=True,
    help="Go on behind records that retention took, and note them in PATH.gaps; else end.",
)
@bootstrap_option
@runs_on_spark
@config_option
@output_option
@pass_shared
def export(
    shared: Shared,
    shadow: str,
    path: str,
    available_now: bool,
    form: str,
    schema: str | None,
    checkpoint: str | None,
    partition_by: str | None,
    max_offsets: int,
    trigger: float,
    accept_gaps: bool,
    bootstrap: str | None,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Export SHADOW, or any topic, into a Delta table: each committed record once, whatever is killed or deleted.

    The table itself says how far it has come; the checkpoint may be deleted at any time.
    """
    bootstrap = bootstrap or ",".join(map(str, settings_of(shared.config, {}).bootstrap_servers))
    path = absolute(path)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what a batch raises is told here, in a sentence
    with opened_kafka(bootstrap, [shadow]) as kafka, spark_session(master, conf, progress=available_now) as spark:
        from sidecar.pipeline.export import Exporter, Job  # noqa: PLC0415 - loads PySpark

        job = Job(
            bootstrap,
            shadow,
            path,
            absolute(checkpoint) if checkpoint else f"{path}.checkpoint",
            _form(form, schema, partition_by),
            available_now,
            max_offsets,
            trigger,
            accept_gaps,
        )
        exporter = Exporter(spark, kafka, job, _tell, tell)
        with _ended_by_signals(exporter):
            tell(f"exporting {shadow} of {bootstrap} to {path}")
            began = time.perf_counter()
            done = exporter.run()
            tell_rate(done.rows, time.perf_counter() - began)
    found = _as_data(shadow, path, done)
    write(found, shared.output, lambda: pairs(found))


def absolute(path: str) -> str:
    """A path as Spark takes it from anywhere, without a slash at its end."""
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())


def _form(form: str, schema: str | None, partition_by: str | None) -> Form:
    from sidecar.pipeline.columns import Form, Format  # noqa: PLC0415 - loads PySpark
    from sidecar.pipeline.errors import PipelineError  # noqa: PLC0415

    try:
        columns = tuple(name.strip() for name in partition_by.split(",")) if partition_by else ()
        return Form(Format(form), _schema(schema) if schema else None, columns)
    except PipelineError as error:
        raise CommandError(str(error), Exit.USAGE) from None


def _schema(text: str) -> StructType:
    from sidecar.pipeline.columns import read_schema  # noqa: PLC0415 - loads PySpark

    file = Path(text)
    try:
        return read_schema(file.read_text() if len(text) < 4096 and file.is_file() else text)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the schema {text} cannot be read: {error}", Exit.USAGE) from None


@contextmanager
def _ended_by_signals(exporter: Exporter) -> Iterator[None]:
    """SIGTERM and SIGINT end the export behind the commit under way; a second one ends the process."""

    def end(number: int, _: Any) -> None:
        tell("ending behind the commit under way")
        exporter.stop()
        signal.signal(number, signal.SIG_DFL)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _tell(done: Progress) -> None:
    lag = "how far behind is not known" if done.lag is None else f"{done.lag:,} offsets behind"
    corrupt = f", {done.corrupt:,} corrupt" if done.corrupt else ""
    tell(f"version {done.version}: {done.rows:,} rows{corrupt}; {lag}; at {_offsets(done.offsets)}")


def _offsets(offsets: Any) -> str:
    return " ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _as_data(topic: str, path: str, done: Summary) -> dict[str, Any]:
    return {
        "topic": topic,
        "path": path,
        "rows": done.rows,
        "corrupt": done.corrupt,
        "commits": done.commits,
        "offsets": {str(partition): offset for partition, offset in sorted(done.offsets.items())},
        "gaps": [asdict(gap) for gap in done.gaps],
    }
