"""A gateway between a client and the simulator's brokers, in virtual time: requests and answers as on the wire."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.forwarder.outcome import Outcome
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.handler import Apis, Gateway
from sidecar.gateway.produce import ProduceApi
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.produce import ProduceResult
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.cursor_room import Readers
from tests.sim.host import Host
from tests.sim.kafka import Cluster, ClusterSettings
from tests.sim.kafka.tables import FETCH, PRODUCE
from tests.sim.loop import SimLoop
from tests.sim.net import Network
from tests.sim.wire import Wire, Writable, batch_of
from tests.sim.world import SimScheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from sidecar.protocol.errors import KafkaError
    from sidecar.protocol.produce import ProducePart
    from sidecar.protocol.schema import Values

HERE = ("node-1", 19092)
TOPICS = {
    "orders": {0: [1], 1: [2], 2: [1]},
    "others": {0: [2]},
    "governed": {0: [1], 1: [2]},
    "moves": {0: [1, 2], 1: [2, 1]},
}
"""The replicas of each partition, the leader first."""


class Hooks:
    """`rejected`: why connections were closed."""

    def __init__(self) -> None:
        self.rejected: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: self.rejected.append(arguments[2]) if name == "client_rejected" else None  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


class Governed:
    """The room `exclusive`, which appends what it is given. `whole`: it takes whole requests, too."""

    def __init__(self) -> None:
        self.whole = True
        self.code = ErrorCode.NONE
        self.appended: list[tuple[str, int, str]] = []
        self.asked_for: list[set[bytes]] = []
        self.refuses: dict[bytes, KafkaError] = {}
        self.held: list[Callable[[], None]] | None = None

    def policy_mode(self, _: str) -> Any:
        return None

    def append_whole(self, _client: Any, fields: Any, _frame: Any, _body: int, _moved: int, merge: Any) -> bool:
        if not self.whole:
            return False
        for part in fields.parts:
            self.appended.append((part.topic.decode(), part.partition, "whole"))
            numbers: Any = SimpleNamespace(producer_id=-1)
            merge.settle_outcome(part, numbers, Outcome(self.code, 70))
        return True

    def append(
        self, _client: Any, part: ProducePart, _batch: memoryview, _timeout: int, done: Callable[[Any], None], _: bytes
    ) -> None:  # fmt: skip
        self.appended.append((part.topic.decode(), part.partition, "part"))

        def settle() -> None:
            done(ProduceResult(part.topic, part.partition, self.code, 80))

        if self.held is None:
            settle()
        else:
            self.held.append(settle)

    async def govern(self, topics: Iterable[bytes]) -> Mapping[bytes, KafkaError]:
        self.asked_for.append(set(topics))
        return self.refuses


class Setup:
    """Two brokers, a node, and what they were asked."""

    def __init__(self, loop: SimLoop) -> None:
        rng = random.Random(1)
        loop.network = self.network = Network(loop, rng)
        self.cluster = Cluster(SimScheduler(loop, rng), ClusterSettings(brokers=(1, 2)))
        for number, broker in self.cluster.brokers.items():
            self.network.acceptors[broker.address] = lambda peer, number=number: self.cluster.accept(number, peer)  # pyright: ignore[reportArgumentType]
        for name, leaders in TOPICS.items():
            self.cluster.create_topic(name, len(leaders), len(leaders[0]), assignment=leaders)
        addresses = [broker.address for broker in self.cluster.brokers.values()]
        self.upstream = KafkaUpstream(addresses, connect_timeout=1.0, request_timeout=3.0)
        self.hooks, self.resolver, self.governed = Hooks(), NameResolver(), Governed()
        hooks: Any = self.hooks
        self.gateway = Gateway(self.upstream, 1, "boot", 1 << 24, hooks)
        nodes, tasks = NodeDirectory(NodeAddress(1, *HERE)), self.gateway.tasks
        governed: Any = self.governed
        self.claims = ReaderClaims(lambda _: False)
        self.produce = ProduceApi(self.upstream, nodes, self.resolver, governed, tasks)
        self.fetch = FetchApi(
            self.upstream, nodes, self.resolver, self.claims, tasks, Readers(self.resolver), longest_wait_s=60.0
        )
        self.gateway.closed_callbacks.append(self.fetch.client_closed)
        self.gateway.serve(
            Apis({0: self.produce.handle, 1: self.fetch.handle}, {}), [VersionRange(0, 3, 13), VersionRange(1, 4, 16)]
        )

    async def start(self) -> None:
        await asyncio.sleep(1)  # until the brokers know of the topics
        await self.upstream.find_leaders([name.encode() for name in TOPICS])
        await asyncio.get_running_loop().create_server(self.gateway.new_connection, *HERE)

    async def client(self, client_id: str = "app") -> Client:
        wire = await Wire.open(HERE, client_id)
        await asyncio.sleep(0.1)  # until the node knows of it, too
        return Client(self, wire)

    def log(self, topic: str, partition: int) -> list[int]:
        """The number of records of each batch in a log."""
        return [batch.count for batch in self.cluster.history(topic, partition)]


class Client:
    """A connection to the node."""

    def __init__(self, setup: Setup, wire: Wire) -> None:
        self.setup, self.wire = setup, wire

    @property
    def state(self) -> Any:
        """What the node knows of it."""
        return next(reversed(self.setup.gateway.clients.values()))

    def sends(
        self,
        *parts: tuple[str | bytes, int, bytes],
        version: int = 8,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Awaitable[Values]:
        """A Produce with these batches; topics by name, or by id."""
        topics: dict[str | bytes, list[Values]] = {}
        for topic, partition, batch in parts:
            topics.setdefault(topic, []).append({"index": partition, "records": batch})
        named = [
            ({"name": t} if isinstance(t, str) else {"topic_id": t}) | {"partition_data": p} for t, p in topics.items()
        ]
        fields = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1_000, "topic_data": named}
        return self.asks(PRODUCE, version, fields)

    def reads(self, *parts: tuple[str | bytes, int, int], version: int = 11, **more: Any) -> Awaitable[Values]:
        """A Fetch from these offsets; topics by name, or by id."""
        limits = {"current_leader_epoch": -1, "partition_max_bytes": 1 << 20}
        named = [
            {"topic" if isinstance(topic, str) else "topic_id": topic}
            | {"partitions": [{"partition": partition, "fetch_offset": offset} | limits]}
            for topic, partition, offset in parts
        ]
        fields = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        return self.asks(FETCH, version, fields | {"topics": named} | more)

    def asks(self, message: Any, version: int, fields: Values) -> Awaitable[Values]:
        """Send any request."""
        frame = message.encode_request(version, 0, b"", fields)
        answer = self.wire.send(message.key, frame[14:], version=version)

        async def decoded() -> Values:
            body = await answer
            data = bytes(8) + body
            return message.decode_answer(data, 0, len(data), version)

        return decoded()


def batch(*values: int, producer_id: int = -1, sequence: int = -1, transactional: bool = False) -> bytes:
    epoch = 0 if producer_id >= 0 else -1
    records = [Writable(b"%d" % value) for value in values]
    return batch_of(records, 1_760_000_000_000, producer_id, epoch, sequence, transactional=transactional)


def results(answer: Values, inner: str = "partition_responses", index: str = "index") -> list[tuple[Any, int, int]]:
    """Topic, partition and error, in the order of the answer."""
    return [
        (topic.get("name") or topic.get("topic") or topic.get("topic_id"), each[index], each["error_code"])
        for topic in answer["responses"]
        for each in topic[inner]
    ]


def play(story: Callable[[Setup], Awaitable[None]]) -> None:
    """Play a story in virtual time."""
    loop, host = SimLoop(), Host("node")

    async def played() -> None:
        setup = Setup(loop)
        await setup.start()
        await story(setup)

    try:
        loop.finish(played(), host, 1_000)
    finally:
        for task in host.tasks:
            task.cancel()
        loop.run(loop.now + 1)
    assert not loop.crashes, loop.crashes
