"""SIGTERM: a node leads its clients elsewhere, finishes what is in flight, and ends in time whatever hangs."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig, Valkey
from sidecar.node.process import CUT_OFF
from tests import raw
from tests.kafka.exclusive.checked import CheckedProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.exclusive.test_events import Stream
from tests.kafka.node_log import events
from tests.logs import read_log
from tests.raw import RawClient
from tests.rest import Rest, govern
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartNode, Unique
    from tests.nodes import NodeProcess
    from tests.services import Services

GRACE_S = 30.0
"""compose.yaml's stop_grace_period: whoever has not ended by then is killed."""
LONG_MS = 300_000
BIG = bytes(900_000)


@dataclass(frozen=True)
class Behind:
    """What is behind the node, and may be frozen."""

    kafka: Kafka
    valkey: Valkey

    def freeze(self, what: str) -> None:
        if "kafka" in what:
            self.kafka.pause()
        if "redis" in what:
            self.valkey.pause()

    def thaw(self) -> None:
        self.kafka.resume()
        self.valkey.resume()


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as valkey:
        kafka = Kafka(tmp_path_factory.mktemp("kafka"), KafkaConfig())
        kafka.start()
        yield Behind(kafka, valkey)
        kafka.stop(grace=0)


@pytest.fixture
def parked(behind: Behind, node_process: StartNode) -> Iterator[Parked]:
    node = node_process(kafka=behind.kafka.bootstrap, redis=behind.valkey.url, LOG_FORMAT="json")
    with ExitStack() as clients:
        try:
            yield Parked(node, behind, clients)
        finally:
            behind.thaw()


class Parked:
    """A node to which clients of every kind that never lets go are connected."""

    def __init__(self, node: NodeProcess, behind: Behind, clients: ExitStack) -> None:
        self.node = node
        self.clients = clients
        kafka, rest = behind.kafka.bootstrap, Rest(node.admin_url)
        self.governed, self.ordinary, self.full = create_topic(kafka), create_topic(kafka), create_topic(kafka)
        govern(rest, self.governed)
        self.owner = clients.enter_context(RawProducer(node.bootstrap, "owner"))
        self.owner.initialise()
        assert self.owner.send(self.governed, b"0", sequence=0).error == 0
        self.poll = clients.enter_context(RawClient(node.bootstrap))
        self.poll.ask(raw.fetch({(self.ordinary, 0): 0}))
        self.poll.send(raw.fetch({(self.ordinary, 0): 0}, max_wait=LONG_MS))
        with RawProducer(kafka, "filling") as filling:
            for _ in range(8):
                assert filling.send(self.full, BIG).error == 0
        self.deaf = clients.enter_context(RawClient(node.bootstrap, receive_buffer=4096))
        for _ in range(4):
            self.deaf.send(raw.fetch({(self.full, 0): 0}, partition_max_bytes=8_000_000))
        clients.enter_context(closing(Stream(rest)))

    def in_flight(self) -> None:
        """A batch for a governed topic, one for an ordinary one, and a takeover; none of them is waited for."""
        before = in_flight(self.node)
        self.owner.begin(self.governed, b"1", sequence=1, timeout_ms=LONG_MS)
        ordinary = self.clients.enter_context(RawClient(self.node.bootstrap))
        ordinary.send(raw.produce({(self.ordinary, 0): raw.batch()}))
        wait_for(lambda: in_flight(self.node) == before + 2, "two batches in flight")
        rival = self.clients.enter_context(RawClient(self.node.bootstrap, "rival;mode=exclusive_with_fencing"))
        rival.send(raw.produce({(self.governed, 0): raw.batch()}))
        wait_for(lambda: in_flight(self.node) == before + 3, "a takeover under way")


@pytest.mark.parametrize("frozen", ["nothing", "redis"])
@pytest.mark.slow
def test_a_node_ends_well_whoever_hangs_on_it(parked: Parked, behind: Behind, frozen: str) -> None:
    behind.freeze(frozen)
    assert parked.node.stop(GRACE_S) == 0
    assert events(parked.node, "cut_off") == []
    assert parked.poll.is_closed()


@pytest.mark.parametrize("frozen", ["kafka", "kafka and redis"])
@pytest.mark.slow
def test_a_node_whose_kafka_is_frozen_ends_in_time_and_says_what_it_cut_off(
    parked: Parked, behind: Behind, frozen: str
) -> None:
    behind.freeze(frozen)
    parked.in_flight()
    assert parked.node.stop(GRACE_S) == CUT_OFF
    (cut_off,) = events(parked.node, "cut_off")
    assert cut_off["left"]["held_bytes"] > 0
    assert cut_off["left"]["unanswered"]["Produce"] >= 2
    assert len(events(parked.node, "stopped")) == 1


def test_a_node_whose_kafka_is_frozen_ends_well_where_nothing_is_in_flight(
    behind: Behind, node_process: StartNode
) -> None:
    node = node_process(kafka=behind.kafka.bootstrap, redis=behind.valkey.url, LOG_FORMAT="json")
    behind.freeze("kafka")
    try:
        assert node.stop(GRACE_S) == 0
    finally:
        behind.thaw()


def test_a_node_that_waits_for_kafka_to_start_ends_at_once(behind: Behind, node_process: StartNode) -> None:
    behind.freeze("kafka")
    try:
        node = node_process(kafka=behind.kafka.bootstrap, redis=behind.valkey.url, ready=False)
        assert node.stop(GRACE_S) == 0
    finally:
        behind.thaw()


def test_what_is_in_flight_is_answered_before_a_node_ends(parked: Parked, behind: Behind) -> None:
    behind.freeze("kafka")
    with RawClient(parked.node.bootstrap) as plain:
        before = in_flight(parked.node)
        plain.send(raw.produce({(parked.ordinary, 0): raw.batch()}))
        wait_for(lambda: in_flight(parked.node) == before + 1, "the batch to be in flight")
        parked.node.child.terminate()
        wait_for(lambda: parked.node.status() == 503, "the drain to begin")
        behind.thaw()
        assert raw.code(raw.produced(plain.receive())[parked.ordinary, 0]) == 0
    assert parked.node.child.wait(GRACE_S) == 0


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_node_at_once(parked: Parked, behind: Behind, again: signal.Signals) -> None:
    behind.freeze("kafka")
    parked.in_flight()
    parked.node.child.terminate()
    wait_for(lambda: parked.node.status() == 503, "the drain to begin")

    def ended() -> bool:
        if parked.node.child.alive:
            os.kill(parked.node.child.pid, again)
        return not parked.node.child.alive

    wait_for(ended, "the end")
    assert parked.node.child.exit_code == CUT_OFF
    assert [event["reason"] for event in events(parked.node, "cut_off")] == ["it got a second signal"]


@pytest.mark.parametrize("frozen", ["kafka", "kafka and redis"])
def test_a_node_that_drains_leads_its_clients_to_the_others(
    behind: Behind, node_process: StartNode, unique: Unique, frozen: str
) -> None:
    cluster = unique("drain")
    nodes = [
        node_process(kafka=behind.kafka.bootstrap, redis=behind.valkey.url, cluster=cluster, node_id=number)
        for number in (1, 2)
    ]
    wait_for(lambda: all(brokers(node) == {1, 2} for node in nodes), "both to know of each other")
    topic = create_topic(behind.kafka.bootstrap, partitions=1)
    govern(Rest(nodes[0].admin_url), topic)
    with RawClient(nodes[0].bootstrap) as client:
        leaving = nodes[int(client.ask(raw.metadata([topic])).topics[0].partitions[0].leader_id) - 1]
    (staying,) = (node for node in nodes if node is not leaving)
    with RawProducer(leaving.bootstrap, "owner") as owner:
        owner.initialise()
        assert owner.send(topic, b"0", sequence=0).error == 0
        behind.freeze(frozen)
        try:
            owner.begin(topic, b"1", sequence=1, timeout_ms=LONG_MS)
            wait_for(lambda: in_flight(leaving) == 1, "a batch in flight")
            leaving.child.terminate()
            wait_for(lambda: leaving.status() == 503, "the drain to begin")
            status = Rest(leaving.admin_url).call("GET", "/v1/status")[1]
            assert [node["id"] for node in status["nodes"]] == [staying.node_id], "what Metadata tells of"
            with pytest.raises(ConnectionRefusedError):
                RawClient(leaving.bootstrap)
        finally:
            behind.thaw()
        assert owner.finish().error == 0
        assert leaving.child.wait(GRACE_S) == 0
    assert read_log(behind.kafka.bootstrap, topic) == [b"0", b"1"]


def brokers(node: NodeProcess) -> set[int]:
    with RawClient(node.bootstrap) as client:
        return {int(found.node_id) for found in client.ask(raw.metadata([])).brokers}


def in_flight(node: NodeProcess) -> int:
    """Requests of all clients that have no answer yet."""
    return sum(client["in_flight"] for client in Rest(node.admin_url).call("GET", "/v1/clients")[1]["items"])


@pytest.mark.slow
def test_an_idempotent_producer_sees_no_error_and_loses_nothing_while_one_of_two_nodes_ends(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("pair")
    nodes = [node_process(cluster=cluster, node_id=number, LEASE_MS="1000") for number in (1, 2)]
    wait_for(lambda: all(brokers(node) == {1, 2} for node in nodes), "both to know of each other")
    ordinary, governed = (create_topic(services.kafka_bootstrap, partitions=1) for _ in range(2))
    govern(Rest(nodes[0].admin_url), governed)
    bootstrap = ",".join(node.bootstrap for node in nodes)
    with ExitStack() as running:
        writers = [
            running.enter_context(CheckedProducer(bootstrap, unique("writer"), topic)) for topic in (ordinary, governed)
        ]
        for leaving in nodes:
            for each in writers:
                each.goes_on(500)
            assert leaving.stop(GRACE_S) == 0
            for each in writers:
                each.goes_on(500)
            leaving.start()
    for each, topic in zip(writers, (ordinary, governed), strict=True):
        assert each.failed == []
        assert read_log(services.kafka_bootstrap, topic) == each.sent
