"""Topics with sequence ids, batches with ids, and the ids that are in a log."""

from __future__ import annotations

import asyncio

from metadata.ownership import AccessMode
from sidecar.policy.policies import PolicyFields
from tests.kafka.exclusive.room import Party, Room
from tests.logs import read_log
from tests.services import Services
from tests.topics import create_topic


async def deduplicated(
    room: Room, services: Services, partitions: int = 1, *, mode: AccessMode = AccessMode.EXCLUSIVE
) -> str:
    name = await asyncio.to_thread(create_topic, services.kafka_bootstrap, partitions)
    await room.governed.env.catalog.set(name, PolicyFields(mode, deduplication=True))
    return name


async def log_of(services: Services, topic: str, partition: int = 0) -> list[str]:
    """The ids in a log, as values."""
    values = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition)
    return [value.decode() for value in values]


async def write(party: Party, topic: str, *ids: int, **options: object) -> tuple[int, int]:
    """Error code and base offset of one batch with these ids; 5 is tried again with the same sequence."""
    sequence = party.sequence
    while True:
        party.sequence = sequence
        async with asyncio.timeout(20):
            result = await party.begin(topic, ids=list(ids), **options)  # type: ignore[arg-type]
        if result.error != 5:
            return result.error, result.base_offset


async def come_and_go(room: Room, topic: str, numbers: range) -> None:
    """One session after the other under a name of its own, every second one without idempotence."""
    for number in numbers:
        party = room.connect(f"worker-{number}", plain=bool(number % 2))
        assert (await write(party, topic, 1))[0] == 0
        party.close()
