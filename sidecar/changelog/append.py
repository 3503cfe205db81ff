"""Appending to the internal topics: acks=all, the identical batch again until somebody says whether it is in the log.

Kafka recognises a stamped batch by its writer, epoch and sequences and answers a repeat with the first one's offset;
an unstamped one may come to lie there twice, which is why only hints, policies and events go without a stamp.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sidecar.changelog.errors import AppendRefusedError, AppendUncertainError, ChangelogLostError
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.changelog.retry import Retry, RetryTimeoutError
from sidecar.protocol.batch import SEQUENCE_MODULUS
from sidecar.protocol.caller import FENCED, DisconnectedError, FencedError, Lane, UpstreamError
from sidecar.protocol.calls import ProduceBatch
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sidecar.protocol.caller import Upstream
    from sidecar.protocol.ids import Offset, Stamp, TopicPartition

_LANES: Final = 8
_UNKNOWN_OUTCOME: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_RETRIABLE: Final = STALE_ROUTE | _UNKNOWN_OUTCOME | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NETWORK_EXCEPTION}


def _lane(writer: Stamp | None) -> Lane:
    """One writer always on one lane, so that its batches stay in order; many writers side by side."""
    return Lane("changelog-append" if writer is None else f"changelog-append-{writer.producer_id % _LANES}")


class Appender:
    """Appends to topics whose ids are known; never to another topic under the same name.

    `replica_wait` is how long a leader waits for its replicas, `deadline` how long all tries may take (seconds).
    """

    def __init__(
        self,
        upstream: Upstream,
        topic_ids: Mapping[str, UUID],
        *,
        replica_wait: float = 10.0,
        deadline: float = 30.0,
    ) -> None:
        self._upstream = upstream
        self._ids = topic_ids
        self._replica_wait = replica_wait
        self._deadline = deadline

    async def append(
        self,
        partition: TopicPartition,
        records: Sequence[RawRecord],
        *,
        writer: Stamp | None = None,
        sequence: int = 0,
        known_end: Offset | None = None,
    ) -> Offset:
        """Append one batch and return its base offset once every in-sync replica has it.

        `known_end`: an offset that the log has reached already; an answer in front of it makes the topic's id be
        checked again. Raises `FencedError` (an earlier try of this call may have been accepted in front of the fence),
        `AppendRefusedError`, `ChangelogLostError`, `RetryTimeoutError` (surely not in the log),
        `AppendUncertainError`.
        """
        batch = build_batch(records, writer, sequence)
        retry = Retry(f"append to {partition}", self._deadline)
        uncertain = refresh = False
        while True:
            try:
                offset = await self._try(partition, bytes(batch), writer, refresh)
            except UpstreamError as error:
                uncertain |= error.sent
                reason: Exception = error
            except KafkaError as error:
                if error.code in FENCED and writer is not None:
                    raise FencedError(error.code, writer, f"append to {partition}") from None
                if error.code not in _RETRIABLE:
                    raise AppendRefusedError(error.code, f"append to {partition}: {error.message}") from None
                uncertain |= error.code in _UNKNOWN_OUTCOME
                reason = error
            else:
                if known_end is not None and offset < known_end:
                    await self._leader(partition, refresh=True)
                return offset
            refresh = True
            try:
                await retry.pause(reason)
            except RetryTimeoutError as error:
                if uncertain:
                    raise AppendUncertainError(str(error)) from None
                raise

    async def _try(self, partition: TopicPartition, batch: bytes, writer: Stamp | None, refresh: bool) -> Offset:
        leader = await self._leader(partition, refresh=refresh)
        request = ProduceBatch(partition, batch, int(self._replica_wait * 1000))
        answer = await self._upstream.call(leader, request, timeout=self._replica_wait + 5.0, lane=_lane(writer))
        if answer.error:
            raise KafkaError(answer.error, answer.message or "")
        return answer.base_offset

    async def _leader(self, partition: TopicPartition, *, refresh: bool) -> int:
        layout = await self._upstream.layout(partition.topic, refresh=refresh)
        if layout.topic_id != self._ids[partition.topic]:
            raise ChangelogLostError(f"topic {partition.topic} was created anew: its id is {layout.topic_id}")
        leader = layout.leaders.get(partition.partition, -1)
        if leader < 0:
            raise DisconnectedError(f"{partition} has no leader", sent=False)
        return leader


class Journal:
    """The stamped appends of one writer to one partition, one after the other, their sequences counted here.

    After a batch whose outcome nobody knows nothing more can be appended under this epoch: the writer takes over again.
    """

    def __init__(self, appender: Appender, partition: TopicPartition, writer: Stamp, next_sequence: int = 0) -> None:
        self.writer = writer
        self.next_sequence = next_sequence
        self._appender = appender
        self._partition = partition
        self._lock = asyncio.Lock()
        self._broken: BaseException | None = None

    async def append(self, records: Sequence[RawRecord], *, known_end: Offset | None = None) -> Offset:
        """Append one batch as `Appender.append` does. Raises `AppendUncertainError` at once where an earlier one is
        unknown.
        """
        async with self._lock:
            if self._broken is not None:
                raise AppendUncertainError(f"{self.writer} has an unknown batch in front: {self._broken!r}")
            try:
                offset = await self._appender.append(
                    self._partition, records, writer=self.writer, sequence=self.next_sequence, known_end=known_end
                )
            except (AppendRefusedError, RetryTimeoutError):
                raise  # surely not in the log: its sequences are free
            except BaseException as error:
                self._broken = error
                raise
            self.next_sequence = (self.next_sequence + len(records)) % SEQUENCE_MODULUS
            return offset
