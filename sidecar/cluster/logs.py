"""Reading the logs of topics: where partitions begin and end, and what is in them.

Each question goes to the partition's leader; one that does not lead any more makes the leaders be looked up, and the
error is the caller's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.protocol.caller import SHARED_LANE
from sidecar.protocol.calls import FetchPartition, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.protocol.caller import Lane, Upstream
    from sidecar.protocol.calls import Fetched


class LogReader:
    """Reads the partitions of topics; `lane` is the connection for reading records."""

    def __init__(self, upstream: Upstream, lane: Lane = SHARED_LANE) -> None:
        self._upstream = upstream
        self._lane = lane

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end (high watermark) of each partition. Raises `KafkaError`, `UpstreamError`."""
        return await self._list(topic, partitions, OffsetAt.LATEST)

    async def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition that retention left. Raises as `ends`."""
        return await self._list(topic, partitions, OffsetAt.EARLIEST)

    async def _list(self, topic: str, partitions: Iterable[int], at: OffsetAt) -> dict[int, int]:
        leaders = (await self._upstream.layout(topic)).leaders
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
        found: dict[int, int] = {}
        for answer in await asyncio.gather(*requests):
            for partition, listed in answer.items():
                if listed.error:
                    await self._upstream.layout(topic, refresh=True)
                    raise KafkaError(listed.error, f"the offsets of {partition}")
                found[partition.partition] = listed.offset
        return found

    async def fetch(self, partition: TopicPartition, offset: int, max_bytes: int, end: int | None = None) -> bytes:
        """The batches from `offset` on, or from where the log begins by now. Raises as `ends`. With an `end` that was
        seen before nothing in front of it may be missed: then the log that begins later, or ends earlier, is an error.
        """
        leader = (await self._upstream.layout(partition.topic)).leaders.get(partition.partition, -1)
        if leader < 0:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"reading {partition}")
        answer = await self._ask(leader, partition, offset, max_bytes)
        if end is None and answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = (await self.starts(partition.topic, [partition.partition]))[partition.partition]
            answer = await self._ask(leader, partition, first, max_bytes)
        if answer.error:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(answer.error, f"reading {partition} from offset {offset}")
        if end is not None and not answer.records and answer.high_watermark < end:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} ends at {answer.high_watermark} by now")
        return answer.records

    async def _ask(self, leader: int, partition: TopicPartition, offset: int, max_bytes: int) -> Fetched:
        request = FetchPartition(partition, Offset(offset), max_wait_ms=500, max_bytes=max_bytes)
        return await self._upstream.call(leader, request, lane=self._lane)
