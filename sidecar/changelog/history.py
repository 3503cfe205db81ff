"""Follow the events topic, for people and their tools. No decision of a node depends on it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from sidecar.changelog.records import LoggedBatch, UnreadableBatchError, read_batches
from sidecar.protocol.caller import Channel, Upstream, UpstreamError
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.v1 import state_pb2 as state

_POLL_S: Final = 1.0
"""A stream yields an event or None within this time (seconds); so a closed stream frees its slot as soon."""
_SLACK_S: Final = 3.0
_PAUSE_S: Final = 1.0
_EMPTY_ANSWERS: Final = 3
"""The number of consecutive empty answers before a known end after which reading starts again; a single one is normal
(`sidecar.cluster.logs`)."""
_FETCH_BYTES: Final = 256 * 1024
_WINDOW: Final = 4096
"""The number of offsets that one step of the backward search reads: about 1 MB of events."""


async def follow_events(
    upstream: Upstream,
    partition: TopicPartition,
    channel: Channel,
    after: int | None,
    newest: int = 0,
    topic: str | None = None,
) -> AsyncIterator[tuple[Offset, state.Event] | None]:
    """Yield every event, or those of `topic`, after offset `after` (None: from now on, preceded by the last `newest`
    events), without end; yield None after each second without an event.

    With an offset the first item is None, at once. Without an offset the first None means that the end of the log was
    read: every later event is yielded. While Kafka does not answer, None is still yielded, and the end is read once it
    answers. Events that retention deleted are left out. An event may be yielded twice, with the same `id`.
    """
    key = None if topic is None else topic.encode()
    position = None if after is None else Offset(max(0, after + 1))
    if position is not None:
        yield None
    while True:
        try:
            leader = (await upstream.layout(partition.topic, refresh=True)).leaders[partition.partition]
            log = _Log(upstream, leader, partition, channel)
            if position is None:
                async for begins in _beginning(log, newest, key):
                    if begins is None:
                        yield None
                    position = begins
            while position is not None:
                fetched = await log.fetch(position)
                if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    position = min(max(position, await log.end(OffsetAt.EARLIEST)), await log.end(OffsetAt.LATEST))
                    continue
                any_event = False
                for batch in _batches(log, fetched):
                    for event in _events(batch, position, key):
                        any_event = True
                        yield event
                    position = max(position, batch.next_offset)
                if not any_event:
                    yield None
        except (UpstreamError, KafkaError, UnreadableBatchError, KeyError):
            await asyncio.sleep(_PAUSE_S)
            yield None


class _Log(NamedTuple):
    upstream: Upstream
    leader: int
    partition: TopicPartition
    channel: Channel

    async def fetch(self, position: Offset) -> Fetched:
        request = FetchPartition(self.partition, position, max_wait_ms=int(_POLL_S * 1000), max_bytes=_FETCH_BYTES)
        return await self.upstream.call(self.leader, request, timeout=_POLL_S + _SLACK_S, channel=self.channel)

    async def end(self, which: OffsetAt) -> Offset:
        listed = (await self.upstream.call(self.leader, ListOffsets({self.partition: which})))[self.partition]
        if listed.error:
            raise KafkaError(listed.error, f"{which.name.lower()} offset of {self.partition}")
        return listed.offset


async def _beginning(log: _Log, newest: int, key: bytes | None) -> AsyncIterator[Offset | None]:
    """Yield None once the end of the log was read and after each step of the search, then the offset of the first of
    the last `newest` events.

    The events of one topic are searched backwards from the end; only their offsets are kept.
    """
    begins = latest = await log.end(OffsetAt.LATEST)
    yield None
    if key is None:
        begins = Offset(max(0, latest - newest))
    elif newest:
        earliest = await log.end(OffsetAt.EARLIEST)
        missing = newest
        while missing > 0 and begins > earliest:
            end, begins = begins, Offset(max(earliest, begins - _WINDOW))
            found = await _offsets(log, key, begins, end)
            missing -= len(found)
            if missing <= 0:
                begins = found[-missing]
            yield None
    yield begins


async def _offsets(log: _Log, key: bytes, begins: Offset, end: Offset) -> list[Offset]:
    """Return the offsets of a topic's events, from `begins` up to but without `end`."""
    found: list[Offset] = []
    empty = 0
    while begins < end:
        read = list(_batches(log, await log.fetch(begins)))
        empty = 0 if read else empty + 1
        if empty == _EMPTY_ANSWERS:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"reading {log.partition}: nothing comes from {begins} on")
        for batch in read:
            found += [offset for offset, record in batch.records if record.key == key and begins <= offset < end]
            begins = max(begins, batch.next_offset)
    return found


def _batches(log: _Log, fetched: Fetched) -> Iterator[LoggedBatch]:
    if fetched.error:
        raise KafkaError(fetched.error, f"fetch of {log.partition}")
    return read_batches(fetched.records)


def _events(batch: LoggedBatch, position: Offset, key: bytes | None) -> Iterator[tuple[Offset, state.Event]]:
    """Yield the events of a batch from `position` on: those of the topic `key`, or all if it is None."""
    for offset, record in batch.records:
        if offset >= position and key in {None, record.key}:
            event = state.Event()
            with suppress(DecodeError):  # written by a newer node
                event.ParseFromString(record.value or b"")
            if event.id:
                yield offset, event
