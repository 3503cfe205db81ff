"""One partition on paper, for what reads logs: the leader's answers to Fetch and ListOffsets, the empty ones too."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.caller import SHARED_CHANNEL, Channel, TopicLayout
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset

_LEADER = 1


class PaperLog:
    """As much of `sidecar.protocol.caller.Upstream` as reading needs. Gives one of `batches` at a time: the first
    that ends behind the offset. `fetched` are the offsets that were asked for; `empty_at` says how many times an offset
    is answered with nothing, `start` where retention lets the log begin, `error` what its leader answers instead.
    """

    def __init__(self, *batches: bytes) -> None:
        self.batches = batches
        self.fetched: list[int] = []
        self.empty_at: dict[int, int] = {}
        self.start = 0
        self.error = 0
        self.topic_id = UUID(int=1)

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        return TopicLayout(self.topic_id, {0: _LEADER})

    async def call(
        self, broker_id: int | None, request: Any, *, timeout: float | None = None, channel: Channel = SHARED_CHANNEL
    ) -> Any:
        assert broker_id == _LEADER
        if isinstance(request, ListOffsets):
            return {asked: self._listed(at) for asked, at in request.timestamps.items()}
        assert isinstance(request, FetchPartition)
        return self._fetched(request.offset)

    async def call_on(
        self, broker_id: int, request: Any, topic: str, topic_id: UUID, partition: int, *, channel: Channel
    ) -> Any:
        assert topic_id == self.topic_id
        return await self.call(broker_id, request, channel=channel)

    def _listed(self, at: int) -> ListedOffset:
        return ListedOffset(self.error, -1, Offset(self.start if at == OffsetAt.EARLIEST else self._end()), 0)

    def _end(self) -> int:
        return max((_behind(data) for data in self.batches), default=self.start)

    def _fetched(self, offset: int) -> Fetched:
        self.fetched.append(offset)
        end = Offset(self._end())
        if self.error:
            return Fetched(self.error, Offset(-1), Offset(-1), Offset(-1), b"")
        if offset < self.start:
            return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, Offset(-1), Offset(-1), Offset(-1), b"")
        found = next((data for data in self.batches if _behind(data) > offset), b"")
        if self.empty_at.get(offset, 0):
            self.empty_at[offset] -= 1
            found = b""
        return Fetched(0, end, end, Offset(self.start), found)


def _behind(batch: bytes) -> int:
    *_, (start, size) = batch_sizes(batch, 0, len(batch))
    header = read_header(batch, start, start + size)
    return header.base_offset + header.last_offset_delta + 1
