"""Nodes that coordinate claims, on a simulated Kafka and Redis, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sim.kafka.direct import JumpLoop
from tests.unit.resources.room import Cluster, Room, coordinating


def pytest_asyncio_loop_factories() -> dict[str, type[JumpLoop]]:
    return {"jump": JumpLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster without nodes."""
    found = Cluster()
    yield found
    await found.close()


@pytest.fixture
async def room(cluster: Cluster) -> Room:
    """A node that coordinates claims, alone in its cluster."""
    return await cluster.room()


@pytest.fixture
async def rooms(cluster: Cluster) -> tuple[Room, Room]:
    """Two nodes of a cluster: the one that coordinates, and the other one."""
    return await coordinating(await cluster.room(1), await cluster.room(2))
