"""The sequence ids of a topic while they are read behind a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.dedup import topic
from sidecar.dedup.content import Headers
from sidecar.dedup.names import WriterNames
from sidecar.dedup.partition import IdsServices
from sidecar.dedup.topic import TopicIds
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

FENCED, NOW = UUID(int=1), UUID(int=2)
STAMP = Stamp(ProducerId(7), ProducerEpoch(0))


class CreatedAnew:
    """A topic that was deleted behind the fence of a takeover, and has fewer partitions now. Implements `IdsHooks`."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def topic_id(self, topic: str) -> UUID:
        return NOW

    async def starts(self, topic: str, partitions: list[int]) -> dict[int, int]:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the last partition is gone")

    def snapshot_journal(self, stamp: object, topic: str) -> None: ...
    def operation_failed(self, topic: str, error: BaseException) -> None:
        self.failures.append(str(error))


async def test_a_topic_that_was_created_anew_meanwhile_is_fenced_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of what was fenced are nowhere any more: who waits for them waits for ever."""
    monkeypatch.setattr(topic, "_AGAIN_S", 0.0)
    paper = cast(Any, CreatedAnew())
    around = IdsServices(paper, paper, paper, paper, paper, Headers())
    ids = TopicIds("orders", around, lambda session: True, lambda: None)
    ids.fence_wanted = ids.end
    ids.begin(FENCED, STAMP, [0, 1], {}, WriterNames())
    async with asyncio.timeout(10):
        await asyncio.gather(*paper.tasks)
    assert paper.failures == ["LEADER_NOT_AVAILABLE (5): orders was created anew"]
    assert not ids.is_begun
