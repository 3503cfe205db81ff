"""The interface of this room: append to the internal topics of one cluster of nodes, and read them.

Appends use acks=all. The identical batch is sent again until a broker answers whether it is in the log. Kafka
recognises a stamped batch by its writer, epoch and sequences, and answers a repeat with the offset of the first one. An
unstamped batch may be appended twice; therefore only hints and events are unstamped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final
from uuid import UUID

from metadata.clock import elapsed
from sidecar.changelog.clock import Clock
from sidecar.changelog.errors import AppendRefusedError, AppendUncertainError, ChangelogLostError
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.changelog.tailer import Tailer
from sidecar.changelog.topics import InternalTopics, open_topics
from sidecar.changelog.view import Record
from sidecar.network.backoff import Retry, RetryTimeoutError
from sidecar.protocol.batch import SEQUENCE_MODULUS
from sidecar.protocol.caller import FENCED, Channel, FencedError, Upstream, UpstreamError
from sidecar.protocol.calls.logs import Appended, ProduceBatch
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode, KafkaError, error_name
from sidecar.protocol.ids import Offset, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state

_CHANNELS: Final = 8
_REPLICA_WAIT_S: Final = 10.0
"""How long a leader waits for its replicas."""
_AGAIN: Final = APPEND_IN_DOUBT | NOT_APPENDED | STALE_ROUTE
_CODES: Final = frozenset(ErrorCode)


def _channel(writer: Stamp | None) -> Channel:
    """Return the writer's channel: always the same one, so that its batches stay in order; writers share 8 channels."""
    return Channel("changelog-append" if writer is None else f"changelog-append-{writer.producer_id % _CHANNELS}")


@dataclass(eq=False)
class Appender:
    """Appends to topics whose ids are known; never to another topic under the same name. `deadline`: the time limit for
    all attempts of one append (seconds).
    """

    _upstream: Upstream
    _ids: Mapping[str, UUID]
    deadline: float = 30.0

    async def append(
        self,
        partition: TopicPartition,
        records: Sequence[RawRecord],
        *,
        writer: Stamp | None = None,
        sequence: int = 0,
        known_end: Offset | None = None,
        until: float = inf,
    ) -> Offset:
        """Append one batch and return its base offset once every in-sync replica has it.

        `known_end`: an offset that the log has already reached; if the base offset is lower, the topic's id is checked
        again. `until`: nothing is sent after this time of `metadata.clock.elapsed`, because brokers may have forgotten
        the writer's fence by then: `FencedError`. Raises `AppendRefusedError`, `RetryTimeoutError` (certainly not in
        the log), `FencedError` (an earlier attempt of this call may have been accepted before the fence),
        `ChangelogLostError`, `AppendUncertainError`.
        """
        batch = bytes(build_batch(records, writer, sequence))
        retry = Retry(f"append to {partition}", self.deadline)
        in_doubt = refresh = False
        while True:
            try:
                leader = await self._leader(partition, refresh=refresh)
                if writer is not None and elapsed() > until:
                    what = f"append to {partition}, later than its fence is sure to be remembered"
                    raise FencedError(ErrorCode.INVALID_PRODUCER_EPOCH, writer, what)
                answer = await self._send(leader, partition, batch, writer)
            except _LeaderUnknownError as error:
                if error.code not in _AGAIN:
                    raise _final(partition, error.code, str(error), writer=None, in_doubt=in_doubt) from None
                reason: object = error
            except UpstreamError as error:
                in_doubt |= error.sent
                reason = error
            else:
                if not answer.error:
                    if known_end is not None and answer.base_offset < known_end:
                        await self._check_id(partition)
                    return answer.base_offset
                in_doubt |= _leaves_doubt(answer.error)
                if answer.error not in _AGAIN:
                    raise _final(partition, answer.error, answer.message, writer, in_doubt=in_doubt)
                reason = error_name(answer.error)
            refresh = True
            try:
                await retry.pause(reason)
            except RetryTimeoutError as error:
                if in_doubt:
                    raise AppendUncertainError(str(error)) from None
                raise

    async def _send(self, leader: int, partition: TopicPartition, batch: bytes, writer: Stamp | None) -> Appended:
        request = ProduceBatch(partition, batch, int(_REPLICA_WAIT_S * 1000))
        return await self._upstream.call(leader, request, timeout=_REPLICA_WAIT_S + 5.0, channel=_channel(writer))

    async def _leader(self, partition: TopicPartition, *, refresh: bool) -> int:
        try:
            layout = await self._upstream.layout(partition.topic, refresh=refresh)
        except UpstreamError as error:
            raise _LeaderUnknownError(ErrorCode.LEADER_NOT_AVAILABLE, f"its leader is not known: {error}") from None
        except KafkaError as error:
            raise _LeaderUnknownError(error.code, f"its leader is not known: {error.message}") from None
        if layout.topic_id != self._ids[partition.topic]:
            raise ChangelogLostError(f"topic {partition.topic} was created anew: its id is {layout.topic_id}")
        leader = layout.leaders.get(partition.partition, -1)
        if leader < 0:
            raise _LeaderUnknownError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
        return leader

    async def _check_id(self, partition: TopicPartition) -> None:
        try:
            await self._leader(partition, refresh=True)
        except _LeaderUnknownError as error:
            raise AppendUncertainError(f"append to {partition}, perhaps to another topic: {error}") from None


class _LeaderUnknownError(KafkaError):
    """The leader of the partition is not known; nothing was sent."""


def _leaves_doubt(code: int) -> bool:
    """Whether the batch may be in the log. 46 DUPLICATE_SEQUENCE_NUMBER only means that a batch with these sequences is
    in the log: its offset is not known, and it may be another batch.
    """
    return code in APPEND_IN_DOUBT or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER or code not in _CODES


def _final(
    partition: TopicPartition, code: int, message: str | None, writer: Stamp | None, *, in_doubt: bool
) -> Exception:
    """Return the error of an append that is not tried again."""
    what = f"append to {partition}"
    if code in FENCED and writer is not None:
        return FencedError(code, writer, what)
    if in_doubt:  # an earlier attempt may still have been appended
        return AppendUncertainError(f"{what}: {error_name(code)}, and it may be in the log: {message or 'refused'}")
    return AppendRefusedError(code, f"{what}: {message or 'refused'}")


class Journal:
    """Appends the stamped batches of one writer to one partition, one after the other, and counts their sequences.

    After a batch with an unknown outcome nothing more can be appended under this epoch: the writer must do a new
    takeover.
    """

    def __init__(self, appender: Appender, partition: TopicPartition, writer: Stamp, *, until: float = inf) -> None:
        """`until`: as in `Appender.append`."""
        self.writer = writer
        self.next_sequence = 0
        self._until = until
        self._appender = appender
        self._partition = partition
        self._lock = asyncio.Lock()
        self._broken: BaseException | None = None

    async def append(self, records: Sequence[RawRecord], *, known_end: Offset | None = None) -> Offset:
        """Append one batch as `Appender.append` does. Also raises `AppendUncertainError` if the outcome of an earlier
        batch is unknown (nothing is sent), or if the returned offset is before `known_end` and so belongs to another
        record.
        """
        async with self._lock:
            if self._broken is not None:
                raise AppendUncertainError(f"{self.writer} has an unknown batch in front: {self._broken!r}")
            try:
                offset = await self._appender.append(
                    self._partition,
                    records,
                    writer=self.writer,
                    sequence=self.next_sequence,
                    known_end=known_end,
                    until=self._until,
                )
            except (AppendRefusedError, RetryTimeoutError):
                raise  # certainly not in the log: its sequences can be used again
            except BaseException as error:
                self._broken = error
                raise
            if known_end is not None and offset < known_end:
                reason = f"offset {offset} is another record's, the log was at {known_end} before"
                self._broken = AppendUncertainError(f"append to {self._partition}: {reason}")
                raise self._broken
            self.next_sequence = (self.next_sequence + len(records)) % SEQUENCE_MODULUS
            return offset


class StampedJournal:
    """Appends one writer's stamped batches to the ownership topic, one after the other. The first batch opens the
    writer's epoch with sequence 0.
    """

    def __init__(
        self, appender: Appender, partition: TopicPartition, tailer: Tailer, writer: Stamp, *, until: float = inf
    ) -> None:
        """`until`: as in `Appender.append`."""
        self.writer = writer
        self._journal = Journal(appender, partition, writer, until=until)
        self._tailer = tailer

    async def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch with the next sequence and return its base offset; raises what `Journal.append` raises."""
        return await self._journal.append([record.encode() for record in records], known_end=self._tailer.position)


class Changelog:
    """The internal topics of one cluster of nodes. `open` creates an instance; `close` stops the reading."""

    def __init__(self, topics: InternalTopics, appender: Appender, tailer: Tailer) -> None:
        self.topics = topics
        self.tailer = tailer
        self.view = tailer.view
        """The newest record of every key, up to `position`."""
        self.clock = tailer.clock
        """The brokers' time: used for every age that several nodes compare."""
        self.partition = topics.ownership
        """The ownership partition: every fence covers it."""
        self.events = TopicPartition(topics.names.events, 0)
        """The partition of the events; `follow_events` reads it."""
        self.appender = appender
        self.journal = partial(StampedJournal, appender, topics.ownership, tailer)
        """Call it with a writer's stamp to get that writer's journal."""

    @classmethod
    async def open(
        cls,
        upstream: Upstream,
        cluster: str,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> Changelog:
        """Check or create the internal topics (`open_topics`) and start to read the ownership topic."""
        topics = await open_topics(upstream, cluster)
        topic_id = topics.ids[topics.names.ownership]
        tailer = Tailer(upstream, topics.ownership, topic_id, on_error=on_error, clock=clock or Clock())
        tailer.start()
        return cls(topics, Appender(upstream, topics.ids), tailer)

    async def close(self) -> None:
        """Stop the reading of the ownership topic."""
        await self.tailer.close()

    @property
    def position(self) -> Offset:
        """The next offset of the ownership topic to be read."""
        return self.tailer.position

    async def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch of unstamped records to the ownership topic and return its base offset. The batch is
        appended whole or not at all. Stamped records need a `journal`.

        Raises ValueError for a kind that needs a stamp, `AppendRefusedError`, `AppendUncertainError`,
        `ChangelogLostError`, `RetryTimeoutError` (`Appender.append`).
        """
        for record in records:
            if record.key.kind.stamped:
                raise ValueError(f"{record.key} speaks for a topic: it needs its slot's stamp")
        raw = [record.encode() for record in records]
        return await self.appender.append(self.partition, raw, known_end=self.position)

    def fenced(self, snapshots_of: str | None = None) -> dict[str, list[int]]:
        """Return the partitions that a fence covers besides those of its topic: the ownership partition and, if
        `snapshots_of` is given (a topic with sequence ids), the partition of that topic's snapshots.
        """
        found = {self.partition.topic: [self.partition.partition]}
        if snapshots_of is not None:
            kept = self.snapshots_of(snapshots_of)
            found[kept.topic] = [kept.partition]
        return found

    def snapshots_of(self, topic: str) -> TopicPartition:
        """Return the partition of the snapshots of a topic's sequence ids; the topic's fences cover it."""
        return self.topics.snapshots_of(topic)

    def snapshot_journal(self, writer: Stamp, topic: str) -> Journal:
        """Return a journal for one writer's appends to the snapshots of its topic."""
        return Journal(self.appender, self.snapshots_of(topic), writer)

    async def add_event(self, event: state.Event) -> Offset:
        """Append one event, at least once; raises what `append` raises."""
        raw = RawRecord(event.topic.encode(), event.SerializeToString(deterministic=True))
        return await self.appender.append(self.events, [raw])
