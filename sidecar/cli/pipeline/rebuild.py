"""`sidecar pipeline rebuild`: computes with Spark, from a topic's log, what nodes know of its sequence ids, so that the
next node reads only the rest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.options import examples
from sidecar.cli.output import CommandError, Exit, listing, write
from sidecar.cli.pipeline import running
from sidecar.cli.setting_flags import settings_here
from sidecar.jobs import PORTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.cli.options import Shared
    from sidecar.jobs.rebuild import Rebuilt


@examples(
    "sidecar pipeline rebuild orders",
    "sidecar pipeline rebuild orders --until '{\"0\": 500}' --master spark://spark:7077",
)
@click.command()
@click.argument("topic")
@click.option(
    "--until",
    default="latest",
    show_default=True,
    metavar="OFFSETS",
    help='Up to which offsets, exclusive: `latest`, or JSON as {"0": 500, "1": 700}; other partitions to their end.',
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Kafka's own brokers, not a node: its snapshot topic is written. [default: SIDECAR_BOOTSTRAP_SERVERS]",
)
@click.option("--cluster", metavar="NAME", help="Whose topic it is. [default: SIDECAR_CLUSTER]")
@click.option("--redis-url", metavar="URL", help="The nodes' Redis. [default: SIDECAR_REDIS_URL]")
@click.option(
    "--portion",
    type=click.IntRange(min=1),
    default=PORTION,
    show_default=True,
    metavar="OFFSETS",
    help="Offsets to read before the result is stored; a run that was stopped continues from there.",
)
@running.runs_on_spark
def rebuild(
    shared: Shared,
    topic: str,
    until: str,
    bootstrap: str | None,
    cluster: str | None,
    redis_url: str | None,
    portion: int,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Rebuild what nodes know of the sequence ids of TOPIC: the highest one by producer name and partition.

    Goes on from the newest snapshot that is left, else from the beginning of the log, up to offsets that are settled at
    the start. Nodes may serve the topic meanwhile. A state that holds more is never replaced. Run again, it does the
    rest of what was not done.

    Exit code 1 where the ids of a partition cannot be known, and where Redis is away in the end.
    """
    given = {"bootstrap_servers": bootstrap, "redis_url": redis_url, "cluster": cluster}
    settings = settings_here(shared.config, running.say, given)
    offsets = _offsets(until)
    with running.failures_in_a_sentence():
        from sidecar.jobs.rebuild import rebuild as run  # noqa: PLC0415 - most of a node is behind it

        found = run(
            settings, topic, lambda: running.spark_session(master, conf), running.say, until=offsets, portion=portion
        )
    data = found.as_data()
    write(data, shared.output, lambda: _as_text(data))
    _fail_where_something_is_left(found)


def _offsets(text: str) -> dict[str, Any] | None:
    if text == "latest":
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandError(f'--until {text}: give `latest`, or offsets as {{"0": 500, "1": 700}}', Exit.USAGE)
    return found


def _fail_where_something_is_left(found: Rebuilt) -> None:
    topic, lost = found.topic, [each for each in found.partitions if each.problem is not None]
    if lost:
        raise CommandError(
            "\n".join(f"{topic}-{each.partition}: {each.problem}" for each in lost)
            + "\nNothing was written for what cannot be known. Bring back the snapshots, in Kafka or in Redis, and run"
            f" this again; or begin anew with what is left: `sidecar topic set {topic} --no-dedup`, then `--dedup`"
        )
    if found.redis_lacks:
        lacks = ", ".join(map(str, found.redis_lacks))
        raise CommandError(
            f"Redis cannot be reached: it lacks what is known of partitions {lacks}. The snapshot topic has all of it,"
            " which is enough for nodes; run this again to fill Redis, no record is read twice"
        )


def _as_text(data: Mapping[str, Any]) -> str:
    columns = ("partition", "outcome", "from", "covered", "until", "records", "malformed", "names")
    return listing(data["partitions"], columns)
