"""Producers as small machines with the retry behaviour of real libraries, at wire level.

What each library does was run and read in its source, as named at `LIBRARIES`. A machine keeps a lane per partition:
batches wait, are in flight, or are sent again in the order of their sequences. It notes in the ledger what the
application hears, and whether any attempt ended in doubt.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.sim import flexible, wire
from tests.sim.ledger import NOT_WRITTEN, REFUSED, Ledger, Read, Sent, Told
from tests.sim.wire import LostError, Wire

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

NONE, UNKNOWN_TOPIC, LEADER_GONE, NOT_LEADER, TIMED_OUT = 0, 3, 5, 6, 7
UNKNOWN_TOPIC_ID: Final = 100
OUT_OF_RANGE: Final = 1
UNSENT = -2
"""No code of Kafka's: the request never left."""
OUT_OF_ORDER, DUPLICATE, INVALID_EPOCH, UNKNOWN_PRODUCER, FENCED = 45, 46, 47, 59, 90
_RETRIABLE: Final = frozenset({2, 3, 5, 6, 7, 8, 13, 14, 15, 16, 19, 20, 56, 72, 74, 75, 76, -1, UNKNOWN_TOPIC_ID})
_STALE: Final = frozenset({3, 5, 6, 9, 13, 72, UNKNOWN_TOPIC_ID})
"""Codes after which leaders are looked up again."""
_BY_ID: Final = 18
"""The version of Fetch by topic id."""
_FIRST_FLEXIBLE: Final = 9
"""Of Produce."""
_SEQUENCES: Final = 2**31
_EPOCHS: Final = 2**15
_GENERATION: Final = re.compile(
    r"exclusive producer: (.*) \(generation (\d+)\)|fenced: (.*) owns it now .generation (\d+)"
)
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Library:
    """How a client library behaves.

    `in_flight`: batches per partition. `retries`: attempts after the first, None: until `delivery_s` is over.
    `raises`: what gets a new producer epoch after a failure that its sequences cannot get over: the `partition` (Java),
    the whole `producer` (librdkafka, Sarama, franz-go), or `never` (aiokafka); `nothing`: it waits for ever. `fatal`:
    codes that end the producer.
    `later_means_earlier`: an accepted batch makes it take earlier ones that it still repeats for written (librdkafka).
    `repeats_alone`: one batch at a time until none is repeated any more (Java); else it waits until nothing is in
    flight, and sends all of them again (librdkafka).
    `wraps`: behind the last epoch comes 0 again, under the same producer id; others ask for a new one.
    `gap_is_fatal`: 45 for the batch that comes next ends the producer (librdkafka: "sequence desynchronization"); so
    nothing goes to another node while a batch is in flight.
    """

    name: str
    in_flight: int = 5
    idempotent: bool = True
    retries: int | None = None
    delivery_s: float = 30.0
    request_s: float = 5.0
    backoff_s: float = 0.1
    raises: str = "partition"
    fatal: frozenset[int] = frozenset({FENCED})
    later_means_earlier: bool = False
    repeats_alone: bool = True
    wraps: bool = False
    gap_is_fatal: bool = False


LIBRARIES: Final = {
    # TransactionManager.canRetry, requestIdempotentEpochBumpForPartition, RecordAccumulator.shouldStopDrainBatches
    "java": Library("java"),
    # rd_kafka_dr_implicit_ack (not for 46), rd_kafka_idemp_drain_toppar, rd_kafka_toppar_producer_serve (wait_drain),
    # rd_kafka_idemp_drain_epoch_bump, rd_kafka_pid_bump; rd_kafka_handle_idempotent_Produce_error (r == 0: fatal)
    "librdkafka": Library(
        "librdkafka", raises="producer", later_means_earlier=True, repeats_alone=False, wraps=True, gap_is_fatal=True
    ),
    # async_producer.go: MaxOpenRequests 1 with Idempotent; retries 3; bumpEpoch
    "sarama": Library("sarama", in_flight=1, retries=3, raises="producer", fatal=frozenset()),
    # sink.go: one batch in flight per partition until all is well; 90 raises like everything else
    "franz-go": Library("franz-go", in_flight=1, raises="producer", backoff_s=0.05, fatal=frozenset()),
    # sender.py: no epoch of its own; numbering never starts again
    "aiokafka": Library("aiokafka", in_flight=1, raises="never"),
    # no library: the model's client (`ClientSequences`), that neither gives up nor raises
    "stubborn": Library("stubborn", in_flight=1, raises="nothing"),
    "plain": Library("plain", in_flight=1, idempotent=False, retries=10, raises="never"),
}


@dataclass(slots=True, eq=False)
class Batch:
    """Records on their way."""

    records: list[Sent]
    made_at: float
    sequence: int = -1
    epoch: int = -1
    producer_id: int = -1
    attempts: int = 0
    in_flight: bool = False
    failures: int = 0
    is_dragged: bool = False
    """Its epoch was raised, after an attempt, because of another partition, or of a batch that was refused."""


@dataclass(slots=True, eq=False)
class Lane:
    """One partition of a producer. `batches`: in the order of their sequences, those in flight included."""

    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    next_sequence: int = 0
    epoch: int = 0
    acknowledged: int = -1
    """Last sequence that was, under this epoch."""
    draining: bool = False
    """Nothing leaves before what is in flight has an answer."""
    unresolved: bool = False
    """A batch was given up of which nobody knows whether it was written."""
    sent_to: Wire | None = None
    """Where the last batch went."""
    not_before: float = 0.0
    last_code: int = 0
    last_message: str = ""


class Connections:
    """A client's connections to nodes, one each, and what it knows of leaders."""

    def __init__(self, client_id: str, nodes: Sequence[Address], topic: str, rng: random.Random) -> None:
        self.client_id = client_id
        self.topic = topic
        self.leaders: dict[int, int] = {}
        self.addresses: dict[int, Address] = {}
        self.partitions: tuple[int, ...] = ()
        self.closed = False
        self._bootstrap = list(nodes)
        self._rng = rng
        self._wires: dict[Address, Wire] = {}
        self._asked_at = -1.0
        self._asking: asyncio.Lock = asyncio.Lock()
        self._opening: asyncio.Lock = asyncio.Lock()

    async def wire(self, address: Address) -> Wire:
        """The connection to a node. Raises `LostError`."""
        async with self._opening:
            found = self._wires.get(address)
            if found is None or found.closed:
                found = self._wires[address] = await Wire.open(address, self.client_id)
            if self.closed:
                found.close()
                raise LostError("the client is closed", sent=False)
            return found

    async def any(self) -> Wire:
        """A connection to some node. Raises `LostError`."""
        known = list(self.addresses.values()) or self._bootstrap
        tried = self._rng.sample(known, len(known))
        if self.addresses and self._rng.random() < 0.3:
            tried = self._rng.sample(self._bootstrap, len(self._bootstrap)) + tried
        for address in tried:
            try:
                return await self.wire(address)
            except LostError:
                continue
        self.addresses = {}
        raise LostError("no node can be reached", sent=False)

    async def look(self, *, not_since: float = 0.1) -> None:
        """Ask for leaders, unless that was done a moment ago."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at < not_since:
                return
            self._asked_at = loop.time()
            try:
                answer = await (await self.any()).call(wire.METADATA, wire.metadata([self.topic]), 5.0)
            except LostError:
                return
            found = wire.layout(answer)
            self.addresses = dict(found.nodes) or self.addresses
            leaders = found.topics.get(self.topic, {})
            if leaders:
                self.leaders = dict(leaders)
                self.partitions = tuple(sorted(leaders))

    async def leader(self, partition: int) -> Wire | None:
        """The connection to a partition's leader, None where there is none now. Raises `LostError`."""
        address = self.addresses.get(self.leaders.get(partition, -1))
        return None if address is None else await self.wire(address)

    async def topic_id(self) -> bytes | None:
        """The id that some node says the topic has. Raises `LostError`."""
        asked = flexible.metadata([self.topic])
        data = await (await self.any()).call(wire.METADATA, asked, 5.0, version=flexible.METADATA_VERSION)
        return flexible.ids(data).get(self.topic)

    def drop(self) -> None:
        """Close all connections; new ones are made when they are needed."""
        for each in list(self._wires.values()):
            each.close()
        self._wires.clear()

    def close(self) -> None:
        self.closed = True
        self.drop()


class Producer:
    """One producer session. `send` takes a record; what becomes of it is in the ledger. `version`: of Produce, by topic
    id from 13 on. `roams`: the share of batches that go to any node, whoever leads, while others are in flight.
    """

    def __init__(
        self, library: Library, session: str, client_id: str, nodes: Sequence[Address], topic: str, ledger: Ledger,
        rng: random.Random, wall_ms: Callable[[], int], *, compressed: bool = False, version: int = 8,
        roams: float = 0.0, key: bytes | None = None,
    ) -> None:  # fmt: skip
        self.library = library
        self._version = version
        self._roams = roams
        self._key = key
        self._topic_id: bytes | None = None
        self.compressed = compressed
        self.session = session
        self.topic = topic
        self.ledger = ledger
        self.producer_id = -1
        self.producer_ids: list[int] = []
        self.epoch = 0
        self.fatal: int | None = None
        self.closed = False
        self.connections = Connections(client_id, nodes, topic, rng)
        self._lanes: dict[int, Lane] = {}
        self._rng = rng
        self._wall_ms = wall_ms
        self._pumping: dict[int, bool] = {}
        self._orders: dict[int, int] = {}
        self._initialising: asyncio.Lock = asyncio.Lock()
        self._tasks: list[Any] = []
        self._former: tuple[int, int] | None = None

    # For applications ---------------------------------------------------------------------------------------------

    def send(
        self,
        partition: int,
        values: Sequence[bytes],
        *,
        ids: Sequence[int] | None = None,
        name: str = "",
        names: Sequence[str] | None = None,
    ) -> list[Sent]:
        """Have a batch written, behind all that was sent before. `names`: each record under its own name."""
        loop = asyncio.get_running_loop()
        found: list[Sent] = []
        for index, value in enumerate(values):
            order = self._orders[partition] = self._orders.get(partition, -1) + 1
            found.append(
                Sent(
                    self.session, self.topic, partition, order, value, name if names is None else names[index],
                    None if ids is None else ids[index], self.library.idempotent, bears_name=names is not None,
                    sent_at=loop.time(),
                )
            )  # fmt: skip
        self.ledger.sent += found
        if self.fatal is not None or self.closed:
            for record in found:
                self._failed(record, self.fatal or -1)
            return found
        lane = self._lanes.setdefault(partition, Lane(partition, epoch=self.epoch))
        if not lane.batches and lane.epoch != self.epoch:
            self._restart(lane)
        lane.batches.append(Batch(found, loop.time()))
        self._pump(lane)
        return found

    @property
    def waiting(self) -> int:
        """Batches without an outcome for the application yet."""
        return sum(len(lane.batches) for lane in self._lanes.values())

    def waits_for(self) -> str:
        """Why it does not get on, for people."""
        lanes = [lane for lane in self._lanes.values() if lane.batches]
        return "; ".join(
            f"{self.topic}/{each.partition}: {len(each.batches)} batches, last {each.last_code} {each.last_message}"
            for each in lanes
        )

    @property
    def is_queued(self) -> bool:
        """Whether all that waits does so because the node says that it is not its turn."""
        lanes = [lane for lane in self._lanes.values() if lane.batches]
        return all(_waits(lane.last_code, lane.last_message) for lane in lanes)

    def initialise_again(self) -> bool:
        """Ask for a new producer id, naming the one so far, as Java does where an epoch is used up; False where there
        is none, or batches are under way.
        """
        if self.producer_id < 0 or self.waiting or self.closed:
            return False
        self._former, self.producer_id = (self.producer_id, self.epoch), -1
        return True

    def close(self) -> None:
        """As an application that ends without waiting."""
        self.closed = True
        for lane in self._lanes.values():
            lane.batches.clear()
        self.connections.close()

    # Sending ------------------------------------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        if not self._pumping.get(lane.partition):
            self._pumping[lane.partition] = True
            self._tasks.append(asyncio.get_running_loop().create_task(self._send_on(lane)))

    async def _send_on(self, lane: Lane) -> None:
        try:
            while (batch := self._next(lane)) is not None:
                await self._send(lane, batch)
        finally:
            self._pumping[lane.partition] = False

    def _next(self, lane: Lane) -> Batch | None:
        """What may leave now."""
        if self.closed or self.fatal is not None:
            return None
        self._expire(lane)
        flying = sum(batch.in_flight for batch in lane.batches)
        if flying >= self.library.in_flight or lane.unresolved or (lane.draining and flying):
            return None
        lane.draining = False
        for index, batch in enumerate(lane.batches):
            if not batch.in_flight:
                repeats = batch.attempts > 0 or any(b.attempts > 1 for b in list(lane.batches)[:index])
                return None if index and repeats and self.library.repeats_alone else batch
        return None

    async def _send(self, lane: Lane, batch: Batch) -> None:
        loop = asyncio.get_running_loop()
        if lane.not_before > loop.time():
            await asyncio.sleep(lane.not_before - loop.time())
        try:
            if self.library.idempotent and self.producer_id < 0:
                await self._initialise()
            if lane.partition not in self.connections.leaders:
                await self.connections.look()
            to = await self._node(lane.partition)
        except LostError:
            to = None
        if self.closed or self.fatal is not None:
            return
        if to is None or (self.library.idempotent and self.producer_id < 0):
            lane.not_before = loop.time() + self.library.backoff_s
            self._expire(lane)
            if lane.batches:
                await asyncio.sleep(self.library.backoff_s)
                await self.connections.look()
            return
        if batch not in lane.batches or batch.in_flight:
            return
        if self.library.gap_is_fatal and to is not lane.sent_to and any(batch.in_flight for batch in lane.batches):
            lane.draining = True  # librdkafka, for a new leader: rd_kafka_idemp_drain_toppar
            return
        lane.sent_to = to
        if self.library.idempotent and batch.sequence < 0:
            batch.sequence, batch.epoch, batch.producer_id = lane.next_sequence, lane.epoch, self.producer_id
            lane.next_sequence = (lane.next_sequence + len(batch.records)) % _SEQUENCES
        batch.in_flight = True
        batch.attempts += 1
        for record in batch.records:
            record.attempts += 1
            record.is_anew |= record.doubtful and batch.is_dragged
        batch.is_dragged = False
        answer = to.send(wire.PRODUCE, self._request(lane, batch), version=self._version)
        sequence = batch.sequence, batch.epoch
        timer = loop.call_later(self.library.request_s, to.close)
        answer.add_done_callback(lambda found: (timer.cancel(), self._answered(lane, batch, sequence, found)))

    def _request(self, lane: Lane, batch: Batch) -> bytes:
        records = [wire.Writable(record.value, _headers(record), self._key) for record in batch.records]
        data = wire.batch_of(
            records, self._wall_ms(), batch.producer_id, batch.epoch, batch.sequence, compressed=self.compressed
        )
        timeout_ms = int(self.library.request_s * 1000)
        if self._version < _FIRST_FLEXIBLE:
            return wire.produce(self.topic, {lane.partition: data}, timeout_ms)
        topic = self.topic if self._version < flexible.PRODUCE_BY_ID else self._topic_id
        assert topic is not None
        return flexible.produce(self._version, topic, {lane.partition: data}, timeout_ms)

    async def _node(self, partition: int) -> Wire | None:
        """Where a batch goes now; None: nowhere. Raises `LostError`."""
        if self._version >= flexible.PRODUCE_BY_ID and self._topic_id is None:
            self._topic_id = await self.connections.topic_id()
            if self._topic_id is None:
                return None
        if self._roams and self._rng.random() < self._roams:
            return await self.connections.any()
        return await self.connections.leader(partition)

    async def _initialise(self) -> None:
        async with self._initialising:
            if self.producer_id >= 0:
                return
            to = await self.connections.any()
            if self._former is None:
                answer = await to.call(wire.INIT_PRODUCER_ID, wire.init_producer_id(), self.library.request_s)
            else:
                body = wire.init_again(*self._former)
                answer = await to.call(wire.INIT_PRODUCER_ID, body, self.library.request_s, version=3)
            error, producer_id, epoch = wire.producer_id(answer, flexible=self._former is not None)
            if error:
                self._former = None
                self.ledger.answered(error)
                raise LostError(f"InitProducerId: {error}", sent=True)
            self.producer_id, self.epoch, self._former = producer_id, epoch, None
            self.producer_ids.append(producer_id)
            for lane in self._lanes.values():
                self._restart(lane)

    # Answers ------------------------------------------------------------------------------------------------------

    def _answered(self, lane: Lane, batch: Batch, sent_as: tuple[int, int], found: asyncio.Future[bytes]) -> None:
        batch.in_flight = False
        if found.cancelled() or self.closed:
            return
        error = found.exception()
        if error is not None:
            self._settle(lane, batch, sent_as, UNSENT if not getattr(error, "sent", True) else -1, -1, "")
        else:
            data = found.result()
            is_old = self._version < _FIRST_FLEXIBLE
            rows = wire.produced(data) if is_old else flexible.produced(self._version, data)
            answer = rows.get(lane.partition)
            if answer is None:
                self.ledger.broken.append(f"{self.session}: no answer for partition {lane.partition}")
                return
            self.ledger.answered(answer.error)
            self._settle(lane, batch, sent_as, *answer)

    def _settle(self, lane: Lane, batch: Batch, sent_as: tuple[int, int], code: int, offset: int, message: str) -> None:
        loop = asyncio.get_running_loop()
        self._hear(lane.partition, message)
        lane.last_code, lane.last_message = code, message
        if code == UNKNOWN_TOPIC_ID:
            self._topic_id = None
        if code not in (NONE, DUPLICATE) and code not in NOT_WRITTEN and code != UNSENT and not _waits(code, message):
            for record in batch.records:
                record.doubtful = True
        for record in batch.records:
            record.message = message
        if batch not in lane.batches:
            return  # its time ran out meanwhile; the reported outcome stands
        if code in (NONE, DUPLICATE):
            self._delivered(lane, batch, sent_as, offset, is_repeat=code == DUPLICATE)
        elif self.library.idempotent and code in (OUT_OF_ORDER, UNKNOWN_PRODUCER, INVALID_EPOCH):
            self._out_of_step(lane, batch, code, is_current=sent_as == (batch.sequence, batch.epoch))
        elif code in _RETRIABLE or code == UNSENT:
            batch.failures += 1
            if self.library.retries is not None and batch.failures > self.library.retries:
                self._give_up(lane, batch, code)
            else:
                lane.not_before = loop.time() + self.library.backoff_s * (0.8 + 0.4 * self._rng.random())
                lane.draining = not self.library.repeats_alone
                if code in _STALE or code == -1:
                    self._tasks.append(loop.create_task(self.connections.look()))
        else:
            self._give_up(lane, batch, code)
        self._resolve(lane)
        self._pump(lane)

    def _delivered(self, lane: Lane, batch: Batch, sent_as: tuple[int, int], offset: int, *, is_repeat: bool) -> None:
        if self.library.later_means_earlier and not is_repeat and batch is not lane.batches[0]:
            while lane.batches[0] is not batch and lane.batches[0].attempts and not lane.batches[0].in_flight:
                self._tell(lane.batches.popleft(), -1)
        lane.batches.remove(batch)
        if sent_as == (batch.sequence, batch.epoch):
            lane.acknowledged = max(lane.acknowledged, batch.sequence + len(batch.records) - 1)
        self._tell(batch, -1 if is_repeat else offset)

    def _tell(self, batch: Batch, offset: int) -> None:
        now = asyncio.get_running_loop().time()
        for index, record in enumerate(batch.records):
            record.delivered, record.told_at = True, now
            record.offset = offset + index if offset >= 0 else -1

    def _failed(self, record: Sent, code: int) -> None:
        record.delivered, record.code = False, code
        record.told_at = asyncio.get_running_loop().time()

    def _out_of_step(self, lane: Lane, batch: Batch, code: int, *, is_current: bool) -> None:
        """45, 47, 59: repeat where an earlier batch is the reason, raise the epoch where this one is. `is_current`: it
        was not numbered anew since it was sent.
        """
        loop = asyncio.get_running_loop()
        lane.not_before = loop.time() + self.library.backoff_s
        if self.library.raises == "nothing":
            return
        if self.library.raises == "never":
            if code == OUT_OF_ORDER and lane.batches[0] is not batch:
                return
            self._give_up(lane, batch, code)
        elif code == OUT_OF_ORDER and (lane.batches[0] is not batch or batch.epoch != lane.epoch):
            return
        elif (
            code == OUT_OF_ORDER
            and self.library.gap_is_fatal
            and is_current
            and batch.sequence == lane.acknowledged + 1  # else its epoch was raised here before all was answered
        ):
            self._give_up(lane, batch, code, is_fatal=True)
        else:
            batch.failures += 1
            if self.library.retries is not None and batch.failures > self.library.retries:
                self._give_up(lane, batch, code)
            else:
                self._raise_epoch(lane)

    def _give_up(self, lane: Lane, batch: Batch, code: int, *, is_fatal: bool = False) -> None:
        """Report the failure to the application; that of all batches where the producer ends by it.

        Otherwise the batches under way are numbered anew, whatever became of them (`TxnPartitionMap
        .startSequencesAtBeginning`). Those in front were not refused. Of those behind, one may be in the log only
        where a node refused, as it takes the sequences for used; Kafka answers 45 to them.
        """
        in_front = lane.batches.index(batch)
        lane.batches.remove(batch)
        for record in batch.records:
            self._failed(record, code)
        if is_fatal or code in self.library.fatal:
            self._end_by(code)
        elif self.library.idempotent and self.library.raises in ("partition", "producer") and batch.sequence >= 0:
            for each in list(lane.batches)[: None if code in REFUSED else in_front]:
                each.is_dragged |= each.attempts > 0
            self._raise_epoch(lane)

    def _end_by(self, code: int) -> None:
        self.fatal = code
        for lane in self._lanes.values():
            for batch in lane.batches:
                for record in batch.records:
                    record.doubtful = record.doubtful or batch.in_flight
                    self._failed(record, code)
            lane.batches.clear()

    def _expire(self, lane: Lane) -> None:
        """Batches that took too long: failed, and nobody knows whether they were written."""
        now = asyncio.get_running_loop().time()
        for batch in list(lane.batches):
            if now - batch.made_at < self.library.delivery_s:
                break
            lane.batches.remove(batch)
            for record in batch.records:
                record.doubtful = record.doubtful or batch.in_flight
                self._failed(record, TIMED_OUT)
            if batch.attempts and self.library.idempotent and self.library.raises in ("partition", "producer"):
                lane.unresolved = True
        self._resolve(lane)

    def _resolve(self, lane: Lane) -> None:
        """Go on under a new epoch once nothing is in flight beside what was given up."""
        if lane.unresolved and not any(batch.in_flight for batch in lane.batches):
            lane.unresolved = False
            self._raise_epoch(lane)

    def _raise_epoch(self, lane: Lane) -> None:
        """A new epoch without asking anybody (KIP-360 in Java), or behind the last one a new producer id: sequences
        begin at 0. The lane is the reason, and for what is under way in others there is none.
        """
        is_last = self.epoch >= _EPOCHS - 2 and not self.library.wraps
        lanes = list(self._lanes.values()) if is_last or self.library.raises == "producer" else [lane]
        for batch in (batch for each in lanes if each is not lane for batch in each.batches):
            batch.is_dragged |= batch.attempts > 0
        if is_last:
            self.producer_id, self.epoch = -1, 0  # `_initialise` does the rest
            return
        self.epoch = (self.epoch + 1) % _EPOCHS
        for each in lanes:
            self._restart(each)

    def _restart(self, lane: Lane) -> None:
        lane.epoch, lane.next_sequence, lane.acknowledged = self.epoch, 0, -1
        for batch in lane.batches:
            if batch.sequence >= 0:
                batch.sequence, batch.epoch, batch.producer_id = lane.next_sequence, self.epoch, self.producer_id
                lane.next_sequence = (lane.next_sequence + len(batch.records)) % _SEQUENCES

    def _hear(self, partition: int, message: str) -> None:
        found = _GENERATION.search(message)
        if found is not None:
            owner, generation = found.group(1) or found.group(3), int(found.group(2) or found.group(4))
            where, now = f"{self.topic}/{partition}", asyncio.get_running_loop().time()
            self.ledger.told.append(Told(where, generation, owner, now))


def _waits(code: int, message: str) -> bool:
    """Whether a 7 is the node's own: wait for your turn."""
    return code == TIMED_OUT and bool(message)


def _headers(record: Sent) -> tuple[tuple[bytes, bytes], ...]:
    if record.sequence_id is None:
        return ()
    own = (b"sidecar-sequence-id", b"%d" % record.sequence_id)
    return (own, (b"sidecar-producer-name", record.name.encode())) if record.bears_name else (own,)


class Consumer:
    """Reads all partitions of a topic or shadow from the beginning, for ever. `by_id`: as clients of today, which ask
    for the topic's id, and again where that is gone (KIP-516). `shares`: by name, in a version in which nodes let
    readers wait together. Where its position is out of range, it goes on where the log begins; `resets`: at 0.
    """

    def __init__(
        self,
        client_id: str,
        nodes: Sequence[Address],
        topic: str,
        ledger: Ledger,
        rng: random.Random,
        wait_ms: int = 500,
        *,
        by_id: bool = False,
        shares: bool = False,
        resets: bool = False,
    ) -> None:
        self.topic = topic
        self.ledger = ledger
        self.positions: dict[int, int] = {}
        self._by_id = by_id
        self._topic_id: bytes | None = None
        self.connections = Connections(client_id, nodes, topic, rng)
        self.closed = False
        self._wait_ms = wait_ms
        self._shares = shares
        self._resets = resets

    async def run(self) -> None:
        """Until closed."""
        while not self.closed:
            await self.connections.look(not_since=0.3)
            if not self.connections.partitions:
                await asyncio.sleep(0.2)
                continue
            by_node: dict[int, list[int]] = {}
            for partition in self.connections.partitions:
                by_node.setdefault(self.connections.leaders.get(partition, -1), []).append(partition)
            for node, partitions in by_node.items():
                if not await self._poll(node, partitions):
                    await asyncio.sleep(0.1)
                    await self.connections.look()

    async def _poll(self, node: int, partitions: list[int]) -> bool:
        if node < 0:
            return False
        offsets = {partition: self.positions.get(partition, 0) for partition in partitions}
        try:
            to = await self.connections.leader(partitions[0])
            if to is None:
                return False
            rows = await (self._fetch_by_id(to, offsets) if self._by_id else self._fetch(to, offsets))
        except LostError:
            return False
        fine = bool(rows)
        for partition, found in rows.items():
            fine = fine and found.error == NONE
            if found.error == OUT_OF_RANGE:
                await self._begin_again(to, partition)
            self._take(partition, found)
        return fine

    async def _begin_again(self, to: Wire, partition: int) -> None:
        """Raises `LostError`."""
        start = (
            0
            if self._resets
            else wire.listed(await to.call(wire.LIST_OFFSETS, wire.earliest(self.topic, partition), 5.0))
        )
        if start is not None and (self._resets or start > self.positions.get(partition, 0)):
            self.positions[partition] = start

    async def _fetch(self, to: Wire, offsets: dict[int, int]) -> dict[int, wire.Fetched]:
        if not self._shares:
            return wire.fetched(await to.call(wire.FETCH, wire.fetch(self.topic, offsets, self._wait_ms), 5.0))
        body = wire.shared_fetch(self.topic, offsets, self._wait_ms)
        return wire.fetched(await to.call(wire.FETCH, body, 5.0, version=wire.SHARED_FETCH), shared=True)

    async def _fetch_by_id(self, to: Wire, offsets: dict[int, int]) -> dict[int, wire.Fetched]:
        """Nothing where the topic is not there."""
        if self._topic_id is None:
            asked = flexible.metadata([self.topic])
            data = await to.call(wire.METADATA, asked, 5.0, version=flexible.METADATA_VERSION)
            self._topic_id = flexible.ids(data).get(self.topic)
        if self._topic_id is None:
            return {}
        places = {partition: flexible.Place(offset) for partition, offset in offsets.items()}
        body = flexible.fetch(_BY_ID, self._topic_id, places, self._wait_ms)
        rows = flexible.fetched(_BY_ID, await to.call(wire.FETCH, body, 5.0, version=_BY_ID))
        if any(row.error == UNKNOWN_TOPIC_ID for row in rows.values()):
            self._topic_id = None
        return {index: wire.Fetched(row.error, row.high_watermark, row.records) for index, row in rows.items()}

    def _take(self, partition: int, found: wire.Fetched) -> None:
        position = self.positions.get(partition, 0)
        now = asyncio.get_running_loop().time()
        for record in wire.records_of(found.records):
            if record.offset >= position:
                self.ledger.read.append(
                    Read(self.topic, partition, record.offset, record.value, now, self.connections.client_id)
                )
        end = wire.end_of(found.records)
        if found.error == NONE and end is not None:
            self.positions[partition] = max(position, end)

    def close(self) -> None:
        self.closed = True
        self.connections.close()
