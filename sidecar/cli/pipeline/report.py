"""`sidecar pipeline report`: what audits have found over time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click

from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import config_option, output_option, pass_shared
from sidecar.cli.output import table, write
from sidecar.cli.pipeline.running import html_option, runs_on_spark, spark_session, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.cli.options import Shared
    from sidecar.pipeline.report import TopicReport

_ELSEWHERE: Final = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"})
"""With these a path without a scheme may be one of another file system."""


@examples(
    "sidecar pipeline report /data/audits --html report.html",
    "sidecar pipeline report /data/audits --topic orders -o json",
)
@click.command()
@click.argument("path", metavar="PATH")
@click.option("--topic", "topics", multiple=True, help="Only this one, repeatable.  [default: all that were audited]")
@html_option
@runs_on_spark
@config_option
@output_option
@pass_shared
def report(
    shared: Shared, path: str, topics: tuple[str, ...], html: Path | None, master: str, conf: tuple[str, ...]
) -> None:
    """Say who wrote how much under which generation, who took over, what audits found, and how far behind the readers
    of shadows were: out of the tables at PATH that `audit --table` writes. Asks neither Kafka nor a node.
    """
    _look(path, conf)
    with spark_session(master, conf) as spark:
        from sidecar.pipeline.audit.tables import read_tables  # noqa: PLC0415 - as all of these: an extra
        from sidecar.pipeline.page import write as write_page  # noqa: PLC0415
        from sidecar.pipeline.report import page  # noqa: PLC0415
        from sidecar.pipeline.report import report as report_topic  # noqa: PLC0415

        where = path if "://" in path else str(Path(path).absolute())
        tables, cluster_id = read_tables(spark, where)
        audited = [row["topic"] for row in tables["verdicts"].select("topic").distinct().orderBy("topic").collect()]
        unknown = sorted(set(topics) - set(audited))
        if unknown:
            raise CommandError(f"{unknown[0]} was never audited into {path}: there is {audited}", Exit.NOT_FOUND)
        found: list[TopicReport] = []
        for topic in topics or audited:
            tell(f"reading the audits of {topic}")
            found.append(report_topic(tables, topic))
        if html is not None:
            write_page(html, page(found, cluster_id, int(time.time() * 1000)))
            tell(f"the page: {html}")
    write([each.as_json() for each in found], shared.output, lambda: _as_text(found))


def _look(path: str, conf: Sequence[str]) -> None:
    """Spark takes half a minute to say that there is nothing: where the path is one of this machine it is not asked."""
    scheme, colon, rest = path.partition("://")
    configured = _ELSEWHERE & os.environ.keys() or any("defaultFS" in each for each in conf)
    if (colon and (scheme != "file" or not rest.startswith("/"))) or (not colon and configured):
        return
    where = Path(rest if colon else path).absolute()
    if not any(where.glob("*/_delta_log")):
        raise CommandError(
            f"{where} holds no tables of audits: `sidecar pipeline audit TOPIC --table {where}` makes them"
        )


def _as_text(found: Sequence[TopicReport]) -> str:
    writers = [
        (each.topic, one["name"] or "-", "-" if one["generation"] is None else one["generation"],
         f"{one['records']:,}", "-" if one["records_per_s"] is None else f"{one['records_per_s']:,.1f}")
        for each in found
        for one in each.writers
    ]  # fmt: skip
    audits = [
        (each.topic, len(each.audits), sum(not one["passes"] for one in each.audits), each.audits[0]["duplicates"],
         sum(each.takeovers_by_kind.values()), sum(one["lag"] for one in each.lags))
        for each in found
    ]  # fmt: skip
    head = ("topic", "audits", "violated", "duplicates, newest", "changes of owner", "lag of shadows")
    return f"{table(head, audits)}\n\n{table(('topic', 'producer', 'generation', 'records', 'records/s'), writers)}"
