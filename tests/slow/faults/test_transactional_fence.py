"""Moments at which InitProducerId has deposed a transactional producer and one of its batches is still under way: while
its leader waits for the coordinator's answer, before the markers are written, and while two brokers have not heard that
the coordinator moved. Results: docs/internals/transactional-ids.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sidecar.local.kafka_config import broker_properties
from sidecar.local.ports import HOST, free_ports
from sidecar.protocol.errors import ErrorCode
from tests.conftest import OwnKafka, Unique
from tests.raw import RawClient, code, produced
from tests.slow.faults.frame_proxy import FrameProxy, Seen, Way
from tests.transactional import FIRST, VERSIONS, Dialect, Log, Past, TransactionalProducer, Wire, spoken
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sidecar.local import Kafka, KafkaConfig
    from sidecar.local.kafka_config import Ports

REFUSED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
_FETCH, _ADD_PARTITIONS, _WRITE_MARKERS = 1, 24, 27
_STATE = "__transaction_state"
every_kafka = pytest.mark.parametrize("version", VERSIONS)


def of(api_key: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.api_key == api_key


# One broker, which asks itself through a proxy ------------------------------------------------------------------------


@contextmanager
def asking_itself(own_kafka: OwnKafka, version: str) -> Iterator[tuple[Wire, FrameProxy]]:
    """A broker whose questions to the coordinator, and whose markers, a test can hold."""
    client, inner, controller = free_ports(3)
    with FrameProxy(f"{HOST}:{inner}") as proxy:
        listeners = {
            "listeners": f"PLAINTEXT://{HOST}:{client},BROKER://{HOST}:{inner},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{client},BROKER://{proxy.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "BROKER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }
        kafka = own_kafka(version=version, ports=(client,), overrides=listeners)
        with Wire(kafka.bootstrap) as wire:
            yield wire, proxy


@every_kafka
def test_a_batch_that_the_coordinator_let_pass_before_the_fence_is_refused_behind_it(
    own_kafka: OwnKafka, unique: Unique, version: str
) -> None:
    """The marker ends the leader's question: the answer to it counts no more, not even if the successor has asked."""
    with asking_itself(own_kafka, version) as (wire, proxy):
        for dialect in spoken(version):
            for successor_writes in (False, True):
                topic = wire.create(unique("orders"))
                deposed = TransactionalProducer(wire, unique("txn"), dialect)
                deposed.init()
                if dialect.adds:
                    deposed.begin(topic, write=False)
                hold = proxy.hold(Way.REPLY, of(_ADD_PARTITIONS))
                with RawClient(wire.bootstrap) as client:
                    client.send(deposed.frame(topic, 0))
                    hold.wait()
                    holder = deposed.successor()
                    holder.init()
                    assert wire.log(topic).entries == ("marker 1",)
                    if successor_writes and dialect.adds:
                        holder.begin(topic, write=False)
                    hold.release()
                    assert code(produced(client.receive())[topic, 0]) in REFUSED
                if successor_writes:
                    holder.begin(topic)
                assert deposed.write(topic, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert wire.log(topic).entries == ("marker 1", "txn 2")[: 1 + successor_writes]


@every_kafka
def test_before_the_markers_only_an_open_transaction_grows_and_is_aborted(
    own_kafka: OwnKafka, unique: Unique, version: str
) -> None:
    """The successor gets CONCURRENT_TRANSACTIONS meanwhile: what lands is in front of the fence."""
    with asking_itself(own_kafka, version) as (wire, proxy):
        for dialect in spoken(version):
            topic = wire.create(unique("orders"), 2)
            deposed = TransactionalProducer(wire, unique("txn"), dialect)
            deposed.init()
            deposed.begin(topic)
            if dialect.adds:
                deposed.begin(topic, 1, write=False)
            hold = proxy.hold(Way.REQUEST, of(_WRITE_MARKERS))
            holder = deposed.successor()
            assert holder.init_once() == ErrorCode.CONCURRENT_TRANSACTIONS
            hold.wait()
            assert deposed.write(topic, 1) == ErrorCode.NONE
            assert deposed.write(topic, 0, 1) in {*REFUSED, ErrorCode.CONCURRENT_TRANSACTIONS}
            assert holder.init_once() == ErrorCode.CONCURRENT_TRANSACTIONS
            hold.release()
            assert holder.init().epoch == 2
            assert wire.log(topic) == Log(("txn 0", "txn 0", "marker 1"), 3, 3)
            assert deposed.write(topic, 2) == ErrorCode.INVALID_PRODUCER_EPOCH


# Two brokers that do not hear of news ---------------------------------------------------------------------------------

LAGGING = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "2000",
    # A broker that waits for the controller's answer goes on waiting.
    "controller.quorum.fetch.timeout.ms": "600000",
    "controller.quorum.request.timeout.ms": "600000",
}


@dataclass(frozen=True)
class Lagging:
    """Broker 1 is the controller, 2 coordinates transactions, 3 leads topics. 2 and 3 reach the controller through a
    proxy, which can hold what it tells them; their heartbeats pass, so nobody takes them for dead.
    """

    kafka: Kafka
    wire: Wire
    proxy: FrameProxy

    def lead(self, topic: str, replicas: tuple[int, ...]) -> None:
        """Everybody knows."""
        self.wire.move(topic, replicas)
        addresses = {self.kafka.address(number) for number in self.kafka.config.numbers}
        leader = self.kafka.address(replicas[0])

        def known() -> bool:
            return all(self.wire.leaders(topic, seen_by=each).get(0) == leader for each in addresses)

        wait_for(known, f"all brokers to know the leader of {topic}", 60)

    @contextmanager
    def coordinator_moves_unheard(self) -> Iterator[str]:
        """Broker 1 coordinates, and 2 and 3 still believe that 2 does; yields the address of 1."""
        holds = [self.proxy.hold(Way.REPLY, of(_FETCH)) for _ in (2, 3)]
        try:
            self.wire.move(_STATE, (1, 2))
            for hold in holds:
                hold.wait()
            old = self.kafka.address(2)
            assert [self.wire.leaders(_STATE, seen_by=self.kafka.address(lags))[0] for lags in (2, 3)] == [old, old]
            yield self.kafka.address(1)
        finally:
            for hold in holds:
                hold.release()


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch, own_kafka: OwnKafka, version: str) -> Iterator[Lagging]:
    (controller,) = free_ports(1)
    with FrameProxy(f"{HOST}:{controller}") as proxy:

        def properties(config: KafkaConfig, number: int, ports: Mapping[int, Ports], data: Path) -> dict[str, str]:
            client = f"PLAINTEXT://{HOST}:{ports[number].client}"
            if number == 1:
                place = {"listeners": f"{client},CONTROLLER://{HOST}:{controller}"}
                place["controller.quorum.voters"] = f"1@{HOST}:{controller}"
            else:
                place = {"listeners": client, "process.roles": "broker"}
                place["controller.quorum.voters"] = f"1@{proxy.address}"
            return broker_properties(config, number, ports, data) | LAGGING | place

        monkeypatch.setattr("sidecar.local.kafka.broker_properties", properties)
        kafka = own_kafka(version=version, brokers=3)
        with Wire(kafka.bootstrap) as wire:
            wire.coordinator("any")
            yield Lagging(kafka, wire, proxy)


def _arrives_late(lagging: Lagging, topic: str, dialect: Dialect, past: Past, *, marked: bool) -> int:
    """The answer to a batch of a producer that ended its transaction with the new coordinator, and was deposed there;
    `marked`: and its successor wrote markers of its epoch.
    """
    wire, leader = lagging.wire, lagging.kafka.address(3)
    lagging.lead(_STATE, (2, 1))
    wire.create(topic, brokers=(3,))
    lagging.lead(topic, (3,))
    deposed = TransactionalProducer(wire, topic, dialect)
    stamp = deposed.init()
    deposed.begin(topic)
    with lagging.coordinator_moves_unheard() as coordinator:
        deposed.coordinator_at = coordinator
        if past is not Past.OPEN:
            deposed.end(commit=past is Past.COMMITTED)
            deposed.stamp = stamp
        holder = deposed.successor()
        assert holder.init().epoch > stamp.epoch
        if marked:
            holder.mark(topic)
        return deposed.write(topic, 1, leader_at=leader)


@every_kafka
def test_a_coordinator_that_was_replaced_lets_a_batch_pass_behind_the_fence(
    lagging: Lagging, unique: Unique, version: str
) -> None:
    """It answers from memory. Only an epoch in the log helps: EndTxn 5 leaves one, and so does a node's marker."""
    for dialect in spoken(version):
        for past in (Past.OPEN, Past.COMMITTED, Past.ABORTED):
            topic = unique("orders")
            told = _arrives_late(lagging, topic, dialect, past, marked=False)
            lands = dialect is FIRST and past is not Past.OPEN
            assert told == (ErrorCode.NONE if lands else ErrorCode.INVALID_PRODUCER_EPOCH), (dialect, past)
            if lands:
                assert lagging.wire.log(topic) == Log(("txn 0", "marker 0", "txn 0"), 3, 2), "readers are held back"
            told = _arrives_late(lagging, unique("orders"), dialect, past, marked=True)
            assert told == ErrorCode.INVALID_PRODUCER_EPOCH, (dialect, past)
