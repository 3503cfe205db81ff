"""One node for the tests that need nothing special of it, topics under a policy, and a look at their logs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest

from metadata.ownership import AccessMode
from tests.conftest import Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.exclusive.room import Room, open_room
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    """An exclusive topic of two partitions."""
    name = create_topic(services.kafka_bootstrap)
    govern(rest, name)
    return name


@pytest.fixture
async def room(services: Services, unique: Unique) -> AsyncIterator[Room]:
    """A room of its own, see `room.py`."""
    async with open_room(services.kafka_bootstrap, services.redis_url, unique("room")) as found:
        yield found


async def governed_in(
    room: Room, services: Services, partitions: int = 2, *, mode: AccessMode = AccessMode.EXCLUSIVE
) -> str:
    """A new topic under a policy of a room; `gates.passed` has what comes after that."""
    name = await asyncio.to_thread(create_topic, services.kafka_bootstrap, partitions)
    await room.govern(name, mode)
    room.gates.passed.clear()
    return name


Connect = Callable[..., RawProducer]


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Connect]:
    """`connect("billing")`: an idempotent producer with a producer id of its own; `plain=True`: one without."""
    with ExitStack() as open_producers:

        def start(
            client_id: str, *, plain: bool = False, to: NodeProcess | None = None, producer_id: int | None = None
        ) -> RawProducer:
            producer = open_producers.enter_context(RawProducer((to or node).bootstrap, client_id))
            if producer_id is not None:
                producer.producer_id = producer_id
            elif not plain:
                producer.initialise()
            return producer

        yield start
