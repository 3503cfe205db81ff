"""Coordinators on a simulated Kafka and Redis, in virtual time, with the moments of their steps in hand
(`tests/kafka/gates.py`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from metadata.nodes import LiveNodes
from metadata.ownership import Ownership
from sidecar.access.prospects import Prospect
from sidecar.changelog import Changelog, Key, claim_key
from sidecar.cluster.nodes import Membership, NodeAddress, NodeDirectory
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import KafkaError
from sidecar.resources.claims import News
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import ClaimVerdict, Request, Wish
from sidecar.v1 import control_pb2 as control
from tests.kafka.gates import GatedUpstream, Gates, Parts
from tests.sim.kafka.direct import SimulatedKafka
from tests.sim.loop import SimLoop
from tests.sim.parts import Store, Upstream
from tests.sim.redis import SimRedis
from tests.wait import wait_for_async

CONNECTIONS = count(1)


def wish(what: str | tuple[str, str, int | None], generation: int | None = None) -> Wish:
    """A free string, or (group, topic, partition) for reading."""
    if isinstance(what, str):
        group, resource = "", control.Resource(name=what)
    else:
        group, topic, partition = what
        resource = control.Resource(topic=topic, partition=partition)
    return Wish(claim_key(group, resource), group, resource, generation)


def keys(*names: str) -> list[Key]:
    return [wish(name).key for name in names]


@dataclass
class Told:
    """What the room tells the node. As `OwnershipReports`."""

    outcomes: list[tuple[str, int]] = field(default_factory=list)
    grants: list[tuple[str, int, int, str, str | None]] = field(default_factory=list)
    epochs: list[tuple[bool, int, str]] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)

    def claims_answered(self, outcome: str, resources: int) -> None:
        self.outcomes.append((outcome, resources))

    def claims_granted(self, resource: str, resources: int, generation: int, session: str, deposed: str | None) -> None:
        self.grants.append((resource, resources, generation, session, deposed))

    def claims_let_go(self, resource: str, resources: int, session: str) -> None:
        self.let_go.append(session)

    def coordinator_changed(self, coordinates: bool, claims: int, reason: str) -> None:
        self.epochs.append((coordinates, claims, reason))

    def claims_failed(self, error: BaseException) -> None:
        self.failures.append(error)


class Caller:
    """A client connection."""

    def __init__(self, room: Room, name: str) -> None:
        self.connection_id = next(CONNECTIONS)
        self.session = f"conn:{room.node_id}-{room.boot}-{self.connection_id}"
        self.address = f"caller {self.connection_id}"
        self.name = name
        self.severed = False
        self._room = room
        self._alive = True
        room.callers[self.connection_id] = self

    def sever(self) -> None:
        self.severed = True
        self.close()

    def close(self) -> None:
        if self._alive:
            self._alive = False
            self._room.coordinator.connection_closed(self.connection_id)

    def request(
        self,
        *wishes: Wish,
        mode: control.AccessMode = control.EXCLUSIVE,
        session: str | None = None,
        token: bytes | None = None,
    ) -> Request:
        return Request(token or secrets.token_bytes(16), session or self.session, self.name, mode, wishes)

    async def ask(self, request: Request) -> ClaimVerdict:
        """As the gateway does, without waiting for a turn. Raises `KafkaError`."""
        coordinator = self._room.coordinator
        await coordinator.ready()
        verdict = coordinator.look(request)
        if self._alive:
            coordinator.bind(self.connection_id, request.session)
        if verdict.prospect is Prospect.READY:
            verdict = await coordinator.take(request, self.connection_id, self.address)
        if verdict.prospect is Prospect.WAIT:
            verdict = coordinator.wait(request)
        return verdict

    async def own(
        self,
        *wishes: Wish,
        mode: control.AccessMode = control.EXCLUSIVE,
        session: str | None = None,
        token: bytes | None = None,
    ) -> list[int | str]:
        """The generations that were granted, or the names of the errors."""
        async with asyncio.timeout(30):
            verdict = await self.ask(self.request(*wishes, mode=mode, session=session, token=token))
        return [control.Error.Name(each.error) if each.error else each.generation for each in verdict.answers]


class Asserted:
    """What the heartbeat says: claims alone. Implements `sidecar.cluster.nodes.Asserted`."""

    def __init__(self, nodes: NodeDirectory) -> None:
        self.coordinator: Coordinator | None = None
        self._nodes = nodes

    def served_topics(self) -> Collection[str]:
        return self.coordinator.served_topics() if self.coordinator else ()

    def owned(self) -> Collection[Ownership]:
        return ()

    def heard(self, live: LiveNodes, lost: set[str]) -> None:
        self._nodes.serving = {name.encode(): holder.node_id for name, holder in live.serving.items()}
        if self.coordinator is not None:
            self.coordinator.heard(lost)

    async def refill(self) -> None: ...


@dataclass
class Room:
    """A node that does nothing but coordinate."""

    node_id: int
    boot: str
    gates: Gates
    told: Told
    coordinator: Coordinator
    membership: Membership
    changelog: Changelog
    upstream: GatedUpstream
    tasks: Tasks
    unexpected: list[BaseException]
    is_dead: bool = False
    callers: dict[int, Caller] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)

    def caller(self, name: str = "billing") -> Caller:
        return Caller(self, name)

    async def hear(self) -> None:
        """As the gateway does."""
        while True:
            event = await self.coordinator.events.get()
            if isinstance(event, News):
                self.news.append(event)
            else:
                self.callers[event.connection].sever()

    @property
    def owners(self) -> dict[str, tuple[str, int]]:
        """Session and generation by resource, as this node's view has them."""
        return {
            claim.value.resource.name or f"{claim.value.resource.topic}/{claim.value.resource.partition}": (
                claim.value.session,
                claim.value.generation,
            )
            for claim in self.changelog.view.claims()
        }

    async def sees(self, owners: dict[str, tuple[str, int]]) -> None:
        async def same() -> bool:
            return self.owners == owners

        await wait_for_async(same, f"the view to have {owners}, not {self.owners}")

    async def crash(self) -> None:
        """It does nothing any more and says no goodbye; clients lose their connections."""
        self.is_dead = True
        self.upstream.is_closed = True
        await self.tasks.cancel()
        task = self.membership._task
        assert task is not None
        task.cancel()


class Cluster:
    """Kafka and Redis, and the nodes that were started."""

    def __init__(self, **settings: Any) -> None:
        self.kafka = SimulatedKafka(**settings)
        self.redis = SimRedis(SimLoop(), lambda: self.kafka.wall_ms() / 1000)
        self._rooms: list[Room] = []

    async def room(
        self, node_id: int = 1, *, reconnect_grace: float = 0.5, disconnect_grace: float = 0.0, lease_ms: int = 1000
    ) -> Room:
        """Start a node as it is composed (sidecar/node/rooms.py)."""
        gates, boot, unexpected, told = Gates(), secrets.token_hex(8), list[BaseException](), Told()
        upstream, store = Upstream(self.kafka.cluster), Store(self.redis, "c", lease_ms)
        upstream.gates = store.gates = gates
        changelog = await Changelog.open(upstream, "c", clock=self.kafka.clock())
        await changelog.tailer.read_to_end(30.0)
        tasks, nodes = Tasks(unexpected.append), NodeDirectory(NodeAddress(node_id, "127.0.0.1", 1))
        parts = Parts(node_id, boot, "c", gates, upstream, store, changelog, tasks, nodes, unexpected)
        coordinator = Coordinator(
            parts.node_services(), nodes, tasks, cast(Any, told), ClaimLimits(100),
            reconnect_grace=reconnect_grace, disconnect_grace=disconnect_grace,
        )  # fmt: skip
        asserted = Asserted(nodes)
        asserted.coordinator = coordinator
        membership = parts.membership(asserted)
        await membership.join()
        tasks.start(coordinator.run())
        room = Room(
            node_id, boot, gates, told, coordinator, membership, changelog, upstream, tasks, unexpected
        )  # fmt: skip
        tasks.start(room.hear())
        self._rooms.append(room)
        return room

    async def close(self) -> None:
        """End all nodes: nothing went wrong that a test did not expect."""
        for room in self._rooms:
            room.gates.heal()
            if not room.is_dead:
                await room.coordinator.drain()
                await room.membership.leave()
            await room.tasks.cancel()
            room.upstream.is_closed = True
            await room.changelog.close()
            await room.upstream.close()
        await self.kafka.close()
        for room in self._rooms:
            for error in room.unexpected:
                raise AssertionError("nobody expected this") from error


async def coordinating(*rooms: Room) -> tuple[Room, Room]:
    """Of two rooms the one that coordinates, and the other one."""
    found: list[Room] = []

    async def one() -> bool:
        found.clear()
        for room in rooms:
            try:
                await room.coordinator.ready()
            except KafkaError:
                continue
            found.append(room)
        return len(found) == 1

    await wait_for_async(one, "one node to coordinate")
    (other,) = [room for room in rooms if room is not found[0]]
    return found[0], other
