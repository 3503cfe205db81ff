"""Logs of topics through the admin port, as a real Kafka has them: partitions, groups, the last records."""

from __future__ import annotations

from confluent_kafka import Producer

from sidecar.client.sync import ExclusiveProducer
from tests.conftest import Unique
from tests.kafka.shadow.groups import commit, consumer, write, write_transactions
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


def test_partitions_are_told_with_their_ends_and_their_size(services: Services, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    write(services.kafka_bootstrap, topic, 30, 1)
    empty, full = rest.call("GET", f"/v1/topics/{topic}/partitions")[1]["items"]
    assert (empty["start"], empty["end"], empty["bytes"]) == (0, 0, 0)
    assert (full["partition"], full["start"], full["end"]) == (1, 0, 30)
    assert full["bytes"] > 30 * 8
    assert full["leader"] >= 0
    status, answer = rest.call("GET", "/v1/topics/no-such-topic/partitions")
    assert (status, "no-such-topic" in answer["message"]) == (404, True)


def test_groups_of_an_ordinary_topic_stand_with_their_lag_and_their_members(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    write(services.kafka_bootstrap, topic, 20)
    away, here = unique("away"), unique("here")
    commit(node.bootstrap, away, topic, {0: 15})
    reader = consumer(node.bootstrap, here)
    try:
        reader.subscribe([topic])
        wait_for(lambda: reader.poll(1.0) is not None, "a record", 30)
        reader.commit(asynchronous=False)

        def groups() -> dict[str, tuple[int, int]]:
            items = rest.call("GET", f"/v1/topics/{topic}/groups")[1]["items"]
            return {each["group"]: (each["members"], each["lag"]) for each in items}

        wait_for(lambda: groups().keys() == {away, here}, "both groups", 30)
        assert groups() == {away: (0, 5), here: (1, 19)}
    finally:
        reader.close()


def test_the_last_records_are_told_with_their_headers_their_ids_and_the_generation(
    services: Services, node: NodeProcess, rest: Rest
) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "deduplication": True})[0] == 200
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "billing", "compression.type": "zstd"})
    for each in range(40):
        headers: dict[str, str | bytes | None] = {"sidecar-sequence-id": str(each), "trace": b"\xff"}
        producer.produce(topic, f"record {each}", f"key {each}", partition=each % 2, headers=headers)
        producer.flush(30)
    found = rest.call("GET", f"/v1/topics/{topic}/records?limit=5&partition=1")[1]["items"]
    assert [each["value"]["text"] for each in found] == [f"record {each}" for each in (39, 37, 35, 33, 31)]
    newest = found[0]
    assert newest["offset"] > found[1]["offset"]  # what fenced the log before lies in it, too, and is not shown
    assert (newest["key"]["text"], newest["sequence_id"], newest["generation"]) == ("key 39", 39, 1)
    assert newest["headers"][1] == {"name": "trace", "value": {"hex": "ff", "size": 1, "cut": False}}
    assert newest["producer_id"] >= 0
    both = rest.call("GET", f"/v1/topics/{topic}/records?limit=4")[1]["items"]
    assert sorted(each["value"]["text"] for each in both) == [f"record {each}" for each in (36, 37, 38, 39)]
    shadow = f"{topic}-shadow"
    assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": shadow})[0] == 201
    assert rest.call("GET", f"/v1/topics/{shadow}/records?limit=5&partition=1")[1]["items"] == found
    assert rest.call("GET", f"/v1/topics/{topic}/records?partition=2")[0] == 400
    assert rest.call("GET", "/v1/topics/__consumer_offsets/records")[0] == 400


def test_markers_of_transactions_are_no_records(services: Services, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    assert rest.call("GET", f"/v1/topics/{topic}/records")[1] == {"items": [], "next_page_token": None}
    write_transactions(services.kafka_bootstrap, topic, 4)
    found = rest.call("GET", f"/v1/topics/{topic}/records?limit=8")[1]["items"]
    assert [(each["offset"], each["value"]["text"]) for each in found] == [
        (6, "record 3"),
        (4, "record 2"),
        (2, "record 1"),
        (0, "record 0"),
    ]
    assert {each["generation"] for each in found} == {None}
    assert rest.call("GET", f"/v1/topics/{topic}/records?limit=1")[1]["items"] == found[:1]


def test_records_are_found_in_front_of_owners_that_wrote_none(
    services: Services, node: NodeProcess, rest: Rest
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"})[0] == 200
    for each in range(24):
        with ExclusiveProducer(node.bootstrap, topic=topic, name=f"owner-{each}") as producer:
            if each == 0:
                producer.send(b"the only one")
    (partition,) = rest.call("GET", f"/v1/topics/{topic}/partitions")[1]["items"]
    assert partition["end"] > 20  # each owner's fence is a marker in the log
    (found,) = rest.call("GET", f"/v1/topics/{topic}/records")[1]["items"]
    assert found["value"]["text"] == "the only one"
