"""Follow the events topic: for people and their tools. Nothing that a node decides depends on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from sidecar.changelog.records import UnreadableBatchError, read_batches
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls import FetchPartition, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.protocol.caller import Lane, Upstream
    from sidecar.protocol.ids import TopicPartition

_POLL_S: Final = 5.0
_SLACK_S: Final = 3.0
_PAUSE_S: Final = 1.0
_FETCH_BYTES: Final = 256 * 1024


async def follow_events(
    upstream: Upstream, partition: TopicPartition, lane: Lane, after: int | None, newest: int = 0
) -> AsyncIterator[tuple[Offset, state.Event] | None]:
    """Every event behind offset `after` (None: from now on) as it comes, for ever; None every few seconds without one.

    Where it begins now, or `newest` offsets before, the first None says that "now" is settled: what happens from there
    on is told. Where Kafka does not answer, None comes all the same, and "now" is when it answers again. What retention
    has taken is left out. An event may come twice: its `id` tells.
    """
    position = None if after is None else Offset(max(0, after + 1))
    while True:
        try:
            leader = (await upstream.layout(partition.topic, refresh=True)).leaders[partition.partition]
            if position is None:
                latest = await _end(upstream, leader, partition, OffsetAt.LATEST)
                position = Offset(max(0, latest - newest))
                yield None
            while True:
                request = FetchPartition(partition, position, max_wait_ms=int(_POLL_S * 1000), max_bytes=_FETCH_BYTES)
                fetched = await upstream.call(leader, request, timeout=_POLL_S + _SLACK_S, lane=lane)
                if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    earliest = await _end(upstream, leader, partition, OffsetAt.EARLIEST)
                    latest = await _end(upstream, leader, partition, OffsetAt.LATEST)
                    position = min(max(position, earliest), latest)
                    continue
                if fetched.error:
                    raise KafkaError(fetched.error, f"fetch of {partition}")
                found = False
                for batch in read_batches(fetched.records):
                    for offset, record in batch.records:
                        event = _event(record.value)
                        if offset >= position and event is not None:
                            found = True
                            yield offset, event
                    position = max(position, batch.next_offset)
                if not found:
                    yield None
        except (UpstreamError, KafkaError, UnreadableBatchError, KeyError):
            await asyncio.sleep(_PAUSE_S)
            yield None


def _event(value: bytes | None) -> state.Event | None:
    event = state.Event()
    try:
        event.ParseFromString(value or b"")
    except DecodeError:  # of a newer node
        return None
    return event if event.id else None


async def _end(upstream: Upstream, leader: int, partition: TopicPartition, which: OffsetAt) -> Offset:
    listed = (await upstream.call(leader, ListOffsets({partition: which})))[partition]
    if listed.error:
        raise KafkaError(listed.error, f"{which.name.lower()} offset of {partition}")
    return listed.offset
