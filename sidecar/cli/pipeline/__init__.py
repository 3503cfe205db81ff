"""`sidecar pipeline`: the jobs on Spark. What they do is `sidecar.jobs`'."""

from __future__ import annotations

from typing import Final

import rich_click as click

from sidecar.cli.group import LazyGroup, Place

_JOBS: Final[dict[str, Place]] = {
    "audit": Place("sidecar.cli.pipeline.audit:audit", "Look for what nodes promise never happens, in whole logs."),
    "rebuild": Place("sidecar.cli.pipeline.rebuild:rebuild", "Sequence ids out of the log, for Kafka and Redis."),
    "export": Place("sidecar.cli.pipeline.export:export", "A shadow, or any topic, as a stream into a Delta table."),
    "compact": Place("sidecar.cli.pipeline.compact:compact", "The newest value of each key, or what changed since."),
    "report": Place("sidecar.cli.pipeline.report:report", "What audits have found over time."),
}


@click.group(cls=LazyGroup, places=_JOBS)
def pipeline() -> None:
    """Jobs on Spark over whole logs, on this machine or on a cluster (`--master`).

    Needs `pip install 'kafka-sidecar[pipeline]'` and Java 17 or newer. The jars of Spark's Kafka source and of Delta
    Lake are brought from Maven Central once.
    """
