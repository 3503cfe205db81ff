"""Exports a shadow, or any topic, as a stream into a Delta table: every record once, also after crashes or a lost
checkpoint.

Theory of operation. Spark's checkpoint and Delta's table are committed one after the other, so after a crash one of
them is ahead. The table decides (`ledger`): each batch is cut to the offsets that the table lacks, and its rows are
appended together with their offsets. A stream without a matching checkpoint begins at the table's offsets. A batch that
would leave offsets out is refused. Only committed records are read (isolation level read_committed).

Records that retention deleted before they were exported are never skipped silently. The export ends with an error that
names the partition and the offsets. If gaps are accepted, it notes them beside the table (`gaps`) and continues after
them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sidecar.jobs import MAX_OFFSETS
from sidecar.jobs.session import Say, Sessions, rate
from sidecar.pipeline import gaps as noted
from sidecar.pipeline import tables
from sidecar.pipeline.checkpoint import Checkpoint, CheckpointOwner
from sidecar.pipeline.columns import Form, Format, behind, read_schema, records
from sidecar.pipeline.errors import PipelineError, UsageError, causes
from sidecar.pipeline.gaps import Cut, Gap, GapError, check_ends, cut, gaps
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.ledger import Ledger, MovedError
from sidecar.pipeline.points import listed
from sidecar.pipeline.security import for_java, of_spark
from sidecar.pipeline.tables import Identity

KIND: Final = "export"
_RIVALRIES: Final = 100
"""How many times in a row another export may commit first; the table advances each time."""

_LOOK_S: Final = 0.3
_USED_TWICE: Final = ("Multiple streaming queries are concurrently using", "CONCURRENT_STREAM_LOG_UPDATE")


class _StoppedError(Exception):
    """Not a failure: Spark began a batch after the export was stopped."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to export, and where to. `bootstrap` names nodes or brokers; `max_offsets` limits a batch; batches begin
    every `trigger_s` seconds (0: without a pause). `options` go to Spark's Kafka source.
    """

    bootstrap: str
    topic: str
    path: str
    checkpoint: str
    form: Form = field(default_factory=Form)
    available_now: bool = False
    max_offsets: int = MAX_OFFSETS
    trigger_s: float = 0.0
    accept_gaps: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after a commit: its rows and corrupt ones, the table's offsets, and how many offsets the table still
    lacks (None: Kafka did not answer).
    """

    version: int
    rows: int
    corrupt: int
    offsets: Mapping[int, int]
    lag: int | None


@dataclass(slots=True)
class Summary:
    """The result of one run."""

    rows: int = 0
    corrupt: int = 0
    commits: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


class Exporter:
    """One export. `run` blocks; a signal handler may call `stop` or set the event of that name. `committed` is called
    after each commit, `say` with messages about everything else.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        job: Job,
        committed: Callable[[Progress], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._spark, self._kafka, self._job, self._committed, self._say = spark, kafka, job, committed, say
        self._ledger = Ledger(spark, job.path, kafka.cluster_id, job.topic)
        self._checkpoint = Checkpoint(spark, job.checkpoint)
        self._identity = Identity(KIND, kafka.cluster_id, job.topic)
        self._stop = stop or threading.Event()
        self._closed = False
        self._appending = threading.Lock()
        self._failure: Exception | None = None
        self._summary = Summary()

    def stop(self) -> None:
        """End after the running commit."""
        self._stop.set()

    def run(self) -> Summary:
        """Export until the end of the log is reached (`available_now`) or `stop` is called.

        Raises `PipelineError`: before anything was changed for a table or checkpoint that is not this export's, and
        `GapError` where records were lost and that loss was not accepted.
        """
        self._kafka.partitions(self._job.topic)
        source = records(self._source({}), self._job.form)
        table_id = self._prepare(source)
        while not self._stop.is_set():
            begins = self._align(table_id)
            self._summary.offsets = dict(begins)
            query = self._start(begins)
            try:
                self._wait(query)
                break
            except StreamingQueryException as error:
                if self._stop.is_set() and isinstance(self._failure, _StoppedError):
                    break
                self._judge(error, begins)
        return self._summary

    # Before the stream ------------------------------------------------------------------------------------------------

    def _prepare(self, rows: DataFrame) -> str:
        """Create the table, or check that it is this export's. Returns Delta's id of it."""
        job, cluster_id = self._job, self._kafka.cluster_id
        found = tables.look(self._spark, job.path)
        if found is not None:
            self._check(found, rows)
        noted.check(self._spark, job.path, cluster_id, job.topic)
        self._checkpoint.check(cluster_id, job.topic, job.path, found.table_id if found else None)
        if found is None:
            self._create(rows)
            found = tables.look(self._spark, job.path, whole=False)
            assert found is not None, "it was just made"
            self._check(found, rows)  # another export may have created it first, with other columns
        self._ledger.expect()
        return found.table_id

    def _check(self, found: tables.Found, rows: DataFrame) -> None:
        tables.check(found, self._job.path, self._identity)
        tables.check_form(found, self._job.path, rows.schema, self._job.form.partition_by)
        tables.check_memory(found, self._job.path)

    def _create(self, rows: DataFrame) -> None:
        """Create the table, which begins where the log begins: records that retention deleted before are no gap."""
        starts = self._kafka.starts(self._job.topic)
        if not self._ledger.create(self._identity, rows.schema, self._job.form.partition_by, starts):
            return  # another export has created it at the same time
        for partition, start in sorted(starts.items()):
            if start:
                self._say(f"partition {partition} begins at offset {start}: what was in front of it is gone")

    def _align(self, table_id: str) -> dict[int, int]:
        """Where each partition continues. Keeps a checkpoint that matches these offsets, and clears any other."""
        planned = self._checkpoint.position()  # read before the table: a valid checkpoint is then never ahead of it
        stands = self._stands_behind_gaps()
        starts, ends = self._kafka.starts(self._job.topic), self._kafka.ends(self._job.topic)
        check_ends(self._job.topic, stands, ends)
        begins = {partition: stands.get(partition, 0) for partition in starts}
        fits = planned is not None and all(  # a partition that it lacks is read from 0 on, or not at all
            start <= planned.get(partition, 0) <= stands.get(partition, 0) for partition, start in starts.items()
        )
        if not fits:
            if planned is not None:
                self._say(f"the checkpoint {self._job.checkpoint} does not fit to the table: it is begun anew")
            self._checkpoint.begin(CheckpointOwner(self._kafka.cluster_id, self._job.topic, table_id))
        return begins

    def _count_anew(self) -> None:
        """Take the offsets from the rows if RESTORE or CLONE changed rows without offsets, or if the offsets were
        removed.
        """
        while self._ledger.is_set_back():
            stands = self._ledger.stands()
            partitions = dict.fromkeys([*stands, *self._kafka.starts(self._job.topic)], 0)
            with contextlib.suppress(MovedError):
                ends = {**partitions, **self._ledger.begins(), **self._ledger.counted()}
                self._ledger.append(None, stands, ends, anew=True)
                self._say("rows came or went by RESTORE or CLONE: where the table ends is counted anew from its rows")
        while True:
            stands = self._ledger.stands()
            unknown = self._kafka.starts(self._job.topic).keys() - stands.keys()
            rows = self._ledger.counted(unknown) if unknown else {}
            if not rows:
                return
            with contextlib.suppress(MovedError):
                self._ledger.append(None, stands, rows)

    def _stands_behind_gaps(self) -> dict[int, int]:
        """The table's offsets, moved past gaps if these are accepted. Raises `GapError` if they are not."""
        job = self._job
        while True:
            self._count_anew()
            stands, starts = self._ledger.stands(), self._kafka.starts(job.topic)
            lost = gaps(stands, starts)
            if not lost:
                return stands
            if not job.accept_gaps:
                raise GapError(job.topic, lost)
            noted.note(self._spark, job.path, self._kafka.cluster_id, job.topic, lost)
            with contextlib.suppress(MovedError):
                self._ledger.append(None, stands, {gap.partition: gap.last + 1 for gap in lost})
                self._summary.gaps += lost
                for gap in lost:
                    self._say(f"lost to retention: {gap}; noted in {noted.path_beside(job.path)}")

    # The stream -------------------------------------------------------------------------------------------------------

    def _source(self, begins: Mapping[int, int]) -> DataFrame:
        job = self._job
        offsets = {"startingOffsets": begins} if begins else {}
        options = of_spark(job.bootstrap, job.topic, self._spark, job.options, **offsets)
        options["maxOffsetsPerTrigger"] = str(job.max_offsets)
        return self._spark.readStream.format("kafka").options(**options).load()

    def _start(self, begins: Mapping[int, int]) -> StreamingQuery:
        job = self._job
        writer = records(self._source(begins), job.form).writeStream.foreachBatch(self._append)
        if job.available_now:
            writer = writer.trigger(availableNow=True)
        elif job.trigger_s:
            writer = writer.trigger(processingTime=f"{round(job.trigger_s * 1000)} milliseconds")
        self._failure = None
        name = f"export {job.topic}, checkpoint {job.checkpoint}"  # Spark allows one query of a name in a session
        return writer.option("checkpointLocation", job.checkpoint).queryName(name).start()

    def _append(self, batch: DataFrame, number: int) -> None:
        """Called by Spark in its own thread."""
        try:
            with self._appending:
                if self._closed:
                    raise _StoppedError
                self._append_new(batch, *self._checkpoint.batch(number))
        except Exception as error:
            self._failure = error
            raise

    def _append_new(self, batch: DataFrame, begins: dict[int, int], ends: dict[int, int]) -> None:
        for _ in range(_RIVALRIES):
            if self._ledger.is_set_back():
                raise PipelineError(
                    f"{self._job.path} was changed by RESTORE or CLONE meanwhile: start the export again"
                )
            stands = self._ledger.stands()
            new = cut(begins, ends, stands)
            if not new.ends:
                self._summary.offsets = {**self._summary.offsets, **stands}
                return
            try:
                done = self._ledger.append(_rows(batch, new, begins, ends), stands, new.ends)
            except MovedError:
                continue
            self._summary.rows += done.rows
            self._summary.corrupt += done.corrupt
            self._summary.commits += 1
            self._summary.offsets = offsets = {**stands, **new.ends}
            self._committed(Progress(done.version, done.rows, done.corrupt, offsets, self._lag(offsets)))
            return
        raise PipelineError(f"others write to {self._job.path} without a pause: let one export do it")

    def _lag(self, offsets: Mapping[int, int]) -> int | None:
        try:
            ends = self._kafka.ends(self._job.topic)
        except PipelineError:
            return None
        return sum(max(0, end - offsets.get(partition, 0)) for partition, end in ends.items())

    def _wait(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(_LOOK_S):  # pyright: ignore[reportArgumentType] - seconds, as it says itself
            if self._stop.is_set():
                with self._appending:  # after the running commit
                    self._closed = True
                query.stop()
                return

    def _judge(self, error: StreamingQueryException, begins: Mapping[int, int]) -> None:
        """Return if the stream can be started again, else raise the cause."""
        if isinstance(self._failure, PipelineError):
            raise self._failure from None
        text = str(error)
        if any(each in text for each in _USED_TWICE):
            raise PipelineError(
                f"another export uses the checkpoint {self._job.checkpoint} at this time: stop one of them, or give it"
                " a checkpoint of its own"
            ) from None
        starts = self._kafka.starts(self._job.topic)
        lost = gaps(self._ledger.stands(), starts)
        if lost and not self._job.accept_gaps:
            raise GapError(self._job.topic, lost) from None
        if not lost and starts.keys() == begins.keys():
            cause = self._failure or error
            raise PipelineError(f"the stream from {self._job.topic} failed: {causes(cause)}") from cause


def _rows(batch: DataFrame, new: Cut, begins: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
    """The rows of the batch that the table lacks; nearly always the batch itself."""
    touched = {partition for partition, end in ends.items() if end > begins.get(partition, 0)}
    return batch if not new.begins and touched <= new.ends.keys() else behind(batch, new.begins, new.ends)


def export(
    bootstrap: str,
    topic: str,
    path: str,
    sessions: Sessions,
    say: Say,
    *,
    stop: threading.Event | None = None,
    form: str = "bytes",
    schema: str | None = None,
    checkpoint: str | None = None,
    partition_by: Sequence[str] = (),
    security: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Summary:
    """Export into the Delta table at `path` until the end of the log is reached (option `available_now`), or until
    `stop` is set, which ends it after the commit under way.

    `form`: `bytes`, `string` or `json`, which takes a `schema` as DDL or as Spark's JSON. `security`: settings of
    `sidecar.pipeline.security`. `options`: other fields of `sidecar.jobs.export.Job`. Raises `PipelineError`.
    """
    with Kafka(bootstrap, security=security) as kafka:
        kafka.partitions(topic)
        with sessions() as spark:
            columns, begins = _form(form, schema, partition_by), checkpoint or f"{path}.checkpoint"
            job = Job(bootstrap, topic, path, begins, columns, options=for_java(security), **options)
            exporter = Exporter(spark, kafka, job, lambda done: say(_committed(done)), say, stop)
            say(f"exporting {topic} of {bootstrap} to {path}")
            began = time.perf_counter()
            done = exporter.run()
            say(rate(done.rows, time.perf_counter() - began))
            return done


def _form(form: str, schema: str | None, partition_by: Sequence[str]) -> Form:
    try:
        return Form(Format(form), read_schema(schema) if schema else None, tuple(partition_by))
    except PipelineError as error:
        raise UsageError(str(error)) from None


def _committed(done: Progress) -> str:
    lag = "how far behind is not known" if done.lag is None else f"{done.lag:,} offsets behind"
    corrupt = f", {done.corrupt:,} corrupt" if done.corrupt else ""
    return f"version {done.version}: {done.rows:,} rows{corrupt}; {lag}; at {listed(done.offsets)}"
