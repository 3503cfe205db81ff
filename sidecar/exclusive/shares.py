"""Topics move to the nodes that they are placed on, once those have been live for a while. No session ends by it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from metadata import MetadataUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.exclusive.interfaces import Moving
    from sidecar.exclusive.tenure import Surroundings
    from sidecar.network.tasks import Tasks

_SETTLED_LEASES: Final = 2
"""For so many leases the nodes have to be the same before topics move: a restart shall move nothing."""
_AT_ONCE: Final = 16


class Shares:
    """Hands over what is another node's share (rendezvous hashing)."""

    def __init__(self, around: Surroundings, nodes: NodeDirectory, tasks: Tasks) -> None:
        self.moving: set[str] = set()
        """Topics on their way: this node takes none of them back."""
        self._around = around
        self._nodes = nodes
        self._tasks = tasks
        self._placed = nodes.placement
        self._placed_at = 0.0

    def hand_out(self, topics: Iterable[Moving]) -> None:
        """Begin to hand over those of the topics served here that are others' share, some at a time."""
        placement, now = self._nodes.placement, asyncio.get_running_loop().time()
        if placement is not self._placed:
            self._placed, self._placed_at = placement, now
        if now - self._placed_at < _SETTLED_LEASES * self._around.store.lease_ms / 1000:
            return
        strange = (
            (topic, to)
            for topic in topics
            if topic.serving
            and (to := placement.of_topic(topic.name.encode())) != self._around.node_id
            and topic.may_move
        )
        for topic, to in islice(strange, _AT_ONCE):
            self.moving.add(topic.name)
            topic.serving = False  # no heartbeat asserts it any more
            self._tasks.start(self._hand_over(topic, to))

    async def _hand_over(self, topic: Moving, to: int) -> None:
        try:
            await topic.hand_back()
            with suppress(MetadataUnavailable):  # then its lease runs out
                await self._around.store.hand_over(topic.name, self._around.node_id, self._around.boot, to=to)
                self._nodes.serving[topic.name.encode()] = to
        finally:
            self.moving.discard(topic.name)
