"""Names that stand for another topic's log, as the gateway serves them: what is read, and that nothing is written."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from sidecar.cluster.resolver import ANONYMOUS, ANYBODY, Source
from sidecar.protocol import fetch
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.primitives import Octets
from tests import raw
from tests.conftest import Unique
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.logs import watermarks
from tests.raw import RawClient
from tests.services import Services
from tests.wait import wait_for

_RECORDS = 40
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED}


@dataclass(frozen=True)
class Topics:
    """A topic of two partitions with records of finished and aborted transactions, and its two shadows."""

    node: VirtualCluster
    kafka: str
    source: str
    shadow: str
    other: str

    def expose(self, *names: str, allow: str = ANYBODY) -> None:
        """Make these names shadows of the source as it is now."""
        upstream = self.node.nodes[0].upstream
        layout = self.node.run(upstream.layout(self.source, refresh=True))
        source = Source(self.source.encode(), layout.topic_id, frozenset({allow}))
        self.node.resolver.set_shadows({name.encode(): source for name in names})


def write(bootstrap: str, topic: str, partitions: int = 2) -> None:
    """Every other transaction is aborted."""

    def ends() -> int:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(watermarks(consumer, place)[1] for place in places)

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    producer.init_transactions(30)
    with Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}) as consumer:
        before = ends()
        for number in range(_RECORDS):
            producer.begin_transaction()
            headers: dict[str, str | bytes | None] = {"number": str(number)}
            producer.produce(
                topic, f"value {number}", key=f"key {number}", partition=number % partitions, headers=headers
            )
            producer.flush(30)
            if number // 2 % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        wait_for(lambda: ends() == before + 2 * _RECORDS, "the last marker: the end of a transaction awaits none")


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def topics(one_node: VirtualCluster, services: Services, unique: Unique) -> Iterator[Topics]:
    source, shadow, other = unique("orders"), unique("orders-audit"), unique("orders-copy")
    direct = admin(services.kafka_bootstrap)
    created = direct.create_topics([NewTopic(name, 2, 1) for name in (source, shadow, other)])
    for done in created.values():
        done.result(20)
    write(services.kafka_bootstrap, source)
    found = Topics(one_node, services.kafka_bootstrap, source, shadow, other)
    found.expose(shadow, other)
    yield found
    one_node.resolver.set_shadows({})


# Reading ------------------------------------------------------------------------------------------------------------


def position(version: int, partition: int, offset: int) -> bytes:
    epoch = struct.pack(">i", -1) if version >= 9 else b""
    start = struct.pack(">q", -1) if version >= 5 else b""
    return struct.pack(">i", partition) + epoch + struct.pack(">q", offset) + start + struct.pack(">i", 1 << 20)


def fetched(
    bootstrap: str, version: int, isolation: int, asked: list[tuple[str, int, int]]
) -> dict[tuple[str, int], bytes]:
    """The elements of an answer, by topic and partition, to a question for (topic, partition, offset)."""
    parts: list[tuple[bytes, Octets]] = [
        (topic.encode(), position(version, partition, offset)) for topic, partition, offset in asked
    ]
    with RawClient(bootstrap) as wire:
        wire.send_bytes(fetch.encode_request(1, b"wire", version, (200, 1, 1 << 24, isolation), parts))
        frame = wire.receive_frame()
    answer = fetch.walk_answer(frame, 0, len(frame), version)
    assert [part.error for part in answer.parts] == [0] * len(asked)
    return {(part.topic.decode(), part.partition): frame[part.start : part.end] for part in answer.parts}


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", range(4, 12))
def test_a_shadow_is_the_log_of_its_source_to_the_byte(topics: Topics, version: int, isolation: int) -> None:
    """One request names two shadows and the source, the same partition at other offsets too."""
    source, shadow, other = topics.source, topics.shadow, topics.other
    asked = [(shadow, 0, 0), (source, 0, 0), (other, 0, 7), (shadow, 1, 3), (source, 1, 5)]
    found = fetched(topics.node.bootstrap, version, isolation, asked)
    for name, partition, offset in asked:
        direct = fetched(topics.kafka, version, isolation, [(source, partition, offset)])
        assert found[name, partition] == direct[source, partition]
        assert len(found[name, partition]) > 500


@pytest.mark.parametrize("version", [4, 7, 11])
@pytest.mark.parametrize("first", ["shadow", "ordinary"])
def test_a_shadow_and_another_topic_in_one_request(topics: Topics, version: int, first: str, unique: Unique) -> None:
    ordinary = unique("something-with-another-length-of-name")
    direct = admin(topics.kafka)
    direct.create_topics([NewTopic(ordinary, 1, 1)])[ordinary].result(20)
    write(topics.kafka, ordinary, partitions=1)
    asked = [(topics.shadow, 0, 0), (topics.shadow, 1, 2), (ordinary, 0, 1)]
    found = fetched(topics.node.bootstrap, version, 1, asked if first == "shadow" else asked[::-1])
    for name, partition, offset in asked:
        log = topics.source if name == topics.shadow else name
        assert found[name, partition] == fetched(topics.kafka, version, 1, [(log, partition, offset)])[log, partition]


def consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    wanted = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0, **settings}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **wanted})


Seen = tuple[int, int, bytes | None, bytes | None, object, object]


def read(reader: Consumer, count: int) -> list[Seen]:
    found: list[Seen] = []
    while len(found) < count:
        message = reader.poll(20)
        assert message is not None, f"{len(found)} of {count} records"
        assert not message.error(), message.error()
        found.append(
            (
                message.partition() or 0,
                message.offset() or 0,
                message.key(),
                message.value(),
                message.timestamp(),
                message.headers(),
            )
        )
    return sorted(found, key=lambda seen: seen[:2])


@pytest.mark.parametrize(("isolation", "count"), [("read_committed", _RECORDS // 2), ("read_uncommitted", _RECORDS)])
def test_a_group_reads_a_shadow_and_its_source_side_by_side(
    topics: Topics, unique: Unique, isolation: str, count: int
) -> None:
    direct = consumer(topics.kafka, unique("direct"), **{"isolation.level": isolation})
    direct.subscribe([topics.source])
    expected = read(direct, count)
    direct.close()
    both = consumer(topics.node.bootstrap, unique("both"), **{"isolation.level": isolation})
    both.subscribe([topics.source, topics.shadow])
    found = read(both, 2 * count)
    both.close()
    assert found == sorted([*expected, *expected], key=lambda seen: seen[:2])


def test_cursors_of_a_shadow_are_its_own(topics: Topics, unique: Unique) -> None:
    group = unique("audit")
    for topic, count in ((topics.shadow, 8), (topics.source, 3)):
        reader = consumer(topics.node.bootstrap, group)
        reader.assign([TopicPartition(topic, 0, 0)])
        seen = read(reader, count)
        reader.commit(offsets=[TopicPartition(topic, 0, seen[-1][1] + 1)], asynchronous=False)
        reader.close()
    for bootstrap in (topics.node.bootstrap, topics.kafka):
        client = admin(bootstrap)
        (asked,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        offsets = {(found.topic, found.partition): found.offset for found in asked.result(20).topic_partitions or ()}
        assert offsets.keys() == {(topics.shadow, 0), (topics.source, 0)}
        assert offsets[topics.shadow, 0] > offsets[topics.source, 0]
    again = consumer(topics.node.bootstrap, group)
    again.assign([TopicPartition(topics.shadow, 0)])
    assert read(again, 1)[0][1] >= offsets[topics.shadow, 0]
    again.close()


@pytest.mark.parametrize("spec", [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(1)])
def test_offsets_of_a_shadow_are_those_of_its_source(topics: Topics, spec: OffsetSpec) -> None:
    def offsets(bootstrap: str, *names: str) -> list[int]:
        asked = {TopicPartition(name, partition): spec for name in names for partition in (0, 1)}
        client = admin(bootstrap)
        found = client.list_offsets(asked)
        return [done.result(20).offset for done in found.values()]

    direct = offsets(topics.kafka, topics.source)
    assert offsets(topics.node.bootstrap, topics.shadow, topics.source, topics.other) == direct * 3


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_a_leader_epoch_is_asked_of_the_source(topics: Topics, version: int) -> None:
    def ends(bootstrap: str, *names: str) -> list[tuple[int, int, int]]:
        each = [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0} for index in (0, 1)]
        wanted = [{"topic": name, "partitions": each} for name in names]
        with RawClient(bootstrap) as wire:
            answer = wire.ask(request(23, version, replica_id=-1, topics=wanted))
        found = [partition for topic in answer.topics for partition in topic.partitions]
        return [(partition.error_code, partition.leader_epoch, partition.end_offset) for partition in found]

    direct = ends(topics.kafka, topics.source)
    assert direct[0][2] == _RECORDS  # half of them, and as many markers
    assert ends(topics.node.bootstrap, topics.shadow, topics.source) == direct * 2


# What a shadow shows ------------------------------------------------------------------------------------------------


def shown(topics: Topics, *names: str) -> dict[str, tuple[int, int]]:
    """Error and number of partitions by name, as Metadata tells them; of all topics if none is named."""
    with RawClient(topics.node.bootstrap) as wire:
        wanted = [{"name": name} for name in names] or None
        answer = wire.ask(request(3, 9, topics=wanted, allow_auto_topic_creation=True))
    return {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}


def test_a_shadow_shows_no_more_partitions_than_its_source_and_the_other_way_round(topics: Topics) -> None:
    assert shown(topics, topics.shadow) == {topics.shadow: (0, 2)}
    direct = admin(topics.kafka)
    direct.create_partitions([NewPartitions(topics.source, 3)])[topics.source].result(20)
    direct.create_partitions([NewPartitions(topics.other, 4)])[topics.other].result(20)
    asked = request(3, 9, topics=[{"name": topics.source}, {"name": topics.other}])
    with RawClient(topics.kafka) as wire:  # the controller answered, which may be before the broker knows of it
        wait_for(lambda: sorted(len(each.partitions) for each in wire.ask(asked).topics) == [3, 4], "partitions", 30)
    topics.node.run(topics.node.nodes[0].upstream.metadata(MetadataRequest((topics.source, topics.other), False)))
    expected = {topics.shadow: (0, 2), topics.other: (0, 3), topics.source: (0, 3)}
    assert shown(topics, topics.shadow, topics.other, topics.source) == expected


def test_a_source_that_was_created_anew_closes_its_shadows(topics: Topics, unique: Unique) -> None:
    """Its offsets would mean other records, and a Java consumer would hang over epochs that fell."""
    direct = admin(topics.kafka)
    direct.delete_topics([topics.source])[topics.source].result(20)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    wait_for(lambda: shown(topics, topics.shadow)[topics.shadow] == unknown, "the shadow to be closed")
    wait_for(
        lambda: direct.create_topics([NewTopic(topics.source, 2, 1)])[topics.source].exception(20) is None,
        "the source to be created again",
    )
    write(topics.kafka, topics.source)
    assert shown(topics, topics.shadow, topics.source) == {topics.shadow: unknown, topics.source: (0, 2)}
    listed = shown(topics)
    assert topics.shadow not in listed  # Sarama's and KafkaJS's lists fail at a topic with an error
    assert listed[topics.source] == (0, 2)
    parts: list[tuple[bytes, Octets]] = [(name.encode(), position(11, 0, 0)) for name in (topics.shadow, topics.source)]
    with RawClient(topics.node.bootstrap) as wire:
        wire.send_bytes(fetch.encode_request(1, b"wire", 11, (200, 1, 1 << 20, 0), parts))
        frame = wire.receive_frame()
    answer = fetch.walk_answer(frame, 0, len(frame), 11)
    assert [part.error for part in answer.parts] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    topics.expose(topics.shadow)
    assert shown(topics, topics.shadow) == {topics.shadow: (0, 2)}


def asked_by_name(bootstrap: str, topic: str) -> tuple[fetch.FetchAnswer, list[tuple[int, int]]]:
    """What Fetch 11 answers for a topic, and ListOffsets: error and offset."""
    with RawClient(bootstrap) as wire:
        wire.send_bytes(
            fetch.encode_request(1, b"wire", 11, (0, 1, 1 << 20, 0), [(topic.encode(), position(11, 0, 0))])
        )
        frame = wire.receive_frame()
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}]
        listed = wire.ask(request(2, 5, replica_id=-1, isolation_level=0, topics=wanted))
    ends = [(part.error_code, part.offset) for found in listed.topics for part in found.partitions]
    return fetch.walk_answer(frame, 0, len(frame), 11), ends


@pytest.mark.parametrize("fetches_by_id", [True, False], ids=["by Fetch", "by Metadata, as of Kafka 3.0"])
def test_before_the_node_knows_of_a_source_created_anew_nobody_reads_it_under_the_shadows_name(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, fetches_by_id: bool
) -> None:
    """The node still has the former topic's leaders: nothing but the broker's answer shows that it is another one."""
    upstream = topics.node.nodes[0].upstream
    if not fetches_by_id:
        serves = upstream.serves
        monkeypatch.setattr(upstream, "serves", lambda key, version: (key, version) != (1, 13) and serves(key, version))
    known = asked_by_name(topics.node.bootstrap, topics.shadow)
    assert (known[0].parts[0].error, known[1]) == (0, [(0, _RECORDS)])
    direct = admin(topics.kafka)
    direct.delete_topics([topics.source])[topics.source].result(20)
    wait_for(
        lambda: direct.create_topics([NewTopic(topics.source, 2, 1)])[topics.source].exception(20) is None,
        "the source to be created again",
    )
    write(topics.kafka, topics.source)
    monkeypatch.setattr(upstream, "refresh_soon", lambda topics: None)
    (part,), ends = (found := asked_by_name(topics.node.bootstrap, topics.shadow))[0].parts, found[1]
    assert (part.error, part.record_bytes) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert ends == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert asked_by_name(topics.node.bootstrap, topics.source)[0].parts[0].record_bytes > 0


def test_a_shadow_that_is_being_made_is_not_there_yet(topics: Topics) -> None:
    topics.node.resolver.set_shadows({topics.shadow.encode(): None})
    assert shown(topics, topics.shadow) == {topics.shadow: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}


# Writing ------------------------------------------------------------------------------------------------------------


def refusal(done: object) -> int:
    with pytest.raises(KafkaException) as refused:
        done.result(20)  # type: ignore[attr-defined]
    return refused.value.args[0].code()


def test_every_write_to_a_shadow_is_refused_and_the_logs_stay_as_they_were(topics: Topics, unique: Unique) -> None:
    before = fetched(topics.kafka, 11, 0, [(topics.source, 0, 0), (topics.source, 1, 0)])
    through, name = admin(topics.node.bootstrap), topics.shadow
    producer = Producer({"bootstrap.servers": topics.node.bootstrap, "log_level": 0})
    told: list[int] = []
    producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error.code() if error else 0))
    producer.flush(30)
    assert told == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    assert {
        refusal(through.delete_topics([name])[name]),
        refusal(through.create_partitions([NewPartitions(name, 5)])[name]),
        refusal(through.incremental_alter_configs([resource])[resource]),
        *[refusal(done) for done in through.delete_records([TopicPartition(name, 0, 1)]).values()],
    } == _REFUSED
    transactional = Producer(
        {"bootstrap.servers": topics.node.bootstrap, "transactional.id": unique("t"), "log_level": 0}
    )
    transactional.init_transactions(30)
    transactional.begin_transaction()
    transactional.produce(name, b"x", on_delivery=lambda error, _: told.append(error.code() if error else 0))
    transactional.flush(30)
    with pytest.raises(KafkaException) as refused:
        transactional.commit_transaction(30)
    assert refused.value.args[0].code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._STATE}
    assert told[1] != 0
    assert fetched(topics.kafka, 11, 0, [(topics.source, 0, 0), (topics.source, 1, 0)]) == before
    assert refusal(through.delete_topics([topics.source])[topics.source]) == KafkaError.POLICY_VIOLATION


# Permissions --------------------------------------------------------------------------------------------------------


def test_who_is_not_allowed_reads_nothing_of_a_shadow(topics: Topics) -> None:
    topics.expose(topics.shadow, allow="User:alice")
    parts = {(topics.shadow, 0): 0, (topics.source, 0): 0}
    epochs = {"topics": [{"topic": topics.shadow, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    with RawClient(topics.node.bootstrap) as client:
        for asked in (raw.fetch(parts), raw.list_offsets(dict.fromkeys(parts, -1))):
            assert errors_by_topic(client.ask(asked)) == {topics.shadow: {29}, topics.source: {0}}
        assert errors_by_topic(client.ask(request(23, 4, replica_id=-1, **epochs))) == {topics.shadow: {29}}
        named = client.ask(request(3, 9, topics=[{"name": topics.shadow}, {"name": topics.source}]))
        assert {topic.name: topic.error_code.value for topic in named.topics} == {topics.shadow: 29, topics.source: 0}
        listed = {topic.name for topic in client.ask(request(3, 9, topics=None)).topics}
        assert topics.source in listed
        assert topics.shadow not in listed
    topics.expose(topics.shadow, allow=ANONYMOUS)
    with RawClient(topics.node.bootstrap) as client:
        assert errors_by_topic(client.ask(raw.fetch(parts))) == {topics.shadow: {0}, topics.source: {0}}


def test_who_is_not_allowed_learns_neither_settings_nor_producers_of_a_shadow_by_its_name(topics: Topics) -> None:
    """What else a request names is described; a shadow that was not hidden is, too."""
    names = [topics.shadow, topics.source]
    brokers = [{"resource_type": 4, "resource_name": str(node)} for node in topics.node.ids]
    described = [{"resource_type": 2, "resource_name": name} for name in names]

    def settings(client: RawClient, version: int, resources: list[dict[str, Any]]) -> dict[str, tuple[int, bool]]:
        results = client.ask(request(32, version, resources=resources)).results
        return {each.resource_name: (each.error_code.value, bool(each.configs)) for each in results}

    producers = request(61, 0, topics=[{"name": name, "partition_indexes": [0]} for name in names])
    with RawClient(topics.node.bootstrap) as client:
        assert settings(client, 4, described) == dict.fromkeys(names, (0, True))
        assert errors_by_topic(client.ask(producers)) == {name: {0} for name in names}
        topics.expose(topics.shadow, allow="User:alice")
        for version in range(1, 5):
            of_topics = {topics.shadow: (29, False), topics.source: (0, True)}
            assert settings(client, version, described) == of_topics, version
            assert settings(client, version, described[:1]) == {topics.shadow: (29, False)}, version
            of_nodes = {str(node): (0, True) for node in topics.node.ids}
            assert settings(client, version, [*described, *brokers]) == of_topics | of_nodes, version
        assert errors_by_topic(client.ask(producers)) == {topics.shadow: {29}, topics.source: {0}}


@pytest.mark.parametrize("name", ["wire", "wire;note=of a client"])
def test_who_is_not_allowed_has_no_cursor_of_a_shadow(topics: Topics, unique: Unique, name: str) -> None:
    """Neither sees nor moves one, in any version; what else the request names is done."""
    group, allowed, denied = unique("group"), topics.source, topics.shadow
    place = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}]
    both = [{"name": topic, "partitions": place} for topic in (denied, allowed)]
    of_nobody = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1}
    with RawClient(topics.kafka) as kafka:
        assert errors_by_topic(kafka.ask(request(8, 2, topics=both, **of_nobody))) == {denied: {0}, allowed: {0}}
    topics.expose(denied, allow="User:alice")
    expected = {denied: {29}, allowed: {0}}
    with RawClient(topics.node.bootstrap, name) as wire:
        for version in range(2, 10):
            assert errors_by_topic(wire.ask(request(8, version, topics=both, **of_nobody))) == expected, version
            alone = wire.ask(request(8, version, topics=both[:1], **of_nobody))
            assert errors_by_topic(alone) == {denied: {29}}, version
        for version in range(1, 8):
            asked = [{"name": topic, "partition_indexes": [0]} for topic in (denied, allowed)]
            assert errors_by_topic(wire.ask(request(9, version, group_id=group, topics=asked))) == expected, version
            if version >= 2:
                everything = wire.ask(request(9, version, group_id=group, topics=None))
                assert errors_by_topic(everything) == {allowed: {0}}, version
        for version in range(4):
            txn = {"transactional_id": unique("t"), "producer_id": 987_654_321, "producer_epoch": 3}
            answer = errors_by_topic(wire.ask(request(28, version, topics=both, **txn, **of_nobody)))
            assert answer[denied] == {29}
            assert answer[allowed] not in ({0}, {29}), "Kafka does not know that producer"
        deleted = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in (denied, allowed)]
        assert errors_by_topic(wire.ask(request(47, 0, group_id=group, topics=deleted))) == expected
    with RawClient(topics.kafka) as kafka:
        left = kafka.ask(request(9, 7, group_id=group, topics=None))
    assert [topic.name for topic in left.topics] == [denied]


def errors_by_topic(answer: Any) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for topic in getattr(answer, "responses", None) or answer.topics:
        name = topic.topic if hasattr(topic, "topic") else topic.name
        found.setdefault(name, set()).update(part.error_code.value for part in topic.partitions)
    return found
