"""Rooms on a simulated Kafka and Redis, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kafka.exclusive.room import Room
from tests.sim.kafka.direct import JumpLoop
from tests.unit.exclusive.world import World


class _Loop(JumpLoop):
    """On a machine that is up for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._clock.now = 1_000.0


def pytest_asyncio_loop_factories() -> dict[str, type[JumpLoop]]:
    return {"jump": _Loop}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Kafka and Redis without nodes."""
    found = World()
    yield found
    await found.kafka.close()


@pytest.fixture
async def room(world: World) -> AsyncIterator[Room]:
    """A room of its own, see `world.py`."""
    async with world.room() as found:
        yield found
