"""Reports what audits have found over time, from their tables: writers and their volume, takeovers, duplicates, lags of
shadows.

Audits of one topic may overlap; runs are counted once, from the newest audits that do not overlap. Reads only the
tables: no connection to Kafka or a node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sidecar.jobs.session import Say, Sessions
from sidecar.pipeline.audit.explained import EXPLAINED, KINDS
from sidecar.pipeline.audit.tables import read_tables
from sidecar.pipeline.audit.writers import is_data
from sidecar.pipeline.errors import PipelineError, UnknownTopicError
from sidecar.pipeline.folders import absolute
from sidecar.pipeline.page import earlier, later, lines, plots, render, write

_TAKEOVERS: Final = 200
_AUDITS: Final = 100
_WRITERS: Final = 100
_LAGS: Final = 1_000
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic. `writers`, `takeovers`, `audits` and `lags` are rows, the newest or largest first; `takeovers_by_kind`
    counts all takeovers. `plots` are by title.
    """

    topic: str
    records: int
    writers: Sequence[Mapping[str, Any]]
    takeovers: Sequence[Mapping[str, Any]]
    takeovers_by_kind: Mapping[str, int]
    audits: Sequence[Mapping[str, Any]]
    lags: Sequence[Mapping[str, Any]]
    plots: Mapping[str, Markup]

    def as_json(self) -> dict[str, Any]:
        """The report as JSON, without plots."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "plots"}


def report_topic(tables: Mapping[str, DataFrame], topic: str) -> TopicReport:
    """The report of one topic. `tables` are by name as in `sidecar.pipeline.audit.tables`."""
    verdicts = tables["verdicts"].where(F.col("topic") == topic)
    its_audits = [row.asDict() for row in verdicts.orderBy(F.desc("at_ms"), "audit").collect()]
    counted = apart(its_audits)
    runs = tables["runs"].where(F.col("topic") == topic).where(F.col("audit").isin(counted)).where(is_data)
    takeovers = tables["takeovers"].where(F.col("topic") == topic)
    newest = takeovers.orderBy(F.desc("at_ms"), "event").limit(_TAKEOVERS).drop("cluster_id", "topic", "event")
    changes = [row.asDict() for row in newest.collect()]
    kinds = takeovers.groupBy("kind").agg(F.count("*").alias("count")).orderBy("kind").collect()
    lags = tables["lags"].where(F.col("topic") == topic).orderBy(F.desc("at_ms"), "shadow", "reader").limit(_LAGS)
    known_lags = [row.asDict() for row in lags.collect()]
    records = runs.agg(F.sum("records").alias("records")).first()
    return TopicReport(
        topic=topic,
        records=int(records["records"] or 0) if records else 0,
        writers=writers(runs),
        takeovers=changes,
        takeovers_by_kind={row["kind"]: row["count"] for row in kinds},
        audits=[_audit(each, counted=each["audit"] in counted) for each in its_audits[:_AUDITS]],
        lags=_newest_lags(known_lags),
        plots=plots(runs, changes) | _lags_over_time(known_lags),
    )


def apart(audits: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of audits whose ranges have no offset in common; earlier ones in `audits` are preferred."""
    taken: dict[int, list[tuple[int, int]]] = {}
    found: list[str] = []
    for each in audits:
        ranges = {partition: (start, each["ends"][partition]) for partition, start in each["starts"].items()}
        if any(
            max(start, other) < min(end, behind)
            for partition, (start, end) in ranges.items()
            for other, behind in taken.get(partition, ())
        ):
            continue
        found.append(each["audit"])
        for partition, span in ranges.items():
            taken.setdefault(partition, []).append(span)
    return found


def writers(runs: DataFrame) -> list[dict[str, Any]]:
    """Throughput by producer and generation, the largest first: records, bytes, begin and end (Unix ms), and records
    per second; None if the time is less than a second.
    """
    sums = runs.groupBy("name", "generation").agg(
        F.sum("records").alias("records"), F.sum("bytes").alias("bytes"), F.min(earlier()).alias("first_ms"),
        F.max(later()).alias("last_ms"),
    )  # fmt: skip
    rows = sums.orderBy(F.desc("records"), "name", "generation").limit(_WRITERS).collect()
    return [{**row.asDict(), "records_per_s": _rate(row)} for row in rows]


def _rate(row: Any) -> float | None:
    seconds = (row["last_ms"] - row["first_ms"]) / 1000
    return round(row["records"] / seconds, 1) if seconds >= 1 else None


def _audit(row: Mapping[str, Any], *, counted: bool) -> dict[str, Any]:
    return {
        "at_ms": row["at_ms"],
        "passes": row["passes"],
        "records": row["records"],
        **{kind: row[kind] for kind in KINDS},
        "gaps": int(row["gaps"]),
        "malformed": row["malformed"],
        "ranges": {partition: [start, row["ends"][partition]] for partition, start in sorted(row["starts"].items())},
        "counted": counted,
    }


def _newest_lags(lags: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest lag of each reader of each shadow."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in lags:
        found.setdefault((each["shadow"], each["reader"]), {name: each[name] for name in _LAG})
    return [found[key] for key in sorted(found)]


_LAG: Final = ("shadow", "reader", "lag", "at_ms")


def _lags_over_time(lags: Sequence[Mapping[str, Any]]) -> dict[str, Markup]:
    """The plot by its title; nothing if there are no lags."""
    points = _lag_points(lags)
    return {"Lag of the shadows' readers, as audits found it": lines(points, "Records behind")} if points else {}


def _lag_points(lags: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The points of each reader, oldest first; of many readers those with the largest lag."""
    found: dict[str, list[tuple[int, float]]] = {}
    for each in reversed(lags):
        found.setdefault(f"{each['shadow']}: {each['reader']}", []).append((each["at_ms"], float(each["lag"])))
    largest = sorted(found, key=lambda name: -max(lag for _, lag in found[name]))[:_READERS]
    return {name: found[name] for name in largest}


def page(reports: Sequence[TopicReport], cluster_id: str, at_ms: int) -> str:
    """The whole page."""
    return render("report.html", reports=reports, cluster_id=cluster_id, at_ms=at_ms, kinds=KINDS, explained=EXPLAINED)


_ELSEWHERE: Final = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"})
"""If one of these variables is set, a path without a scheme may be in another file system."""


def report(
    path: str, topics: Sequence[str], sessions: Sessions, say: Say, *, html: Path | None = None
) -> list[TopicReport]:
    """Reports of these topics, or of all whose audits are in the tables at `path`; also written to the page `html`, if
    given. Raises `PipelineError`.
    """
    with sessions() as spark:
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
    """Raise `PipelineError` for a local path without tables: Spark takes half a minute to find that. A path that Spark
    may look up elsewhere, by its `settings` or the environment, is not checked.
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
