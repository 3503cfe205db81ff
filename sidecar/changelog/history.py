"""Follow the events topic: for people and their tools. Nothing that a node decides depends on it."""

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
"""How often, in seconds, a stream yields an event or None; a reader that left frees its place within that time."""
_SLACK_S: Final = 3.0
_PAUSE_S: Final = 1.0
_EMPTY_ANSWERS: Final = 3
"""Empty answers in a row, before a known end, after which reading starts again; one alone means nothing
(`sidecar.cluster.logs`)."""
_FETCH_BYTES: Final = 256 * 1024
_WINDOW: Final = 4096
"""Offsets between two looks back: some 1 MB of events."""


async def follow_events(
    upstream: Upstream,
    partition: TopicPartition,
    channel: Channel,
    after: int | None,
    newest: int = 0,
    topic: str | None = None,
) -> AsyncIterator[tuple[Offset, state.Event] | None]:
    """Every event, or every one of `topic`, after offset `after` (None: from now on) as it comes, for ever; None every
    second without one.

    After an offset None comes at once. Where it begins now, or with the `newest` of before, the first None says that
    "now" is settled: events from there on are yielded. Where Kafka does not answer, None comes all the same, and
    "now" is when it answers again. What retention has taken is left out. An event may come twice, with the same `id`.
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
    """Where the `newest` of before begin: None as "now" is settled and while it looks back, at last the offset.

    The newest of one topic are looked for backwards, as they may be anywhere; only their offsets are kept.
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
    """Where the events of a topic are, from `begins` up to `end`."""
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
    """The events of a batch: those from `position` on, of the topic `key` or of all."""
    for offset, record in batch.records:
        if offset >= position and key in {None, record.key}:
            event = state.Event()
            with suppress(DecodeError):  # of a newer node
                event.ParseFromString(record.value or b"")
            if event.id:
                yield offset, event
