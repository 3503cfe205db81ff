"""What a room of a node needs, on a simulated Kafka and Redis, with the moments of its steps in hand
(`tests/kafka/gates.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import hiredis

from sidecar.changelog import Changelog
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.network.tasks import Tasks
from tests.kafka.gates import GatedStore, GatedUpstream, Gates, Parts
from tests.sim.kafka.direct import DirectUpstream, SimulatedKafka

if TYPE_CHECKING:
    from metadata.connection import Argument
    from metadata.scripts import Script
    from sidecar.changelog import Clock
    from tests.sim.redis import SimRedis


class Upstream(GatedUpstream, DirectUpstream):
    """Both."""


class Store(GatedStore):
    """The real scripts of Redis, in a simulated one."""

    def __init__(self, redis: SimRedis, cluster: str, lease_ms: int) -> None:
        super().__init__("redis://simulated", cluster, lease_ms=lease_ms)
        self._server = cast(Any, self)
        self._redis = redis

    async def run(self, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
        """As `metadata.connection.Server`."""
        words = ("EVAL", script.text, len(keys), *keys, *args)
        reader = hiredis.Reader()
        reader.feed(self._redis.execute([word if isinstance(word, bytes) else str(word).encode() for word in words]))
        return reader.gets()


@asynccontextmanager
async def parts(
    kafka: SimulatedKafka, redis: SimRedis, *, node_id: int = 1, lease_ms: int = 1000, clock: Clock | None = None
) -> AsyncIterator[Parts]:
    """As `tests.kafka.gates.opened`."""
    gates, unexpected = Gates(), list[BaseException]()
    upstream, store = Upstream(kafka.cluster), Store(redis, "c", lease_ms)
    upstream.gates = store.gates = gates
    changelog = await Changelog.open(upstream, "c", clock=clock or kafka.clock())
    await changelog.tailer.read_to_end(30.0)
    tasks, nodes = Tasks(unexpected.append), NodeDirectory(NodeAddress(node_id, "127.0.0.1", 1))
    try:
        yield Parts(
            node_id, secrets.token_hex(8), "c", gates, upstream, store, changelog, tasks, nodes, unexpected
        )  # fmt: skip
    finally:
        await tasks.cancel()
        upstream.is_closed = True
        await changelog.close()
        await upstream.close()
