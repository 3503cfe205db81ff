"""Transactional producers by raw frames: each request is sent when a test says so, so any batch can come late.

Nothing is retried but what a coordinator or leader that is on its way answers; CONCURRENT_TRANSACTIONS is waited out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from sidecar.protocol.batch import read_header
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.messages.transactions import DESCRIBE_TRANSACTIONS
from tests.kafka.gateway.requests import request
from tests.raw import RawClient, code, fetch, fetched, find_coordinator, metadata, produce, produced
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")
_TRANSACTIONAL = 0x10
_ON_ITS_WAY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of one that has not heard of a new topic
}
_NO_LEADER = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


@dataclass(frozen=True)
class Dialect:
    """Versions of the requests in which a client speaks of a transaction. `adds`: by AddPartitionsToTxn of its own."""

    name: str
    produce: int
    end: int

    @property
    def adds(self) -> bool:
        return self.produce < _IMPLICIT

    def __str__(self) -> str:
        return self.name


_IMPLICIT = 12
FIRST = Dialect("first", produce=8, end=3)
"""Of every client up to Kafka 3.9, of librdkafka, and of all through a node: EndTxn leaves the epoch alone."""
SECOND = Dialect("second", produce=_IMPLICIT, end=5)
"""KIP-890, transaction.version 2: Produce adds the partition, EndTxn raises the epoch."""


VERSIONS = ["3.9.1", "4.1.1", "4.3.1"]
"""Of Kafka, which the experiment is about."""


def spoken(version: str) -> list[Dialect]:
    """By clients of a Kafka of this version with its own level of `transaction.version`."""
    return [FIRST] if version.startswith("3.") else [FIRST, SECOND]


class Past(Enum):
    """What the deposed producer, or its successor, has done with a partition before the late batch comes."""

    NEVER = "never written"
    NAMED = "in its open transaction, not written"
    OPEN = "written in its open transaction"
    COMMITTED = "written in a committed transaction"
    ABORTED = "written in an aborted transaction"
    SUCCESSOR = "written by its successor"


@dataclass(frozen=True)
class Log:
    """A partition as it can be read: data batches and markers with their epochs, in order."""

    entries: tuple[str, ...]
    high_watermark: int
    last_stable_offset: int


def _found(look: Callable[[], T | None], what: str) -> T:
    value = wait_for(look, what)
    assert value is not None
    return value


class Wire:
    """One connection to each broker, opened when it is needed; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._open: dict[str, RawClient] = {}

    def at(self, address: str) -> RawClient:
        if address not in self._open:
            self._open[address] = RawClient(address)
        return self._open[address]

    def any(self) -> RawClient:
        return self.at(self.bootstrap.split(",", maxsplit=1)[0])

    def drop(self) -> None:
        """Close all: a broker has gone, or is another one at its old address."""
        while self._open:
            self._open.popitem()[1].close()

    def create(self, topic: str, partitions: int = 1, *, brokers: tuple[int, ...] | None = None, **fields: Any) -> str:
        """Make a topic; `brokers`: its replicas, for one partition. Returns when its leaders serve it."""
        spread = {"num_partitions": partitions, "replication_factor": 1, **fields}
        if brokers is not None:
            assigned = [{"partition_index": 0, "broker_ids": brokers}]
            spread = {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}
        made = self.any().ask(request(19, 4, topics=[{"name": topic, **spread}]))
        assert code(made.topics[0]) == ErrorCode.NONE, made
        wait_for(lambda: len(self.leaders(topic)) == partitions, f"leaders of {topic}")
        for partition in range(partitions):
            self.log(topic, partition)
        return topic

    def leaders(self, topic: str, seen_by: str | None = None) -> dict[int, str]:
        """Addresses by partition, without those that have none."""
        told = (self.at(seen_by) if seen_by else self.any()).ask(metadata([topic]))
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in told.brokers}
        partitions = [found for topic in told.topics for found in topic.partitions]
        return {found.partition_index: brokers[found.leader_id] for found in partitions if found.leader_id in brokers}

    def leader(self, topic: str, partition: int = 0) -> RawClient:
        return self.at(_found(lambda: self.leaders(topic).get(partition), f"a leader of {topic}/{partition}"))

    def move(self, topic: str, replicas: tuple[int, ...]) -> None:
        """Partition 0 gets these replicas, the first of which leads once the controller has seen it in sync."""
        partition = {"partition_index": 0, "replicas": replicas}
        told = self.any().ask(request(45, 0, topics=[{"name": topic, "partitions": [partition]}]))
        assert code(told) == ErrorCode.NONE

        def leads() -> bool:
            named = [{"topic": topic, "partitions": [0]}]
            self.any().ask(request(43, 2, election_type=0, topic_partitions=named))
            described = self.any().ask(metadata([topic])).topics[0].partitions
            return bool(described) and (described[0].leader_id, described[0].replica_nodes) == (replicas[0], replicas)

        wait_for(leads, f"broker {replicas[0]} to lead {topic}", 60)

    def coordinator(self, transactional_id: str) -> RawClient:
        def found() -> RawClient | None:
            told = self.any().ask(find_coordinator(transactional_id, kind=1))
            return self.at(f"{told.host}:{told.port}") if code(told) == ErrorCode.NONE else None

        return _found(found, f"the coordinator of {transactional_id}")

    def log(self, topic: str, partition: int = 0) -> Log:
        """`data 3` is a batch outside of transactions at epoch 3, `txn 3` one inside, `marker 3` the end of one."""
        asked = fetch({(topic, partition): 0}, max_wait=0, min_bytes=0)

        def answered() -> Any | None:
            found = fetched(self.leader(topic, partition).ask(asked))[topic, partition]
            return found if code(found) == ErrorCode.NONE else None

        told = _found(answered, f"the log of {topic}/{partition}")
        data, entries, at = bytes(told.records or b""), [], 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            header = read_header(data, at, end)
            kind = "marker" if header.is_control else "txn" if header.attributes & _TRANSACTIONAL else "data"
            entries.append(f"{kind} {header.producer_epoch}")
            at = end
        return Log(tuple(entries), told.high_watermark, told.last_stable_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()


class TransactionalProducer:
    """One process that speaks for a transactional id. `stamp` is what it got, and keeps when it is deposed."""

    def __init__(self, wire: Wire, transactional_id: str, dialect: Dialect, *, timeout_ms: int = 60_000) -> None:
        self.stamp = Stamp(ProducerId(-1), ProducerEpoch(-1))
        self.coordinator_at: str | None = None
        """Where its coordinator is, if not where brokers say."""
        self._wire, self._id, self._dialect, self._timeout_ms = wire, transactional_id, dialect, timeout_ms

    def successor(self, dialect: Dialect | None = None) -> TransactionalProducer:
        """Another process with the same id."""
        other = TransactionalProducer(self._wire, self._id, dialect or self._dialect, timeout_ms=self._timeout_ms)
        other.coordinator_at = self.coordinator_at
        return other

    def init_once(self, known: Stamp | None = None) -> int:
        """InitProducerId, which names `known` (KIP-360); the code."""
        named = known or Stamp(ProducerId(-1), ProducerEpoch(-1))
        stamp = {"producer_id": named.producer_id, "producer_epoch": named.epoch}
        given = self._ask(22, 4, transaction_timeout=self._timeout_ms, **stamp)
        if code(given) == ErrorCode.NONE:
            self.stamp = Stamp(ProducerId(given.producer_id), ProducerEpoch(given.producer_epoch))
        return code(given)

    def init(self) -> Stamp:
        """InitProducerId until the transaction that it aborts is over."""
        self._until_none(self.init_once)
        return self.stamp

    def add(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn."""
        named = [{"name": topic, "partitions": partitions}]

        def added() -> int:
            told = self._ask(24, 3, topics=named, **self._stamped())
            results = told.results_by_topic_v3_and_below
            return max(found.partition_error_code.value for each in results for found in each.results_by_partition)

        self._until_none(added)

    def begin(self, topic: str, partition: int = 0, *, write: bool = True) -> None:
        """A transaction with the partition in it and, with `write`, its first batch, which is sequence 0."""
        if self._dialect.adds or not write:
            self.add(topic, partition)
        if write:
            assert self.write(topic, 0, partition) == ErrorCode.NONE

    def frame(self, topic: str, sequence: int, partition: int = 0, **fields: Any) -> Any:
        """A Produce request with one batch of one record. `transactional` False: a batch outside of transactions."""
        fields = {"transactional": True, "transactional_id": self._id, "acks": -1} | fields
        transactional = fields.pop("transactional")
        stamp = self.stamp
        builder = DefaultRecordBatchBuilder(2, 0, int(transactional), stamp.producer_id, stamp.epoch, sequence, 1_000)
        builder.append(0, int(time.time() * 1000), b"k", b"v", [])
        return produce({(topic, partition): bytes(builder.build())}, version=self._dialect.produce, **fields)

    def write(self, topic: str, sequence: int, partition: int = 0, **fields: Any) -> int:
        """Send it and take the leader's answer; `leader_at`: to the broker there, whatever others say."""
        leader_at = fields.pop("leader_at", None)
        frame = self.frame(topic, sequence, partition, **fields)

        def answered() -> tuple[int] | None:
            leader = self._wire.at(leader_at) if leader_at else self._wire.leader(topic, partition)
            told = code(produced(leader.ask(frame))[topic, partition])
            return None if told in _NO_LEADER else (told,)

        return _found(answered, f"the leader of {topic}/{partition}")[0]

    def end(self, *, commit: bool, version: int | None = None) -> None:
        """EndTxn, and wait until its markers are written. Where it raises the epoch, the producer takes that."""
        kept: list[Any] = []
        version = version or self._dialect.end

        def ended() -> int:
            kept[:] = [self._ask(26, version, committed=commit, **self._stamped())]
            return code(kept[0])

        self._until_none(ended)
        if version >= SECOND.end:
            self.stamp = Stamp(ProducerId(kept[0].producer_id), ProducerEpoch(kept[0].producer_epoch))
        wait_for(lambda: self.state().startswith("Complete"), "markers")

    def state(self) -> str:
        """As the coordinator describes it; empty where it does not know the id."""
        asked = request(65, 0, transactional_ids=[self._id])
        (told,) = self._coordinator().ask_values(DESCRIBE_TRANSACTIONS, asked)["transaction_states"]
        return told["transaction_state"]

    def mark(self, topic: str, partitions: int = 1) -> None:
        """What a node's fence is: an empty aborted transaction with all partitions, at the epoch that it has."""
        self.add(topic, *range(partitions))
        self.end(commit=False, version=FIRST.end)

    def _stamped(self) -> dict[str, int]:
        return {"producer_id": self.stamp.producer_id, "producer_epoch": self.stamp.epoch}

    def _coordinator(self) -> RawClient:
        return self._wire.at(self.coordinator_at) if self.coordinator_at else self._wire.coordinator(self._id)

    def _ask(self, key: int, version: int, **fields: Any) -> Any:
        return self._coordinator().ask(request(key, version, transactional_id=self._id, **fields))

    def _until_none(self, ask: Any) -> None:
        def done() -> bool:
            told = ask()
            assert told in {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, *_ON_ITS_WAY}, ErrorCode(told)
            return told == ErrorCode.NONE

        wait_for(done, f"the coordinator of {self._id}", 60)


@dataclass
class Late:
    """A producer that was deposed, with the next sequence of a batch of its own that is still under way."""

    topic: str
    deposed: TransactionalProducer
    holder: TransactionalProducer
    sequence: int

    def arrives(self, **fields: Any) -> int:
        """The leader's answer to that batch."""
        return self.deposed.write(self.topic, self.sequence, **fields)


def depose(wire: Wire, topic: str, transactional_id: str, dialect: Dialect, past: Past) -> Late:
    """A producer with this past in partition 0, deposed by InitProducerId on its id, and nothing else."""
    deposed = TransactionalProducer(wire, transactional_id, dialect)
    late = Late(topic, deposed, deposed.successor(), 0)
    stamp = deposed.init()
    if past is Past.NAMED:
        deposed.begin(topic, write=False)
    elif past in {Past.OPEN, Past.COMMITTED, Past.ABORTED}:
        deposed.begin(topic)
        late.sequence = 1
    if past in {Past.COMMITTED, Past.ABORTED}:
        deposed.end(commit=past is Past.COMMITTED)
        deposed.stamp = stamp
    late.holder.init()
    if past is Past.SUCCESSOR:
        late.holder.begin(topic)
    return late
