"""A shadow read while brokers die and leaders move (S10): the source's log, to the byte, at both isolation levels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException, Producer

from sidecar.local import Kafka
from tests import raw
from tests.conftest import StartNode, Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.passthrough.conftest import create_topic, leaders_of
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.slow.faults.shadow_logs import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClientReader,
    LogReader,
    PartitionLog,
    differences,
)
from tests.wait import wait_for

SEED = 10
PARTITIONS = 4
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PER_ROUND = 60
"""Records of each of the three producers of a round."""


@dataclass(frozen=True)
class Stage:
    """A topic on three brokers, its shadow on a node in front of them."""

    kafka: Kafka
    node: NodeProcess
    source: str
    shadow: str


@pytest.fixture
def stage(kafka_cluster: Kafka, node_process: StartNode, unique: Unique) -> Stage:
    create_internal_topics(kafka_cluster.bootstrap)
    node = node_process(kafka=kafka_cluster.bootstrap)
    source = create_topic(
        kafka_cluster.bootstrap, unique, PARTITIONS, 3, retention_ms="-1"
    )  # records are dated long ago
    shadow = unique("audit")
    status, answer = Rest(node.admin_url).call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})
    assert status == 201, answer
    return Stage(kafka_cluster, node, source, shadow)


# Writing ------------------------------------------------------------------------------------------------------------


class Writers:
    """Two transactional producers and one without, interleaved: some transactions are aborted, some last for long."""

    def __init__(self, bootstrap: str, topic: str, codec: str, rng: random.Random, unique: Unique) -> None:
        common = {"bootstrap.servers": bootstrap, "linger.ms": 2, "batch.num.messages": 20, "log_level": 0}
        common |= {"enable.idempotence": True, "compression.type": codec}
        self._transactional = [Producer({**common, "transactional.id": unique("t")}) for _ in range(2)]
        self._plain = Producer(common)
        self._topic = topic
        self._rng = rng
        self._open = [False, False]
        for producer in self._transactional:
            producer.init_transactions(60)

    def write(self, rounds: int) -> None:
        """So many rounds; no transaction is open afterwards."""
        for number in range(rounds):
            for index, producer in enumerate(self._transactional):
                if not self._open[index]:
                    producer.begin_transaction()
                    self._open[index] = True
            for count in range(_PER_ROUND):
                for producer in (*self._transactional, self._plain):
                    self._produce(producer, count)
            for producer in (*self._transactional, self._plain):
                assert producer.flush(60) == 0
            for index in (0, 1):
                if number == rounds - 1 or self._rng.random() < 0.7:
                    self._end(index, commit=self._rng.random() < 0.6)

    def _produce(self, producer: Producer, count: int) -> None:
        rng = self._rng
        value = None if rng.random() < 0.05 else rng.randbytes(rng.randrange(120)).hex().encode()
        key = None if rng.random() < 0.2 else f"key {rng.randrange(50)}"
        headers: list[tuple[str, str | bytes | None]] = [("n", str(count).encode())] * rng.randrange(3)
        at = 1_700_000_000_000 + rng.randrange(10**9)
        producer.produce(
            self._topic, value, key=key, partition=rng.randrange(PARTITIONS), headers=headers, timestamp=at
        )
        producer.poll(0)

    def _end(self, index: int, *, commit: bool) -> None:
        producer = self._transactional[index]
        self._open[index] = False
        try:
            producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)


def write(stage: Stage, records: int, unique: Unique) -> None:
    """At least so many records, by producers of each codec."""
    rounds = -(-records // (3 * _PER_ROUND * len(_CODECS)))
    for codec in _CODECS:
        Writers(stage.kafka.bootstrap, stage.source, codec, random.Random(SEED), unique).write(rounds)


# Faults -------------------------------------------------------------------------------------------------------------


def kill_a_leader(stage: Stage, partition: int) -> int:
    """SIGKILL to the leader of a partition; which broker it was, once the others lead everything."""
    victim = leaders_of(stage.kafka.bootstrap, stage.source)[partition]
    stage.kafka.kill(victim)
    others = ",".join(stage.kafka.address(number) for number in stage.kafka.config.numbers if number != victim)

    def moved() -> bool:
        found = leaders_of(others, stage.source)
        return len(found) == PARTITIONS and not {victim, -1} & {*found.values()}

    wait_for(moved, f"the leaders to move away from {victim}", 60)
    return victim


def bring_back(stage: Stage, victim: int) -> None:
    """Start it again, and let it lead again what it led."""
    stage.kafka.restart(victim)
    with RawClient(stage.kafka.address(victim)) as direct:

        def in_sync() -> bool:
            (topic,) = direct.ask(raw.metadata([stage.source])).topics
            return len(topic.partitions) == PARTITIONS and all(len(one.isr_nodes) == 3 for one in topic.partitions)

        wait_for(in_sync, "all replicas in sync", 60)
        wait_for(lambda: raw.code(direct.ask(request(43, 2, topic_partitions=None))) == 0, "an election", 30)
    wait_for(lambda: victim in leaders_of(stage.kafka.bootstrap, stage.source).values(), "it to lead again", 30)


def ends_of(stage: Stage) -> dict[int, int]:
    """Where the log ends, once every marker is there: a commit is acknowledged in front of its markers."""
    found: dict[int, int] = {}
    for partition, leader in leaders_of(stage.kafka.bootstrap, stage.source).items():
        with RawClient(stage.kafka.address(leader)) as direct:
            at = {(stage.source, partition): -1}

            def settled() -> int | None:
                ends = [
                    direct.ask(raw.list_offsets(at, isolation_level=isolation)).topics[0].partitions[0].offset  # noqa: B023
                    for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
                ]
                return ends[0] if len({*ends}) == 1 else None

            found[partition] = wait_for(settled, "the last transactions to be settled", 30) or 0
    return found


# The scene ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Readers:
    """Everybody who reads, at one isolation level."""

    direct: LogReader
    shadow: LogReader
    direct_client: ClientReader
    shadow_client: ClientReader

    @classmethod
    def of(cls, stage: Stage, isolation: int) -> Readers:
        kafka, node = (stage.kafka.bootstrap, stage.source), (stage.node.bootstrap, stage.shadow)
        return cls(
            LogReader(*kafka, PARTITIONS, isolation),
            LogReader(*node, PARTITIONS, isolation),
            ClientReader(*kafka, PARTITIONS, isolation),
            ClientReader(*node, PARTITIONS, isolation),
        )

    @property
    def all(self) -> tuple[LogReader | ClientReader, ...]:
        return self.direct, self.shadow, self.direct_client, self.shadow_client

    def go_on(self) -> None:
        """Return when both have read the log to its end once more."""
        for reader in (self.direct, self.shadow):
            before = reader.passes
            wait_for(lambda: reader.failure or reader.passes > before, f"{reader.name} to read on", 60)  # noqa: B023


@pytest.fixture
def reading(stage: Stage) -> Iterator[Callable[[], list[Readers]]]:
    """Readers at both isolation levels, started; stopped whatever comes."""
    with ExitStack() as running:

        def start() -> list[Readers]:
            found = [Readers.of(stage, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)]
            for reader in [reader for readers in found for reader in readers.all]:
                reader.start()
                running.callback(reader.stop)
            return found

        yield start


def check_reading(stage: Stage, reading: Callable[[], list[Readers]], unique: Unique, records: int, kills: int) -> None:
    """Write, kill, write on while a broker is away, bring it back; everybody reads all the time."""
    share = -(-records // (2 * kills + 1))
    write(stage, share, unique)
    everybody = reading()
    victims: list[int] = []
    for number in range(kills):
        for readers in everybody:
            readers.go_on()
        victims.append(kill_a_leader(stage, number % PARTITIONS))
        write(stage, share, unique)
        for readers in everybody:
            readers.go_on()
        bring_back(stage, victims[-1])
        write(stage, share, unique)
    ends = ends_of(stage)
    for isolation, readers in enumerate(everybody):
        direct, shadow = readers.direct.finish(ends), readers.shadow.finish(ends)
        assert differences(direct, shadow) == []
        assert_worth_comparing(direct, records, isolation)
        assert readers.direct_client.finish(ends) == readers.shadow_client.finish(ends)
        assert sum(map(len, readers.shadow_client.records.values())) > records * (0.3 if isolation else 0.99)
        assert readers.direct.troubles >= kills, "its leaders died"
        assert min(readers.direct.passes, readers.shadow.passes) >= 2 * kills
    assert_same_answers(stage, everybody[1].direct.logs)
    assert_same_epochs(stage)


def assert_worth_comparing(logs: dict[int, PartitionLog], records: int, isolation: int) -> None:
    """The log has what this is about: every codec, transactions of both outcomes, batches of several epochs."""
    assert sum(log.records for log in logs.values()) >= records
    for log in logs.values():
        assert log.hole() is None
        assert log.codecs == {0, 1, 2, 3, 4}
        assert log.markers >= 10
        assert bool(log.aborted) is bool(sum(log.dropped.values())) is (isolation == READ_COMMITTED)
    assert any(len(log.leader_epochs) >= 3 for log in logs.values()), "leaders changed while it was written"


def assert_same_answers(stage: Stage, logs: dict[int, PartitionLog]) -> None:
    """All is quiet: each answer for the shadow is the one for the source, watermarks and all."""
    leaders = leaders_of(stage.kafka.bootstrap, stage.source)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        limits = {"partition_max_bytes": 20_000, "isolation_level": isolation}
        with RawClient(stage.node.bootstrap) as through:
            for partition, log in logs.items():
                bases = sorted(log.batches)
                with RawClient(stage.kafka.address(leaders[partition])) as direct:
                    for position in [*bases[:: max(1, len(bases) // 20)], log.position]:
                        limits["max_wait"] = 10 if position == log.position else 5_000
                        (ours,) = through.ask(raw.fetch({(stage.shadow, partition): position}, **limits)).responses
                        (theirs,) = direct.ask(raw.fetch({(stage.source, partition): position}, **limits)).responses
                        assert ours.partitions == theirs.partitions


def assert_same_epochs(stage: Stage) -> None:
    """Of what the leaders are now, and where the log of each earlier one ends: by which clients notice truncation."""
    leaders = leaders_of(stage.kafka.bootstrap, stage.source)

    def epochs(client: RawClient, name: str) -> dict[int, int]:
        (topic,) = client.ask(raw.metadata([name])).topics
        return {found.partition_index: found.leader_epoch for found in topic.partitions}

    def ends(client: RawClient, name: str, partition: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for epoch in range(current[partition] + 1):
            asked = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": epoch}
            answer = client.ask(request(23, 4, replica_id=-1, topics=[{"topic": name, "partitions": [asked]}]))
            (told,) = answer.topics[0].partitions
            found.append((raw.code(told), told.leader_epoch, told.end_offset))
        return found

    with RawClient(stage.node.bootstrap) as through, ExitStack() as running:
        direct = {
            partition: running.enter_context(RawClient(stage.kafka.address(leader)))
            for partition, leader in leaders.items()
        }
        current = epochs(direct[0], stage.source)
        assert max(current.values()) >= 2
        wait_for(lambda: epochs(through, stage.shadow) == current, "the node to know the leaders' epochs", 20)
        for partition, client in direct.items():
            assert ends(through, stage.shadow, partition) == ends(client, stage.source, partition)


@pytest.mark.timeout(180)
def test_a_shadow_is_read_to_the_byte_while_a_leader_dies_and_comes_back(
    stage: Stage, reading: Callable[[], list[Readers]], unique: Unique
) -> None:
    check_reading(stage, reading, unique, 6_000, 1)


@pytest.mark.timeout(1_500)
def test_a_hundred_thousand_records_are_read_to_the_byte_while_leaders_die_and_come_back(
    stage: Stage, reading: Callable[[], list[Readers]], unique: Unique
) -> None:
    check_reading(stage, reading, unique, 100_000, 6)
