"""`sidecar pipeline compact`: the newest value of each key at a point in time, or what changed between two."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.confirm import confirm, yes_option
from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import config_option, output_option, pass_shared
from sidecar.cli.output import pairs, write
from sidecar.cli.pipeline.export import absolute
from sidecar.cli.pipeline.running import (
    bootstrap_option,
    opened_kafka,
    runs_on_spark,
    settings_of,
    spark_session,
    tell,
    tell_rate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.cli.options import Shared
    from sidecar.pipeline.compact import Counts
    from sidecar.pipeline.points import Extent


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
@bootstrap_option
@runs_on_spark
@config_option
@output_option
@pass_shared
def compact(
    shared: Shared,
    shadow: str,
    as_of: str,
    since: str | None,
    path: str | None,
    yes: bool,
    bootstrap: str | None,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Write the newest value of each key of SHADOW, or of any topic, as of a point in time into a Delta table.

    Keys whose newest record has no value (a tombstone) are left out, and records without a key.

    Asks first, on a terminal, where a table is at PATH already.
    """
    if path is None and since is None:
        raise CommandError("name the table with --to, or two points with --diff", Exit.USAGE)
    bootstrap = bootstrap or ",".join(map(str, settings_of(shared.config, {}).bootstrap_servers))
    path = absolute(path) if path else None
    if path is not None:
        confirm(yes, lambda: _question(path))
    from sidecar.pipeline.points import check_order, extent, resolve  # noqa: PLC0415 - a part of jobs alone

    with opened_kafka(bootstrap) as kafka:
        log = extent(kafka, shadow)
        until = resolve(as_of, kafka, log)
        before = resolve(since, kafka, log) if since else None
        check_order(shadow, before or {}, until)
        cluster_id = kafka.cluster_id
    with spark_session(master, conf) as spark:
        from sidecar.pipeline.compact import Compaction, read  # noqa: PLC0415 - loads PySpark

        _tell_points(log, until, before)
        began = time.perf_counter()
        counts = Compaction(read(spark, bootstrap, log, until, {}), log, cluster_id, until, before).run(path)
        tell_rate(counts.records, time.perf_counter() - began)
    _warn(counts)
    found = _as_data(shadow, path, counts, until, before)
    write(found, shared.output, lambda: pairs(found))


def _question(path: str) -> str:
    """Of a table on this machine; whether there is one elsewhere only Spark could say. Older versions stay there."""
    there = "://" not in path and Path(path, "_delta_log").is_dir()
    return f"There is a table at {path}: its rows are replaced, all of them. Replace them?" if there else ""


def _tell_points(log: Extent, until: Mapping[int, int], before: Mapping[int, int] | None) -> None:
    tell(f"reading {log.topic} up to {_offsets(until)}")
    if before is not None:
        tell(f"comparing with {_offsets(before)}")
    lost = {partition: start for partition, start in log.starts.items() if start}
    if lost:
        tell(f"what lies in front of {_offsets(lost)} is gone: keys that were written there alone are not seen")


def _warn(counts: Counts) -> None:
    if counts.null_keys:
        tell(f"{counts.null_keys:,} records have no key: left out")
    if counts.keys_in_several_partitions:
        tell(
            f"{counts.keys_in_several_partitions:,} keys are in several partitions: of each the record with the newer"
            " timestamp was taken"
        )


def _offsets(offsets: Mapping[int, int]) -> str:
    return " ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _as_data(
    topic: str, path: str | None, counts: Counts, until: Mapping[int, int], before: Mapping[int, int] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": topic,
        "path": path,
        "as_of": {str(partition): offset for partition, offset in sorted(until.items())},
        "records": counts.records,
        "null_keys": counts.null_keys,
        "tombstones": counts.tombstones,
        "keys_in_several_partitions": counts.keys_in_several_partitions,
    }
    if before is None:
        return found | {"keys": counts.rows.get("key", 0)}
    found["from"] = {str(partition): offset for partition, offset in sorted(before.items())}
    return found | {name: counts.rows.get(name, 0) for name in ("added", "changed", "removed")}
