"""`sidecar pipeline compact`: the newest value of each key at a point in time, or what changed between two."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from sidecar.cli.confirm import confirm, yes_option
from sidecar.cli.options import Shared, examples
from sidecar.cli.output import CommandError, Exit, pairs, write
from sidecar.cli.pipeline import running
from sidecar.pipeline.folders import absolute


@examples(
    "sidecar pipeline compact orders-audit --as-of 2026-01-31T12:00:00Z --to /lake/orders-january",
    "sidecar pipeline compact orders --diff 2026-01-31T12:00:00Z -o json",
)
@click.command()
@click.argument("shadow")
@click.option(
    "--as-of",
    default="now",
    show_default=True,
    metavar="TIME|OFFSETS|now",
    help='The point: 2026-01-31T12:00:00Z (by timestamps), {"0": 5, "1": 7} (below these offsets), or now.',
)
@click.option("--diff", "since", metavar="FROM", help="What changed since this point, given like --as-of, instead.")
@click.option("--to", "path", metavar="PATH", help="The Delta table, replaced as a whole; --diff works without.")
@yes_option
@running.bootstrap_option
@running.client_config_option
@running.runs_on_spark
def compact(
    shared: Shared,
    shadow: str,
    as_of: str,
    since: str | None,
    path: str | None,
    yes: bool,
    bootstrap: str | None,
    client_config: Path | None,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Write the newest value of each key of SHADOW, or of any topic, as of a point in time into a Delta table.

    Keys whose newest record has no value (a tombstone) are left out, and records without a key.

    Asks first, on a terminal, where a table is at PATH already.
    """
    if path is None and since is None:
        raise CommandError("name the table with --to, or two points with --diff", Exit.USAGE)
    servers, security = running.source_of(shared.config, bootstrap, client_config)
    path = absolute(path) if path else None
    if path is not None:
        confirm(yes, lambda: _question(path))
    with running.failures_in_a_sentence():
        from sidecar.jobs.compact import compact as run  # noqa: PLC0415 - takes as long as all the rest

        job = run(
            servers,
            shadow,
            lambda: running.spark_session(master, conf),
            running.say,
            path=path,
            as_of=as_of,
            since=since,
            security=security,
        )
    found = job.as_data()
    write(found, shared.output, lambda: pairs(found))


def _question(path: str) -> str:
    """The question before a table on this machine is replaced; only Spark could find tables elsewhere. Older versions
    stay in the table.
    """
    there = "://" not in path and Path(path, "_delta_log").is_dir()
    return f"There is a table at {path}: its rows are replaced, all of them. Replace them?" if there else ""
