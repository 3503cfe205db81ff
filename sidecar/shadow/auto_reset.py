"""Cursors that fall too far behind are reset to the end of the log (PIP-180: shadowReplicatorAutoResetBacklogEntries).

The reset happens when a group asks for its cursor: OffsetFetch returns the end instead of the committed offset, if more
records than the shadow's limit lie between them. Kafka keeps the committed offset until the group commits again. If the
backlog cannot be counted in time, the cursor is not reset.

Records are counted from the headers of batches, so control batches and records that compaction removed do not count.
Counting means reading the log, so it is done once: the next count continues where the last one stopped, in the
background if it takes longer than the caller waits, and it stops as soon as it exceeds the limit in question.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.cluster.logs import LogMovedError, LogReader
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.tasks import take_failure
from sidecar.protocol.batch import HEADER_BYTES, BatchHeader, batch_sizes, codec_of, read_header
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.records import each
from sidecar.v1 import state_pb2 as state

_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 4
_UNDER_WAY: Final = 64
_STEP_BYTES: Final = 256 * 1024
"""Bytes per read: their batch headers are parsed within milliseconds, even if the batches are small."""
_TRUE_S: Final = 600.0
"""Seconds after which a count is repeated: compaction makes it smaller."""
_LARGEST_BATCH: Final = 64 * 1024 * 1024


class Stretch(NamedTuple):
    """The log from a cursor at `offset` on, in one partition. The topic is identified by its id, as it may be created
    again.
    """

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
    """Counts of records, up to a limit: the least recently used count is forgotten first."""

    def __init__(self, logs: LogReader) -> None:
        self._logs = logs
        self._counts: OrderedDict[Stretch, _Count] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._under_way = 0

    async def passes(self, stretch: Stretch, end: int, limit: int, wait: float) -> bool | None:
        """Whether more than `limit` records are between a cursor and `end`; None if that is not known after `wait`
        seconds.

        Counting continues then. Raises `KafkaError`, `UpstreamError`.
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
            del self._counts[next(key for key, count in self._counts.items() if count.task is None)]
        return found

    async def _read(self, stretch: Stretch, count: _Count, end: int, limit: int) -> None:
        try:
            async with self._slots:
                while count.next < end and count.records <= limit:
                    try:
                        await self._read_on(stretch, count, end, limit)
                    except LogMovedError as error:
                        count.next = min(error.start, end)  # records that retention deleted do not count
        finally:
            self._under_way -= 1
            count.task = None  # also if nobody asks again: else it would never be forgotten

    async def _read_on(self, stretch: Stretch, count: _Count, end: int, limit: int) -> None:
        logs = self._logs.bound(stretch.topic_id)
        async with aclosing(logs.read(stretch.partition, count.next, end, _STEP_BYTES)) as found:
            async for records in found:
                _add(count, memoryview(records), end)
                if count.records > limit:
                    return

    async def close(self) -> None:
        """Stop the counting."""
        tasks = [count.task for count in self._counts.values() if count.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _add(count: _Count, records: memoryview, end: int) -> None:
    """Count the records of complete batches before `end`. The first batch may begin before the cursor."""
    for start, size in batch_sizes(records, 0, len(records)):
        if count.next >= end:
            return
        header = read_header(records, start, start + size)
        if not header.is_control:
            count.records += _behind(header, records[start : start + size], count.next)
        count.next = max(count.next, header.base_offset + header.last_offset_delta + 1)


def _behind(header: BatchHeader, batch: memoryview, offset: int) -> int:
    """Return the number of records of a batch from `offset` on."""
    ahead = offset - header.base_offset
    if ahead <= 0:
        return header.records
    if header.records == header.last_offset_delta + 1:
        return max(0, header.records - ahead)
    section = decompress(codec_of(batch), batch[HEADER_BYTES:], _LARGEST_BATCH)
    found = each(section, header.records, b"", b"", dense=False)
    return sum(record.offset_delta >= ahead for record in found)


def _ended(task: asyncio.Task[None]) -> None:
    """Take the exception of a task, as perhaps no caller does."""
    take_failure(task, UpstreamError, KafkaError)


_CHANNEL: Final = Channel("backlogs")
_WAIT_S: Final = 3.0
"""How long a group waits for its offsets while records are counted."""
_ENDS_S: Final = 1.0


class Moved(NamedTuple):
    """A cursor that was reset from its committed offset to the end of the log."""

    partition: int
    committed: int
    end: int


@dataclass(eq=False)
class AutoReset:
    """Resets the cursors of shadows that have a limit. `limits` (records, by name) is replaced when shadows change.
    `_failed` is called if a shadow cannot be checked. `_reset` is called once for each reset, even if the cursor is
    read often, with the shadow, the group, the limit, and the partitions that were reset.
    """

    _upstream: KafkaUpstream
    _resolver: NameResolver
    _failed: Callable[[str, BaseException], None]
    _reset: Callable[[str, str, int, Collection[Moved]], None]
    limits: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._logs = LogReader(self._upstream, _CHANNEL)
        self._backlogs = Backlogs(self._logs)
        self._moved: OrderedDict[tuple[str, str, int, int], int] = OrderedDict()
        """The offset that a cursor was reset to, by shadow, group, partition and committed offset. It is valid until
        the group commits, even if the group restarts.
        """

    async def reset(self, group: str, shadow: str, committed: Mapping[int, int]) -> dict[int, int]:
        """Return the partitions in which a cursor exceeded its shadow's limit, with its new offset: the end that the
        log had at the reset.

        `committed`: offsets by partition, none negative. Never raises: if the backlog is not known, the cursor is not
        reset.
        """
        limit = self.limits.get(shadow, 0)
        source = self._resolver.source(shadow.encode())
        if not limit or source is None or source.is_closed or not committed:
            return {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAIT_S
        try:
            async with asyncio.timeout(_ENDS_S):
                ends = await self._ends(source, committed)
        except (KafkaError, UpstreamError, TimeoutError) as error:
            self._failed(shadow, error)
            return {}
        places = {index: self._moved.get((shadow, group, index, committed[index]), committed[index]) for index in ends}
        stands = {index: place for index, place in places.items() if place != committed[index]}
        far = {index: end for index, end in ends.items() if end - places[index] > limit}
        if not far:
            return stands

        async def passes(index: int) -> bool:
            stretch = Stretch(source.topic_id, TopicPartition(source.topic.decode(), index), places[index])
            try:
                return bool(await self._backlogs.passes(stretch, far[index], limit, max(0.0, deadline - loop.time())))
            except (KafkaError, UpstreamError) as error:
                self._failed(shadow, error)
                return False

        found = await asyncio.gather(*map(passes, far))
        moved = {index: end for (index, end), is_past in zip(far.items(), found, strict=True) if is_past}
        self._remember(group, shadow, limit, [Moved(index, committed[index], end) for index, end in moved.items()])
        return stands | moved

    async def _ends(self, source: Source, partitions: Collection[int]) -> dict[int, int]:
        """Return the end offsets of the log; none if the topic is not the one that the shadow was created for."""
        topic = source.topic.decode()
        layout = await self._upstream.layout(topic)
        if layout.topic_id != source.topic_id:
            return {}
        logs = self._logs.bound(source.topic_id)
        return await logs.ends(topic, [index for index in partitions if index in layout.leaders])

    def _remember(self, group: str, shadow: str, limit: int, moved: list[Moved]) -> None:
        for found in moved:
            self._moved[shadow, group, found.partition, found.committed] = found.end
            if len(self._moved) > _REMEMBERED:
                self._moved.popitem(last=False)
        if moved:
            self._reset(shadow, group, limit, moved)

    async def close(self) -> None:
        """Stop the counting."""
        await self._backlogs.close()


def detail(group: str, limit: int, moved: Collection[Moved], shown: int = 10) -> str:
    """Describe a reset for people: the group, the limit and the offsets."""
    places = [f"{found.partition}: {found.committed} to {found.end}" for found in moved]
    more = f" and {len(places) - shown} more" if len(places) > shown else ""
    partitions = ", ".join(places[:shown]) + more
    return f"cursor of group {group} reset to the end: more than {limit} records lay behind it (partition {partitions})"


def reset_of(group: str, limit: int, moved: Collection[Moved]) -> state.CursorReset:
    """Describe a reset as a message for programs."""
    found = state.CursorReset(group=group, limit=limit)
    for cursor in moved:
        found.partition.append(cursor.partition)
        found.from_offset.append(cursor.committed)
        found.to_offset.append(cursor.end)
    return found
