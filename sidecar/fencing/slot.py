"""One writer slot: its producer id and epoch, and the fence that makes Kafka refuse every older one.

Theory of operation. InitProducerId without a producer id returns the next epoch and linearises rivals at the
coordinator, but the partitions do not learn of it. They learn it from a marker: an empty transaction
(AddPartitionsToTxn, then EndTxn abort) writes one of the new epoch to every partition, and from then on each refuses
older epochs with 47 INVALID_PRODUCER_EPOCH. EndTxn returns 0 when the abort is accepted. Repeated, it returns 51
CONCURRENT_TRANSACTIONS until every marker is in its log, then 0. The same requests at the same epoch refresh the
partitions' memory and do not change running sequences. Kafka aborts a transaction that is left open at an epoch above
the owner's, so both requests are sent in one write. KIP-98, KIP-360, KIP-890; tests/kafka/fencing shows each sentence.

No two slots share a transactional id, for any topic names.
"""

import asyncio
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sidecar.changelog import MASTER_SLOT, SlotName
from sidecar.fencing.witness import FencingRefusedError, Witness
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import FENCED, Channel, CoordinatorKind, FencedError, Upstream, UpstreamError
from sidecar.protocol.calls.transactions import NO_STAMP, AddPartitionsToTxn, EndTxn, InitProducerId
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp, TopicPartition

Partitions: TypeAlias = "Mapping[str, Collection[int]]"
"""Partition indexes by topic."""

PREFIX: Final = "sidecar."
"""Clients may not use transactional ids with this prefix: InitProducerId for such an id would raise a slot's epoch."""

ROTATE_AT: Final = 32_000
"""No data is written at this epoch or above it, so one marker at it fences every epoch with data of the producer id."""

_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]+")
_CHANNELS: Final = 8
_INVALID_TRANSACTION_TIMEOUT: Final = 50
_SHORTEST_TRANSACTION_MS: Final = 10_000
_COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_RETRIABLE: Final = _COORDINATOR_MOVED | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class EpochsUsedUpError(Exception):
    """The slot's epoch is near its limit: open the slot again and change its producer id before the next write."""


def transactional_id(cluster: str, topic: str, slot: SlotName = MASTER_SLOT) -> str:
    """Returns `sidecar.<cluster>.<topic>`, followed by `/<slot>` unless it is the master slot.

    Topic names may contain dots but no slash. With a dot as the separator, the slot of partition 3 of `orders` would be
    the master slot of a topic `orders.p3`, and the two would fence each other forever. Raises ValueError unless the
    cluster's name consists of letters, digits, - and _.
    """
    if not _CLUSTER.fullmatch(cluster):
        raise ValueError(f"the name of a cluster of nodes is made of letters, digits, - and _, not {cluster!r}")
    name = f"{PREFIX}{cluster}.{topic}"
    return name if slot == MASTER_SLOT else f"{name}/{slot}"


@dataclass(frozen=True, slots=True)
class FencingLimits:
    """Times in seconds. `deadline` limits one operation with all its tries, `call` one request.

    `transaction` is the transaction timeout; it is halved until the broker accepts it, if it is longer than 10 s.
    """

    deadline: float = 30.0
    call: float = 10.0
    transaction: float = 900.0


class WriterSlot:
    """A transactional id that only nodes use. Operations queue; after `FencedError` the slot is lost until `open`.

    All operations raise `FencedError` if a newer epoch of the slot exists, `FencingRefusedError` if Kafka refuses with
    a permanent error, and `RetryTimeoutError` after the deadline. Then a fence may be incomplete, and must be repeated
    within the transaction timeout.
    """

    def __init__(self, upstream: Upstream, transactional_id: str, *, limits: FencingLimits | None = None) -> None:
        self.transactional_id = transactional_id
        self._upstream = upstream
        self._limits = limits or FencingLimits()
        self._transaction_ms = int(self._limits.transaction * 1000)
        self._channel = Channel(f"fencing-{zlib.crc32(transactional_id.encode()) % _CHANNELS}")
        self._witness = Witness(upstream, self._channel, self._limits.call)
        self._stamp: Stamp | None = None
        self._lost: FencedError | None = None
        self._lock = asyncio.Lock()

    @property
    def stamp(self) -> Stamp:
        """Producer id and epoch. Raises `FencedError` once the slot is lost, LookupError before `open`."""
        if self._lost is not None:
            raise self._lost
        if self._stamp is None:
            raise LookupError(f"{self.transactional_id} is not open")
        return self._stamp

    @property
    def rotation_due(self) -> bool:
        """True if the epoch is too near its limit to write under it: call `rotate` first."""
        return self.stamp.epoch >= ROTATE_AT

    async def open(self) -> Stamp:
        """Takes the slot from any holder and returns its next epoch. Fences no partition by itself."""
        # Model: OpenSlot.
        async with self._lock:
            self._lost, self._stamp = None, None
            self._stamp = await self._init(NO_STAMP)
            return self._stamp

    async def raise_epoch(self) -> Stamp:
        """Raises the epoch by 1, for the holder only (KIP-360). Kafka refuses it if another node has opened the slot
        since; Kafka does not notify the former holder of that.

        The first batch of the new epoch, sequence 0, fences the old one on its partition. Raises `EpochsUsedUpError`.
        """
        async with self._lock:
            held = self.stamp
            if held.epoch + 1 >= ROTATE_AT:
                raise EpochsUsedUpError(f"{self.transactional_id} is at epoch {held.epoch}")
            raised = await self._init(held)
            if raised.producer_id != held.producer_id or raised.epoch != held.epoch + 1:
                raise self._lose(ErrorCode.INVALID_PRODUCER_ID_MAPPING, held, f"raised to {raised}")
            self._stamp = raised
            return raised

    async def fence(self, partitions: Partitions) -> None:
        """Makes every partition refuse epochs below this slot's; returns when each leader has confirmed it.

        Includes partitions that the slot never wrote to. Repeated at the same epoch it is a keep-alive (`keep_alive`).
        """
        async with self._lock:
            retry = Retry(f"fence of {self.transactional_id}", self._limits.deadline, first=0.001, ceiling=0.5)
            await self._fence(self.stamp, partitions, retry)

    async def keep_alive(self, partitions: Partitions) -> None:
        """Refreshes the fence before the partitions or the coordinator forget it. Does not change running sequences."""
        await self.fence(partitions)

    async def rotate(self, partitions: Partitions) -> Stamp:
        """Changes to a new producer id at epoch 0, if `rotation_due`. Fences the old one on `partitions` first.

        The new id must then be fenced as after `open`. Takes about 770 calls once in 32,000 epochs.
        """
        # Model: Rotate.
        async with self._lock:
            old = self.stamp
            if old.epoch < ROTATE_AT:
                raise ValueError(f"{self.transactional_id} is at epoch {old.epoch}: not due")
            retry = Retry(f"rotation of {self.transactional_id}", self._limits.deadline, first=0.001, ceiling=0.5)
            await self._fence(old, partitions, retry)
            while self.stamp.producer_id == old.producer_id:
                self._stamp = await self._init(NO_STAMP)
            return self.stamp

    # How ----------------------------------------------------------------------------------------------------------

    def _lose(self, code: int, writer: Stamp, what: str) -> FencedError:
        self._lost = FencedError(code, writer, f"{self.transactional_id}: {what}")
        return self._lost

    async def _init(self, current: Stamp) -> Stamp:
        retry = Retry(f"InitProducerId of {self.transactional_id}", self._limits.deadline, first=0.002, ceiling=1.0)
        while True:
            try:
                coordinator = await self._upstream.coordinator(self.transactional_id, CoordinatorKind.TRANSACTION)
                request = InitProducerId(self.transactional_id, self._transaction_ms, current)
                answer = await self._upstream.call(
                    coordinator, request, timeout=self._limits.call, channel=self._channel
                )
            except (UpstreamError, KafkaError) as error:
                reason = self._unanswered(error)
            else:
                if not answer.error:
                    return answer.stamp
                if current != NO_STAMP and answer.error in FENCED:
                    raise self._lose(answer.error, current, "InitProducerId")
                if answer.error == _INVALID_TRANSACTION_TIMEOUT and self._transaction_ms > _SHORTEST_TRANSACTION_MS:
                    self._transaction_ms //= 2
                    continue
                # A request without a producer id is never fenced: 47 and 90 mean that a rival's request is in progress.
                reason = self._retriable(answer.error, "InitProducerId", fenced_passes=True)
            await retry.pause(reason)

    async def _fence(self, writer: Stamp, partitions: Partitions, retry: Retry) -> None:
        indexes = {topic: tuple(sorted(found)) for topic, found in partitions.items() if found}
        while indexes:
            await self._write_markers(writer, indexes, retry)
            # A coordinator that does not know a partition treats it as deleted, and completes without its marker.
            indexes = await self._without_marker(writer, indexes, retry)
            if indexes:
                await retry.pause(f"no marker in {indexes}")

    async def _without_marker(
        self, writer: Stamp, indexes: Mapping[str, tuple[int, ...]], retry: Retry
    ) -> dict[str, tuple[int, ...]]:
        refresh = False
        while True:
            try:
                return await self._witness.without_fence(writer, indexes, refresh=refresh)
            except FencedError as error:
                raise self._lose(error.code, writer, "a partition knows a newer epoch") from None
            except FencingRefusedError:
                raise
            except (UpstreamError, KafkaError) as error:
                refresh = True
                await retry.pause(error)

    async def _write_markers(self, writer: Stamp, indexes: Mapping[str, tuple[int, ...]], retry: Retry) -> None:
        """Runs one empty transaction: until EndTxn returned 0 twice since the last successful AddPartitionsToTxn."""
        add = AddPartitionsToTxn(self.transactional_id, writer, indexes)
        end = EndTxn(self.transactional_id, writer)
        added, accepted = False, 0
        while True:
            try:
                errors, code = await self._ask(end, None if added else add)
            except (UpstreamError, KafkaError) as error:
                await retry.pause(self._unanswered(error))
                continue
            if (reason := self._not_added(errors, writer)) is None:
                added = True
                if code == ErrorCode.NONE:
                    accepted += 1
                    if accepted == 2:
                        return
                    retry.progressed()
                    reason = "markers pending"
                else:
                    if code == ErrorCode.INVALID_TXN_STATE:
                        added, accepted = False, 0  # no transaction is open: the coordinator forgot the partitions
                    if code in FENCED:
                        raise self._lose(code, writer, "EndTxn")
                    reason = self._retriable(code, "EndTxn")
            await retry.pause(reason)

    async def _ask(self, end: EndTxn, add: AddPartitionsToTxn | None) -> tuple[Mapping[TopicPartition, int], int]:
        """Sends both requests in one write, or EndTxn alone. Returns the partitions' error codes, and EndTxn's."""
        broker = await self._upstream.coordinator(self.transactional_id, CoordinatorKind.TRANSACTION)
        if add is None:
            return {}, await self._upstream.call(broker, end, timeout=self._limits.call, channel=self._channel)
        return await self._upstream.call_pair(broker, add, end, timeout=self._limits.call, channel=self._channel)

    def _not_added(self, errors: Mapping[TopicPartition, int], writer: Stamp) -> str | None:
        """Returns why AddPartitionsToTxn added nothing, None if it succeeded. One refused partition fails them all."""
        codes = set(errors.values()) - {ErrorCode.NONE}
        if fenced := codes & FENCED:
            raise self._lose(min(fenced), writer, "AddPartitionsToTxn")
        for partition, code in errors.items():
            if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED):
                return self._retriable(code, f"AddPartitionsToTxn of {partition}")
        return "AddPartitionsToTxn was not attempted" if codes else None

    def _unanswered(self, error: UpstreamError | KafkaError) -> str:
        """Returns why a call had no answer, or found no coordinator. The coordinator will be looked up again."""
        if isinstance(error, KafkaError):
            return self._retriable(error.code, str(error))
        self._upstream.forget_coordinator(self.transactional_id, CoordinatorKind.TRANSACTION)
        return str(error)

    def _retriable(self, code: int, what: str, *, fenced_passes: bool = False) -> str:
        if code in _COORDINATOR_MOVED:
            self._upstream.forget_coordinator(self.transactional_id, CoordinatorKind.TRANSACTION)
        if code in _RETRIABLE or code == ErrorCode.INVALID_TXN_STATE or (fenced_passes and code in FENCED):
            return f"{what} answered {code}"
        raise FencingRefusedError(code, f"{self.transactional_id}: {what}")
