"""Nodes' rooms as clients see them, on a simulated Kafka and Redis, in virtual time (`tests/sim/kafka/direct.py`): what
parties are answered, what is in the logs, what Redis and Kafka are asked, and the moments of these steps
(`tests/kafka/exclusive/room.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from metadata.ownership import AccessMode
from sidecar.changelog import Clock
from sidecar.changelog.records import read_batches
from sidecar.policy.policies import PolicyFields
from sidecar.protocol.batch import BatchHeader, batch_sizes, read_header
from sidecar.protocol.ids import TopicPartition
from tests.kafka.exclusive.room import Room, composed
from tests.sim.kafka.direct import SimulatedKafka
from tests.sim.loop import SimLoop
from tests.sim.parts import parts
from tests.sim.redis import SimRedis
from tests.wait import wait_until


class World:
    """Kafka and Redis."""

    def __init__(self, **settings: Any) -> None:
        """`settings`: of `tests.sim.kafka.ClusterSettings`."""
        self.kafka = SimulatedKafka(**settings)
        self.redis = SimRedis(SimLoop(), lambda: self.kafka.wall_ms() / 1000)
        self._names = count(1)

    @asynccontextmanager
    async def room(
        self, *, node_id: int = 1, lease_ms: int = 3000, clock: Clock | None = None, **settings: Any
    ) -> AsyncIterator[Room]:
        """Start a node's room; `settings`: of `composed`."""
        async with (
            parts(self.kafka, self.redis, node_id=node_id, lease_ms=lease_ms, clock=clock) as its,
            composed(its, **settings) as room,
        ):
            room.wall_ms = self.kafka.wall_ms
            yield room

    async def create(self, partitions: int = 2, name: str = "", **configs: str) -> str:
        """A new topic; all brokers know it."""
        name = await self.kafka.create(name or f"orders-{next(self._names)}", partitions, 1, **configs)
        await self._known()
        return name

    async def _known(self) -> None:
        """Wait until all brokers know what the controller has."""
        cluster = self.kafka.cluster
        newest = cluster.controller.image().version
        await wait_until(lambda: all(each.image.version >= newest for each in cluster.brokers.values()), "brokers")

    async def govern(
        self, room: Room, partitions: int = 2, *, mode: AccessMode = AccessMode.EXCLUSIVE, **fields: Any
    ) -> str:
        """A new topic under a policy of a room; `gates.passed` has what comes after that."""
        name = await self.create(partitions)
        await room.governed.env.catalog.set(name, PolicyFields(mode, **fields))
        room.gates.passed.clear()
        return name

    async def delete_records(self, topic: str, partition: int = 0) -> None:
        """Retention takes all that is in a log."""
        place = TopicPartition(topic, partition)
        await self.kafka.delete_records(place, await self.kafka.latest(place))

    async def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions; all brokers know of them."""
        self.kafka.cluster.controller.grow(topic, partitions)
        await self.kafka.served(topic, partitions)
        await self._known()

    async def delete(self, *topics: str) -> None:
        """Delete topics; no broker knows them any more."""
        for topic in topics:
            await self.kafka.delete(topic)
        await self._known()

    async def create_anew(self, topic: str, partitions: int = 2) -> None:
        """Delete a topic, and create another one of its name."""
        await self.delete(topic)
        await self.create(partitions, topic)

    def _stored(self, topic: str, partition: int) -> bytes:
        return b"".join(batch.data for batch in self.kafka.cluster.committed(topic, partition))

    async def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The headers of what is in a log, markers included."""
        data = self._stored(topic, partition)
        return [read_header(data, at, at + size) for at, size in batch_sizes(data, 0, len(data))]

    async def ids(self, topic: str, partition: int = 0) -> list[int]:
        """The sequence ids of a log: a party writes them as values too."""
        return [int(value) for value in await self.log(topic, partition)]

    async def log(self, topic: str, partition: int = 0) -> list[bytes]:
        """The value of every record of a partition."""
        return [
            bytes(record.value or b"")
            for batch in read_batches(self._stored(topic, partition))
            for _, record in batch.records
        ]
