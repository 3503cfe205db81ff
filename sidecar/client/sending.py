"""Checks and numbers the records of one producer, passes them to its pipeline and waits for their outcomes.

With `send_all` each record has its own outcome. In a partition no record is written after one that failed: `Run`
cancels those not yet sent. So a partition's log has a prefix of the given records.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from sidecar.client.claim import Claim, again
from sidecar.client.errors import SidecarError, SidecarUnavailableError
from sidecar.client.numbering import Numbering
from sidecar.client.pipeline import Pipeline
from sidecar.client.receipt import Headers, Pending, Receipt, Record, header_name, largest_size, octets, partition_of
from sidecar.protocol.errors import ErrorCode

ID_HEADER: Final = "sidecar-sequence-id"
NAME_HEADER: Final = "sidecar-producer-name"
IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
IN_FLIGHT_RECORDS: Final = 10_000
"""The limits of one `send_all`: bytes and records that were taken and have no outcome yet."""


class Sender:
    """The way from `send` to the pipeline. `timeout` (seconds) bounds each record from when it is taken."""

    def __init__(self, claim: Claim, numbering: Numbering, pipeline: Pipeline, timeout: float) -> None:
        self.numbering = numbering
        self.pipeline = pipeline
        self._claim = claim
        self._timeout = timeout
        self._turn = 0

    async def send(self, record: Record) -> Receipt:
        """See `ExclusiveProducer.send`."""
        return await self.outcome(self.begin(record))

    async def send_all(self, records: Iterable[Record | bytes | None]) -> list[Receipt | SidecarError]:
        """See `ExclusiveProducer.send_all`."""
        return await Run(self).send(records)

    def begin(self, record: Record, run: Run | None = None) -> UnderWay:
        """Take the next record; there is no `await` until its place in the order is fixed. Raises `SidecarError`;
        ValueError or TypeError for an invalid record.
        """
        if self.pipeline.error is not None:
            raise again(self.pipeline.error)
        headers = tuple((header_name(name), octets(content)) for name, content in record.headers)
        key, value = octets(record.key), octets(record.value)
        if any(name in (ID_HEADER, NAME_HEADER) for name, _ in headers):
            raise ValueError(f"{ID_HEADER} and {NAME_HEADER} are not yours to set: give sequence_id, or another name")
        number = self.numbering.choose(record.sequence_id)
        index = self._partition(key, record.partition, number)
        if run is not None and index in run.stopped:
            raise _not_attempted(index)
        if number is not None:
            headers += ((ID_HEADER, str(number).encode()),)
        pending = self._pending(key, value, headers, number)
        self.numbering.take(index, number, given=record.sequence_id is not None)
        pending.stop = None if run is None else run.stop
        self.pipeline.add(index, pending)
        return UnderWay(pending, index, asyncio.get_running_loop().time() + self._timeout)

    def _pending(self, key: bytes | None, value: bytes | None, headers: Headers, number: int | None) -> Pending:
        size = largest_size(key, value, headers)
        outcome: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_seen)
        return Pending(key, value, headers, number, int(time.time() * 1000), size, outcome)

    async def outcome(self, sent: UnderWay) -> Receipt:
        """Wait for the outcome. When that is cancelled or takes too long, the record is cancelled if not yet sent."""
        outcome = sent.record.outcome
        try:
            if not outcome.done():
                await asyncio.wait({outcome}, timeout=max(0.0, sent.until - asyncio.get_running_loop().time()))
            if outcome.done():
                return outcome.result()
            left = sent.record.left
            message = f"no answer within {self._timeout:g} s; the record {'may be' if left else 'was not'} written"
            raise SidecarUnavailableError(ErrorCode.REQUEST_TIMED_OUT, message, retryable=True, in_doubt=left)
        finally:
            self.give_up(sent)

    def give_up(self, sent: UnderWay) -> None:
        """Cancel the record if it has no outcome: no caller waits for it any more."""
        if sent.record.outcome.cancel() and sent.record.number is not None:
            self.numbering.failed(sent.partition, sent.record.number)

    def _partition(self, key: bytes | None, partition: int | None, number: int | None) -> int:
        claim, mine = self._claim, self._claim.partitions
        if partition is None and key is None:
            self._turn += 1
            return mine[(self._turn if number is None else number) % len(mine)]
        index = self._partition_of_key(key or b"") if partition is None else partition
        if index in mine:
            return index
        if 0 <= index < claim.count:
            owned = ", ".join(map(str, mine))
            message = f"partition {index} of {claim.topic} is not this producer's: it owns {owned}"
            raise SidecarError(ErrorCode.INVALID_REQUEST, message)
        message = f"{claim.topic} has the partitions 0 to {claim.count - 1}, not {index}"
        raise SidecarError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def _partition_of_key(self, key: bytes) -> int:
        claim = self._claim
        everything = claim.partitions if claim.wanted is None else range(claim.count)
        return everything[partition_of(key, len(everything))]


class UnderWay(NamedTuple):
    """A record in the pipeline. `until`: when its timeout ends, by the loop's clock."""

    record: Pending
    partition: int
    until: float


class Run:
    """One `send_all`. Pipelines call `stop` if one of its records fails."""

    def __init__(self, sender: Sender) -> None:
        self.stopped: set[int] = set()
        """Partitions in which one of its records failed."""
        self._sender = sender
        self._waiting: deque[UnderWay | SidecarError] = deque()
        """The records in the given order; an error stands for a record that was not taken."""
        self._bytes = 0
        self._results: list[Receipt | SidecarError] = []

    async def send(self, records: Iterable[Record | bytes | None]) -> list[Receipt | SidecarError]:
        """The outcome of each, in their order."""
        try:
            for record in records:
                self._take(record if isinstance(record, Record) else Record(record))
                while self._bytes > IN_FLIGHT_BYTES or len(self._waiting) >= IN_FLIGHT_RECORDS:
                    await self._settle_first()
            while self._waiting:
                await self._settle_first()
        finally:
            for each in self._waiting:
                if isinstance(each, UnderWay):
                    self._sender.give_up(each)
        return self._results

    def _take(self, record: Record) -> None:
        try:
            taken = self._sender.begin(record, self)
        except SidecarError as error:
            self._waiting.append(error)
        except (ValueError, TypeError) as error:
            self._waiting.append(SidecarError(ErrorCode.INVALID_RECORD, str(error)))
        else:
            self._bytes += taken.record.size
            self._waiting.append(taken)

    async def _settle_first(self) -> None:
        first = self._waiting[0]
        found: Receipt | SidecarError
        if isinstance(first, SidecarError):
            found = first
        else:
            try:
                found = await self._sender.outcome(first)
            except SidecarError as error:
                found = error
                self.stop(first.partition)
            self._bytes -= first.record.size
        self._waiting.popleft()
        self._results.append(found)

    def stop(self, partition: int) -> None:
        """Cancel the records of a partition that are not yet sent, because an earlier one failed."""
        if partition in self.stopped:
            return
        self.stopped.add(partition)
        for each in self._waiting:
            if isinstance(each, UnderWay) and each.partition == partition:
                record = each.record
                if not record.left and not record.outcome.done():
                    record.outcome.set_exception(_not_attempted(partition))
                    if record.number is not None:
                        self._sender.numbering.failed(partition, record.number)


def _not_attempted(partition: int) -> SidecarError:
    message = f"not sent: a record in front of it failed in partition {partition}"
    return SidecarError(ErrorCode.OPERATION_NOT_ATTEMPTED, message, retryable=True)


def _seen(outcome: asyncio.Future[Receipt]) -> None:
    """Mark the exception as retrieved: the caller may have stopped waiting."""
    if not outcome.cancelled():
        outcome.exception()
