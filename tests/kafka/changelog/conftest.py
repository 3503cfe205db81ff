"""A Kafka, an upstream whose answers can be lost, and changelogs of clusters that nobody else uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sidecar.changelog import Changelog
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.logs import ProduceBatch
from tests.conftest import Unique
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.services import Services


@pytest.fixture
async def kafka(services: Services) -> AsyncIterator[KafkaCalls]:
    async with kafka_calls(services.kafka_bootstrap) as calls:
        yield calls


class LossyUpstream(KafkaUpstream):
    """A real upstream that loses the answers to the next `lose` appends after the broker gave them."""

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
async def lossy(services: Services) -> AsyncIterator[LossyUpstream]:
    host, port = services.kafka_bootstrap.split(",")[0].rsplit(":", 1)
    upstream = LossyUpstream([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)
    yield upstream
    await upstream.close()


OpenChangelog = Callable[..., Awaitable[Changelog]]


@pytest.fixture
async def open_changelog(kafka: KafkaCalls, unique: Unique) -> AsyncIterator[OpenChangelog]:
    """`await open_changelog()`: one node's changelog; the same cluster for every call unless named."""
    cluster = unique("c")
    opened: list[Changelog] = []

    async def make(*, name: str = cluster, upstream: KafkaUpstream | None = None, **options: Any) -> Changelog:
        opened.append(await Changelog.open(upstream or kafka.upstream, name, **options))
        return opened[-1]

    yield make
    for changelog in opened:
        await changelog.close()


@pytest.fixture
async def changelog(open_changelog: OpenChangelog) -> Changelog:
    return await open_changelog()
