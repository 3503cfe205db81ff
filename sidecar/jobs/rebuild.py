"""Rebuilds what nodes know of a topic's sequence ids: reads its log in portions and writes the result to Kafka and
Redis. The next node then reads only the rest of the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from metadata import MetadataError, MetadataStore, MetadataUnavailable
from sidecar.changelog import ChangelogError
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.names import FORGOTTEN
from sidecar.jobs import PORTION
from sidecar.jobs.portions import Reader
from sidecar.jobs.progress import PortionIds, Progress, Range, next_portion, ranges
from sidecar.jobs.session import Say, Sessions, rate
from sidecar.jobs.states import Before, States, look
from sidecar.pipeline.errors import PipelineError, UnreachableError, UsageError
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.security.broker_access import access_of
from sidecar.settings import Settings

_TRIES: Final = 5
"""How many times writing a partition's state is tried again because a node wrote its own meanwhile."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result. `redis_lacks`: the partitions whose state could not be copied to Redis."""

    topic: str
    kafka_cluster_id: str
    seconds: float
    partitions: Sequence[Progress]
    redis_lacks: Sequence[int]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "kafka_cluster_id": self.kafka_cluster_id,
            "records": sum(each.records for each in self.partitions),
            "seconds": round(self.seconds, 3),
            "redis": not self.redis_lacks,
            "partitions": [each.as_data() for each in self.partitions],
        }


def rebuild(
    settings: Settings,
    topic: str,
    sessions: Sessions,
    say: Say,
    *,
    until: Mapping[str, Any] | None = None,
    portion: int = PORTION,
) -> Rebuilt:
    """Rebuild the ids of a topic of the nodes with these `settings`. It ends at the offsets `until` (by partition
    number as text), else at the present end of the log. The state is saved every `portion` offsets.

    Spark is opened only if there is something to read. Raises `PipelineError`. A partition whose ids cannot be known is
    no error: its `problem` says why.
    """
    began = time.monotonic()
    try:
        access = access_of(settings)
    except ValueError as error:
        raise UsageError(f"SIDECAR_KAFKA_…: {error}") from None
    upstream = KafkaUpstream(
        [(server.host, server.port) for server in settings.bootstrap_servers],
        connect_timeout=settings.kafka_connect_timeout_ms / 1000,
        request_timeout=settings.kafka_request_timeout_ms / 1000,
        access=access,
    )
    try:
        store = MetadataStore(settings.redis_url, settings.cluster, command_timeout_ms=settings.redis_timeout_ms)
    except ValueError as error:
        raise UsageError(f"--redis-url: {error}") from None
    with asyncio.Runner() as runner:
        try:
            with _in_a_sentence():
                before = runner.run(look(upstream, settings, topic))
                run = _Run(settings, before, States(before, upstream, store), store, portion, say)
                runner.run(run.prepare(until))
            if run.left():
                with sessions() as spark:
                    run.read_all(runner, spark)
            with _in_a_sentence():
                runner.run(run.finish())
        finally:
            runner.run(store.aclose())
            runner.run(upstream.close())
    progress = [each for _, each in sorted(run.progress.items())]
    lacks = sorted(run.states.redis_lacks)
    return Rebuilt(topic, before.kafka_cluster_id, time.monotonic() - began, progress, lacks)


class _Run:
    """One running rebuild."""

    def __init__(
        self, settings: Settings, before: Before, states: States, store: MetadataStore, portion: int, say: Say
    ) -> None:
        self.progress: dict[int, Progress] = {}
        self.states = states
        self._settings = settings
        self._before = before
        self._store = store
        self._portion = portion
        self._say = say
        self._tries: dict[int, int] = {}

    async def prepare(self, until: Mapping[str, Any] | None) -> None:
        """Find out what is left to do. A partition that is already known up to its end is written now, if the snapshot
        topic lacks its state.
        """
        before = self._before
        await self._check_redis()
        try:
            ends = ranges(until, before.starts, before.ends)
        except ValueError as error:
            raise UsageError(f"--until: {before.topic}: {error}") from None
        await self.states.read()
        for partition, end in sorted(ends.items()):
            found = Progress(partition, end, self._settings.producer_names_limit)
            self.progress[partition] = found
            self._go_on(found)
            if found.problem is None and found.left is None and self.states.in_topic(partition) is None:
                await self._write(found)  # only Redis has it, or there are no ids to know

    async def _check_redis(self) -> None:
        """Raise `PipelineError` if this Redis belongs to another Kafka cluster. An unreachable Redis is no error: it
        may be back before the end.
        """
        try:
            await self._store.check_server()
            noted = await self._store.kafka()
        except MetadataUnavailable as error:
            self._say(f"Redis cannot be reached ({error}): Kafka alone is read and written meanwhile")
            return
        except MetadataError as error:
            raise PipelineError(str(error)) from None
        ours = self._before.kafka_cluster_id
        if noted is not None and noted != ours:
            raise PipelineError(
                f"the Redis at {self._store.address} belongs to nodes of cluster {self._settings.cluster!r} in front of"
                f" the Kafka cluster {noted}, not of {ours}: check --redis-url, --bootstrap and --cluster"
            )

    def _go_on(self, found: Progress) -> None:
        partition, states = found.partition, self.states
        known, extent = states.known_number(partition), states.extents[partition]
        found.go_on_from(states.best(partition), extent, known, self._before.topic)

    def left(self) -> dict[int, Range]:
        """The offsets that are still to be read, by partition."""
        return {each.partition: left for each in self.progress.values() if (left := each.left) is not None}

    def read_all(self, runner: asyncio.Runner, spark: SparkSession) -> None:
        """Read the rest of the log with Spark, and save the result of each portion."""
        reader, records, began = Reader(spark, self._before, self._settings), 0, time.monotonic()
        # Ids of a forgotten writer, and what compaction took, matter only after the cut: no portion may have offsets on
        # both sides of it.
        before = self._before
        has_forgotten = any(name == FORGOTTEN for _, _, _, name in before.writers.spans())
        cuts = before.ids_from if has_forgotten or before.is_compacted else {}
        while left := self.left():
            portion = next_portion(left, self._portion, cuts)
            found = reader.read(portion, counts=any(self._has_to_be_whole(*each) for each in portion.items()))
            with _in_a_sentence():
                runner.run(self._take(portion, found))
            records += sum(each.records for each in found.values())
            self._say(
                f"{self._before.topic}: {records:,} records are read and written down,"
                f" {sum(behind - first for first, behind in self.left().values()):,} offsets are left"
            )
        self._say(rate(records, time.monotonic() - began))

    async def _take(self, portion: Mapping[int, Range], found: Mapping[int, PortionIds]) -> None:
        now = int(time.time())
        for partition, (first, behind) in portion.items():
            progress, ids = self.progress[partition], found.get(partition, PortionIds(0, 0, None, []))
            if self._has_to_be_whole(partition, (first, behind)) and ids.offsets < behind - first:
                progress.lose(f"compaction has removed records between offsets {first} and {behind}")
                continue
            progress.records += ids.records
            progress.malformed += ids.malformed
            if ids.forgotten is not None and behind > self._before.ids_from[partition]:
                progress.lose(f"the writer of the sequence ids at offset {ids.forgotten} is not known any more")
                continue
            progress.learn(ids.rows, behind, now)
            await self._write(progress)

    def _has_to_be_whole(self, partition: int, offsets: Range) -> bool:
        """Whether ids may be unknown because compaction removed records at these offsets."""
        return self._before.is_compacted and offsets[1] > self._before.ids_from[partition]

    async def _write(self, progress: Progress) -> None:
        partition = progress.partition
        if await self.states.put(partition, progress.to_save()):
            progress.written = True
            return
        self._tries[partition] = self._tries.get(partition, 0) + 1
        if self._tries[partition] > _TRIES:
            raise PipelineError(
                f"nodes write snapshots of {self._before.topic}-{partition} faster than this: they know its sequence"
                " ids, nothing has to be rebuilt"
            )
        self._say(f"{self._before.topic}-{partition}: a node wrote a snapshot meanwhile; it is gone on from that")
        self._go_on(progress)

    async def finish(self) -> None:
        """Copy to Redis the states that it lacks."""
        for partition, progress in self.progress.items():
            if progress.problem is None:
                await self.states.copy_to_redis(partition)


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Turns the errors of Kafka and Redis into `PipelineError`."""
    try:
        yield
    except (UpstreamError, TimeoutError) as error:
        remedy = "is Kafka up, and --bootstrap right? Run this again: it goes on from what was written"
        raise UnreachableError(f"{error or 'no answer in time'}; {remedy}") from None
    except (KafkaError, ChangelogError) as error:
        raise PipelineError(f"{error}. Run this again: it goes on from what was written") from None
    except MetadataError as error:
        raise PipelineError(str(error)) from None
