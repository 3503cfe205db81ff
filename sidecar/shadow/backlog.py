"""How many records lie between a cursor and the end: counted from the headers of batches, so control batches and
records that compaction removed do not count.

Counting means reading the log, so it is done once: the next count continues where the last one stopped, in the
background if it takes longer than the caller waits, and it stops as soon as it exceeds the limit in question.
"""

import asyncio
from collections import OrderedDict
from contextlib import aclosing
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.cluster.logs import LogMovedError, LogReader
from sidecar.network.tasks import take_failure
from sidecar.protocol.batch import HEADER_BYTES, BatchHeader, batch_sizes, codec_of, read_header
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.records import each

_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 4
_UNDER_WAY: Final = 64
_STEP_BYTES: Final = 256 * 1024
"""Read at a time: the headers in it are looked at within milliseconds, however small the batches are."""
_TRUE_S: Final = 600.0
"""How long a count is taken for true: compaction makes it smaller."""
_LARGEST_BATCH: Final = 64 * 1024 * 1024


class Stretch(NamedTuple):
    """What lies behind a cursor at `offset` in one partition of a topic (by its id, as it may be created anew)."""

    topic_id: UUID
    partition: TopicPartition
    offset: int


class _Count:
    __slots__ = ("began", "next", "records", "task")

    def __init__(self, began: float, first: int) -> None:
        self.began = began
        self.next = first
        self.records = 0
        self.task: asyncio.Task[None] | None = None


class Backlogs:
    """Counts of records, bounded: the longest not asked for is forgotten first."""

    def __init__(self, logs: LogReader) -> None:
        self._logs = logs
        self._counts: OrderedDict[Stretch, _Count] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._under_way = 0

    async def passes(self, stretch: Stretch, end: int, limit: int, wait: float) -> bool | None:
        """Whether more than `limit` records lie between a cursor and `end`; None where `wait` seconds do not settle it.

        The count goes on then. Raises `KafkaError`, `UpstreamError`.
        """
        if end - stretch.offset <= limit:
            return False
        count = self._count(stretch)
        if count.task is None and count.records <= limit and count.next < end:
            if self._under_way >= _UNDER_WAY:
                return None
            self._under_way += 1
            count.task = asyncio.get_running_loop().create_task(self._read(stretch, count, end, limit))
            count.task.add_done_callback(_ended)
        task = count.task
        if task is not None:
            await asyncio.wait({task}, timeout=wait)
            if not task.done():
                return None
            if count.task is task:
                count.task = None
            task.result()
        if count.records > limit:
            return True
        return False if count.next >= end else None

    def _count(self, stretch: Stretch) -> _Count:
        now = asyncio.get_running_loop().time()
        found = self._counts.get(stretch)
        if found is None or (found.task is None and now - found.began > _TRUE_S):
            found = self._counts[stretch] = _Count(now, stretch.offset)
        self._counts.move_to_end(stretch)
        if len(self._counts) > _REMEMBERED:
            oldest = next((key for key, count in self._counts.items() if count.task is None), None)
            if oldest is not None:
                del self._counts[oldest]
        return found

    async def _read(self, stretch: Stretch, count: _Count, end: int, limit: int) -> None:
        try:
            async with self._slots:
                while count.next < end and count.records <= limit:
                    try:
                        await self._read_on(stretch, count, end, limit)
                    except LogMovedError as error:
                        count.next = min(error.start, end)  # what retention took is no backlog any more
        finally:
            self._under_way -= 1

    async def _read_on(self, stretch: Stretch, count: _Count, end: int, limit: int) -> None:
        async with aclosing(self._logs.read(stretch.partition, count.next, end, _STEP_BYTES)) as found:
            async for records in found:
                _add(count, memoryview(records), end)
                if count.records > limit:
                    return

    async def close(self) -> None:
        """Count no more."""
        tasks = [count.task for count in self._counts.values() if count.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _add(count: _Count, records: memoryview, end: int) -> None:
    """Count the whole batches in front of `end`, the first of which may begin in front of the cursor."""
    for start, size in batch_sizes(records, 0, len(records)):
        if count.next >= end:
            return
        header = read_header(records, start, start + size)
        if not header.is_control:
            count.records += _behind(header, records[start : start + size], count.next)
        count.next = max(count.next, header.base_offset + header.last_offset_delta + 1)


def _behind(header: BatchHeader, batch: memoryview, offset: int) -> int:
    """The records of a batch from `offset` on."""
    ahead = offset - header.base_offset
    if ahead <= 0:
        return header.records
    if header.records == header.last_offset_delta + 1:
        return max(0, header.records - ahead)
    section = decompress(codec_of(batch), batch[HEADER_BYTES:], _LARGEST_BATCH)
    found = each(section, header.records, b"", b"", dense=False)
    return sum(record.offset_delta >= ahead for record in found)


def _ended(task: asyncio.Task[None]) -> None:
    """No other caller may come for a failure."""
    take_failure(task, UpstreamError, KafkaError)
