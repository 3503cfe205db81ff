"""The right to serve a governed topic: one node has it, by its lease in Redis. This module takes the right, keeps it
and hands it over. Topics move to the nodes that they are placed on, once those have been live for a while. No session
ends by it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from metadata import MetadataUnavailable
from metadata.nodes import Holder, ServeStatus
from sidecar.access.services import NodeServices
from sidecar.cluster.nodes import NodeDirectory
from sidecar.exclusive.catalog import PolicyCatalog
from sidecar.exclusive.interfaces import Served
from sidecar.exclusive.requests import NothingDoneError
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import ErrorCode

_SETTLED_LEASES: Final = 2
"""For so many leases the nodes have to be the same before topics move: a restart shall move nothing."""
_AT_ONCE: Final = 16


class ServingRights:
    """Those of this node, to all governed topics. Shares are by rendezvous hashing."""

    def __init__(self, services: NodeServices, nodes: NodeDirectory, tasks: Tasks, catalog: PolicyCatalog) -> None:
        self.moving: set[str] = set()
        """Topics on their way: this node takes none of them back."""
        self._services = services
        self._nodes = nodes
        self._tasks = tasks
        self._catalog = catalog
        self._myself = Holder(services.node_id, services.boot)
        self._placed = nodes.placement
        self._placed_at = 0.0

    async def take(self, topic: Served) -> bool:
        """Take or keep the right to serve a topic; False where another node has it. Raises `NothingDoneError` where
        nobody may take it at this moment, `MetadataUnavailable` where another node may have it.
        """
        name = topic.name
        if name in self.moving:
            return False
        if not self._catalog.is_applied_everywhere:
            raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, "another node has not read the newest policies yet")
        services, serving = self._services, self._services.changelog.view.serving(name)
        last_node = serving.value.node if serving is not None else None
        try:
            answer = await services.store.serve(name, services.node_id, services.boot, last_node=last_node)
        except MetadataUnavailable:
            if last_node != services.node_id:
                raise
            topic.serving = True
            return True
        if answer.status is ServeStatus.GRANTED:
            topic.serving = True
            self._nodes.serving[name.encode()] = services.node_id
            return True
        if answer.status is ServeStatus.HELD:
            return False
        raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, f"the right to serve {name} is not settled yet")

    def forget(self, topic: str) -> None:
        """The node has nothing of a topic any more."""
        self._nodes.serving.pop(topic.encode(), None)

    def heard(self, serving: Mapping[str, Holder]) -> None:
        """Which node serves which topic, by a heartbeat's answer."""
        self._nodes.serve({name.encode(): holder.node_id for name, holder in serving.items()})

    def is_anothers(self, holder: Holder | None) -> bool:
        """Whether that is another node, or this one before it was started anew."""
        return holder not in (None, self._myself)

    def is_elsewhere(self, topic: str) -> bool:
        """Whether another live node serves a topic, by the last heartbeat."""
        node = self._nodes.serving.get(topic.encode(), self._services.node_id)
        return node != self._services.node_id and node in self._nodes.placement.nodes

    def is_first_in_line(self, topic: bytes) -> bool:
        """Whether nobody serves a topic, and it is this node's share."""
        return topic not in self._nodes.serving and self._nodes.placement.of_topic(topic) == self._services.node_id

    def hand_out(self, topics: Iterable[Served]) -> None:
        """Begin to hand over those of the topics served here that are others' share, some at a time."""
        placement, now = self._nodes.placement, asyncio.get_running_loop().time()
        if placement is not self._placed:
            self._placed, self._placed_at = placement, now
        if now - self._placed_at < _SETTLED_LEASES * self._services.store.lease_ms / 1000:
            return
        strange = (
            (topic, to)
            for topic in topics
            if topic.serving
            and (to := placement.of_topic(topic.name.encode())) != self._services.node_id
            and topic.may_move
        )
        for topic, to in islice(strange, _AT_ONCE):
            self.moving.add(topic.name)
            topic.serving = False
            self._tasks.start(self._hand_over(topic, to))

    async def _hand_over(self, topic: Served, to: int) -> None:
        try:
            await topic.hand_back()
            with suppress(MetadataUnavailable):  # then its lease runs out
                await self._services.store.hand_over(topic.name, self._services.node_id, self._services.boot, to=to)
                self._nodes.serving[topic.name.encode()] = to
        finally:
            self.moving.discard(topic.name)
