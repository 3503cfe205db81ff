"""The access modes as Pulsar's own acceptance tests have them (`tests/pulsar.toml` names which), on Kafka's protocol.

What Pulsar tells a producer when it is created, a Kafka client is told at its first Produce; where Pulsar's client
waits for its promotion, a Kafka client tries again.
"""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import Consumer

from tests.kafka.exclusive.conftest import Connect
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK, AGAIN, REFUSED, FENCED = 0, 7, 44, 90
FENCING, WAITING = "mode=exclusive_with_fencing", "mode=wait_for_exclusive"


def freed(rest: Rest, topic: str) -> None:
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone", 2.0)


# The whole life -----------------------------------------------------------------------------------------------------


class Reader:
    """A consumer of a topic through the node, from its beginning."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self.values: set[bytes] = set()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.add(message.value() or b"")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@pytest.mark.parametrize(("partitions", "read"), [(1, False), (3, True)], ids=["nobody reads", "somebody reads"])
def test_a_topic_goes_from_hand_to_hand_by_the_rules_of_the_modes(
    services: Services, node: NodeProcess, rest: Rest, connect: Connect, partitions: int, read: bool
) -> None:
    topic = create_topic(services.kafka_bootstrap, partitions)
    govern(rest, topic)
    reader = Reader(node, topic) if read else None
    try:
        written = hand_to_hand(topic, connect, rest, partitions - 1)
        assert read_log(services.kafka_bootstrap, topic, partitions - 1) == written
        if reader is not None:
            wait_for(lambda: reader.values == set(written), "the consumer to have everything", 20)
    finally:
        if reader is not None:
            reader.close()


def hand_to_hand(topic: str, connect: Connect, rest: Rest, partition: int) -> list[bytes]:
    """Pulsar's `simpleTest`; what is in the log when it is over."""

    def send(producer: object, value: bytes, sequence: int = 0) -> int:
        return producer.send(topic, value, sequence=sequence, partition=partition).error  # type: ignore[attr-defined]

    p1 = connect("p1;mode=exclusive")
    assert send(p1, b"p1") == OK
    assert send(connect("p2;mode=exclusive"), b"x") == REFUSED
    assert send(connect("p2;mode=shared"), b"x") == REFUSED
    p1.close()
    freed(rest, topic)
    p3 = connect("p3;mode=exclusive")
    assert send(p3, b"p3") == OK
    p4 = connect(f"p4;{FENCING}")
    assert send(p4, b"p4") == OK
    assert send(p3, b"x", 1) == FENCED
    p5 = connect(f"p5;{WAITING}")
    assert send(p5, b"x") == AGAIN
    p6 = connect(f"p6;{FENCING}")
    assert send(p6, b"p6") == OK
    p7 = connect(f"p7;{WAITING}")
    assert send(p7, b"p7") == AGAIN
    assert send(p4, b"x", 1) == FENCED
    assert send(p5, b"x") == FENCED
    assert send(p7, b"p7") == AGAIN
    assert send(p6, b"p6 again", 1) == OK
    p6.close()
    freed(rest, topic)
    assert send(p5, b"x") == FENCED
    assert send(p7, b"p7") == OK
    assert rest.topic(topic)["generation"] == 5
    return [b"p1", b"p3", b"p4", b"p6", b"p6 again", b"p7"]


def test_late_sends_of_a_fenced_producer_are_refused_each_and_cost_its_connection_nothing(
    services: Services, topic: str, rest: Rest, connect: Connect
) -> None:
    other = create_topic(services.kafka_bootstrap)
    owner, fencer = connect("owner"), connect(f"fencer;{FENCING}")
    assert owner.send(topic, b"0", sequence=0).error == OK
    assert fencer.send(topic, b"1", sequence=0).error == OK
    for sequence in range(1, 6):
        owner.begin(topic, b"late", sequence=sequence)
    assert [owner.finish().error for _ in range(5)] == [FENCED] * 5
    assert owner.send(other, b"0", sequence=0).error == OK
    govern(rest, other)
    assert owner.send(other, b"1", sequence=1).error == OK
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1"]
