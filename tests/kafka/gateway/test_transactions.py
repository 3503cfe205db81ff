"""Transactions and producer ids through nodes: what passes, what is refused and with which code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.transactions import DESCRIBE_TRANSACTIONS
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster
    from tests.services import Services

_OURS = "sidecar.default.orders"
_NOT_MINE = {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.fixture
def wire(one_node: VirtualCluster) -> Iterator[RawClient]:
    with RawClient(one_node.bootstrap) as opened:
        yield opened


def init(version: int, **values: Any) -> Any:
    return request(22, version, **{"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1} | values)


@pytest.mark.parametrize(
    ("key", "version"),
    [(22, version) for version in range(5)] + [(key, version) for key in (24, 25, 26, 28) for version in range(4)],
)
def test_the_sidecars_transactional_ids_are_refused(key: int, version: int, wire: RawClient) -> None:
    contents = init(version, transactional_id=_OURS) if key == 22 else None
    sample = {} if key == 22 else samples("orders", "group")[key] | {"transactional_id": _OURS}
    assert codes(wire.ask(contents or request(key, version, **sample))) == _NOT_MINE


def test_a_transaction_of_the_sidecars_own_is_not_described(wire: RawClient, unique: Unique) -> None:
    mine = unique("txn")
    assert codes(wire.ask(init(4, transactional_id=mine))) == {0}
    asked = request(65, 0, transactional_ids=[_OURS, mine, f"{mine}-unknown", mine])
    answer = wire.ask_values(DESCRIBE_TRANSACTIONS, asked)
    assert [(found["transactional_id"], found["error_code"]) for found in answer["transaction_states"]] == [
        (_OURS, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (mine, 0),
        (f"{mine}-unknown", 105),
    ]


@pytest.mark.parametrize("version", range(5))
def test_a_client_id_with_an_unknown_setting_gets_no_producer_id(version: int, one_node: VirtualCluster) -> None:
    before = len(one_node.sessions.told)
    with RawClient(one_node.bootstrap, client_id="billing;mode=exclusiv") as wire:
        assert codes(wire.ask(init(version))) == {ErrorCode.INVALID_REQUEST}
    assert len(one_node.sessions.told) == before


@pytest.mark.parametrize("version", [3, 4])
def test_a_deposed_session_is_refused_by_its_producer_id(version: int, one_node: VirtualCluster) -> None:
    with RawClient(one_node.bootstrap, client_id="billing;mode=exclusive;-1") as wire:
        given = wire.ask(init(version))
        assert one_node.sessions.told[-1] == ("billing", given.producer_id, None)
        one_node.sessions.refused[given.producer_id] = KafkaError(ErrorCode.PRODUCER_FENCED, "billing 2 owns orders")
        named = init(version, producer_id=given.producer_id, producer_epoch=given.producer_epoch)
        refused = wire.ask(named)
        assert (codes(refused), refused.producer_id) == ({ErrorCode.PRODUCER_FENCED}, -1)
        del one_node.sessions.refused[given.producer_id]
        again = wire.ask(named)
        assert codes(again) == {0}
        assert one_node.sessions.told[-1] == ("billing", again.producer_id, given.producer_id)


@pytest.mark.parametrize("version", range(4))
async def test_no_partition_joins_a_transaction_that_names_a_topic_out_of_bounds(
    version: int, wire: RawClient, one_node: VirtualCluster, services: Services, unique: Unique
) -> None:
    plain, governed, transactional_id = unique("plain"), unique("governed"), unique("txn")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(plain, partitions=2)
        await calls.create(governed)
    one_node.resolver.set_policies([governed], [])
    given = wire.ask(init(4, transactional_id=transactional_id))
    stamp = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}

    def add(*topics: str) -> dict[str, set[int]]:
        named = [{"name": topic, "partitions": [0, 1] if topic == plain else [0]} for topic in topics]
        asked = request(24, version, transactional_id=transactional_id, topics=named, **stamp)
        return {
            found.name: {partition.partition_error_code.value for partition in found.results_by_partition}
            for found in _results(wire.ask(asked))
        }

    def ongoing() -> str:
        answer = wire.ask_values(DESCRIBE_TRANSACTIONS, request(65, 0, transactional_ids=[transactional_id]))
        (state,) = answer["transaction_states"]
        return state["transaction_state"]

    not_attempted = {ErrorCode.OPERATION_NOT_ATTEMPTED}
    assert add(plain, governed) == {plain: not_attempted, governed: {ErrorCode.INVALID_TXN_STATE}}
    assert add("__sidecar_default", plain) == {
        "__sidecar_default": {ErrorCode.TOPIC_AUTHORIZATION_FAILED},
        plain: not_attempted,
    }
    assert add("__sidecar_default", governed) == {
        "__sidecar_default": {ErrorCode.TOPIC_AUTHORIZATION_FAILED},
        governed: {ErrorCode.INVALID_TXN_STATE},
    }
    assert ongoing() == "Empty", "nothing of it reached Kafka"
    assert add(plain) == {plain: {0}}
    assert ongoing() == "Ongoing"
    assert codes(wire.ask(request(26, 3, transactional_id=transactional_id, committed=False, **stamp))) == {0}


def _results(answer: Any) -> Any:
    return answer.results_by_topic_v3_and_below


def test_librdkafka_commits_and_aborts_offsets_and_records_together(
    three_nodes: VirtualCluster, unique: Unique
) -> None:
    source, target, group = unique("source"), unique("target"), unique("group")
    feed = Producer({"bootstrap.servers": three_nodes.bootstrap})
    for number in range(6):
        feed.produce(source, f"{number}".encode(), partition=0)
    assert feed.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": three_nodes.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    producer = Producer({"bootstrap.servers": three_nodes.bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(30)
    consumer.subscribe([source])
    try:
        for keep in (False, True):
            read = consumer.consume(3, timeout=30)
            assert len(read) == 3
            producer.begin_transaction()
            for message in read:
                assert message.error() is None
                producer.produce(target, b"kept" if keep else b"dropped", partition=0)
            positions = [Position(source, 0, 6 if keep else 3)]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
            if keep:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        (committed,) = consumer.committed([Position(source, 0)], timeout=30)
        assert committed.offset == 6
    finally:
        consumer.close()
    reader = Consumer(
        {"bootstrap.servers": three_nodes.bootstrap, "group.id": unique("reader"), "auto.offset.reset": "earliest"}
        | {"isolation.level": "read_committed"}
    )
    reader.subscribe([target])
    try:
        assert [message.value() for message in reader.consume(3, timeout=30)] == [b"kept"] * 3
    finally:
        reader.close()


async def test_aiokafka_commits_a_transaction(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, replicas=3)
    producer = AIOKafkaProducer(bootstrap_servers=three_nodes.bootstrap, transactional_id=unique("txn"))
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, unique("group"))
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=three_nodes.bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"kept"
    finally:
        await consumer.stop()
