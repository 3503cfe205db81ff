"""`sidecar pipeline audit`: checks whether whole logs are as the nodes promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi, topic_path
from sidecar.cli.cursor import cursors
from sidecar.cli.options import examples
from sidecar.cli.output import CommandError, Exit, listing, table, write
from sidecar.cli.pipeline import running
from sidecar.cli.setting_flags import settings_here
from sidecar.pipeline.audit.explained import EXPLAINED, GAPS, MALFORMED, spread_gaps
from sidecar.pipeline.audit.facts import Lag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.cli.options import Shared
    from sidecar.pipeline.audit.judge import Audit


def lags_of(api: AdminApi) -> Callable[[str], list[Lag]]:
    """Returns a function that requests a topic's shadows and their cursors from a node. If no node answers, it warns
    once and returns nothing.
    """
    silent: list[str] = []

    def lags(topic: str) -> list[Lag]:
        if silent:
            return []
        try:
            shadows = [each["name"] for each in api.pages(topic_path(topic, "shadows"))]
            found = [(name, each) for name in shadows for each in cursors(api, name)]
        except CommandError as error:
            silent.append(topic)
            running.say(f"how far behind the readers of shadows are is not noted: {error.message}")
            return []
        return [Lag(name, each["group"], _behind(each)) for name, each in found]

    return lags


def _behind(cursor: dict[str, Any]) -> int:
    return sum(part["lag"] or 0 for part in cursor["partitions"].values())


_ASK_S: Final = 10.0
_SHOWN: Final = 3
"""Examples of each kind in a table; JSON and the page have more."""
_EXAMPLE: Final = (
    "topic",
    "kind",
    "partition",
    "offset",
    ("producer", "name"),
    ("id", "sequence_id"),
    ("what", "detail"),
)


@examples(
    "sidecar pipeline audit orders --html orders.html",
    "sidecar pipeline audit --all --table /data/audits -o json",
)
@click.command()
@click.argument("topics", nargs=-1, metavar="TOPIC...")
@click.option("--all", "every", is_flag=True, help="Every topic that nodes have served.")
@click.option(
    "--from",
    "begin",
    metavar="TIME|OFFSETS",
    help='Where to begin: 2026-01-31T12:00:00Z, or {"0": 5, "1": 7}.  [default: what the log has]',
)
@click.option("--to", "until", default="now", show_default=True, metavar="TIME|OFFSETS|now", help="Where to end.")
@click.option("--table", metavar="PATH", help="Delta tables to add to, for `report` and for yourself.")
@running.html_option
@running.bootstrap_option
@running.client_config_option
@click.option(
    "--kafka",
    metavar="HOST:PORT,…",
    help="Kafka itself, for the internal topics of the nodes. [default: SIDECAR_BOOTSTRAP_SERVERS]",
)
@click.option("--cluster", help="The cluster of nodes. [default: SIDECAR_CLUSTER]")
@running.runs_on_spark
def audit(
    shared: Shared,
    topics: tuple[str, ...],
    every: bool,
    bootstrap: str | None,
    client_config: Path | None,
    kafka: str | None,
    cluster: str | None,
    master: str,
    conf: tuple[str, ...],
    **said: Any,
) -> None:
    """Look through the whole log of each TOPIC, up to its end of now, for what nodes promise never happens.

    Duplicates and regressions of sequence ids, interleaved generations, batches that no node wrote, missing first and
    last ids; gaps between ids are reported and are no violation. Exit code 1 on a violation. A shadow is audited
    through a node (`--bootstrap`).
    """
    if bool(topics) == every:
        raise CommandError("name topics, or --all of them", Exit.USAGE)
    settings = settings_here(shared.config, None if bootstrap and kafka else running.say, {"cluster": cluster})
    servers = ",".join(map(str, settings.bootstrap_servers))
    bootstrap, kafka = bootstrap or servers, kafka or servers
    security = running.security_of(settings, client_config)
    with running.failures_in_a_sentence():
        from sidecar.jobs import audit as job  # noqa: PLC0415 - loads PySpark, an extra

        lags = lags_of(shared.api(_ASK_S))
        asked = job.Asked(topics, bootstrap, kafka, lags=lags, security=security, **said)
        brief = job.is_brief(asked)
        found = job.audit(asked, settings, lambda: running.spark_session(master, conf, brief=brief), running.say)
    as_data = [each.as_json() for each in found]
    is_one = len(topics) == 1
    write(as_data[0] if is_one else as_data, shared.output, lambda: _as_text(found))
    if not all(each.passes for each in found):
        raise SystemExit(Exit.FAILURE)


def _as_text(found: Sequence[Audit]) -> str:
    columns = ("topic", "records", *found[0].totals, "gaps", "malformed", "verdict")
    rows = [
        (each.topic, f"{each.records:,}", *(f"{count:,}" for count in each.totals.values()), f"{each.gaps:,}",
         f"{each.malformed:,}", "passes" if each.passes else "violated")
        for each in found
    ]  # fmt: skip
    text = "\n".join([table(columns, rows), *_explanations(found)])
    if examples := [{"topic": each.topic, **one} for each in found for one in _first_few(each.examples)]:
        text += "\n\n" + listing(examples, _EXAMPLE)
    return text


def _explanations(found: Sequence[Audit]) -> list[str]:
    """A sentence for each kind with at least one finding."""
    is_there = {kind for each in found for kind, count in each.totals.items() if count}
    is_there |= {kind for each in found for kind in (GAPS, MALFORMED) if getattr(each, kind)}
    lines = [f"{kind}: {text}" for kind, text in EXPLAINED.items() if kind in is_there]
    spread = [f"{each.topic}: {text}" for each in found if (text := spread_gaps(each.spread))]
    return ["", *lines, *spread] if lines or spread else []


def _first_few(examples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    seen: dict[str, int] = {}
    found: list[Mapping[str, Any]] = []
    for each in examples:
        seen[each["kind"]] = seen.get(each["kind"], 0) + 1
        if seen[each["kind"]] <= _SHOWN:
            found.append(each)
    return found
