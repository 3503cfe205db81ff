"""A simulated Kafka on virtual time, an upstream whose answers can be lost, and changelogs of one cluster of nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sidecar.changelog import Changelog
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.logs import ProduceBatch
from tests.sim.kafka.direct import DirectUpstream, JumpLoop, SimulatedKafka


def pytest_asyncio_loop_factories() -> dict[str, type[JumpLoop]]:
    return {"jump": JumpLoop}


@pytest.fixture
async def kafka() -> AsyncIterator[SimulatedKafka]:
    found = SimulatedKafka()
    yield found
    await found.close()


class LossyUpstream(DirectUpstream):
    """An upstream that loses the answers to the next `lose` appends after the broker gave them."""

    lose = 0
    lost = 0

    async def call(self, broker_id: int | None, request: Any, **options: Any) -> Any:
        answer = await super().call(broker_id, request, **options)
        if isinstance(request, ProduceBatch) and self.lose:
            self.lose -= 1
            self.lost += 1
            raise DisconnectedError("the answer was lost on its way")
        return answer


@pytest.fixture
def lossy(kafka: SimulatedKafka) -> LossyUpstream:
    return LossyUpstream(kafka.cluster)


OpenChangelog = Callable[..., Awaitable[Changelog]]


@pytest.fixture
async def open_changelog(kafka: SimulatedKafka) -> AsyncIterator[OpenChangelog]:
    """`await open_changelog()`: one node's changelog of the same cluster of nodes."""
    opened: list[Changelog] = []

    async def make(*, upstream: DirectUpstream | None = None, **options: Any) -> Changelog:
        opened.append(await Changelog.open(upstream or kafka.node(), "c", clock=kafka.clock(), **options))
        return opened[-1]

    yield make
    for changelog in opened:
        await changelog.close()


@pytest.fixture
async def changelog(open_changelog: OpenChangelog) -> Changelog:
    return await open_changelog()
