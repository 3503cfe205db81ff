"""The queues of topics (WaitForExclusive, PIP-68), stored in Redis for the node that serves them next."""

import asyncio
from contextlib import suppress
from typing import Final

from metadata import MetadataUnavailable
from sidecar.access.services import NodeServices
from sidecar.exclusive.interfaces import Owning
from sidecar.network.tasks import Tasks
from sidecar.protocol.session import Session

_GATHER_S: Final = 0.05


class Queues:
    """The queues of all topics that this node serves."""

    def __init__(self, services: NodeServices, tasks: Tasks) -> None:
        self._services = services
        self._tasks = tasks
        self._changed: set[Owning] = set()

    def changed(self, topic: Owning) -> None:
        """Others wait for a topic than before, or Redis may have lost the queue."""
        if not self._changed:
            self._tasks.start(self._keep())
        self._changed.add(topic)

    async def _keep(self) -> None:
        await asyncio.sleep(_GATHER_S)
        changed, self._changed = self._changed, set()
        for topic in changed:
            if topic.serving:
                with suppress(MetadataUnavailable):  # the next heartbeat brings it again
                    resource, queue = topic.scope.resource, topic.queue.sessions()
                    await self._services.store.keep_queue(
                        topic.name, self._services.node_id, self._services.boot, queue, resource=resource
                    )

    async def of(self, topic: Owning) -> list[Session]:
        """Who waited at the node that served a topic before, in order; empty where Redis is away."""
        with suppress(MetadataUnavailable):
            return list(map(Session, await self._services.store.queue(topic.scope.resource)))
        return []
