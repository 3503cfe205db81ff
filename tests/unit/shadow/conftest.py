"""Nodes of one cluster that have shadows on a simulated Kafka, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sim.kafka.direct import JumpLoop, SimulatedKafka
from tests.unit.shadow.paper import Nodes


def pytest_asyncio_loop_factories() -> dict[str, type[JumpLoop]]:
    return {"jump": JumpLoop}


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    """A cluster with the topic `orders`, which has two partitions, and no node yet."""
    found = Nodes(SimulatedKafka())
    await found.kafka.create("orders", 2, 3, message_timestamp_type="LogAppendTime")
    yield found
    await found.close()
