"""Rooms for the tests of claims."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Unique
from tests.kafka.resources.room import Room, open_room
from tests.services import Services


@pytest.fixture
async def room(services: Services, unique: Unique) -> AsyncIterator[Room]:
    """A node that coordinates claims, alone in its cluster."""
    async with open_room(services.kafka_bootstrap, services.redis_url, unique("claims")) as found:
        yield found
