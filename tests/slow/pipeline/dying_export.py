"""An export in a process of its own that is killed (SIGKILL) at a moment: `python dying_export.py JOB MOMENT`.

JOB is that of `sidecar.jobs.export` as JSON. MOMENT: `written` behind the files of the second commit and in front
of it, `committed` between the commit of the table and that of the checkpoint, a number of seconds behind the first
commit of the table, or `never`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from sidecar.jobs.export import Exporter, Job
from sidecar.jobs.session import open_session
from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.ledger import Ledger
from tests.slow.pipeline.conftest import QUICK


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_files_written() -> None:
    calls, genuine = [0], Ledger._operation

    def operation(ledger: Ledger, ends: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            die()
        return genuine(ledger, ends)

    Ledger._operation = operation  # pyright: ignore[reportAttributeAccessIssue]


def told(moment: str) -> Any:
    if moment == "committed":
        return lambda _: die()
    if moment in {"never", "written"}:
        return lambda _: None
    timers = [threading.Timer(float(moment), die)]
    return lambda _: timers.pop().start() if timers else None


if __name__ == "__main__":
    job, moment = Job(**json.loads(sys.argv[1])), sys.argv[2]
    home = find_java_for_spark().path.resolve().parents[1]
    spark = open_session("local[2]", resolve_lock("pipeline"), QUICK, java_home=home)
    if moment == "written":
        die_with_files_written()
    with Kafka(job.bootstrap) as kafka:
        Exporter(spark, kafka, job, told(moment)).run()
    spark.stop()
