"""Records of a shadow processed exactly once: its cursor moves in transactions, and those left behind are refused."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.local.tools import Tools
from tests import raw
from tests.clients.javabuild import matrix_jar
from tests.conftest import Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic

RECORDS = 60
_FINISH_S = 90
_COPIER = Path(__file__).with_name("copier.py")
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, INVALID_PRODUCER_EPOCH = 22, 25, 47


@pytest.fixture
def orders(services: Services) -> str:
    """A topic of two partitions; of three transactions of ten records each the second is aborted, over and over."""
    create_internal_topics(services.kafka_bootstrap)
    topic = create_topic(services.kafka_bootstrap, 2)
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(RECORDS // 10):
        producer.begin_transaction()
        for index in range(10):
            producer.produce(topic, f"{number}.{index}", partition=index % 2)
        producer.flush(30)
        producer.abort_transaction(30) if number % 3 == 1 else producer.commit_transaction(30)
    return topic


@pytest.fixture
def audit(rest: Rest, orders: str, unique: Unique) -> str:
    """A shadow of it."""
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    return name


def committed_values(bootstrap: str, topic: str) -> Counter[bytes]:
    settings = {"group.id": f"look-at-{topic}", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    found, ended = Counter[bytes](), 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found[message.value() or b""] += 1
    consumer.close()
    return found


def cursors(bootstrap: str, group: str) -> dict[str, dict[int, int]]:
    """The group's offsets by topic and partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found: dict[str, dict[int, int]] = {}
    for place in asked.result(30).topic_partitions or ():
        found.setdefault(place.topic, {})[place.partition] = place.offset
    return found


# A process that dies ------------------------------------------------------------------------------------------------


def librdkafka_copier(_: Tools) -> Sequence[str]:
    return sys.executable, str(_COPIER)


def java_copier(tools: Tools) -> Sequence[str]:
    jar = matrix_jar(tools.java, tools.jars)
    *front, argument, main = tools.command("matrix.Copier")
    assert argument.startswith("@")
    return *front, "-cp", f"{tools.jars.class_path}:{jar}", main


@pytest.mark.timeout(240)  # the Java one is compiled once
@pytest.mark.parametrize("copier", [librdkafka_copier, java_copier])
@pytest.mark.slow
def test_each_record_of_a_shadow_is_processed_once_by_a_process_that_is_killed(
    node: NodeProcess,
    services: Services,
    kafka_tools: Tools,
    orders: str,
    audit: str,
    unique: Unique,
    copier: Callable[[Tools], Sequence[str]],
) -> None:
    """It dies with everything of a transaction sent but its end: what it wrote, and where its cursor went to."""
    target, group = create_topic(services.kafka_bootstrap, 2), unique("copiers")
    command = [*copier(kafka_tools), node.bootstrap, audit, target, group, unique("t")]
    first = subprocess.Popen([*command, "2"], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "sent\n"
        before = cursors(services.kafka_bootstrap, group)
        assert sum(before[audit].values()) > 0
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    assert cursors(services.kafka_bootstrap, group) == before, "an open transaction moves no cursor"
    done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=_FINISH_S, check=False)
    assert done.returncode == 0, done.stderr
    word, copied = done.stdout.split()
    expected = committed_values(services.kafka_bootstrap, orders)
    assert len(expected) == RECORDS * 2 // 3
    assert (word, int(copied)) == ("done", len(expected) - 7), "one transaction was committed before the death"
    assert committed_values(node.bootstrap, target) == Counter({value + b"!": 1 for value in expected})
    assert cursors(node.bootstrap, group).keys() == {audit}, "the source's own cursors are not touched"


def test_an_aborted_transaction_leaves_the_cursor_of_a_shadow_where_it_was(
    node: NodeProcess, services: Services, audit: str, unique: Unique
) -> None:
    group, target = unique("copiers"), create_topic(services.kafka_bootstrap, 1)
    settings = {"bootstrap.servers": node.bootstrap, "log_level": 0}
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([audit])
    assert consumer.poll(30) is not None
    producer = Producer({**settings, "transactional.id": unique("t")})
    producer.init_transactions(30)
    for offset, commit in ((3, True), (7, False), (5, True), (9, False)):
        producer.begin_transaction()
        producer.produce(target, b"x")
        producer.send_offsets_to_transaction([TopicPartition(audit, 0, offset)], consumer.consumer_group_metadata(), 30)
        before = cursors(services.kafka_bootstrap, group)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        after = {audit: {0: offset}} if commit else before
        consumer.committed([TopicPartition(audit, 0)], 30)  # which waits for the marker
        assert cursors(services.kafka_bootstrap, group) == after
    consumer.close()


# Those left behind --------------------------------------------------------------------------------------------------


class Member:
    """A member of a group, by hand: joins, and commits under any generation that it is told to."""

    def __init__(self, client: RawClient, group: str) -> None:
        self.id = ""
        self.generation = -1
        self._client = client
        self._group = group

    def join(self) -> None:
        """Be the only member, in a generation more."""
        protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}]
        for _ in range(2):  # the first time it is only told its id (KIP-394)
            asked = {"group_id": self._group, "member_id": self.id, "protocol_type": "consumer", "protocols": protocols}
            found = self._client.ask(request(11, 5, **asked, session_timeout=30_000, rebalance_timeout=30_000))
            self.id = found.member_id
            if raw.code(found) == 0:
                break
        assert raw.code(found) == 0, found
        self.generation = found.generation_id
        assignments = [{"member_id": self.id, "assignment": b"\0\0\0\0\0\0\0\0\0\0"}]
        whose = {"group_id": self._group, "generation_id": self.generation, "member_id": self.id}
        assert raw.code(self._client.ask(request(14, 3, **whose, assignments=assignments))) == 0

    def commit(self, version: int, topic: str, offset: int, **other: object) -> int:
        named = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
        whose = {"generation_id_or_member_epoch": self.generation, "member_id": self.id, **other}
        answer = self._client.ask(request(8, version, group_id=self._group, topics=named, **whose))
        return raw.code(answer.topics[0].partitions[0])

    def commit_in_transaction(self, topic: str, transactional_id: str, stamp: tuple[int, int], **other: object) -> int:
        named = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        whose = {"generation_id_or_member_epoch": self.generation, "member_id": self.id, **other}
        whose |= {"transactional_id": transactional_id, "producer_id": stamp[0], "producer_epoch": stamp[1]}
        answer = self._client.ask(request(28, 3, group_id=self._group, topics=named, **whose))
        return raw.code(answer.topics[0].partitions[0])


@pytest.mark.parametrize("version", [2, 5, 8])
def test_a_member_of_an_old_generation_commits_nothing_for_a_shadow(
    node: NodeProcess, services: Services, orders: str, audit: str, unique: Unique, version: int
) -> None:
    """The same codes as of Kafka, asked for the source."""

    def told(bootstrap: str, topic: str, group: str) -> list[int]:
        with RawClient(bootstrap) as client:
            member = Member(client, group)
            member.join()
            found = [member.commit(version, topic, 4)]
            member.join()
            found += [
                member.commit(version, topic, 9, generation_id_or_member_epoch=member.generation - 1),
                member.commit(version, topic, 9, member_id="somebody"),
                member.commit(version, topic, 5),
            ]
        assert cursors(bootstrap, group) == {topic: {0: 5}}
        return found

    expected = [0, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, 0]
    assert told(services.kafka_bootstrap, orders, unique("g")) == expected
    assert told(node.bootstrap, audit, unique("g")) == expected


def test_no_zombie_moves_a_cursor_of_a_shadow_in_a_transaction(
    node: NodeProcess, services: Services, orders: str, audit: str, unique: Unique
) -> None:
    """Neither a member of an old generation nor a producer of an old epoch (KIP-447): the same codes as of Kafka."""

    def told(bootstrap: str, topic: str, group: str, transactional_id: str) -> list[int]:
        def opened() -> tuple[int, int]:
            wanted = {"transactional_id": transactional_id, "producer_id": -1, "producer_epoch": -1}
            found = client.ask(request(22, 3, transaction_timeout=60_000, **wanted))
            assert raw.code(found) == 0
            return found.producer_id, found.producer_epoch

        with RawClient(bootstrap) as client:
            member = Member(client, group)
            member.join()
            member.join()
            old, stamp = opened(), opened()
            whose = {"transactional_id": transactional_id, "producer_id": stamp[0], "producer_epoch": stamp[1]}
            assert raw.code(client.ask(request(25, 2, group_id=group, **whose))) == 0
            found = [
                member.commit_in_transaction(
                    topic, transactional_id, stamp, generation_id_or_member_epoch=member.generation - 1
                ),
                member.commit_in_transaction(topic, transactional_id, old),
                member.commit_in_transaction(topic, transactional_id, stamp),
            ]
            assert cursors(bootstrap, group) == {}, "the transaction is open"
            assert raw.code(client.ask(request(26, 2, **whose, committed=True))) == 0
        return found

    expected = [ILLEGAL_GENERATION, INVALID_PRODUCER_EPOCH, 0]
    assert told(services.kafka_bootstrap, orders, unique("g"), unique("t")) == expected
    assert told(node.bootstrap, audit, unique("g"), unique("t")) == expected
