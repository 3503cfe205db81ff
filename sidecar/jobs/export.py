"""An export: a shadow, or any topic, as a stream into a Delta table."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sidecar.jobs.session import rate
from sidecar.pipeline.clients import for_java
from sidecar.pipeline.errors import PipelineError, UsageError
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.points import listed

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from sidecar.jobs.session import Say, Sessions
    from sidecar.pipeline.columns import Form
    from sidecar.pipeline.export import Progress, Summary


def export(
    bootstrap: str,
    topic: str,
    path: str,
    sessions: Sessions,
    say: Say,
    *,
    stop: threading.Event | None = None,
    form: str = "bytes",
    schema: str | None = None,
    checkpoint: str | None = None,
    partition_by: Sequence[str] = (),
    security: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Summary:
    """Export into the Delta table at `path` until the end of the log is reached (option `available_now`), or until
    `stop` is set, which ends it after the commit under way.

    `form`: `bytes`, `string` or `json`, which takes a `schema` as DDL or as Spark's JSON. `security`: settings of
    `sidecar.pipeline.security`. `options`: other fields of `sidecar.pipeline.export.Job`. Raises `PipelineError`.
    """
    with Kafka(bootstrap, security=security) as kafka:
        kafka.partitions(topic)
        with sessions() as spark:
            from sidecar.pipeline.export import Exporter, Job  # noqa: PLC0415 - loads PySpark

            columns, begins = _form(form, schema, partition_by), checkpoint or f"{path}.checkpoint"
            job = Job(bootstrap, topic, path, begins, columns, options=for_java(security), **options)
            exporter = Exporter(spark, kafka, job, lambda done: say(_committed(done)), say, stop)
            say(f"exporting {topic} of {bootstrap} to {path}")
            began = time.perf_counter()
            done = exporter.run()
            say(rate(done.rows, time.perf_counter() - began))
            return done


def _form(form: str, schema: str | None, partition_by: Sequence[str]) -> Form:
    from sidecar.pipeline.columns import Form, Format, read_schema  # noqa: PLC0415 - loads PySpark

    try:
        return Form(Format(form), read_schema(schema) if schema else None, tuple(partition_by))
    except PipelineError as error:
        raise UsageError(str(error)) from None


def _committed(done: Progress) -> str:
    lag = "how far behind is not known" if done.lag is None else f"{done.lag:,} offsets behind"
    corrupt = f", {done.corrupt:,} corrupt" if done.corrupt else ""
    return f"version {done.version}: {done.rows:,} rows{corrupt}; {lag}; at {listed(done.offsets)}"
