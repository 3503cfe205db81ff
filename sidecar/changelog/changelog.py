"""The room as the others see it: the internal topics of one cluster of nodes, appended to and followed.

Appends are for acks=all, the identical batch again until somebody says whether it is in the log. Kafka recognises a
stamped batch by its writer, epoch and sequences and answers a repeat with the first one's offset; an unstamped one may
come to lie there twice, which is why only hints and events go without a stamp.
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
    """One writer always on one channel, so that its batches stay in order; many writers side by side."""
    return Channel("changelog-append" if writer is None else f"changelog-append-{writer.producer_id % _CHANNELS}")


@dataclass(eq=False)
class Appender:
    """Appends to topics whose ids are known; never to another topic under the same name. `deadline`: how long all tries
    may take (seconds).
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

        `known_end`: an offset that the log has reached already; an answer in front of it makes the topic's id be
        checked again. `until`: nothing is sent later than at this moment of `metadata.clock.elapsed`, as the writer's
        fence may be forgotten then: `FencedError`. Raises `AppendRefusedError`, `RetryTimeoutError` (surely not in the
        log), `FencedError` (an earlier try of this call may have been accepted in front of the fence),
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
    """Nothing was sent."""


def _leaves_doubt(code: int) -> bool:
    """46 means that a batch of these sequences is in the log, not where, nor that it is this one."""
    return code in APPEND_IN_DOUBT or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER or code not in _CODES


def _final(
    partition: TopicPartition, code: int, message: str | None, writer: Stamp | None, *, in_doubt: bool
) -> Exception:
    """What an append ends with that is not tried again."""
    what = f"append to {partition}"
    if code in FENCED and writer is not None:
        return FencedError(code, writer, what)
    if in_doubt:  # a refusal says nothing of an earlier try
        return AppendUncertainError(f"{what}: {error_name(code)}, and it may be in the log: {message or 'refused'}")
    return AppendRefusedError(code, f"{what}: {message or 'refused'}")


class Journal:
    """The stamped appends of one writer to one partition, one after the other, their sequences counted here.

    After a batch whose outcome nobody knows nothing more can be appended under this epoch: the writer takes over again.
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
        """Append one batch as `Appender.append` does. Raises `AppendUncertainError` at once where an earlier one is
        unknown, and where the offset is one that the log had reached before: this batch is new.
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
                raise  # surely not in the log: its sequences are free
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
    """The records in the ownership topic that one writer's stamp speaks for, one batch after the other; the first opens
    its epoch with sequence 0.
    """

    def __init__(
        self, appender: Appender, partition: TopicPartition, tailer: Tailer, writer: Stamp, *, until: float = inf
    ) -> None:
        """`until`: as in `Appender.append`."""
        self.writer = writer
        self._journal = Journal(appender, partition, writer, until=until)
        self._tailer = tailer

    async def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch under the next sequence and return its base offset; errors as `Journal.append`."""
        return await self._journal.append([record.encode() for record in records], known_end=self._tailer.position)


class Changelog:
    """Ownership topic and events of one cluster of nodes. Make one with `open`; `close` stops the reading."""

    def __init__(self, topics: InternalTopics, appender: Appender, tailer: Tailer) -> None:
        self.topics = topics
        self.tailer = tailer
        self.view = tailer.view
        """The newest records, as far as `position`."""
        self.clock = tailer.clock
        """What time it is at the brokers: for every age that more than one node judges."""
        self.partition = topics.ownership
        """The ownership partition: every fence covers it."""
        self.events = TopicPartition(topics.names.events, 0)
        """Where the history is; `follow_events` reads it."""
        self.appender = appender
        self.journal = partial(StampedJournal, appender, topics.ownership, tailer)
        """Makes the journal of one writer, whose stamp it is given."""

    @classmethod
    async def open(
        cls,
        upstream: Upstream,
        cluster: str,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> Changelog:
        """Check or create the internal topics (`open_topics`) and begin to follow the ownership topic."""
        topics = await open_topics(upstream, cluster)
        topic_id = topics.ids[topics.names.ownership]
        tailer = Tailer(upstream, topics.ownership, topic_id, on_error=on_error, clock=clock or Clock())
        tailer.start()
        return cls(topics, Appender(upstream, topics.ids), tailer)

    async def close(self) -> None:
        """Stop following."""
        await self.tailer.close()

    @property
    def position(self) -> Offset:
        """The next offset of the ownership topic to be read."""
        return self.tailer.position

    async def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch of records without a stamp to the ownership topic and return its base offset; all of it or
        nothing is in the log. Others go by a `journal`.

        Raises ValueError for a kind that needs a stamp, `AppendRefusedError`, `AppendUncertainError`,
        `ChangelogLostError`, `RetryTimeoutError` (`Appender.append`).
        """
        for record in records:
            if record.key.kind.stamped:
                raise ValueError(f"{record.key} speaks for a topic: it needs its slot's stamp")
        raw = [record.encode() for record in records]
        return await self.appender.append(self.partition, raw, known_end=self.position)

    def fenced(self, snapshots_of: str | None = None) -> dict[str, list[int]]:
        """What a fence covers besides the partitions of a topic: the ownership partition, and where the snapshots of
        this topic are, where it has sequence ids.
        """
        found = {self.partition.topic: [self.partition.partition]}
        if snapshots_of is not None:
            kept = self.snapshots_of(snapshots_of)
            found[kept.topic] = [kept.partition]
        return found

    def snapshots_of(self, topic: str) -> TopicPartition:
        """Where the snapshots of a topic's sequence ids are: its fences cover it."""
        return self.topics.snapshots_of(topic)

    def snapshot_journal(self, writer: Stamp, topic: str) -> Journal:
        """Appends of one writer to the snapshots of its topic."""
        return Journal(self.appender, self.snapshots_of(topic), writer)

    async def add_event(self, event: state.Event) -> Offset:
        """Append one line of history, at least once; errors as `append`."""
        raw = RawRecord(event.topic.encode(), event.SerializeToString(deterministic=True))
        return await self.appender.append(self.events, [raw])
