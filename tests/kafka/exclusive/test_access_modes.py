"""The access modes as Pulsar's own acceptance tests have them (`tests/pulsar.toml` names which), on Kafka's protocol.

What Pulsar tells a producer when it is created, a Kafka client is told at its first Produce; where Pulsar's client
waits for its promotion, a Kafka client tries again.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from metadata.ownership import AccessMode
from sidecar.exclusive import resource
from tests.kafka.exclusive.conftest import Connect, governed_in
from tests.kafka.exclusive.room import Party, Room, until
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK, UNKNOWN_TOPIC, BUSY, AGAIN, REFUSED, FENCED = 0, 3, 5, 7, 44, 90
FENCING, WAITING = "mode=exclusive_with_fencing", "mode=wait_for_exclusive"
MODES = [AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING]
each_mode = pytest.mark.parametrize("mode", MODES)


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


@pytest.mark.parametrize("read", [False, True], ids=["nobody reads", "somebody reads"])
@pytest.mark.parametrize("partitions", [1, 3])
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


# Who waits ----------------------------------------------------------------------------------------------------------


async def test_three_wait_in_strict_order_and_each_is_promoted(room: Room, services: Services) -> None:
    topic = await governed_in(room, services)
    parties = [room.connect(f"p{i};{WAITING}") for i in range(4)]
    assert await parties[0].send(topic, b"0") == OK
    for party in parties[1:]:
        assert await party.send(topic, sequence=0) == AGAIN
    for number in (1, 2, 3):
        parties[number - 1].close()
        others = parties[:number:-1]  # they try first, last come first

        async def promoted(number: int = number, others: list[Party] = others) -> int:
            assert [await each.send(topic, sequence=0) for each in others] == [AGAIN] * len(others)
            return await parties[number].send(topic, b"%d" % number, sequence=0)

        await until(promoted)
        assert room.topic(topic).generation == number + 1
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"3"]


def test_a_waiter_whose_records_time_out_after_a_second_keeps_its_place(
    services: Services, node: NodeProcess, topic: str, rest: Rest, connect: Connect
) -> None:
    """A real client that gives each record one second, for two; behind it somebody else waits."""
    owner, behind = connect("owner"), connect(f"behind;{WAITING}")
    assert owner.send(topic, b"0", sequence=0).error == OK
    failed: list[int] = []
    acked: list[bool] = []
    stop = threading.Event()
    client = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "client.id": f"waiter;{WAITING}",
            "message.timeout.ms": 1_000,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 50,
            "log_level": 0,
        }
    )

    def told(error: object, _message: object) -> None:
        if error is None:
            acked.append(True)
        else:
            failed.append(error.code())  # type: ignore[attr-defined]

    def write() -> None:
        while not stop.wait(0.05):
            client.produce(topic, b"waiter", partition=0, on_delivery=told)
            client.poll(0)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        wait_for(lambda: [w["name"] for w in rest.topic(topic)["waiting"]] == ["waiter"], "the waiter")
        assert behind.send(topic, b"x", sequence=0).error == AGAIN
        began = time.monotonic()
        wait_for(lambda: failed and time.monotonic() - began > 2.0, "records to time out for two seconds")
        assert behind.send(topic, b"x", sequence=0).error == AGAIN
        assert [each["name"] for each in rest.topic(topic)["waiting"]] == ["waiter", "behind"]
        assert acked == []
        owner.close()
        wait_for(lambda: acked, "the promotion")
        assert behind.send(topic, b"x", sequence=0).error == AGAIN
    finally:
        stop.set()
        writing.join()
        client.flush(10)
    assert rest.topic(topic)["generation"] == 2


# Reloads ------------------------------------------------------------------------------------------------------------


async def handed_back(room: Room, topic: str) -> None:
    """The node loses the right to serve the topic, as when it moves: what Pulsar calls an unload."""
    live = room.governed.env.catalog.live
    assert live is not None
    served = room.topic(topic)
    room.governed.heard(live, {topic})
    assert not served.serving
    await room.idle(topic)


@each_mode
async def test_a_holder_goes_on_after_its_topic_was_unloaded(room: Room, services: Services, mode: AccessMode) -> None:
    topic = await governed_in(room, services)
    owner = room.connect(f"owner;mode={mode}")
    assert [await owner.send(topic, b"%d" % i, sequence=i) for i in range(3)] == [OK] * 3
    await handed_back(room, topic)
    await until(lambda: owner.send(topic, b"3", sequence=3))
    assert await owner.send(topic, b"4", sequence=4) == OK
    assert room.topic(topic).generation == 1
    assert await room.connect("rival;mode=exclusive").send(topic) == REFUSED
    log = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic)
    assert log == [b"0", b"1", b"2", b"3", b"4"]


@each_mode
async def test_a_holder_that_lost_the_topic_while_it_was_unloaded_is_fenced_at_its_next_send(
    room: Room, services: Services, mode: AccessMode
) -> None:
    topic = await governed_in(room, services)
    owner = room.connect(f"owner;mode={mode}")
    assert await owner.send(topic, b"0", sequence=0) == OK
    await handed_back(room, topic)
    await until(lambda: room.connect(f"fencer;{FENCING}").send(topic, b"1", sequence=0))
    assert room.topic(topic).generation == 2
    await handed_back(room, topic)
    assert await owner.send(topic, b"x", sequence=1) == FENCED
    assert await room.connect("owner", producer_id=owner.producer_id).send(topic, b"x", sequence=1) == FENCED
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1"]


# Topics -------------------------------------------------------------------------------------------------------------


def test_a_topic_deleted_under_its_holder_is_told_as_passing_and_owned_again_once_it_is_back(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """Nodes create nothing by themselves: until somebody does, the holder's sends time out, as on Pulsar's partitioned
    topics.
    """
    owner, rival = connect("owner"), connect("rival")
    assert owner.send(topic, b"old", sequence=0).error == OK
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    owner.begin(topic, b"x", sequence=1, timeout_ms=1_000)
    assert owner.finish().error in (UNKNOWN_TOPIC, BUSY)
    wait_for(lambda: created(admin, topic), "the new topic")
    wait_for(lambda: owner.send(topic, b"new", sequence=1).error == OK, "the holder to go on", 30)
    assert rival.send(topic, b"x", sequence=0).error == REFUSED
    assert rest.topic(topic)["owner"]["name"] == "owner"
    assert read_log(services.kafka_bootstrap, topic) == [b"new"]


def created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    except KafkaException:  # the old one is still being deleted
        return False
    return True


async def test_the_claim_of_one_partition_is_the_claim_of_all_of_them(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, partitions=10)
    owner, rival = room.connect("owner"), room.connect("rival")
    assert await owner.send(topic, b"0", partition=7, sequence=0) == OK
    assert [await rival.send(topic, partition=each, sequence=0) for each in range(10)] == [REFUSED] * 10
    epoch = room.topic(topic).writer.epoch
    assert epoch is not None
    assert sorted(epoch.taken.partitions) == list(range(10))  # fenced, though nine were never written
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    await asyncio.to_thread(admin.create_partitions([NewPartitions(topic, 12)])[topic].result, 20)
    await room.governed.env.services.upstream.layout(topic, refresh=True)  # their clients have asked for Metadata
    assert await rival.send(topic, partition=11, sequence=0) == REFUSED
    await until(lambda: owner.send(topic, b"1", partition=11, sequence=0))
    epoch = room.topic(topic).writer.epoch
    assert epoch is not None
    assert sorted(epoch.taken.partitions) == list(range(12))
    assert room.topic(topic).generation == 1


# What a create leaves behind ----------------------------------------------------------------------------------------


async def test_refused_attempts_leave_nothing_behind(room: Room, services: Services) -> None:
    topic = await governed_in(room, services)
    owner = room.connect("owner")
    assert await owner.send(topic) == OK
    await room.idle(topic)
    served, loop = room.topic(topic), asyncio.get_running_loop()
    before, passed = set(asyncio.all_tasks()), list(room.gates.passed)
    timers = pending_timers(loop)
    for number in range(30):
        rival = room.connect("rival;mode=exclusive", plain=number % 2 == 0)
        assert await rival.send(topic) == REFUSED
        rival.close()
    assert set(asyncio.all_tasks()) <= before
    assert pending_timers(loop) <= timers
    assert room.gates.passed == passed  # nobody was asked
    state = served.state
    assert (state.ghosts, state.tainted, state.struck, state.waiting) == ({}, set(), {}, ())
    assert set(room.governed.topics._of_connection) == {owner.connection_id}
    assert room.governed.env.forwarder.held_bytes == 0
    assert served.generation == 1


def pending_timers(loop: asyncio.AbstractEventLoop) -> set[str]:
    """What the loop will call later, of this product's."""
    handles: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    callbacks = [handle._callback for handle in handles if not handle.cancelled()]  # type: ignore[attr-defined]
    return {name for each in callbacks if (name := getattr(each, "__qualname__", "")).startswith("Resource")}


async def test_a_second_producer_of_the_holders_name_is_refused_and_the_first_stays(
    room: Room, services: Services
) -> None:
    topic = await governed_in(room, services)
    owner = room.connect("billing")
    assert await owner.send(topic) == OK
    for _ in range(10):
        again = room.connect("billing")
        assert await again.send(topic) == REFUSED
        again.close()
    assert await owner.send(topic) == OK
    assert room.topic(topic).generation == 1


async def test_creates_that_come_at_once_are_one(room: Room, services: Services) -> None:
    topic = await governed_in(room, services)
    one = room.connect("billing")
    two = room.connect("billing", producer_id=one.producer_id)
    gate = room.gates.hold("InitProducerId")
    answers = [one.begin(topic, b"0", sequence=0), two.begin(topic, b"1", sequence=1)]
    await gate.reached()
    answers.append(one.begin(topic, b"2", sequence=2))
    gate.open()
    assert [(await answer).error for answer in answers] == [OK] * 3
    assert len(room.told.takeovers) == 1
    assert room.gates.passed.count("claim") == 1
    assert room.topic(topic).generation == 1


async def test_a_create_of_the_same_name_beside_a_slow_one_is_refused_and_the_slow_one_wins(
    room: Room, services: Services
) -> None:
    topic = await governed_in(room, services)
    slow, second = room.connect("billing"), room.connect("billing")
    gate = room.gates.hold("InitProducerId")
    first = slow.begin(topic)
    await gate.reached()
    other = second.begin(topic)
    assert not other.done()
    gate.open()
    assert ((await first).error, (await other).error) == (OK, REFUSED)
    assert await slow.send(topic) == OK
    assert room.topic(topic).generation == 1


async def test_a_slow_create_that_is_tried_again_is_one_and_the_client_is_not_kept_waiting(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "_HELD_S", 0.5)
    topic = await governed_in(room, services)
    owner = room.connect("owner")
    gate = room.gates.hold("InitProducerId")
    first = owner.begin(topic, b"0", sequence=0)
    await gate.reached()
    assert (await first).error == BUSY  # after that time
    assert [await owner.send(topic, b"0", sequence=0) for _ in range(5)] == [BUSY] * 5
    gate.open()
    await until(lambda: owner.send(topic, b"0", sequence=0))
    assert len(room.told.takeovers) == 1
    assert room.topic(topic).generation == 1
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0"]


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
