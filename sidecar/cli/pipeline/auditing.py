"""Audits of topics one after the other: what is known of each is gathered, its range pinned, and its log judged.

The order matters: where logs end is asked first, so that whatever was written in front of that is of an epoch that the
changelog, read afterwards, knows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec, TypeVar

from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.pipeline.knowledge import facts_of, learn
from sidecar.cli.pipeline.running import failure_of, tell, tell_rate
from sidecar.pipeline.audit.judge import audit as judge
from sidecar.pipeline.audit.page import shown
from sidecar.pipeline.audit.tables import AuditTables
from sidecar.pipeline.errors import OffsetRangeError
from sidecar.pipeline.points import Extent, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sidecar.cli.pipeline.knowledge import Knowledge
    from sidecar.pipeline.audit.facts import Lag
    from sidecar.pipeline.audit.judge import Audit, ReadRecords
    from sidecar.pipeline.audit.page import Shown
    from sidecar.pipeline.audit.stretches import Stretch
    from sidecar.pipeline.kafka import Kafka
    from sidecar.settings import Settings

_COLUMNS: Final = (
    "partition", "offset", "producer_id", "producer_epoch", "base_offset", "control", "sequence_id", "producer_name",
    "id_problem",
)  # fmt: skip

Offsets = dict[int, int]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Auditor:
    """`data` at `bootstrap` is where logs are read, `internal` at `kafka` where the nodes' own topics are; `begin` and
    `until` are points as `sidecar.pipeline.points` has them, None for all that a log has. `lags` tells how far behind
    the readers of a topic's shadows are.
    """

    spark: SparkSession
    settings: Settings
    data: Kafka
    bootstrap: str
    internal: Kafka
    kafka: str
    begin: str | None
    until: str
    lags: Callable[[str], Sequence[Lag]]
    pages: list[Shown] = field(default_factory=list)

    def run(self, topics: Sequence[str], *, path: str | None, with_page: bool) -> list[Audit]:
        """In the order given; without topics: of all that nodes have served. Raises `PipelineError`."""
        tables = None
        if path is not None:
            where = path if "://" in path else str(Path(path).absolute())
            tables = AuditTables(self.spark, where, self.data.cluster_id)
        if topics:
            pinned = {topic: self._pinned(topic) for topic in topics}
            return [self._audit(topic, bounds, tables, with_page) for topic, bounds in pinned.items()]
        there = {topic: bounds for topic in self._served() if (bounds := _unless_gone(topic, self._pinned, topic))}
        each = (_unless_gone(topic, self._audit, topic, bounds, tables, with_page) for topic, bounds in there.items())
        return [found for found in each if found is not None] or self._none()

    def _served(self) -> list[str]:
        there = set(self.data.topics())
        found = [topic for topic in learn(self.internal, self.kafka, self.settings.cluster).governed if topic in there]
        return found or self._none()

    def _none(self) -> NoReturn:
        raise CommandError(
            f"the nodes of cluster {self.settings.cluster!r} have served no topic that is there: name one, or the"
            " cluster by --cluster",
            Exit.NOT_FOUND,
        )

    def _pinned(self, topic: str) -> dict[int, tuple[int, int]]:
        """The range of each partition, fixed before anything else is asked."""
        starts = self.data.starts(topic)
        ends = {partition: end for partition, end in self.data.ends(topic).items() if partition in starts}
        log = Extent(topic, starts, ends)
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
        known = learn(self.internal, self.kafka, self.settings.cluster)
        self._tell(topic, bounds, known)
        facts = facts_of(known, known.source_of(topic), self.settings)
        bounds = self._left(topic, bounds)
        began = time.monotonic()
        read = {p: span for p, span in bounds.items() if span[0] < span[1]}
        runs = self._frame(
            topic, {p: first for p, (first, _) in read.items()}, {p: end for p, (_, end) in read.items()}
        )
        found = judge(self.spark, topic, runs, bounds, facts, self._reader(topic))
        tell_rate(found.records, time.monotonic() - began)
        now = int(time.time() * 1000)
        if tables is not None:
            tables.add(found, facts.takeovers, self.lags(topic), now)
        if with_page:
            self.pages.append(shown(found, facts.takeovers))
        found.free()
        return found

    def _left(self, topic: str, bounds: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Of ranges that begin where logs began: what retention has left of them, as the topics before took their
        time.
        """
        if self.begin is not None:
            return bounds
        starts = self.data.starts(topic)
        found = {p: (min(max(first, starts.get(p, first)), end), end) for p, (first, end) in bounds.items()}
        gone = sum(first - bounds[partition][0] for partition, (first, _) in found.items())
        if gone:
            tell(f"retention has taken {gone:,} offsets of {topic} meanwhile: they are not looked at")
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
        reader = self.spark.read.format("sidecar").option("bootstrap.servers", self.bootstrap)
        options = {
            "topic": topic,
            "view": view,
            "partitions": ",".join(map(str, starts)),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "sequenceIdHeader": self.settings.sequence_id_header,
            "producerNameHeader": self.settings.producer_name_header,
        }
        if view == "records":
            options["columns"] = ",".join(_COLUMNS)
        return reader.options(**options).load()

    def _reader(self, topic: str) -> ReadRecords:
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
            frames = [self._layer(topic, layer) for layer in layers]
            found = frames[0]
            for frame in frames[1:]:
                found = found.unionByName(frame)
            return found

        return read

    def _layer(self, topic: str, layer: Mapping[int, Stretch]) -> DataFrame:
        starts = {partition: each.first for partition, each in layer.items()}
        ends = {partition: each.last + 1 for partition, each in layer.items()}
        return self._frame(topic, starts, ends, "records").select(*_COLUMNS)


def _unless_gone(topic: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What comes of it; None, and a word, where the topic was deleted meanwhile."""
    try:
        return do(*args, **kwargs)
    except Exception as error:
        failure = error if isinstance(error, CommandError) else failure_of(error)
        if failure is None or failure.exit_code != Exit.NOT_FOUND:
            raise
        tell(f"{topic} was deleted meanwhile: {failure.message}")
        return None
