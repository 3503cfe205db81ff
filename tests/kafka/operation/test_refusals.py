"""What clients of a real node are refused can be seen: by REST, by the SDK."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from sidecar.client import AdminClient
from sidecar.client.facts import Event
from sidecar.local.tools import Tools
from sidecar.policy.admission import NO_TRANSACTIONS
from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


async def test_a_second_writer_is_seen_with_the_reason(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic, name = create_topic(services.kafka_bootstrap, 1), unique("second")
    govern(rest, topic)
    with RawProducer(node.bootstrap, "first") as first, RawProducer(node.bootstrap, name) as second:
        assert first.send(topic, [b"v"]).error == 0
        for _ in range(3):
            assert second.send(topic, [b"w"]).error == 44
    async with AdminClient(node.admin_url) as admin:
        (found,) = await admin.refusals(topic)
    assert (found.client_id, found.topic, found.error_code, found.error) == (name, topic, 44, "POLICY_VIOLATION")
    assert (found.count, found.address, found.first <= found.last) == (3, "127.0.0.1", True)
    assert "first" in found.reason


async def test_each_new_refusal_is_an_event_however_often_it_happens(
    services: Services, node_process: StartNode
) -> None:
    node = node_process()
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(Rest(node.admin_url), topic)
    with RawProducer(node.bootstrap, "first") as first:
        assert first.send(topic, [b"v"]).error == 0
        for name in ("second", "third"):
            with RawProducer(node.bootstrap, name) as late:
                assert [late.send(topic, [b"w"]).error for _ in range(3)] == [44, 44, 44]
    found: list[Event] = []
    async with AdminClient(node.admin_url) as admin, aclosing(admin.events(after=0, topic=topic)) as events:
        async for event in events:
            found += [event] if event.kind == "refused" else []
            if event.name == "third":
                break
    assert [(each.topic, each.name, each.client) for each in found] == [
        (topic, "second", "127.0.0.1"),
        (topic, "third", "127.0.0.1"),
    ]
    assert found[0].detail.startswith("44 POLICY_VIOLATION: Topic has an existing exclusive producer: first")


def test_a_misspelt_mode_is_seen_though_librdkafka_tries_for_ever(
    node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    client_id = f"{unique('typo')};mode=exclusiv"
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": client_id, "enable.idempotence": True})
    try:
        producer.produce("orders", b"v")

        def seen() -> list[str]:
            producer.poll(0.05)
            _, found = rest.call("GET", "/v1/refusals")
            return [each["reason"] for each in found["items"] if each["client_id"] == client_id]

        (reason,) = wait_for(seen, "the refusal")
    finally:
        producer.purge()
    assert "mode 'exclusiv' is none of" in reason


def test_a_reader_that_is_not_on_the_allow_list_is_seen(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic, shadow, reader = create_topic(services.kafka_bootstrap, 1), unique("shadow"), unique("reader")
    assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": shadow, "allow": ["User:other"]})[0] == 201
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "client.id": reader, "group.id": unique("group")})
    try:
        consumer.assign([TopicPartition(shadow, 0, 0)])

        def seen() -> list[dict[str, object]]:
            consumer.poll(0.05)
            _, found = rest.call("GET", f"/v1/refusals?topic={shadow}")
            return found["items"]

        (found,) = wait_for(seen, "the refusal")
    finally:
        consumer.close()
    assert (found["client_id"], found["error"]) == (reader, "TOPIC_AUTHORIZATION_FAILED")
    assert "allow list" in str(found["reason"])


def _seen_of_transactions(rest: Rest, topic: str) -> list[tuple[str, str]]:
    _, found = rest.call("GET", f"/v1/refusals?topic={topic}")
    return [(each["error"], each["reason"]) for each in found["items"]]


def test_a_transaction_of_librdkafka_on_a_governed_topic_fails_and_people_see_why(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    """librdkafka has the code alone, as AddPartitionsToTxn has no field for a reason; nothing of it is in the topic."""
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(rest, topic)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(30)
    producer.purge()
    error: KafkaError = failed.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError.INVALID_TXN_STATE, True), error
    assert _seen_of_transactions(rest, topic) == [("INVALID_TXN_STATE", NO_TRANSACTIONS)]


def test_a_transaction_of_java_on_a_governed_topic_fails_and_people_see_why(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique, kafka_tools: Tools
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(rest, topic)
    asked = ("--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1")
    transaction = ("--transactional-id", unique("txn"), "--transaction-duration-ms", "1000")
    server = ("--producer-props", f"bootstrap.servers={node.bootstrap}")
    done = kafka_tools.run("org.apache.kafka.tools.ProducerPerformance", *asked, *transaction, *server, check=False)
    assert done.returncode != 0
    assert "InvalidTxnStateException" in done.stdout + done.stderr, done
    assert _seen_of_transactions(rest, topic) == [("INVALID_TXN_STATE", NO_TRANSACTIONS)]


def test_of_a_transaction_that_names_many_topics_one_is_seen_for_each_code(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topics, client_id = [create_topic(services.kafka_bootstrap, 1) for _ in range(3)], unique("many")
    for topic in topics:
        govern(rest, topic)
    named = [{"name": name, "partitions": [0]} for name in (*topics, "__sidecar_a", "__sidecar_b")]
    stamp = {"transactional_id": unique("txn"), "producer_id": 7, "producer_epoch": 0}
    with RawClient(node.bootstrap, client_id=client_id) as client:
        told = client.ask(request(24, 3, topics=named, **stamp)).results_by_topic_v3_and_below
    assert [found.results_by_partition[0].partition_error_code.value for found in told] == [48, 48, 48, 29, 29]
    _, found = rest.call("GET", "/v1/refusals")
    seen = {each["topic"]: each["reason"] for each in found["items"] if each["client_id"] == client_id}
    assert seen == {topics[0]: NO_TRANSACTIONS, "__sidecar_a": "topics of the sidecar are changed by it alone"}


@pytest.mark.parametrize("query", ["topics=a", "topic=a&topic=b"])
def test_a_parameter_that_nobody_knows_is_named(rest: Rest, query: str) -> None:
    assert rest.call("GET", f"/v1/refusals?{query}")[0] == 400
