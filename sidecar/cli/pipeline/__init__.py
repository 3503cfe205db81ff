"""`sidecar pipeline`: the jobs on Spark, which are in `sidecar.jobs`."""

from __future__ import annotations

from typing import Final

import rich_click as click

from sidecar.cli.group import LazyGroup, Place

_JOBS: Final[dict[str, Place]] = {
    "audit": Place("sidecar.cli.pipeline.audit:audit", "Check whole logs for violations of what nodes promise."),
    "rebuild": Place(
        "sidecar.cli.pipeline.rebuild:rebuild", ("Read sequence ids from the log and store them in Kafka and Redis.")
    ),
    "export": Place("sidecar.cli.pipeline.export:export", "Stream a shadow, or any topic, into a Delta table."),
    "compact": Place("sidecar.cli.pipeline.compact:compact", "The newest value of each key, or what changed since."),
    "report": Place("sidecar.cli.pipeline.report:report", "Show the results of audits over time."),
}


@click.group(cls=LazyGroup, places=_JOBS)
def pipeline() -> None:
    """Jobs on Spark over whole logs, on this machine or on a cluster (`--master`).

    Needs the wheel's extra `pipeline` (in a clone: `make spark`) and Java 17 or newer. The jars of Spark's Kafka source
    and of Delta Lake are brought from Maven Central once.
    """
