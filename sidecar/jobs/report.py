"""A report: what audits have found over time, out of their tables alone: neither Kafka nor a node is asked."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.pipeline.errors import PipelineError, UnknownTopicError
from sidecar.pipeline.folders import absolute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.jobs.session import Say, Sessions
    from sidecar.pipeline.report import TopicReport

_ELSEWHERE: Final = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"})
"""With these a path without a scheme may be one of another file system."""


def report(
    path: str, topics: Sequence[str], sessions: Sessions, say: Say, *, html: Path | None = None
) -> list[TopicReport]:
    """Of these topics, or of all that were audited into the tables at `path`; on the page `html` too, where one is
    named. Raises `PipelineError`.
    """
    with sessions() as spark:
        from sidecar.pipeline.audit.tables import read_tables  # noqa: PLC0415 - as all of these: loads PySpark
        from sidecar.pipeline.page import write  # noqa: PLC0415
        from sidecar.pipeline.report import page  # noqa: PLC0415
        from sidecar.pipeline.report import report as report_topic  # noqa: PLC0415

        tables, cluster_id = read_tables(spark, absolute(path))
        audited = [row["topic"] for row in tables["verdicts"].select("topic").distinct().orderBy("topic").collect()]
        unknown = sorted(set(topics) - set(audited))
        if unknown:
            raise UnknownTopicError(f"{unknown[0]} was never audited into {path}: there is {audited}")
        found: list[TopicReport] = []
        for topic in topics or audited:
            say(f"reading the audits of {topic}")
            found.append(report_topic(tables, topic))
        if html is not None:
            write(html, page(found, cluster_id, int(time.time() * 1000)))
            say(f"the page: {html}")
    return found


def check_path(path: str, settings: Sequence[str]) -> None:
    """Raise `PipelineError` for a path of this machine without tables: Spark takes half a minute to say that. Of a path
    that Spark may look up elsewhere, by its `settings` or the environment, nothing is said.
    """
    scheme, colon, rest = path.partition("://")
    configured = _ELSEWHERE & os.environ.keys() or any("defaultFS" in each for each in settings)
    if (colon and (scheme != "file" or not rest.startswith("/"))) or (not colon and configured):
        return
    where = Path(rest if colon else path).absolute()
    if not any(where.glob("*/_delta_log")):
        raise PipelineError(
            f"{where} holds no tables of audits: `sidecar pipeline audit TOPIC --table {where}` makes them"
        )
