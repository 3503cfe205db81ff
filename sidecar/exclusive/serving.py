"""Which node serves a topic, and which sessions wait for it.

The right to serve is a node's lease in Redis. `ServingRights` takes, renews and hands it over: topics move to the nodes
on which they are placed, once those have been live for a while. This ends no session.

Redis also has the queues of topics (WaitForExclusive, PIP-68), for the node that serves them next (`Queues`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from metadata import MetadataUnavailable
from metadata.nodes import Holder, ServeStatus
from sidecar.access.services import NodeServices
from sidecar.cluster.nodes import NodeDirectory
from sidecar.network.tasks import Tasks
from sidecar.policy.catalog import PolicyCatalog
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Session
from sidecar.takeover.requests import NothingDoneError
from sidecar.takeover.slots import SlotScope

_SETTLED_LEASES: Final = 2
"""The number of leases for which the set of nodes must be unchanged before topics move: a restart moves nothing."""
_GATHER_S: Final = 0.05


class ServingRights:
    """The rights of this node to serve governed topics. Topics are placed on nodes by rendezvous hashing."""

    def __init__(self, services: NodeServices, nodes: NodeDirectory, tasks: Tasks, catalog: PolicyCatalog) -> None:
        self.moving: set[str] = set()
        """Topics that are being handed over: this node does not take them back."""
        self._services = services
        self._nodes = nodes
        self._tasks = tasks
        self._catalog = catalog
        self._myself = Holder(services.node_id, services.boot)
        self._placed = nodes.placement
        self._placed_at = -math.inf

    async def take(self, name: str) -> bool:
        """Take or keep the right to serve a topic; False if another node has it. Raises `NothingDoneError` if no node
        may take it now, `MetadataUnavailable` if Redis does not answer and this node was not the last one.
        """
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
            return True
        if answer.status is ServeStatus.GRANTED:
            self._nodes.serving[name.encode()] = services.node_id
            return True
        if answer.status is ServeStatus.HELD:
            return False
        raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, f"the right to serve {name} is not settled yet")

    def forget(self, topic: str) -> None:
        """Forget which node serves a topic."""
        self._nodes.serving.pop(topic.encode(), None)

    def heard(self, serving: Mapping[str, Holder]) -> None:
        """Note which node serves which topic, by a heartbeat's answer."""
        self._nodes.serve({name.encode(): holder.node_id for name, holder in serving.items()})

    def is_anothers(self, holder: Holder | None) -> bool:
        """Whether the holder is another node, or this one before a restart."""
        return holder not in (None, self._myself)

    def is_elsewhere(self, topic: str) -> bool:
        """Whether another live node serves a topic, by the last heartbeat."""
        node = self._nodes.serving.get(topic.encode(), self._services.node_id)
        return node != self._services.node_id and node in self._nodes.placement.nodes

    def is_first_in_line(self, topic: bytes) -> bool:
        """Whether no node serves a topic, and it is placed on this one."""
        return topic not in self._nodes.serving and self._nodes.placement.of_topic(topic) == self._services.node_id

    def to_move(self, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Those of the topics that are placed on another node, and which: none while the set of nodes is new."""
        placement, now = self._nodes.placement, asyncio.get_running_loop().time()
        if placement is not self._placed:
            self._placed, self._placed_at = placement, now
        if now - self._placed_at < _SETTLED_LEASES * self._services.store.lease_ms / 1000:
            return
        for name in names:
            to = placement.of_topic(name.encode())
            if to != self._services.node_id:
                yield name, to

    async def hand_over(self, name: str, to: int, hand_back: Callable[[], Awaitable[None]]) -> None:
        """Give the right to serve a topic that is `moving` to another node, once the topic was handed back."""
        try:
            await hand_back()
            with suppress(MetadataUnavailable):  # then its lease runs out
                await self._services.store.hand_over(name, self._services.node_id, self._services.boot, to=to)
                self._nodes.serving[name.encode()] = to
        finally:
            self.moving.discard(name)


class Queues:
    """The queues of all topics that this node serves."""

    def __init__(self, services: NodeServices, tasks: Tasks) -> None:
        self._services = services
        self._tasks = tasks
        self._changed: dict[SlotScope, tuple[Session, ...]] = {}

    def changed(self, scope: SlotScope, waiting: tuple[Session, ...]) -> None:
        """Store a topic's queue soon: it has changed, or Redis may have lost it. Redis takes it from the node that
        serves the topic only.
        """
        if not self._changed:
            self._tasks.start(self._keep())
        self._changed[scope] = waiting

    async def _keep(self) -> None:
        await asyncio.sleep(_GATHER_S)
        changed, self._changed = self._changed, {}
        services = self._services
        for scope, waiting in changed.items():
            with suppress(MetadataUnavailable):  # the next heartbeat brings it again
                await services.store.keep_queue(
                    scope.topic, services.node_id, services.boot, waiting, resource=scope.resource
                )

    async def of(self, scope: SlotScope) -> list[Session]:
        """The sessions that waited at a topic's previous node, in order; empty if Redis does not answer."""
        with suppress(MetadataUnavailable):
            return list(map(Session, await self._services.store.queue(scope.resource)))
        return []
