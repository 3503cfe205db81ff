"""Which topics count as governed."""

from __future__ import annotations

import asyncio

from metadata.ownership import AccessMode
from tests.kafka.exclusive.conftest import governed_in
from tests.kafka.exclusive.room import Room
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for_async


async def test_a_topic_whose_owner_outlives_its_policy_is_governed_no_more(room: Room, services: Services) -> None:
    own = await governed_in(room, services)
    name = await asyncio.to_thread(create_topic, services.kafka_bootstrap)
    prefix = f"{name[:-1]}*"
    await room.govern(prefix, AccessMode.EXCLUSIVE)
    assert await room.connect("owner").send(name) == 0
    assert room.governed.known_topics() == sorted([own, name])
    assert await room.governed.env.catalog.delete(prefix)

    async def is_left() -> bool:
        return room.governed.known_topics() == [own]

    await wait_for_async(is_left, "the topic to count no more")
    assert room.governed.env.changelog.view.ownership(name) is not None, "it had an owner, and is to go on behind that"
