"""Topics with sequence ids as nodes serve them: the product's gates, lanes, marks, snapshots and recovery, on a
simulated Kafka and Redis, in virtual time. A test says what clients send, and looks at answers, logs and snapshots.

    node = await world.node()
    await node.serve()
    client = await node.client()
    assert await client.send(1, 2) == (0, 0)            # error and offset
    assert world.ids() == [1, 2]

On paper are only claims: a test says which node serves the topic, and which session writes through which slot.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import hiredis

from metadata import MetadataStore, MetadataUnavailable
from metadata.errors import Reason
from sidecar.changelog import MASTER_SLOT, Changelog, SlotName
from sidecar.changelog.records import Position
from sidecar.cluster.logs import LogReader
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import Mark
from sidecar.dedup.names import WriterNames
from sidecar.dedup.partition import IdsServices
from sidecar.dedup.recovery import scan
from sidecar.dedup.reply import Reply
from sidecar.dedup.snapshots import Collector, Saved, encode, new_copy, of_value, to_records
from sidecar.dedup.topic import TopicIds
from sidecar.fencing.slot import WriterSlot
from sidecar.forwarder.lane import Lane, LaneOwner
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, PlainSequences
from sidecar.network.tasks import Tasks
from sidecar.protocol.batch import read_header
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.logs import FetchPartition, ProduceBatch
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ClientSequence, Offset, Stamp, TopicPartition
from sidecar.protocol.room import give_back
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch
from tests.sim.kafka.direct import DirectUpstream, JumpLoop, SimulatedKafka
from tests.sim.loop import SimLoop
from tests.sim.redis import SimRedis
from tests.unit.dedup.paper import Rec, batch, ids_of, recs

TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)
PRODUCE = 0
REFUSED = 44


class WorldLoop(JumpLoop):
    """Here no thread runs: what would be its work is done at once. `pieces`: how often that was."""

    pieces = 0

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        self.pieces += func is not give_back  # which follows the work where a thread has run before
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  as a thread's: whoever waits raises it
            done.set_exception(error)
        return done


class Answer(NamedTuple):
    """What a client gets. `offset`: -1 for what was not written by this batch, or not all of it."""

    error: int
    offset: int


class Store(MetadataStore):
    """The real scripts in a simulated Redis. `is_away`: it does not answer."""

    def __init__(self, redis: SimRedis) -> None:
        super().__init__("redis://simulated", "c", lease_ms=1_000)
        self._server = cast(Any, self)
        self._redis = redis
        self.is_away = False

    async def run(self, script: Any, keys: Any, args: Any) -> Any:
        """As `metadata.connection.Server`."""
        if self.is_away:
            raise MetadataUnavailable(Reason.AWAY, "away")
        words = ("EVAL", script.text, len(keys), *keys, *args)
        reader = hiredis.Reader()
        reader.feed(self._redis.execute([word if isinstance(word, bytes) else str(word).encode() for word in words]))
        return reader.gets()


class World:
    """One broker, one Redis, topic `orders`."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka(brokers=(1,))
        self.redis = SimRedis(SimLoop(), lambda: self.kafka.wall_ms() / 1000)
        self.writers: list[tuple[Stamp, bytes | None]] = []
        """The writer of each epoch, as the changelog has them."""
        self._nodes: list[Node] = []

    async def topic(self, partitions: int = 1) -> None:
        """Create the topic."""
        await self.kafka.create(TOPIC, partitions)

    async def serving(self, partitions: int = 1, *beside: str, names_limit: int = 10_000) -> Node:
        """A node that serves the topic, which it creates."""
        await self.topic(partitions)
        node = await self.node(names_limit=names_limit)
        await node.serve(*beside)
        return node

    async def node(self, *, names_limit: int = 10_000) -> Node:
        """A node that serves nothing yet."""
        upstream, store = self.kafka.node(), Store(self.redis)
        changelog = await Changelog.open(upstream, "c", clock=self.kafka.clock())
        await changelog.tailer.read_to_end(30.0)
        self._nodes.append(Node(self, upstream, store, changelog, names_limit))
        return self._nodes[-1]

    async def close(self) -> None:
        """End all nodes."""
        for node in self._nodes:
            await node.tasks.cancel()
            await node.changelog.close()
            if node.unexpected:
                raise node.unexpected[0]
        await self.kafka.close()

    # What is there

    def ids(self, partition: int = 0) -> list[int | None]:
        """The ids in the log."""
        return [found for data in self.batches(partition) for found in ids_of(bytearray(data))]

    def batches(self, partition: int = 0) -> list[bytes]:
        """The batches in the log, without markers."""
        committed = self.kafka.cluster.committed(TOPIC, partition)
        return [found.data for found in committed if found.marker < 0]

    def sequences(self, partition: int = 0) -> list[int]:
        """The stamped first sequence of each batch in the log."""
        return [read_header(data, 0, len(data)).base_sequence for data in self.batches(partition)]

    def end(self, partition: int = 0) -> int:
        """The end of the log."""
        replica = self.kafka.cluster.replica(TOPIC, partition)
        assert replica is not None
        return replica.high_watermark

    async def delete_before(self, offset: int) -> None:
        """Let the log of partition 0 begin at an offset."""
        await self.kafka.delete_records(FIRST, Offset(offset))

    def lose(self, offset: int, partition: TopicPartition = FIRST) -> None:
        """Let a log end at an offset, as after an unclean election."""
        replica = self.kafka.cluster.replica(*partition)
        assert replica is not None
        replica.truncate(offset)

    async def snapshot(self, partition: int = 0) -> Saved | None:
        """The newest snapshot in the snapshot topic, of no more than the log has."""
        node = self._nodes[0]
        collector = Collector(TOPIC, await self.topic_id())
        await scan(LogReader(self.kafka.upstream), node.changelog.snapshots_of(TOPIC), collector, 0)
        return collector.newest(partition, lambda covered: covered <= self.end(partition))

    async def rebuild(self, covered: int, number: int, ids: Mapping[bytes, int]) -> None:
        """Append a snapshot as a rebuild from the log does."""
        marks = [Mark(name, sequence_id, -1, 0) for name, sequence_id in ids.items()]
        chunks = encode(await self.topic_id(), Saved(covered, number, marks, rebuilt=True), self.kafka.wall_ms())
        changelog = self._nodes[0].changelog
        await changelog.appender.append(changelog.snapshots_of(TOPIC), list(to_records(TOPIC, 0, chunks, new_copy())))

    async def topic_id(self) -> bytes:
        return (await self.kafka.upstream.layout(TOPIC, refresh=True)).topic_id.bytes

    async def stored(self, partition: int = 0) -> Saved | None:
        """The snapshot in Redis."""
        topic_id = await self.topic_id()
        values = await Store(self.redis).snapshots(TOPIC, topic_id, [partition])
        found = of_value(values[partition], topic_id) if values else None
        return found and found[0]


def ids_by_name(found: Saved | None) -> dict[bytes, int]:
    """The highest ids in a snapshot."""
    assert found is not None
    return {mark.name: mark.id for mark in found.marks}


class Node:
    """As `OwnershipReports`, and as its own forwarder `Shipper`. `fences`: how often its ids asked for one."""

    def __init__(
        self, world: World, upstream: DirectUpstream, store: Store, changelog: Changelog, names_limit: int
    ) -> None:
        self.world, self.upstream, self.store, self.changelog = world, upstream, store, changelog
        self.unexpected: list[BaseException] = []
        self.tasks = Tasks(self.unexpected.append)
        self.live: set[str] = set()
        self.dropped = self.undecided = self.forgotten = self.fences = self.held = 0
        self.lost: list[str] = []
        self.failures: list[BaseException] = []
        self.recovered: list[int] = []
        """The records that each recovery read."""
        self.portions: list[int] = []
        """The records that were read in one go."""
        services = IdsServices(
            LogReader(upstream), changelog, store, self.tasks, cast(Any, self), Headers(), names_limit
        )  # fmt: skip
        self.ids = TopicIds(TOPIC, services, self.live.__contains__, self._fence_wanted)
        self.stamps: dict[str, Stamp] = {}
        self.flows = asyncio.Event()
        """Clear: batches stay at the node, in flight."""
        self.flows.set()
        self.loses = 0
        """So many answers of leaders are lost from now on."""
        self._slots: dict[str, WriterSlot] = {}

    # The topic

    def known(self, partition: int = 0) -> dict[bytes, int]:
        """The highest id of each name, as far as this node knows."""
        return {mark.name: mark.id for mark in self.ids.of(partition).marks}

    def reads(self, topic: str = TOPIC) -> Sequence[tuple[int, int]]:
        """The partitions and offsets where this node read a topic, and forget that."""
        asked = [
            (found.partition.partition, found.offset)
            for found in self.upstream.requests(FetchPartition)
            if found.partition.topic == topic
        ]
        self.upstream.asked.clear()
        return asked

    async def serve(
        self,
        *beside: str,
        ids_from: int = 0,
        waits: bool = True,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Take the topic over: fence all slots, and read what is in the log. `beside`: slots beside the master's;
        `meanwhile`: happens between the two.
        """
        layout = await self.upstream.layout(TOPIC, refresh=True)
        partitions = tuple(sorted(layout.leaders))
        for slot in (MASTER_SLOT, *beside):
            await self._fence(slot, partitions)
        if meanwhile is not None:
            await meanwhile()
        self.ids.begin(
            layout.topic_id, self.stamps[MASTER_SLOT], partitions, dict.fromkeys(partitions, ids_from), self._names()
        )
        if waits:
            await self.ids.known(60.0)

    async def fence_slot(self, slot: str) -> None:
        """Take one slot over beside the others, and read what it had under way."""
        before = self.stamps[slot].producer_id
        partitions = tuple(self.ids.partitions)
        await self._fence(slot, partitions)
        self.ids.begin_slot(before, partitions, self._names())
        await self.ids.known(60.0)

    async def keep_alive(self) -> None:
        """Write a marker to each partition."""
        await self._slots[MASTER_SLOT].keep_alive({TOPIC: tuple(self.ids.partitions)})

    async def _fence(self, slot: str, partitions: tuple[int, ...]) -> None:
        writer = self._slots[slot] = WriterSlot(self.upstream, f"{TOPIC}-{slot}")
        self.stamps[slot] = await writer.open()
        await writer.fence({TOPIC: partitions, **self.changelog.fenced(TOPIC if slot == MASTER_SLOT else None)})

    def _names(self) -> WriterNames:
        names = WriterNames()
        for stamp, name in self.world.writers:
            names.add(stamp.producer_id, stamp.epoch, name)
        return names

    async def client(
        self,
        session: str = "pid:1",
        name: str = "me",
        *,
        slot: str = MASTER_SLOT,
        bases: Mapping[int, int] | None = None,
    ) -> Client:
        """A session that writes through a slot from now on. `bases`: its next sequences."""
        stamp = self.stamps[slot]
        self.world.writers.append((stamp, name.encode() or None))
        self.live.add(session)
        positions = {
            index: Position(0, ClientSequence((bases or {}).get(index, 0))) for index in self.ids.partitions
        }  # fmt: skip
        layout = await self.upstream.layout(TOPIC)
        taken = TakenSlot(
            SlotScope(TOPIC, SlotName(slot)), layout.topic_id, stamp, self._slots[slot], self.changelog.journal(stamp),
            Session(session), name, 1, positions, {}, tuple(positions), state.Ownership(), 0, {},
        )  # fmt: skip
        return Client(self, taken)

    def leave(self, client: Client) -> None:
        """A session's connections end."""
        self.live.discard(client.session)

    # `Forwarder`

    def lane(
        self, topic: bytes, index: int, stamp: Stamp, plain: PlainSequences | None, owner: LaneOwner, _: Any
    ) -> Lane:
        return Lane(topic, index, stamp, plain, self, owner, random.Random(1))

    def ship(self, lane: Lane, append: Append) -> None:
        self.tasks.start(self._ship(lane, append))

    async def _ship(self, lane: Lane, append: Append) -> None:
        partition = TopicPartition(TOPIC, lane.partition)
        await self.flows.wait()
        try:
            leader = (await self.upstream.layout(TOPIC)).leaders[lane.partition]
            answer = await self.upstream.call(leader, ProduceBatch(partition, bytes(append.batch), 5_000))
        except UpstreamError as error:
            lane.settled(append, Outcome.lost(sent=error.sent))
        else:
            outcome = Outcome(answer.error, answer.base_offset, -1, answer.log_start_offset)
            if self.loses:
                self.loses, outcome = self.loses - 1, Outcome.lost(sent=True)
            lane.settled(append, outcome)

    def leader_lost(self, topic: bytes) -> None:
        self.upstream.refresh_soon({topic})

    def released(self, size: int) -> None:
        self.held -= size

    # As `OwnershipReports`

    def _fence_wanted(self) -> None:
        self.fences += 1

    def duplicates_dropped(self, topic: str, records: int) -> None:
        self.dropped += records

    def ids_unknown(self, topic: str) -> None:
        self.undecided += 1

    def ids_read(self, topic: str, records: int) -> None:
        self.portions.append(records)

    def ids_recovered(self, topic: str, records: int, seconds: float) -> None:
        self.recovered.append(records)

    def ids_lost(self, topic: str, reason: str) -> None:
        self.lost.append(reason)

    def snapshot_written(self, topic: str, names: int, size: int) -> None: ...

    def names_forgotten(self, topic: str, names: int) -> None:
        self.forgotten += names

    def operation_failed(self, topic: str, error: BaseException) -> None:
        self.failures.append(error)


class Client:
    """A session's slot epoch, and the client that sends through it. Implements the epoch's `Writer`. `is_fenced`: its
    epoch is of no use any more; `refused`: sequences that got a final error.
    """

    def __init__(self, node: Node, taken: TakenSlot) -> None:
        self.node = node
        self.session: str = taken.session
        self.is_fenced = False
        self.refusals: list[tuple[int, int]] = []
        self.epoch = SlotEpoch(taken, cast(Any, node), self, node.ids)
        self.next: dict[int, int] = {index: position.sequence for index, position in taken.bases.items()}

    def send(
        self,
        *ids: int | bytes | Rec | None,
        partition: int = 0,
        first: int | None = None,
        timeout_ms: int = 30_000,
        codec: int = 0,
    ) -> asyncio.Future[Answer]:
        """Offer a batch, the next in order unless told its first sequence; the answer comes once."""
        records = [rec if isinstance(rec, Rec) else recs(rec)[0] for rec in ids]
        if first is None:
            first = self.next[partition]
            self.next[partition] = (first + len(records)) % 2**31
        data = batch(records, codec)
        data[53:57] = first.to_bytes(4, "big")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.node.held += len(data)
        reply = Reply(lambda outcome: answer.set_result(Answer(outcome.error, outcome.offset)))
        header = read_header(data, 0, len(data))
        self.epoch.append(partition, header, data, timeout_ms, reply)
        return answer

    def close(self) -> None:
        """The epoch ends, as at a takeover."""
        self.is_fenced = True
        self.epoch.close(Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # `Writer`

    def fenced(self, lane: Lane) -> None:
        self.close()

    def numbering_lost(self, lane: Lane) -> None:
        self.close()

    def refused(self, partition: int, client_epoch: int, first: ClientSequence, records: int) -> None:
        self.refusals.append((first, records))
