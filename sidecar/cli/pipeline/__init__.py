"""`sidecar pipeline`: the jobs on Spark. What they have to know is gathered here; what they do: `sidecar.pipeline`."""

from __future__ import annotations

from typing import Final

import rich_click as click

from sidecar.cli.root import LazyGroup

_JOBS: Final[dict[str, str]] = {
    "audit": "sidecar.cli.pipeline.audit:audit",
    "rebuild": "sidecar.cli.pipeline.rebuild:rebuild",
    "export": "sidecar.cli.pipeline.export:export",
    "compact": "sidecar.cli.pipeline.compact:compact",
    "report": "sidecar.cli.pipeline.report:report",
}


@click.group(cls=LazyGroup, places=_JOBS, short_help="Prove, repair and export whole logs with Spark.")
def pipeline() -> None:
    """Jobs on Spark over whole logs, on this machine or on a cluster (`--master`).

    Needs `pip install 'kafka-sidecar[pipeline]'` and Java 17 or newer. The jars of Spark's Kafka source and of Delta
    Lake are brought from Maven Central once.
    """
