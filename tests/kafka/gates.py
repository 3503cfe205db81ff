"""A node's connections to the real Kafka and Redis in the test's own process, with the moments of its steps in hand.

A node as a process cannot be stopped between two steps of a takeover, nor told what Redis shall answer; this one can.
Whatever passes here has passed Kafka and Redis; answers are exchanged or lost on their way back, never invented
requests. `exclusive/room.py` builds its rooms on it; `tests/unit/resources/room.py` has a simulated Kafka and Redis
behind the same gates.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from metadata import MetadataStore, MetadataUnavailable
from metadata.errors import Reason
from metadata.nodes import Node as Registration
from sidecar.access.services import NodeServices
from sidecar.changelog import Changelog, Clock
from sidecar.cluster.nodes import Asserted, Membership, NodeAddress, NodeDirectory
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.forwarder.sequences import EPOCH_RECORDS
from sidecar.network.tasks import Tasks
from sidecar.protocol.calls.topic_ids import HasLogs, HasTopics

Step = Callable[[], Awaitable[None]]


class Gates:
    """What is to happen in front of, or instead of the answer of, a step by its name; recorded in `passed`."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._before: dict[str, list[Step]] = {}
        self._after: dict[str, list[Callable[[Any], Any]]] = {}
        self._altered: dict[str, Callable[[Any], Any]] = {}

    def alter(self, step: str, change: Callable[[Any], Any]) -> None:
        """Every answer to `step` is told as `change` makes it, until `heal`."""
        self._altered[step] = change

    def hold(self, step: str) -> Gate:
        """The next `step` waits until the gate opens."""
        gate = Gate()
        self._before.setdefault(step, []).append(gate.pass_through)
        return gate

    def fail(self, step: str, error: Exception, *, times: int = 1, after: bool = False) -> None:
        """The next `times` fail: in front of the step, or `after` it was done."""

        async def refuse() -> None:
            raise error

        def lose(answer: Any) -> Any:
            raise error

        for _ in range(times):
            if after:
                self._after.setdefault(step, []).append(lose)
            else:
                self._before.setdefault(step, []).append(refuse)

    def exchange(self, step: str, change: Callable[[Any], Any]) -> None:
        """The next `step` is done, and its answer becomes what `change` makes of it."""
        self._after.setdefault(step, []).append(change)

    def heal(self) -> None:
        """Whatever was to fail and has not come goes well."""
        self._before.clear()
        self._after.clear()
        self._altered.clear()

    async def before(self, step: str) -> None:
        self.passed.append(step)
        waiting = self._before.get(step)
        if waiting:
            await waiting.pop(0)()

    def after(self, step: str, answer: Any) -> Any:
        if (change := self._altered.get(step)) is not None:
            answer = change(answer)
        changes = self._after.get(step)
        return changes.pop(0)(answer) if changes else answer


class Gate:
    """Closed until `open`; `reached` tells that somebody stands in front of it."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def pass_through(self) -> None:
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(10):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()


class GatedStore(MetadataStore):
    """Redis, step by step: `claim`, `serve`, `publish`, `release`, `abandon`, `forget`, `policies`, `set_policy`,
    `delete_policy`."""

    gates: Gates

    async def _gated(self, step: str, call: Awaitable[Any]) -> Any:
        try:
            await self.gates.before(step)
        except BaseException:
            call.close()  # type: ignore[attr-defined]
            raise
        return self.gates.after(step, await call)

    async def claim(self, *args: Any, **options: Any) -> Any:
        return await self._gated("claim", super().claim(*args, **options))

    async def serve(self, *args: Any, **options: Any) -> Any:
        return await self._gated("serve", super().serve(*args, **options))

    async def policies(self, *args: Any, **options: Any) -> Any:
        return await self._gated("policies", super().policies(*args, **options))

    async def set_policy(self, *args: Any, **options: Any) -> Any:
        return await self._gated("set_policy", super().set_policy(*args, **options))

    async def delete_policy(self, *args: Any, **options: Any) -> Any:
        return await self._gated("delete_policy", super().delete_policy(*args, **options))

    async def publish(self, *args: Any, **options: Any) -> Any:
        return await self._gated("publish", super().publish(*args, **options))

    async def release(self, *args: Any, **options: Any) -> Any:
        return await self._gated("release", super().release(*args, **options))

    async def forget(self, *args: Any, **options: Any) -> Any:
        return await self._gated("forget", super().forget(*args, **options))

    async def abandon(self, *args: Any, **options: Any) -> Any:
        return await self._gated("abandon", super().abandon(*args, **options))


class Answered(Exception):  # noqa: N818 - it is no error
    """What a step is answered without being done, its only argument: for `Gates.fail`."""


class GatedUpstream(KafkaUpstream):
    """Kafka, step by step: the node's own calls by the name of their request, and looks for leaders, `layout`."""

    gates: Gates
    is_closed = False

    def may_connect(self, broker_id: int) -> bool:
        return not self.is_closed and super().may_connect(broker_id)  # what a dead node wanted to send is not sent

    async def layout(self, topic: str, *, refresh: bool = False) -> Any:
        await self.gates.before("layout")
        return await super().layout(topic, refresh=refresh)

    async def whole_layout(self, topic: str) -> Any:
        await self.gates.before("layout")
        return await super().whole_layout(topic)

    async def call(self, broker_id: int | None, request: Any, **options: Any) -> Any:
        step = type(request).__name__
        try:
            await self.gates.before(step)
        except Answered as answered:
            return answered.args[0]
        return self.gates.after(step, await super().call(broker_id, request, **options))

    async def call_pair(self, broker_id: int, first: Any, second: Any, **options: Any) -> Any:
        step = type(first).__name__
        try:
            await self.gates.before(step)
        except Answered as answered:
            return answered.args[0], True
        pair = await super().call_pair(broker_id, first, second, **options)
        if isinstance(second, HasLogs | HasTopics):  # a read by name, and whether the topic is still the same
            return self.gates.after(step, pair[0]), pair[1]
        return self.gates.after(step, pair)


REDIS_AWAY = MetadataUnavailable(Reason.AWAY, "no connection")
REDIS_LOST = MetadataUnavailable(Reason.TIMEOUT, "no answer", maybe_applied=True)


async def forget_redis(redis: str, cluster: str) -> None:
    """Redis loses everything that it had of a cluster of nodes."""
    client = Redis.from_url(redis)
    async for key in client.scan_iter(f"sidecar:{{{cluster}}}:*"):
        await client.delete(key)
    await client.aclose()


@dataclass
class Parts:
    """What every room of a node has: its boot, its connections, its tasks and what these raised unexpectedly."""

    node_id: int
    boot: str
    cluster: str
    gates: Gates
    upstream: GatedUpstream
    store: GatedStore
    changelog: Changelog
    tasks: Tasks
    nodes: NodeDirectory
    unexpected: list[BaseException]

    def node_services(self, epoch_records: int = EPOCH_RECORDS) -> NodeServices:
        """As a node gives them to its rooms."""
        return NodeServices(
            self.node_id, self.boot, self.cluster, self.upstream, self.changelog, self.store, epoch_records
        )

    def membership(self, asserted: Asserted, policy_version: Callable[[], int] = lambda: 0) -> Membership:
        """The node's place among the others, not joined yet."""

        def registration() -> Registration:
            return Registration(
                node_id=self.node_id, boot=self.boot, host="127.0.0.1", port=1, admin="",
                position=self.changelog.position - 1, policy_version=policy_version(), version="test", draining=False,
            )  # fmt: skip

        return Membership(self.store, self.nodes, registration, asserted, failed=lambda error: None)


@asynccontextmanager
async def opened(
    kafka: str, redis: str, cluster: str, *, node_id: int, lease_ms: int, clock: Clock | None = None
) -> AsyncIterator[Parts]:
    """The parts of a node, until the end; `clock`: of a machine whose own ones are wrong."""
    gates = Gates()
    host, port = kafka.split(",", maxsplit=1)[0].rsplit(":", 1)
    upstream = GatedUpstream([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)
    store = GatedStore(redis, cluster, lease_ms=lease_ms)
    upstream.gates = store.gates = gates
    changelog = await Changelog.open(upstream, cluster, clock=clock)
    await changelog.tailer.read_to_end(30.0)
    unexpected: list[BaseException] = []
    tasks, nodes = Tasks(unexpected.append), NodeDirectory(NodeAddress(node_id, "127.0.0.1", 1))
    try:
        yield Parts(
            node_id, secrets.token_hex(8), cluster, gates, upstream, store, changelog, tasks, nodes, unexpected
        )  # fmt: skip
    finally:
        await tasks.cancel()
        upstream.is_closed = True
        await changelog.close()
        await upstream.close()
        await store.aclose()
