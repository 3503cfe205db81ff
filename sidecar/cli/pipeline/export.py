"""`sidecar pipeline export`: a shadow, or a topic, as a stream into a Delta table."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.options import examples
from sidecar.cli.output import CommandError, Exit, pairs, write
from sidecar.cli.pipeline import running
from sidecar.cli.signals import handled_by
from sidecar.jobs import MAX_OFFSETS
from sidecar.pipeline.folders import absolute
from sidecar.pipeline.security import by_partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sidecar.cli.options import Shared


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
    default=MAX_OFFSETS,
    show_default=True,
    help="Offsets in one commit at most.",
)
@click.option(
    "--trigger",
    "trigger_s",
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
@running.bootstrap_option
@running.client_config_option
@running.runs_on_spark
def export(
    shared: Shared,
    shadow: str,
    path: str,
    available_now: bool,
    schema: str | None,
    checkpoint: str | None,
    partition_by: str | None,
    bootstrap: str | None,
    client_config: Path | None,
    master: str,
    conf: tuple[str, ...],
    **options: Any,
) -> None:
    """Export SHADOW, or any topic, into a Delta table: each committed record once, whatever is killed or deleted.

    The table itself says how far it has come; the checkpoint may be deleted at any time.
    """
    servers, security = running.source_of(shared.config, bootstrap, client_config)
    path = absolute(path)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # errors of a batch are reported here, in a sentence
    stop = threading.Event()

    def end(number: int, _: object) -> None:
        """End after the running commit; a second signal ends the process."""
        running.say("ending behind the commit under way")
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    @contextmanager
    def session() -> Iterator[SparkSession]:
        ending = handled_by(end, (signal.SIGTERM, signal.SIGINT))
        with running.spark_session(master, conf, progress=available_now) as spark, ending:
            yield spark

    with running.failures_in_a_sentence():
        from sidecar.jobs.export import export as run  # noqa: PLC0415 - takes as long as all the rest

        done = run(
            servers,
            shadow,
            path,
            session,
            running.say,
            stop=stop,
            available_now=available_now,
            schema=_schema(schema) if schema else None,
            checkpoint=absolute(checkpoint) if checkpoint else None,
            partition_by=[name.strip() for name in partition_by.split(",")] if partition_by else (),
            security=security,
            **options,
        )
    found = {"topic": shadow, "path": path, **asdict(done), "offsets": by_partition(done.offsets)}
    write(found, shared.output, lambda: pairs(found))


def _schema(text: str) -> str:
    """The content of the file of that name, if there is one; else the text itself."""
    file = Path(text)
    try:
        return file.read_text() if len(text) < 4096 and file.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the schema {text} cannot be read: {error}", Exit.USAGE) from None
