"""`sidecar pipeline audit`: whether whole logs keep what the nodes promise."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import config_option, output_option, pass_shared
from sidecar.cli.output import table, write
from sidecar.cli.pipeline.running import (
    bootstrap_option,
    runs_on_spark,
    settings_of,
    spark_session,
    tell,
    tell_rate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sidecar.cli.options import Shared
    from sidecar.cli.pipeline.knowledge import Knowledge
    from sidecar.pipeline.audit.judge import Audit, ReadRecords
    from sidecar.pipeline.audit.page import Shown
    from sidecar.pipeline.audit.stretches import Stretch
    from sidecar.pipeline.audit.tables import AuditTables
    from sidecar.pipeline.kafka import Kafka
    from sidecar.settings import Settings

_COLUMNS: Final = (
    "partition", "offset", "producer_id", "producer_epoch", "base_offset", "control", "sequence_id", "producer_name",
    "id_problem",
)  # fmt: skip
_SHOWN: Final = 3
"""Examples of each kind in a table for people; JSON and the page have more."""

Offsets = dict[int, int]


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
@click.option("--table", "path", metavar="PATH", help="Delta tables to add to: runs, violations, verdicts, takeovers.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page with plots.")
@bootstrap_option
@click.option(
    "--kafka",
    metavar="HOST:PORT,…",
    help="Kafka itself, for the internal topics of the nodes. [default: SIDECAR_BOOTSTRAP_SERVERS]",
)
@click.option("--cluster", help="The cluster of nodes. [default: SIDECAR_CLUSTER]")
@runs_on_spark
@config_option
@output_option
@pass_shared
def audit(
    shared: Shared,
    topics: tuple[str, ...],
    every: bool,
    begin: str | None,
    until: str,
    path: str | None,
    html: Path | None,
    bootstrap: str | None,
    kafka: str | None,
    cluster: str | None,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Look through the whole log of each TOPIC, up to its end of now, for what nodes promise never happens.

    Duplicates and regressions of sequence ids, interleaved generations, batches that no node wrote, missing first and
    last ids; gaps between ids are told and are no violation. Exit code 1 on a violation. A shadow is audited through a
    node (`--bootstrap`).

    `sidecar pipeline audit orders --html orders.html`
    """
    if bool(topics) == every:
        raise CommandError("name topics, or --all of them", Exit.USAGE)
    settings = settings_of(shared.config, {"cluster": cluster})
    servers = ",".join(map(str, settings.bootstrap_servers))
    with spark_session(master, conf) as spark:
        from sidecar.pipeline.kafka import Kafka  # noqa: PLC0415 - an extra
        from sidecar.pipeline.source import register  # noqa: PLC0415

        register(spark)
        with Kafka(bootstrap or servers) as data, Kafka(kafka or servers) as internal:
            _check_same(data, internal)
            job = _Job(spark, settings, data, internal, begin, until)
            found = job.run(topics, path=path, with_page=html is not None)
            cluster_id = data.cluster_id
        if html is not None:
            _write_page(html, job.pages, cluster_id)
    as_data = [each.as_json() for each in found]
    is_one = len(topics) == 1
    write(as_data[0] if is_one else as_data, shared.output, lambda: _as_text(found))
    if not all(each.passes for each in found):
        raise SystemExit(Exit.FAILURE)


def _check_same(data: Kafka, internal: Kafka) -> None:
    if data.cluster_id != internal.cluster_id:
        raise CommandError(
            f"{data.bootstrap} is of the Kafka cluster {data.cluster_id}, and {internal.bootstrap} of"
            f" {internal.cluster_id}: name the same by --bootstrap and --kafka"
        )


@dataclass
class _Job:
    """Audits one topic after the other in one session."""

    spark: SparkSession
    settings: Settings
    data: Kafka
    internal: Kafka
    begin: str | None
    until: str

    def __post_init__(self) -> None:
        self.pages: list[Shown] = []

    def run(self, topics: Sequence[str], *, path: str | None, with_page: bool) -> list[Audit]:
        """In the order given; without topics: of all that nodes have served. Raises `PipelineError`."""
        tables = None
        if path is not None:
            from sidecar.pipeline.audit.tables import AuditTables  # noqa: PLC0415

            where = path if "://" in path else str(Path(path).absolute())
            tables = AuditTables(self.spark, where, self.data.cluster_id)
        pinned = {topic: self._pinned(topic) for topic in topics or self._served()}
        return [self._audit(topic, bounds, tables, with_page) for topic, bounds in pinned.items()]

    def _served(self) -> list[str]:
        from sidecar.cli.pipeline.knowledge import learn  # noqa: PLC0415

        there = set(self.data.topics())
        found = [topic for topic in learn(self.internal, self.settings.cluster).governed if topic in there]
        if not found:
            raise CommandError(
                f"the nodes of cluster {self.settings.cluster!r} have served no topic that is there: name one, or the"
                " cluster by --cluster",
                Exit.NOT_FOUND,
            )
        return found

    def _pinned(self, topic: str) -> dict[int, tuple[int, int]]:
        """The range of each partition, fixed before anything else is asked."""
        from sidecar.pipeline.errors import OffsetRangeError  # noqa: PLC0415
        from sidecar.pipeline.points import Extent, resolve  # noqa: PLC0415

        ends = self.data.ends(topic)
        log = Extent(topic, self.data.starts(topic), ends)
        stops = resolve(self.until, self.data, log)
        starts = dict(log.starts) if self.begin is None else resolve(self.begin, self.data, log)
        for partition, start in starts.items():
            if start > stops[partition]:
                raise OffsetRangeError(
                    f"partition {partition} of {topic} would be read from offset {start} to {stops[partition]}: --from"
                    " lies behind --to"
                )
        return {partition: (starts[partition], stops[partition]) for partition in sorted(ends)}

    def _audit(
        self, topic: str, bounds: dict[int, tuple[int, int]], tables: AuditTables | None, with_page: bool
    ) -> Audit:
        from sidecar.cli.pipeline.knowledge import facts_of, learn  # noqa: PLC0415
        from sidecar.pipeline.audit.judge import audit as judge  # noqa: PLC0415

        known = learn(self.internal, self.settings.cluster)
        self._tell(topic, bounds, known)
        facts = facts_of(known, known.source_of(topic), governed_by_default=self.settings.deduplication)
        began = time.monotonic()
        runs = self._frame(topic, {p: first for p, (first, _) in bounds.items()}, {p: end for p, (_, end) in bounds.items()})
        found = judge(self.spark, topic, runs, bounds, facts, self._reader(topic, bounds))
        tell_rate(found.records, time.monotonic() - began)
        now = int(time.time() * 1000)
        if tables is not None:
            tables.add(found, facts.takeovers, now)
        if with_page:
            from sidecar.pipeline.audit.page import shown  # noqa: PLC0415

            self.pages.append(shown(found, facts.takeovers))
        found.free()
        return found

    def _tell(self, topic: str, bounds: Mapping[int, tuple[int, int]], known: Knowledge) -> None:
        offsets = sum(end - start for start, end in bounds.values())
        tell(f"auditing {topic}: {offsets:,} offsets in {len(bounds)} partitions")
        if not known.is_there:
            tell(
                f"there is no topic {known.names.ownership}: without what nodes know, batches are judged by their ids"
                " alone. Name Kafka itself by --kafka and the cluster of nodes by --cluster"
            )

    def _frame(self, topic: str, starts: Offsets, ends: Offsets, view: str = "runs") -> DataFrame:
        reader = self.spark.read.format("sidecar").option("bootstrap.servers", self.data.bootstrap)
        options = {
            "topic": topic,
            "view": view,
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "sequenceIdHeader": self.settings.sequence_id_header,
            "producerNameHeader": self.settings.producer_name_header,
        }
        if view == "records":
            options["columns"] = ",".join(_COLUMNS)
        return reader.options(**options).load()

    def _reader(self, topic: str, bounds: Mapping[int, tuple[int, int]]) -> ReadRecords:
        """Reads stretches; the n-th of each partition together."""

        def read(stretches: Sequence[Stretch]) -> DataFrame:
            offsets = sum(each.last - each.first + 1 for each in stretches)
            tell(f"reading {offsets:,} offsets of {topic} again, record by record")
            layers: list[dict[int, Stretch]] = []
            for each in stretches:
                layer = next((found for found in layers if each.partition not in found), None)
                if layer is None:
                    layers.append(layer := {})
                layer[each.partition] = each
            frames = [self._layer(topic, bounds, layer) for layer in layers]
            found = frames[0]
            for frame in frames[1:]:
                found = found.unionByName(frame)
            return found

        return read

    def _layer(
        self, topic: str, bounds: Mapping[int, tuple[int, int]], layer: Mapping[int, Stretch]
    ) -> DataFrame:
        starts = {p: layer[p].first if p in layer else first for p, (first, _) in bounds.items()}
        ends = {p: layer[p].last + 1 if p in layer else first for p, (first, _) in bounds.items()}
        return self._frame(topic, starts, ends, "records").select(*_COLUMNS)


def _write_page(file: Path, pages: Sequence[Shown], cluster_id: str) -> None:
    from sidecar.pipeline.audit.page import page  # noqa: PLC0415
    from sidecar.pipeline.page import write as write_page  # noqa: PLC0415

    write_page(file, page(pages, cluster_id, int(time.time() * 1000)))
    tell(f"the page: {file}")


def _as_text(found: Sequence[Audit]) -> str:
    columns = ("topic", "records", *found[0].totals, "gaps", "malformed", "verdict")
    rows = [
        (each.topic, f"{each.records:,}", *(f"{count:,}" for count in each.totals.values()), f"{each.gaps:,}",
         f"{each.malformed:,}", "passes" if each.passes else "violated")
        for each in found
    ]  # fmt: skip
    examples = [
        (each.topic, one["kind"], one["partition"], one["offset"], one["name"], one["sequence_id"], one["detail"])
        for each in found
        for one in _first_few(each.examples)
    ]
    text = table(columns, rows)
    if examples:
        text += "\n\n" + table(("topic", "kind", "partition", "offset", "producer", "id", "what"), examples)
    return text


def _first_few(examples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    seen: dict[str, int] = {}
    found: list[Mapping[str, Any]] = []
    for each in examples:
        seen[each["kind"]] = seen.get(each["kind"], 0) + 1
        if seen[each["kind"]] <= _SHOWN:
            found.append(each)
    return found
