"""Audits topics one after the other: pins the range of each, collects what nodes know of it, and judges its log.

The order matters. The ends of the logs are read first and the changelog after them, so the changelog knows the epoch of
every batch before those ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NoReturn, ParamSpec, TypeVar

from markupsafe import Markup
from pyspark.sql import DataFrame, SparkSession

from sidecar.jobs.knowledge import Knowledge, facts_of, learn
from sidecar.jobs.session import Say, Sessions, rate
from sidecar.pipeline.audit.explained import EXPLAINED, spread_gaps
from sidecar.pipeline.audit.facts import Lag, Takeover
from sidecar.pipeline.audit.judge import Audit, ReadRecords, Stretch, thrift
from sidecar.pipeline.audit.judge import audit as judge
from sidecar.pipeline.audit.tables import AuditTables
from sidecar.pipeline.audit.writers import is_data
from sidecar.pipeline.errors import OffsetRangeError, PipelineError, UnknownTopicError, pipeline_error_of
from sidecar.pipeline.folders import absolute
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.page import plots, render, write
from sidecar.pipeline.points import Extent, resolve
from sidecar.pipeline.security import of_settings
from sidecar.pipeline.source import Log, is_small, register, view
from sidecar.settings import Settings

_COLUMNS: Final = (
    "partition", "offset", "producer_id", "producer_epoch", "base_offset", "control", "sequence_id", "producer_name",
    "id_problem",
)  # fmt: skip

_TAKEOVERS: Final = 200
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to audit: `topics` (none: all that nodes have served) from `begin` to `until`, which are points as in
    `sidecar.pipeline.points` (`begin` None: from the start of the log).

    Logs are read at `bootstrap` with the settings `security` of `sidecar.pipeline.security`. The internal topics are
    read at `kafka` with the settings of the nodes. `lags` returns the lags of the readers of a topic's shadows. The
    results are added to the Delta tables at `table` and written to the page `html`.
    """

    topics: Sequence[str]
    bootstrap: str
    kafka: str
    begin: str | None = None
    until: str = "now"
    lags: Callable[[str], Sequence[Lag]] = lambda _: ()
    table: str | None = None
    html: Path | None = None
    security: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def is_brief(asked: Asked) -> bool:
    """Whether all logs are so small that Java would take longer to compile Spark for speed than the audit takes. False
    if no topics are named. Raises `PipelineError` as `audit`.
    """
    with Kafka(asked.bootstrap, security=asked.security) as data:
        logs = [(data.partitions(topic), data.starts(topic), data.ends(topic)) for topic in asked.topics]
    return bool(logs) and all(is_small({p: (starts[p], ends[p]) for p in starts}) for _, starts, ends in logs)


def audit(asked: Asked, settings: Settings, sessions: Sessions, say: Say) -> list[Audit]:
    """Audit topics in the order given. Of `settings` only those are used that say where nodes store their state. Raises
    `PipelineError`, before Spark is opened if no broker answers or a topic does not exist.
    """
    with ExitStack() as stack:
        data = stack.enter_context(Kafka(asked.bootstrap, security=asked.security))
        for topic in asked.topics:
            data.partitions(topic)
        internal = stack.enter_context(Kafka(asked.kafka, security=of_settings(settings)))
        clusters = {asked.bootstrap: data.cluster_id, asked.kafka: internal.cluster_id}
        if len(set(clusters.values())) > 1:
            text = ", and ".join(f"{address} belongs to the Kafka cluster {its}" for address, its in clusters.items())
            raise PipelineError(f"{text}: name the same one by --bootstrap and --kafka")
        with sessions() as spark:
            auditor = _Auditor(spark, settings, asked, data, internal, say)
            found = auditor.run()
        if asked.html is not None:
            at_ms = int(time.time() * 1000)
            its = {"audits": auditor.shown, "cluster_id": data.cluster_id, "at_ms": at_ms}
            write(asked.html, render("audit.html", **its, explained=EXPLAINED, spread=spread_gaps))
            say(f"the page: {asked.html}")
    return found


@dataclass
class _Auditor:
    """One running job: `data` is the Kafka whose logs are audited, `internal` the one with the internal topics."""

    spark: SparkSession
    settings: Settings
    asked: Asked
    data: Kafka
    internal: Kafka
    say: Say
    shown: list[tuple[Audit, Sequence[Takeover], Mapping[str, Markup]]] = field(default_factory=list)
    """What the page shows of each topic: the audit, its newest takeovers, and plots by title."""
    _knows_source: bool = False

    def run(self) -> list[Audit]:
        topics, path = self.asked.topics, self.asked.table
        tables = None if path is None else AuditTables(self.spark, absolute(path), self.data.cluster_id)
        if topics:
            pinned = {topic: self._pinned(topic) for topic in topics}
            return [self._audit(topic, bounds, tables) for topic, bounds in pinned.items()]
        there = {topic: bounds for topic in self._served() if (bounds := self._unless_gone(topic, self._pinned, topic))}
        each = (self._unless_gone(topic, self._audit, topic, bounds, tables) for topic, bounds in there.items())
        return [found for found in each if found is not None] or self._none()

    def _served(self) -> list[str]:
        there = set(self.data.topics())
        found = [topic for topic in self._learn().governed if topic in there]
        return found or self._none()

    def _none(self) -> NoReturn:
        raise UnknownTopicError(
            f"the nodes of cluster {self.settings.cluster!r} have served no topic that is there: name one, or the"
            " cluster by --cluster"
        )

    def _learn(self) -> Knowledge:
        return learn(self.internal, self.settings.cluster)

    def _pinned(self, topic: str) -> dict[int, tuple[int, int]]:
        """The range of each partition, determined before the changelog is read."""
        starts = self.data.starts(topic)
        ends = {partition: end for partition, end in self.data.ends(topic).items() if partition in starts}
        log = Extent(topic, starts, ends)
        stops = resolve(self.asked.until, self.data, log)
        starts = dict(log.starts) if self.asked.begin is None else resolve(self.asked.begin, self.data, log)
        for partition, start in starts.items():
            if start > stops[partition]:
                raise OffsetRangeError(
                    f"partition {partition} of {topic} would be read from offset {start} to {stops[partition]}: --from"
                    " lies behind --to"
                )
        return {partition: (starts[partition], stops[partition]) for partition in sorted(ends)}

    def _audit(self, topic: str, bounds: dict[int, tuple[int, int]], tables: AuditTables | None) -> Audit:
        known = self._learn()
        self._begin(topic, bounds, known)
        facts = facts_of(known, known.source_of(topic), self.settings, self.say)
        bounds = self._left(topic, bounds)
        began = time.monotonic()
        held = {p: span for p, span in bounds.items() if span[0] < span[1]}
        runs = self._view(topic, "runs", held)
        found = judge(self.spark, topic, runs, bounds, facts, self._reader(topic), is_few=is_small(held))
        self.say(rate(found.records, time.monotonic() - began))
        now = int(time.time() * 1000)
        if tables is not None:
            self.say(f"writing what was found of {topic} to the tables")
            tables.add(found, facts.takeovers, self.asked.lags(topic), now)
        if self.asked.html is not None:
            self.say(f"adding up what the page shows of {topic}")
            with thrift(self.spark, is_due=is_small(held)):
                takeovers = sorted(facts.takeovers, key=lambda each: each.at_ms)[-_TAKEOVERS:]
                drawn = plots(found.runs.where(is_data), map(asdict, takeovers))
                self.shown.append((found, takeovers, drawn))
        found.free()
        return found

    def _left(self, topic: str, bounds: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """The ranges without the records that retention deleted while earlier topics were audited. Changes only ranges
        that begin at the start of the log.
        """
        if self.asked.begin is not None:
            return bounds
        starts = self.data.starts(topic)
        found = {p: (min(max(first, starts.get(p, first)), end), end) for p, (first, end) in bounds.items()}
        gone = sum(first - bounds[partition][0] for partition, (first, _) in found.items())
        if gone:
            self.say(f"retention has taken {gone:,} offsets of {topic} meanwhile: they are not looked at")
        return found

    def _begin(self, topic: str, bounds: Mapping[int, tuple[int, int]], known: Knowledge) -> None:
        offsets = sum(end - start for start, end in bounds.values())
        self.say(f"auditing {topic}: {offsets:,} offsets in {len(bounds)} partitions")
        if not known.is_there:
            self.say(
                f"there is no topic {known.names.ownership}: without what nodes know, batches are judged by their ids"
                " alone. Name Kafka itself by --kafka and the cluster of nodes by --cluster"
            )

    def _view(self, topic: str, name: str, ranges: Mapping[int, tuple[int, int]], **more: str) -> DataFrame:
        if not (self._knows_source or is_small(ranges)):
            register(self.spark)
            self._knows_source = True
        headers = self.settings.sequence_id_header, self.settings.producer_name_header
        return view(self.spark, Log(self.asked.bootstrap, topic, *headers, self.asked.security), name, ranges, **more)

    def _reader(self, topic: str) -> ReadRecords:
        """Returns a function that reads stretches. It reads the first stretches of all partitions together, then the
        second ones, and so on.
        """

        def read(stretches: Sequence[Stretch]) -> DataFrame:
            offsets = sum(each.last - each.first + 1 for each in stretches)
            self.say(f"reading {offsets:,} offsets of {topic} again, record by record")
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
        ranges = {partition: (each.first, each.last + 1) for partition, each in layer.items()}
        return self._view(topic, "records", ranges, columns=",".join(_COLUMNS)).select(*_COLUMNS)

    def _unless_gone(self, topic: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of `do`, or None if the topic was deleted meanwhile, which is reported."""
        try:
            return do(*args, **kwargs)
        except Exception as error:
            failure = pipeline_error_of(error)
            if not isinstance(failure, UnknownTopicError):
                raise
            self.say(f"{topic} was deleted meanwhile: {failure}")
            return None
