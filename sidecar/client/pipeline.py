"""Sends records: one pipeline per partition, with one batch in flight.

No batch is sent while the one before it has no outcome, so records are written in the order of the calls. A retry sends
the same batch under the same sequence, so Kafka recognizes a duplicate. If Kafka cannot (45: it has lost the session's
sequence), a new session sends the batch, and the sequence ids show which records the log has already; without ids the
batch fails instead. The next batch reuses the sequences of a refused batch, unless an earlier try of that may be in the
log: then a new session continues, as Java's producer raises its epoch (KIP-360).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from sidecar.client.claim import Claim, again
from sidecar.client.errors import OF_KAFKA, SidecarError, SidecarUnavailableError, of_kafka
from sidecar.client.numbering import Numbering
from sidecar.client.receipt import Pending, Receipt
from sidecar.client.transport import BATCH_BYTES, BatchError, Transport
from sidecar.protocol.batch import SEQUENCE_MODULUS
from sidecar.protocol.errors import APPEND_IN_DOUBT, ErrorCode
from sidecar.protocol.ids import Stamp

_AGAIN_S: Final = 0.1
_NOT_KNOWN: Final = "whether it was written is not known"
_UNKNOWN_TRIES: Final = 100
"""The number of tries while a node does not know the topic: the node may lag, or the topic was deleted."""
_SESSIONS_PER_BATCH: Final = 3
_PLACE_LOST: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
_MAY_BE_LOST: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""Errors that may mean that the topic was lost; `Claim.check` finds out."""


class PartitionPipeline:
    """The records of one partition. `head` is the batch in flight, or to be sent again."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.head: list[Pending] = []
        self.sessions: int = 0
        """The number of sessions in which the head was refused for its sequence."""
        self.unknown: int = 0
        """How often a node did not know the topic of the head."""
        self.doubted: Stamp | None = None
        """The session under which an earlier try of the head may be in the log."""
        self.task: asyncio.Task[None] | None = None
        self._queue: deque[Pending] = deque()

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier try of the head may be in the log."""
        return self.doubted is not None

    def may_double(self, session: Stamp) -> bool:
        """Whether the head could be written twice: it was sent in another session, and its records have no ids."""
        return self.doubted not in (None, session) and self.head[0].number is None

    def add(self, record: Pending) -> None:
        self._queue.append(record)

    def fill(self, last_id: int) -> bool:
        """Fill the head, and return whether there is anything to send. A new batch has rising ids, which are all known
        to be in the log (up to `last_id`) or all new: a node reports duplicates for a whole batch only.
        """
        size, head, queue = 0, self.head, self._queue
        if head:
            return True
        while queue:
            record = queue[0]
            if not record.outcome.done():  # given up before it left
                size += record.size
                if head and (size > BATCH_BYTES or not _may_follow(head[-1].number, record.number, last_id)):
                    break
                head.append(record)
                record.left = True
            queue.popleft()
        return bool(head)

    def drop(self) -> list[Pending]:
        """Remove and return the records that wait."""
        waiting = list(self._queue)
        self._queue.clear()
        return waiting

    def settled(self) -> list[Pending]:
        """Remove and return the head, which has its outcome now."""
        head, self.head, self.sessions, self.unknown, self.doubted = self.head, [], 0, 0, None
        return head


def _may_follow(before: int | None, number: int | None, last_id: int) -> bool:
    if before is None or number is None:
        return before is number
    return before < number and (before <= last_id) is (number <= last_id)


def _passes(code: int, part: PartitionPipeline) -> bool:
    """Whether the same batch may succeed if it is sent again soon."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return part.unknown < _UNKNOWN_TRIES
    return code in OF_KAFKA and OF_KAFKA[code].error is SidecarUnavailableError


def _refusal(code: int, message: str, in_doubt: bool) -> SidecarError:
    doubt = "; an earlier try of it may have been written" if in_doubt else ""
    if code == ErrorCode.INVALID_RECORD:  # ids are as they should be, or there are none: it is not about them
        return SidecarError(code, f"a record is refused; on a compacted topic each needs a key{doubt}")
    return of_kafka(code, f"{message or 'the record is refused'}{doubt}" if doubt else message)


class Pipeline:
    """Sends the records that `add` takes, until `fail` or `close`. `failed` is called once, with the final error."""

    def __init__(
        self, claim: Claim, numbering: Numbering, transport: Transport, failed: Callable[[SidecarError], None]
    ) -> None:
        self._claim = claim
        self._numbering = numbering
        self._transport = transport
        self._failed = failed
        self._error: SidecarError | None = None
        self._partitions: dict[int, PartitionPipeline] = {}
        self._renewing = asyncio.Lock()
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._under_way = 0
        self._idle.set()
        self._open.set()

    @property
    def error(self) -> SidecarError | None:
        """Why nothing is sent any more; None while records are sent."""
        return self._error

    def add(self, partition: int, record: Pending) -> None:
        """Queue a record; its `outcome` is set later."""
        if self._error is not None:
            record.outcome.set_exception(again(self._error))
            return
        part = self._partitions.setdefault(partition, PartitionPipeline(partition))
        part.add(record)
        if part.task is None or part.task.done():
            part.task = asyncio.create_task(self._run(part))

    # Lanes ----------------------------------------------------------------------------------------------------------

    async def _run(self, part: PartitionPipeline) -> None:
        try:
            await self._send_all(part)
        except Exception as defect:
            self._settle(part, SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(defect)), in_doubt=True)
            raise

    async def _send_all(self, part: PartitionPipeline) -> None:
        while part.fill(self._numbering.last_of(part.partition)):
            await self._open.wait()
            if self._error is not None:
                self._settle(part, self._error)
                return
            session = self._claim.producer
            if part.may_double(session):  # another partition's trouble made a new session
                self._settle(part, SidecarError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _NOT_KNOWN))
                continue
            self._under_way += 1
            self._idle.clear()
            try:
                base = await self._transport.send(part.partition, part.head)
            except BatchError as error:
                found = error
            else:
                found = None
                self._landed(part, base)
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._idle.set()
            if found is not None:
                await self._recover(part, session, found)

    def _landed(self, part: PartitionPipeline, base: int) -> None:
        partition, numbering = part.partition, self._numbering
        last, generation = numbering.last_of(partition), self._claim.generation_of(partition)
        self._count(part)
        for index, record in enumerate(part.settled()):
            number = record.number
            duplicate = base < 0 and number is not None and number <= last
            if number is not None:
                numbering.arrived(partition, number)
            if not record.outcome.done():
                offset = base + index if base >= 0 else -1
                record.outcome.set_result(
                    Receipt(partition, offset, -1 if number is None else number, duplicate, generation)
                )

    def _count(self, part: PartitionPipeline) -> None:
        """Advance the session's next sequence past the head."""
        sequences = self._claim.next_sequences
        sequences[part.partition] = (sequences.get(part.partition, 0) + len(part.head)) % SEQUENCE_MODULUS

    def _settle(self, part: PartitionPipeline, error: SidecarError, *, in_doubt: bool = False) -> None:
        """Fail the head finally. `in_doubt`: it may be in the log, even without an earlier try in doubt."""
        in_doubt |= part.in_doubt
        for record in part.settled():
            if record.number is not None:
                self._numbering.failed(part.partition, record.number)
            if not record.outcome.done():
                record.outcome.set_exception(again(error, in_doubt))
            if record.stop is not None:
                record.stop(part.partition)

    # Failures -------------------------------------------------------------------------------------------------------

    async def _recover(self, part: PartitionPipeline, session: Stamp, error: BatchError) -> None:
        code = error.code
        if code is None or code in APPEND_IN_DOUBT:
            part.doubted = part.doubted or session
        part.unknown += code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code in _MAY_BE_LOST:
            await self._ask_whether_owned()
        if self._error is not None:
            self._settle(part, self._error)
        elif code is None or _passes(code, part):
            await asyncio.sleep(_AGAIN_S)
        elif code in _PLACE_LOST:
            part.sessions += 1
            if part.head[0].number is None or part.sessions > _SESSIONS_PER_BATCH:
                self._settle(part, SidecarError(code, _NOT_KNOWN), in_doubt=True)
            await self._renew(session)
        elif code == ErrorCode.POLICY_VIOLATION:
            self._count(part)  # a node takes these sequences for used
            self._settle(part, of_kafka(code, "another session writes under this name, or there are too many names"))
        else:
            in_doubt = part.in_doubt
            self._settle(part, _refusal(code, str(error), in_doubt))
            # The sequences of a batch that may be in the log are not reused: the next batch would seem its duplicate.
            if in_doubt:
                await self._renew(session)

    async def _ask_whether_owned(self) -> None:
        while self._error is None:
            try:
                await self._claim.check()
            except SidecarUnavailableError:
                await asyncio.sleep(_AGAIN_S)
            except SidecarError as lost:
                self.fail(lost)
            else:
                return

    async def _renew(self, session: Stamp) -> None:
        """Continue as a new session; done once for all partitions that failed in `session`."""
        async with self._renewing:
            if self._claim.producer != session:
                return
            self._open.clear()
            try:
                await self._idle.wait()  # what others have under way ends by itself
                await self._transport.close()
                while self._error is None:
                    try:
                        await self._claim.succeed()
                    except SidecarUnavailableError:
                        await asyncio.sleep(_AGAIN_S)
                    except SidecarError as lost:
                        self.fail(lost)
                    else:
                        return
            finally:
                self._open.set()

    # The end --------------------------------------------------------------------------------------------------------

    def fail(self, error: SidecarError) -> None:
        """Send nothing any more. Batches in flight still get their own outcome; all other records fail with `error`."""
        if self._error is not None:
            return
        self._error = error
        for part in self._partitions.values():
            for record in part.drop():
                if record.number is not None:
                    self._numbering.failed(part.partition, record.number)
                if not record.outcome.done():
                    record.outcome.set_exception(again(error))
        self._failed(error)

    async def drain(self) -> None:
        """Wait until every record has its outcome."""
        while tasks := [
            part.task for part in self._partitions.values() if part.task is not None and not part.task.done()
        ]:
            await asyncio.wait(tasks)

    async def close(self, error: SidecarError) -> None:
        """End at once; records without an outcome fail with `error`."""
        if self._error is None:
            self._error = error
        tasks = [part.task for part in self._partitions.values() if part.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in self._partitions.values():
            for record in (*part.settled(), *part.drop()):
                if not record.outcome.done():
                    record.outcome.set_exception(again(self._error, record.left))
        await self._transport.close()
