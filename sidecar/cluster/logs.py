"""Reading the logs of topics: where partitions begin and end, and what is in them.

Each request goes to the partition's leader. If it does not lead any more, the leaders are looked up, and the caller
gets the error. An empty answer to Fetch is never taken for the end of a log (`LogReader.read`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final
from uuid import UUID

from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.caller import SHARED_CHANNEL, Channel, Upstream
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition

FETCH_BYTES: Final = 1024 * 1024
_EMPTY_ANSWERS: Final = 10
"""In a row, without an offset gained: then reading fails. With the broker's own wait that is some 7 s."""
_MAX_WAIT_MS: Final = 500
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5


class LogMovedError(KafkaError):
    """The log begins after the next offset to be read: retention, or DeleteRecords, took what was there. `start` is
    where it begins now.
    """

    def __init__(self, partition: TopicPartition, offset: int, start: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} begins at {start}, offset {offset} is gone")
        self.start = start


class LogReader:
    """Reads the partitions of topics; `channel` is the connection for reading records."""

    def __init__(self, upstream: Upstream, channel: Channel = SHARED_CHANNEL) -> None:
        self._upstream = upstream
        self._channel = channel

    async def topic_id(self, topic: str) -> UUID:
        """Which topic has this name. Raises as `ends`."""
        return (await self._upstream.layout(topic)).topic_id

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end (high watermark) of each partition. Raises `KafkaError`, `UpstreamError`."""
        return {index: listed.offset for index, listed in (await self.listed_ends(topic, partitions)).items()}

    async def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition that retention left. Raises as `ends`."""
        listed = await self._list(topic, partitions, OffsetAt.EARLIEST, (await self._upstream.layout(topic)).leaders)
        return {index: each.offset for index, each in listed.items()}

    async def listed_ends(
        self, topic: str, partitions: Iterable[int], leaders: Mapping[int, int] | None = None
    ) -> dict[int, ListedOffset]:
        """The high watermark of each partition and the leader epoch of the broker that says so: `leaders`, where they
        are given. Raises as `ends`.
        """
        if leaders is None:
            leaders = (await self._upstream.layout(topic)).leaders
        return await self._list(topic, partitions, OffsetAt.LATEST, leaders)

    async def _list(
        self, topic: str, partitions: Iterable[int], at: OffsetAt, leaders: Mapping[int, int]
    ) -> dict[int, ListedOffset]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for index in partitions:
            leader = leaders.get(index, -1)
            if leader < 0:
                await self._upstream.layout(topic, refresh=True)
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the offsets of {topic}-{index}")
            by_leader.setdefault(leader, []).append(TopicPartition(topic, index))
        requests = [
            self._upstream.call(leader, ListOffsets(dict.fromkeys(asked, at))) for leader, asked in by_leader.items()
        ]
        found: dict[int, ListedOffset] = {}
        for answer in await asyncio.gather(*requests):
            for partition, listed in answer.items():
                if listed.error:
                    await self._upstream.layout(topic, refresh=True)
                    raise KafkaError(_of_a_leader(listed.error), f"the offsets of {partition}")
                found[partition.partition] = listed
        return found

    async def read(
        self, partition: TopicPartition, start: int, end: int, max_bytes: int = FETCH_BYTES
    ) -> AsyncGenerator[bytes, None]:
        """The batches of a log from offset `start` to `end`, in order, as sets of at least one whole batch. The first
        one may begin in front of `start`, the last one end after `end`; the last batch of a set may be cut off.

        Ends where `end` is reached, and nowhere else. An empty answer says nothing: a new leader's high watermark may
        lag, a read of a tiered log may not be done in time. Compaction cannot have taken the last batch in front of an
        end that was seen: it leaves the newest segment alone.

        Raises `LogMovedError`, `KafkaError` (5 LEADER_NOT_AVAILABLE where nothing more comes, or the log ends in front
        of `end` by now), `UpstreamError`.
        """
        offset, empty, pause = start, 0, _FIRST_PAUSE_S
        while offset < end:
            records = await self.fetch(partition, offset, max_bytes)
            behind = _behind(records, offset)
            if behind > offset:
                offset, empty, pause = behind, 0, _FIRST_PAUSE_S
                yield records
                continue
            empty += 1
            if empty == _EMPTY_ANSWERS:
                await self._upstream.layout(partition.topic, refresh=True)
                message = f"reading {partition}: nothing comes from offset {offset} on, in front of {end}"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """The leader's answer to one Fetch: batches from the one with `offset` on, the last one possibly cut off. An
        empty one says nothing about the log; `read` returns what is in it. Raises as `read`.
        """
        leader = (await self._upstream.layout(partition.topic)).leaders.get(partition.partition, -1)
        if leader < 0:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"reading {partition}")
        answer = await self._ask(leader, partition, offset, max_bytes)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = (await self.starts(partition.topic, [partition.partition]))[partition.partition]
            if offset < first:
                raise LogMovedError(partition, offset, first)
            await self._upstream.layout(partition.topic, refresh=True)
        elif answer.error:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(_of_a_leader(answer.error), f"reading {partition} from offset {offset}")
        return answer.records

    async def _ask(self, leader: int, partition: TopicPartition, offset: int, max_bytes: int) -> Fetched:
        request = FetchPartition(partition, Offset(offset), max_wait_ms=_MAX_WAIT_MS, max_bytes=max_bytes)
        return await self._upstream.call(leader, request, channel=self._channel)


def _of_a_leader(error: int) -> int:
    """What an error means that a partition's leader answers. 3 UNKNOWN_TOPIC_OR_PARTITION: a new partition's leader has
    not heard of it yet, as another broker's metadata named it. A client that asked for another partition of the topic
    would take that for final; a topic that is gone is found as its leaders are looked up.
    """
    return ErrorCode.LEADER_NOT_AVAILABLE if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error


def _behind(records: bytes, offset: int) -> int:
    """The offset after the last whole batch of a record set; `offset`, where it was asked for, without one."""
    sizes = batch_sizes(records, 0, len(records))
    if not sizes:
        return offset
    start, size = sizes[-1]
    header = read_header(records, start, start + size)
    return max(offset, header.base_offset + header.last_offset_delta + 1)
