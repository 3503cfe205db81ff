"""Follow the ownership topic: read it from its start, then long-poll its leader without end, and update a `View`.

The poll has its own channel, so it blocks no other request. Reading continues after leader changes and broker restarts.
Only another topic under the same name ends it (`ChangelogLostError`), or a bug (`ChangelogError`). It never writes.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final
from uuid import UUID

from sidecar.changelog.clock import Clock
from sidecar.changelog.errors import ChangelogError, ChangelogLostError
from sidecar.changelog.keys import Key, Kind
from sidecar.changelog.records import LoggedBatch, UnreadableBatchError, read_batches
from sidecar.changelog.view import Change, View
from sidecar.protocol.caller import Channel, DisconnectedError, Upstream, UpstreamError
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, Stamp, TopicPartition

CHANNEL: Final = Channel("changelog-tail")
_RECORDS_PER_TURN: Final = 256
_ANSWER_SLACK_S: Final = 3.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_RANDOM: Final = random.Random()


@dataclass(eq=False)
class Tailer:
    """Reads one partition. `position` is the next offset to read; all records before it were applied to `view`, and
    their timestamps to `clock`.

    `poll_wait` is how long the broker waits before it answers a poll without new records (seconds); an unreachable
    broker is noticed `poll_wait + _ANSWER_SLACK_S` after the poll. `on_error` is called with each error that interrupts
    the reading; `last_error` is None while reading succeeds.
    """

    _upstream: Upstream
    partition: TopicPartition
    _topic_id: UUID
    _: KW_ONLY
    poll_wait: float = 2.0
    max_bytes: int = 1024 * 1024
    on_error: Callable[[Exception], None] = lambda _: None
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.view = View()
        self.position = Offset(0)
        self.caught_up = False
        self.last_error: Exception | None = None
        self._leader: int | None = None
        self._started_reading = False
        self._end_seen_at = -math.inf
        self._failures = 0
        self._ended: ChangelogError | None = None
        self._listeners: dict[Kind | Key, list[Callable[[Change], None]]] = {}
        self._offset_waiters: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._stamp_waiters: list[tuple[Stamp, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._task: asyncio.Task[None] | None = None

    # For the rooms above ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to read, in a task of its own."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"tail {self.partition}")
        self._task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """After an unexpected error, here or in a listener, let every waiting call raise `ChangelogError`."""
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = ChangelogError(f"reading {self.partition} failed: {error!r}")
            self._failed(failure)
            self._end(failure)

    async def close(self) -> None:
        """Stop reading; waiting calls raise `ChangelogError`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end(ChangelogError(f"reading {self.partition} was stopped"))

    def subscribe(self, listener: Callable[[Change], None], *to: Kind | Key) -> Callable[[], None]:
        """Call `listener` for every later change of a record of these kinds, or under these keys, in log order. Returns
        a function that ends the subscription. The listener must not raise or block.
        """
        for each in to:
            self._listeners.setdefault(each, []).append(listener)

        def stop() -> None:
            for each in to:
                self._listeners[each].remove(listener)

        return stop

    def _report(self, change: Change) -> None:
        for of in (change.key.kind, change.key):
            for listener in tuple(self._listeners.get(of, ())):
                listener(change)

    async def reached(self, offset: Offset, timeout: float | None = None) -> None:
        """Wait until the record at `offset` is in the view. Raises TimeoutError, or `ChangelogError` if reading has
        ended.
        """
        self._raise_end()
        if self.position > offset:
            return
        waiter = self._new_waiter()
        heapq.heappush(self._offset_waiters, (offset, self._waiter_count, waiter))
        await self._wait(waiter, timeout)

    async def seen(self, writer: Stamp, timeout: float | None = None) -> None:
        """Wait until a record or marker under this stamp, or a newer epoch of its producer id, is in the view.

        If `writer` is the stamp of a fence, the view then has every record of older epochs, as none can follow the
        fence. The latest offset would not prove this: a leader that lost contact with the cluster may return one that
        is too low.
        """
        self._raise_end()
        if self._has_seen(writer):
            return
        waiter = self._new_waiter()
        self._stamp_waiters.append((writer, waiter))
        await self._wait(waiter, timeout)

    async def read_to_end(self, timeout: float) -> Offset:
        """Wait until the view has every record that the leader has at the time of the call, and return the end offset.
        Raises TimeoutError, or `ChangelogError` if reading has ended.
        """
        async with asyncio.timeout(timeout):
            pause = _FIRST_PAUSE
            while True:
                self._raise_end()
                try:
                    end = await self._list(OffsetAt.LATEST, await self._find_leader(refresh=pause > _FIRST_PAUSE))
                except (UpstreamError, KafkaError):
                    await asyncio.sleep(pause * _RANDOM.uniform(0.5, 1.0))
                    pause = min(_LONGEST_PAUSE, pause * 2)
                else:
                    await self.reached(Offset(end - 1))
                    return end

    # Waiting ------------------------------------------------------------------------------------------------------

    def _new_waiter(self) -> asyncio.Future[None]:
        self._waiter_count += 1
        return asyncio.get_running_loop().create_future()

    async def _wait(self, waiter: asyncio.Future[None], timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            await waiter

    def _has_seen(self, writer: Stamp) -> bool:
        epoch = self.view.epoch(writer.producer_id)
        return epoch is not None and epoch >= writer.epoch

    def _wake(self) -> None:
        while self._offset_waiters and self._offset_waiters[0][0] < self.position:
            _settle(heapq.heappop(self._offset_waiters)[2])
        if self._stamp_waiters:
            still: list[tuple[Stamp, asyncio.Future[None]]] = []
            for writer, waiter in self._stamp_waiters:
                if self._has_seen(writer):
                    _settle(waiter)
                elif not waiter.done():
                    still.append((writer, waiter))
            self._stamp_waiters = still

    def _end(self, error: ChangelogError) -> None:
        self._ended = self._ended or error
        waiters = [waiter for _, _, waiter in self._offset_waiters] + [waiter for _, waiter in self._stamp_waiters]
        self._offset_waiters, self._stamp_waiters = [], []
        for waiter in waiters:
            _settle(waiter, self._ended)

    def _raise_end(self) -> None:
        if self._ended is not None:
            raise self._ended

    # Reading ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except ChangelogLostError as error:
                self.caught_up = False
                self._failed(error)
                self._end(error)
                return
            except (UpstreamError, KafkaError, UnreadableBatchError) as error:
                self._leader, self._end_seen_at = None, -math.inf
                self._failed(error)
                longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 30))
                await asyncio.sleep(longest * _RANDOM.uniform(0.5, 1.0))

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self.last_error = error
        self.on_error(error)

    async def _step(self) -> None:
        if self._leader is None:
            self._leader = await self._find_leader(refresh=self._failures > 0)
        if not self._started_reading:
            self.position = await self._list(OffsetAt.EARLIEST, self._leader)
            self._started_reading = True
        request = FetchPartition(
            self.partition, self.position, max_wait_ms=int(self.poll_wait * 1000), max_bytes=self.max_bytes
        )
        timeout = self.poll_wait + _ANSWER_SLACK_S
        asked_at = self.clock.elapsed()  # the answer's end offset is no older; the answer may wait here
        fetched = await self._upstream.call(self._leader, request, timeout=timeout, channel=CHANNEL)
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_place()
            return
        if fetched.error:
            raise KafkaError(fetched.error, f"fetch of {self.partition}")
        await self._take(fetched)
        self._end_seen_at = asked_at if self.caught_up else -math.inf
        self._failures = 0
        self.last_error = None

    async def _take(self, fetched: Fetched) -> None:
        """Apply the fetched batches. Other tasks run only between batches, so they see a claim whole or not at all."""
        applied = 0
        for batch in read_batches(fetched.records):
            if batch.next_offset <= self.position:
                continue
            self._take_batch(batch)
            applied += 1 + len(batch.records)
            if applied >= _RECORDS_PER_TURN:
                applied = 0
                await asyncio.sleep(0)
        self.caught_up = self.position >= fetched.high_watermark

    def _take_batch(self, batch: LoggedBatch) -> None:
        self.clock.heard(batch.timestamp_ms, self._end_seen_at)
        if batch.writer is not None:
            self.view.note_writer(batch.writer)
        for offset, record in batch.records:
            if offset < self.position:
                continue
            change = self.view.apply(offset, batch.timestamp_ms, batch.writer, record)
            if change is not None:
                self._report(change)
        self.position = batch.next_offset
        self._wake()

    async def _find_leader(self, *, refresh: bool) -> int:
        layout = await self._upstream.layout(self.partition.topic, refresh=refresh)
        if layout.topic_id != self._topic_id:
            raise ChangelogLostError(f"topic {self.partition.topic} was created anew: its id is {layout.topic_id}")
        leader = layout.leaders.get(self.partition.partition, -1)
        if leader < 0:
            raise DisconnectedError(f"{self.partition} has no leader", sent=False)
        return leader

    async def _list(self, which: OffsetAt, leader: int) -> Offset:
        listed = (await self._upstream.call(leader, ListOffsets({self.partition: which})))[self.partition]
        if listed.error:
            raise KafkaError(listed.error, f"{which.name.lower()} offset of {self.partition}")
        return listed.offset

    async def _find_place(self) -> None:
        """Choose a new position because `position` is outside the log. If the log starts later: continue at its start.
        If it ends earlier: records were lost, read it again from its start.
        """
        self.caught_up, self._end_seen_at = False, -math.inf
        leader = await self._find_leader(refresh=True)
        start, end = await self._list(OffsetAt.EARLIEST, leader), await self._list(OffsetAt.LATEST, leader)
        if self.position > end:
            self._failed(ChangelogError(f"{self.partition} ends at {end}, {self.position} was read: records were lost"))
            for change in self.view.truncate(end):
                self._report(change)
            self.position = start
        else:
            self.position = max(start, self.position)
        self._leader = leader


def _settle(waiter: asyncio.Future[None], error: Exception | None = None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
