"""Nodes that serve a topic, with the whole ownership room at work: real topics, takeovers, epochs and lanes. The store
and the scripts are real, too, in the simulator's Redis. On paper are Kafka (`paper_kafka`) and the ownership topic.

Nothing is late unless a test says so. `Kafka.before` is called before each of the node's own requests, and may run
whatever comes in between; batches to a leader in `Kafka.holding` stay under way until `Kafka.deliver`. A node reads
the ownership topic only where the product waits for that, or by `Node.read`.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

import hiredis

import metadata
from metadata import MetadataStore, MetadataUnavailable
from metadata.connection import Argument
from metadata.errors import Reason
from metadata.ownership import AccessMode, ClaimAnswer, ClaimRequest
from metadata.policies import ANY, Policies, Under
from metadata.scripts import Script
from sidecar.access.services import NodeServices
from sidecar.changelog import Change, Clock, Kind, RawRecord, Record, View
from sidecar.changelog.records import build_batch, read_batches
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.cluster.resolver import NameResolver
from sidecar.dedup.reply import Reply
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.partitions import PartitionedTopic, Topic
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.lane import Lane, LaneOwner
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, PlainSequences
from sidecar.network.tasks import Tasks
from sidecar.ownership.state import Claimant, Held
from sidecar.policy.policies import PolicyBook, PolicyFields, Scope
from sidecar.protocol.batch import read_header, read_numbers, stamp
from sidecar.protocol.caller import FencedError, TopicLayout, UnknownTopicError, UpstreamError
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.calls.transactions import (
    NO_STAMP,
    ActiveProducer,
    AddPartitionsToTxn,
    DescribeProducers,
    EndTxn,
    InitializedProducer,
    InitProducerId,
    PartitionProducers,
    WriteTxnMarkers,
)
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.produce import ProducePart
from sidecar.protocol.session import Caller, Session
from tests.sim.loop import SimLoop
from tests.sim.redis import SimRedis
from tests.unit.exclusive.paper_kafka import Batch, Partition
from tests.unit.forwarder.paper import record_batch

ResultT = TypeVar("ResultT")

TOPIC = "orders"
OWNERSHIP = TopicPartition("__sidecar.ownership", 0)
STALE = 47
GRACE_S = 60.0


class Kafka:
    """One broker. `calls`: the kinds of the nodes' requests, in order."""

    def __init__(self, partitions: int = 2) -> None:
        self.topic_id = UUID(int=1)
        self.count = partitions
        self.logs: dict[TopicPartition, Partition] = defaultdict(Partition)
        self.stored: list[tuple[Offset, Stamp | None, tuple[RawRecord, ...]]] = []
        """The ownership topic: batches, and markers without records."""
        self.before: Callable[[Any], Awaitable[None]] | None = None
        self.calls: list[type] = []
        self.holding = False
        self.under_way: list[tuple[Lane, Append]] = []
        self._stamps: dict[str, Stamp] = {}
        self._added: dict[str, Mapping[str, Any]] = {}

    def log(self, partition: int = 0) -> Partition:
        """The log of one partition of the topic."""
        return self.logs[TopicPartition(TOPIC, partition)]

    @property
    def end(self) -> Offset:
        """The end of the ownership topic."""
        return Offset(self.logs[OWNERSHIP].end)

    def append_records(self, records: Sequence[RawRecord], writer: Stamp | None = None, sequence: int = 0) -> Offset:
        """Append to the ownership topic."""
        log, numbers = self.logs[OWNERSHIP], tuple(range(len(records)))
        offset = log.end
        if writer is None:
            log.end += len(records)
        else:
            error, offset = log.append(writer.producer_id, writer.epoch, sequence, numbers)
            if error:
                raise FencedError(error, writer, "append")
        self.stored.append((Offset(offset), writer, tuple(records)))
        return Offset(offset)

    # Clients' batches

    def ship(self, lane: Lane, append: Append) -> None:
        self.under_way.append((lane, append))
        if not self.holding:
            asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self, *codes: int) -> None:
        """Append what is under way, and answer it. `codes`: what the leader answers to the first ones instead."""
        under_way, self.under_way = self.under_way, []
        answers = list(codes)
        for lane, append in under_way:
            if answers and (code := answers.pop(0)):
                lane.settled(append, Outcome(code))
                continue
            header = read_header(append.batch, 0, append.size)
            (written,) = read_batches(bytes(append.batch))
            values = tuple(int(record.value or b"") for _, record in written.records)
            log = self.log(lane.partition)
            lane.settled(append, Outcome(*log.append(header.producer_id, header.producer_epoch, header[9], values)))

    # As `Upstream`

    async def brokers(self) -> list[int]:
        return [0]

    async def coordinator(self, *_: Any) -> int:
        return 0

    def forget_coordinator(self, *_: Any) -> None:
        """There is one broker."""

    async def layout(self, topic: str, **_: Any) -> TopicLayout:
        if topic == TOPIC and not self.count:
            raise UnknownTopicError(topic)
        return TopicLayout(self.topic_id, dict.fromkeys(range(self.count if topic == TOPIC else 1), 0))

    whole_layout = layout

    async def call_pair(self, broker: int, first: Any, second: Any, **_: Any) -> tuple[Any, Any]:
        return await self.call(broker, first), await self.call(broker, second)

    async def call_on(self, broker: int, request: Any, *_: Any, **__: Any) -> Any:
        return await self.call(broker, request)

    async def call(self, broker: int | None, request: Any, **_: Any) -> Any:
        self.calls.append(type(request))
        if self.before is not None:
            await self.before(request)
        match request:
            case InitProducerId() | AddPartitionsToTxn() | EndTxn():
                return self._in_transaction(request, request.transactional_id or "")
            case WriteTxnMarkers(markers=(marker,)):
                for partition in _all(marker.partitions):
                    self.mark(partition, marker.stamp)
                return {marker.stamp.producer_id: dict.fromkeys(_all(marker.partitions), 0)}
            case DescribeProducers(partitions=partitions):
                return {found: PartitionProducers(0, None, self._producers(found)) for found in _all(partitions)}
            case ListOffsets(timestamps=timestamps):
                return {
                    found: ListedOffset(0, -1, Offset(0 if at == OffsetAt.EARLIEST else self.logs[found].end), 0)
                    for found, at in timestamps.items()
                }
            case FetchPartition(partition=partition, offset=offset):
                log = self.logs[partition]
                read = b"".join(_encoded(batch) for batch in log.log if batch.offset >= offset)
                return Fetched(0, Offset(log.end), Offset(log.end), Offset(0), read)
            case _:
                raise UpstreamError(f"on paper nothing answers {request}")

    def _in_transaction(self, request: InitProducerId | AddPartitionsToTxn | EndTxn, name: str) -> Any:
        """The coordinator's answer."""
        held = self._stamps.get(name, Stamp(ProducerId(1_000 + len(self._stamps)), ProducerEpoch(-1)))
        if isinstance(request, InitProducerId):
            if request.current not in (NO_STAMP, held):
                return InitializedProducer(STALE, NO_STAMP)
            self._stamps[name] = Stamp(held.producer_id, ProducerEpoch(held.epoch + 1))
            return InitializedProducer(0, self._stamps[name])
        is_stale = request.stamp != held
        if isinstance(request, AddPartitionsToTxn):
            if not is_stale:
                self._added[name] = request.partitions
            return dict.fromkeys(_all(request.partitions), STALE if is_stale else 0)
        if not is_stale:
            for partition in _all(self._added.pop(name, {})):
                self.mark(partition, held)
        return STALE if is_stale else 0

    def mark(self, partition: TopicPartition, by: Stamp) -> None:
        if partition == OWNERSHIP:
            self.stored.append((self.end, by, ()))
        self.logs[partition].mark(by.producer_id, by.epoch)

    def _producers(self, partition: TopicPartition) -> tuple[ActiveProducer, ...]:
        remembered = self.logs[partition].remembered().items()
        return tuple(
            ActiveProducer(Stamp(ProducerId(found), ProducerEpoch(epoch)), last, 0, 0, -1)
            for found, (epoch, last) in remembered
        )


def _all(partitions: Mapping[str, Any]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes]


def _encoded(batch: Batch) -> bytes:
    """The bytes of a batch, or of a marker, as they are in the log."""
    by = Stamp(ProducerId(batch.producer_id), ProducerEpoch(batch.epoch))
    values = batch.values or (0,)
    data = build_batch([RawRecord(b"", b"%d" % value) for value in values], by, max(0, batch.first))
    data[0:8] = batch.offset.to_bytes(8, "big")
    data[12:16] = bytes(4)
    if not batch.values:
        data[21:23] = b"\x00\x30"
    return bytes(data)


class Redis(MetadataStore):
    """The real store and the real scripts, in the simulator's Redis, whose clock stands. `is_away`: it does not answer;
    `answers` are given to claims instead of its own; `claims`: what was asked.
    """

    def __init__(self) -> None:
        super().__init__("redis://paper", "paper", lease_ms=1_000)
        self._server = cast(Any, self._Scripts(self))
        self.is_away = False
        self.answers: list[ClaimAnswer | Exception] = []
        self.claims: list[ClaimRequest] = []
        self.deleted: list[str] = []
        """The policies that were deleted."""

    class _Scripts:
        """As `metadata.connection.Server`: answers at once."""

        def __init__(self, store: Redis) -> None:
            self._store = store
            self._redis = SimRedis(SimLoop(), lambda: 1_760_000_000.0)

        async def run(self, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
            if self._store.is_away:
                raise MetadataUnavailable(Reason.AWAY, "away")
            words = ("EVAL", script.text, len(keys), *keys, *args)
            reader = hiredis.Reader()
            reader.feed(self._redis.execute([_bytes(word) for word in words]))
            return reader.gets()

    def joined(self, node: int) -> None:
        """A node is alive from now on."""
        self._looked(self.heartbeat(metadata.Node(node, boot(node), "node", 9092)))

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        self.claims.append(request)
        if self.answers and not self.is_away:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await super().claim(request)

    async def delete_policy(self, name: str, known: Policies, token: bytes, *, under: Under = ANY) -> int:
        version = await super().delete_policy(name, known, token, under=under)
        self.deleted.append(name)
        return version

    @property
    def owner(self) -> tuple[int, str | None] | None:
        """Generation and session of the topic's owner, as stored."""
        stored = self._looked(self.ownership(TOPIC)).owner
        return None if stored is None else (stored.generation, stored.session)

    @property
    def open(self) -> list[str]:
        """The resources of claims that are neither published nor withdrawn."""
        return [state.resource for state in self._looked(self.ownerships()) if state.claim is not None]

    @property
    def serving(self) -> dict[str, int]:
        """The node that may serve each topic."""
        serving = self._looked(self.heartbeat(metadata.Node(1, boot(1), "node", 9092))).live.serving
        return {topic: holder.node_id for topic, holder in serving.items()}

    def _looked(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The same while it is away: a test may look."""
        was_away, self.is_away = self.is_away, False
        try:
            return _now(call)
        finally:
            self.is_away = was_away

    def lapse(self) -> None:
        """The leases of claims end."""
        for state in self._looked(self.ownerships()):
            if state.claim is not None:
                self._looked(self.abandon(state.resource, state.claim.token))

    @property
    def waiting(self) -> list[str]:
        """The topic's queue, as stored."""
        return self._looked(self.queue(TOPIC))

    def queued(self, *sessions: str) -> None:
        """Store the topic's queue, by the node that serves it."""
        node = self.serving[TOPIC]
        assert _now(self.keep_queue(TOPIC, node, boot(node), sessions))

    def move(self, to: int | None) -> None:
        """The serving node gives the topic to another one, or (None) to the first that asks."""
        node = self.serving.get(TOPIC)
        if node is not None:
            self._looked(self.hand_over(TOPIC, node, boot(node), to=to))
        elif to is not None:
            _now(self.serve(TOPIC, to, boot(to), last_node=None))


def boot(node: int) -> str:
    """A node's boot id."""
    return f"b{node:03}"


def _bytes(word: Argument) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def _now(call: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The result of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as ended:
        return cast("ResultT", ended.value)
    raise AssertionError("it waits")


class Changelog:
    """As `sidecar.changelog.Changelog`: the ownership topic as one node has read it; it is its own tailer."""

    def __init__(self, kafka: Kafka) -> None:
        self.view = View()
        self.clock = Clock()
        self.tailer = self
        self.position = Offset(0)
        self.changed: Callable[[Change], None] = lambda change: None
        self.events: list[Any] = []
        self._kafka = kafka
        self._batches = 0

    def read(self) -> None:
        for offset, writer, records in self._kafka.stored[self._batches :]:
            self._batches += 1
            if writer is not None:
                self.view.note_writer(writer)
            for number, record in enumerate(records):
                change = self.view.apply(Offset(offset + number), self.clock.now_ms(), writer, record)
                if change is not None:
                    self.changed(change)
            self.position = Offset(offset + max(1, len(records)))

    async def reached(self, offset: Offset, timeout: float | None = None) -> None:
        self.read()
        assert self.position > offset

    async def seen(self, writer: Stamp, timeout: float | None = None) -> None:
        self.read()

    async def read_to_end(self, timeout: float) -> None:
        self.read()

    async def append(self, records: Sequence[Record]) -> Offset:
        return self._kafka.append_records([record.encode() for record in records])

    async def add_event(self, event: Any) -> None:
        self.events.append(event)

    def fenced(self, snapshots_of: str | None = None) -> dict[str, list[int]]:
        return {OWNERSHIP.topic: [OWNERSHIP.partition]}

    def journal(self, writer: Stamp, *, until: float = 0.0) -> Journal:
        return Journal(self._kafka, writer)


class Journal:
    """As `StampedJournal`."""

    def __init__(self, kafka: Kafka, writer: Stamp) -> None:
        self._kafka = kafka
        self._writer = writer
        self._next = 0

    async def append(self, records: Sequence[Record]) -> Offset:
        offset = self._kafka.append_records([record.encode() for record in records], self._writer, self._next)
        self._next += len(records)
        return offset


class Hooks:
    """Keeps what was reported, by name."""

    def __init__(self) -> None:
        self.reported: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.reported.append((name, *arguments))


class PaperEnvironment(Environment):
    """`late`: by so many seconds its clock is ahead of the loop's."""

    late = 0.0

    def now(self) -> float:
        return super().now() + self.late


class Node:
    """A node that has one topic. `held`: bytes that were admitted and not released, by batches of `Client`."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        mode: AccessMode = AccessMode.EXCLUSIVE,
        scope: Scope = Scope.TOPIC,
        disconnect_grace: float = 0.0,
    ) -> None:
        self.kafka, self.redis, self.number = cluster.kafka, cluster.redis, number
        self.redis.joined(number)
        self.held = 0
        self.hooks = Hooks()
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        self.changelog = Changelog(self.kafka)
        self.nodes = NodeDirectory(NodeAddress(number, "node", 9092))
        services = NodeServices(
            number, boot(number), "paper", cast(Any, self.kafka), cast(Any, self.changelog), self.redis
        )
        self.env = PaperEnvironment(
            services, cast(Any, self), self.tasks, cast(Any, self.hooks), NameResolver(), self.nodes,
            reconnect_grace=GRACE_S, disconnect_grace=disconnect_grace, queue_limit=3,
        )  # fmt: skip
        self.allow(mode, scope)
        made = PartitionedTopic if scope is Scope.PARTITION else GovernedTopic
        self.changelog.read()
        self.topic: Topic = made(TOPIC, self.env, Refusals())
        self.changelog.changed = self._changed

    def allow(self, mode: AccessMode, scope: Scope = Scope.TOPIC) -> None:
        """Set the topic's policy."""
        self.env.catalog.book = PolicyBook({TOPIC: PolicyFields(access_mode=mode, scope=scope)})

    @property
    def whole(self) -> GovernedTopic:
        """The topic, if it has one owner."""
        assert isinstance(self.topic, GovernedTopic)
        return self.topic

    @property
    def holder(self) -> Held | None:
        """The topic's owner, as this node knows it."""
        return self.whole.state.holder

    def read(self) -> None:
        """Read the ownership topic to its end."""
        self.changelog.read()

    def learn_of(self, *others: int) -> None:
        """Other nodes are live, and serve what Redis says."""
        live = [NodeAddress(found, "node", 9092) for found in (self.number, *others)]
        self.nodes.placement = Placement(live)
        self.nodes.serve({topic.encode(): node for topic, node in self.redis.serving.items()})

    def _changed(self, change: Change) -> None:
        """As `GovernedTopics`."""
        if change.key.kind is Kind.POLICY:
            if self.env.catalog.read().effective(TOPIC) is None:
                self.topic.is_dropped = True
                self.tasks.start(self.topic.ungoverned())
        elif change.key.kind is Kind.OWNERSHIP:
            self.env.deposed.note(change.key, change.after.value if change.after is not None else None)
            self.topic.changed(change)
        else:
            self.env.bindings.changed(change.key)

    def close(self, *clients: Client) -> None:
        """The connections of these clients end."""
        for client in clients:
            client.is_open = False
            for part in self.topic.parts:
                part.connection_closed(client.connection)

    def reports(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of each report of this name."""
        return [tuple(arguments) for found, *arguments in self.hooks.reported if found == name]

    @property
    def refusals(self) -> list[str]:
        """Why batches were refused."""
        return [reason for _, reason in self.reports("fenced")]

    async def settled(self) -> None:
        """No operation is under way any more."""
        for part in self.topic.parts:
            await part.over()

    # As `Forwarder`, and as its link to the broker

    def link_of(self, lane: Lane) -> Node:
        return self

    def take_whole(self) -> bool:
        return True

    def send_whole(self, request: WholeRequest, sent: Sequence[tuple[Lane, Append]]) -> None:
        for lane, append in sent:
            self.kafka.ship(lane, append)

    def admit(self, size: int) -> bool:
        self.held += size
        return True

    def lane(
        self, topic: bytes, partition: int, by: Stamp, plain: PlainSequences | None, owner: LaneOwner, topic_id: UUID
    ) -> Lane:
        return Lane(topic, partition, by, plain, cast(Any, self), owner, random.Random(7), topic_id)

    def ship(self, lane: Lane, append: Append) -> None:
        self.kafka.ship(lane, append)

    def leader_lost(self, topic: bytes) -> None:
        """The leader stays."""

    def released(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0


class Client:
    """A producer with its connection; it numbers its batches as clients do. A negative `number` is a plain client."""

    _connections = 0

    def __init__(
        self,
        number: int,
        mode: AccessMode | None = None,
        *,
        generation: int | None = None,
        name: str = "",
        succeeds: str | None = None,
    ) -> None:
        Client._connections += 1
        self.connection, self.is_open = Client._connections, True
        self.number, self.epoch, self.age_s = number, 0, 0.0
        self.next: dict[int, int] = defaultdict(int)
        session = Session(f"pid:{number}") if number >= 0 else Session.by_connection(1, "boot", self.connection)
        name = name or f"app-{number}"
        self.claimant = Claimant(
            session, name, is_named=True, connection=self.connection, mode=mode, generation=generation,
            succeeds=Session(succeeds) if succeeds else None, caller=Caller("User:app", name),
        )  # fmt: skip

    @property
    def session(self) -> Session:
        return self.claimant.session

    def batch(self, *values: int, partition: int = 0, sequence: int | None = None) -> memoryview:
        """Its next batch; its records are `age_s` old."""
        batch = record_batch([b"%d" % value for value in values or (0,)])
        for at in (27, 35) if self.age_s else ():
            written = int.from_bytes(batch[at : at + 8], "big") - int(self.age_s * 1000)
            batch[at : at + 8] = written.to_bytes(8, "big")
        if sequence is None:
            sequence = self.next[partition]
            self.next[partition] += max(1, len(values))
        who = (self.number, self.epoch, sequence) if self.number >= 0 else (-1, -1, -1)
        stamp(batch, 0, len(batch), *who)
        return memoryview(batch)

    def offer(
        self,
        node: Node,
        *values: int,
        partition: int = 0,
        sequence: int | None = None,
        timeout_ms: int = 30_000,
        to: Callable[[Offer], None] | None = None,
    ) -> asyncio.Future[Outcome]:
        """Offer its next batch to a node's topic, or `to` a part of it; the future has the answer. `sequence`: send
        this one (again) instead.
        """
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        batch = self.batch(*values, partition=partition, sequence=sequence)
        node.held += len(batch)
        header = read_header(batch, 0, len(batch))
        offer = Offer(
            self.claimant,
            "host",
            partition,
            header,
            batch,
            timeout_ms,
            lambda: self.is_open,
            Reply(answered.set_result),
        )
        (to or node.topic.offer)(offer)
        return answered

    def forwarded(self, node: Node, value: int, *, sequence: int, partition: int = 0) -> bool:
        """Whether a batch goes on without a decision."""
        batch = self.batch(value, partition=partition, sequence=sequence)
        header = read_header(batch, 0, len(batch))
        is_taken = node.topic.forward(self.claimant, partition, header, batch, 30_000, Reply(lambda _: None))
        node.held += len(batch) if is_taken else 0
        return is_taken

    def forwarded_whole(self, node: Node, *batches: tuple[int, memoryview]) -> dict[int, int] | None:
        """The errors by partition, once they are known, of a request that goes on whole; None if it does not."""
        errors: dict[int, int] = {}

        def settle(part: ProducePart, _: object, outcome: Outcome) -> None:
            errors[part.partition] = outcome.error

        parts: list[Any] = []
        for partition, batch in batches:
            parts.append((ProducePart(TOPIC.encode(), partition, 0, len(batch)), batch, read_numbers(batch)))
        asker: Any = SimpleNamespace(settle_outcome=settle)
        request = WholeRequest(cast(Any, None), 0, 30_000, parts, asker)
        return errors if node.topic.forward_whole(self.claimant, request) else None

    async def send(self, node: Node, *values: int, partition: int = 0, sequence: int | None = None) -> int:
        """Offer a batch, and return the error of its answer."""
        return (await self.offer(node, *values, partition=partition, sequence=sequence)).error


class Cluster:
    """Kafka and Redis, and the nodes that were started."""

    def __init__(self, partitions: int = 2) -> None:
        self.kafka, self.redis = Kafka(partitions), Redis()
        self.nodes: list[Node] = []

    def node(
        self, mode: AccessMode = AccessMode.EXCLUSIVE, scope: Scope = Scope.TOPIC, disconnect_grace: float = 0.0
    ) -> Node:
        """Start a node, which has read the ownership topic."""
        found = Node(self, len(self.nodes) + 1, mode, scope, disconnect_grace)
        self.nodes.append(found)
        return found

    def move(self, to: Node) -> None:
        """The topic is served by another node from now on."""
        self.redis.move(to.number)


@asynccontextmanager
async def cluster(partitions: int = 2) -> AsyncIterator[Cluster]:
    """A cluster on paper. At its end no task has failed, no claim is open in Redis, and every batch was released."""
    found = Cluster(partitions)
    async with asyncio.timeout(20):
        yield found
        for node in found.nodes:
            await node.settled()
    for node in found.nodes:
        await node.tasks.cancel()
        assert node.failures == []
        assert node.held == 0
    assert found.redis.open == []
