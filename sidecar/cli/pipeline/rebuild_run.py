"""One run of `sidecar pipeline rebuild` against Kafka and Redis: prepared, fed portion by portion, finished."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata import MetadataError, MetadataStore, MetadataUnavailable
from sidecar.changelog import ChangelogError, RetryTimeoutError
from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.pipeline.ids_before import Before, look
from sidecar.cli.pipeline.rebuilding import Progress, Row, ranges
from sidecar.cli.pipeline.running import tell
from sidecar.cli.pipeline.states import States, Written
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.names import FORGOTTEN
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from sidecar.settings import Settings

_TRIES: Final = 5
"""To write a partition's state while a node writes its own."""

Range = tuple[int, int]


class Source(NamedTuple):
    """How the log is read, for `rebuild_spark.Reader`. `writers`: producer id, first and last epoch, name, whether it
    is forgotten.
    """

    bootstrap: str
    topic: str
    sequence_id_header: str
    producer_name_header: str
    writers: list[tuple[int, int, int, str | None, bool]]
    names_limit: int
    is_compacted: bool


class Told(NamedTuple):
    """What a portion tells of a partition. `forgotten`: offset of the first id whose writer is forgotten."""

    records: int
    malformed: int
    forgotten: int | None
    rows: list[Row]


class Run:
    """Of one topic. Every coroutine raises CommandError."""

    def __init__(self, settings: Settings, topic: str, portion: int) -> None:
        self.topic = topic
        self.progress: dict[int, Progress] = {}
        self._settings = settings
        self._portion = portion
        self._tries: dict[int, int] = {}
        self._before: Before | None = None
        self._states: States | None = None
        self._upstream = KafkaUpstream(
            [(server.host, server.port) for server in settings.bootstrap_servers],
            connect_timeout=settings.kafka_connect_timeout_ms / 1000,
            request_timeout=settings.kafka_request_timeout_ms / 1000,
        )
        try:
            self._store = MetadataStore(
                settings.redis_url, settings.cluster, command_timeout_ms=settings.redis_timeout_ms
            )
        except ValueError as error:
            raise CommandError(f"--redis-url: {error}", Exit.USAGE) from None

    @property
    def before(self) -> Before:
        """What `prepare` found."""
        assert self._before is not None
        return self._before

    @property
    def states(self) -> States:
        """What `prepare` found."""
        assert self._states is not None
        return self._states

    async def prepare(self, until: dict[str, Any] | None) -> None:
        """Find out what is left to do, and write down what is known already where that is not safe."""
        await _said(self._prepare(until))

    async def _prepare(self, until: dict[str, Any] | None) -> None:
        self._before = before = await look(self._upstream, self._settings, self.topic)
        await self._check_redis()
        try:
            ends = ranges(until, dict(before.starts), dict(before.ends))
        except ValueError as error:
            raise CommandError(f"--until: {self.topic}: {error}", Exit.USAGE) from None
        self._states = States(before, self._upstream, self._store)
        await self.states.read()
        for partition, end in sorted(ends.items()):
            found = Progress(partition, end, self._settings.producer_names_limit)
            self.progress[partition] = found
            self._go_on(found)
            if found.problem is None and found.left is None and self.states.in_topic(partition) is None:
                await self._write(found)  # Redis alone has it, or there is nothing to know

    async def _check_redis(self) -> None:
        """Raises CommandError where it is another Kafka's. Away, it may come back before the end."""
        try:
            await self._store.check_server()
            noted = await self._store.kafka()
        except MetadataUnavailable as error:
            tell(f"Redis cannot be reached ({error}): Kafka alone is read and written meanwhile")
            return
        except MetadataError as error:
            raise CommandError(str(error)) from None
        ours = self.before.kafka_cluster_id
        if noted is not None and noted != ours:
            raise CommandError(
                f"the Redis at {self._store.address} belongs to nodes of cluster {self._settings.cluster!r} in front of"
                f" the Kafka cluster {noted}, not of {ours}: check --redis-url, --bootstrap and --cluster"
            )

    def _go_on(self, found: Progress) -> None:
        partition, states = found.partition, self.states
        found.go_on_from(states.best(partition), states.extents[partition], states.known_number(partition), self.topic)

    def source(self) -> Source:
        """How the log is read."""
        settings, before = self._settings, self.before
        spans = [
            (producer_id, first, last, None if name is None else name.decode(), name == FORGOTTEN)
            for producer_id, first, last, name in before.writers.spans()
        ]
        return Source(
            ",".join(map(str, settings.bootstrap_servers)),
            self.topic,
            settings.sequence_id_header,
            settings.producer_name_header,
            spans,
            settings.producer_names_limit,
            before.is_compacted,
        )

    def _left(self) -> dict[int, Range]:
        return {each.partition: left for each in self.progress.values() if (left := each.left) is not None}

    @property
    def has_work(self) -> bool:
        """Whether anything of the log is to be read."""
        return bool(self._left())

    @property
    def offsets_left(self) -> int:
        """How many are still to be read."""
        return sum(behind - first for first, behind in self._left().values())

    def next_portion(self) -> dict[int, Range] | None:
        """What to read next, by partition; None at the end."""
        from sidecar.pipeline.rebuild import next_portion  # noqa: PLC0415 - loads PySpark

        left = self._left()
        # Ids of a forgotten writer are lost on one side of the cut alone: no portion may be on both.
        has_forgotten = any(name == FORGOTTEN for _, _, _, name in self.before.writers.spans())
        return next_portion(left, self._portion, self.before.ids_from if has_forgotten else {}) if left else None

    async def take(self, portion: Mapping[int, Range], found: Mapping[int, Told]) -> None:
        """What a portion tells is learnt and written, partition by partition."""
        await _said(self._take(portion, found))

    async def _take(self, portion: Mapping[int, Range], found: Mapping[int, Told]) -> None:
        now = int(time.time())
        for partition, (_, behind) in portion.items():
            progress, told = self.progress[partition], found.get(partition, Told(0, 0, None, []))
            progress.records += told.records
            progress.malformed += told.malformed
            if told.forgotten is not None and behind > self.before.ids_from[partition]:
                progress.lose(f"whose the sequence ids at offset {told.forgotten} are is not known any more")
                continue
            progress.learn(told.rows, behind, now)
            await self._write(progress)

    async def _write(self, progress: Progress) -> None:
        partition = progress.partition
        written = await self.states.put(partition, progress.to_save())
        if written is Written.DONE:
            progress.written = True
            return
        self._tries[partition] = self._tries.get(partition, 0) + 1
        if self._tries[partition] > _TRIES:
            raise CommandError(
                f"nodes write snapshots of {self.topic}-{partition} faster than this: they know its sequence ids,"
                " nothing has to be rebuilt"
            )
        tell(f"{self.topic}-{partition}: a node wrote a snapshot meanwhile; it is gone on from that")
        self._go_on(progress)

    async def finish(self) -> None:
        """Copy to Redis what it lacks."""
        for partition, progress in self.progress.items():
            if progress.problem is None:
                await _said(self.states.copy_to_redis(partition))

    @property
    def redis_lacks(self) -> list[int]:
        """The partitions whose state could not be copied to Redis."""
        return sorted(self.states.redis_lacks)

    async def close(self) -> None:
        """End all connections."""
        await self._store.aclose()
        await self._upstream.close()

    def as_data(self, seconds: float) -> dict[str, Any]:
        """For JSON."""
        records = sum(each.records for each in self.progress.values())
        return {
            "topic": self.topic,
            "kafka_cluster_id": self.before.kafka_cluster_id,
            "records": records,
            "seconds": round(seconds, 3),
            "redis": not self.redis_lacks,
            "partitions": [each.as_data() for _, each in sorted(self.progress.items())],
        }


async def _said(doing: Awaitable[object]) -> None:
    try:
        await doing
    except (UpstreamError, RetryTimeoutError, TimeoutError) as error:
        remedy = "is Kafka up, and --bootstrap right? Run this again: it goes on from what was written"
        raise CommandError(f"{error or 'no answer in time'}; {remedy}", Exit.UNREACHABLE) from None
    except (KafkaError, ChangelogError) as error:
        raise CommandError(f"{error}. Run this again: it goes on from what was written") from None
    except MetadataError as error:
        raise CommandError(str(error)) from None
