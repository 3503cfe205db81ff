"""`sidecar pipeline report`: what audits have found over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from sidecar.cli.options import examples
from sidecar.cli.output import table, write
from sidecar.cli.pipeline import running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.cli.options import Shared
    from sidecar.jobs.report import TopicReport


@examples(
    "sidecar pipeline report /data/audits --html report.html",
    "sidecar pipeline report /data/audits --topic orders -o json",
)
@click.command()
@click.argument("path", metavar="PATH")
@click.option("--topic", "topics", multiple=True, help="Only this one, repeatable.  [default: all that were audited]")
@running.html_option
@running.runs_on_spark
def report(
    shared: Shared, path: str, topics: tuple[str, ...], html: Path | None, master: str, conf: tuple[str, ...]
) -> None:
    """Say who wrote how much under which generation, who took over, what audits found, and how far behind the readers
    of shadows were: out of the tables at PATH that `audit --table` writes. Asks neither Kafka nor a node.
    """
    with running.failures_in_a_sentence():
        from sidecar.jobs import report as job  # noqa: PLC0415 - loads PySpark, an extra

        job.check_path(path, conf)
        found = job.report(path, topics, lambda: running.spark_session(master, conf), running.say, html=html)
    write([each.as_json() for each in found], shared.output, lambda: _as_text(found))


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
