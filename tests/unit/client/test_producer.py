"""What an ExclusiveProducer is made of, before it asks anybody."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.client import ExclusiveProducer
from sidecar.client.claim import Claim
from sidecar.client.pipeline import Pipeline
from sidecar.client.receipt import Pending, Receipt
from sidecar.client.sending import ID_HEADER, NAME_HEADER, Sender
from sidecar.dedup.content import Headers
from sidecar.dedup.names import producer_name
from sidecar.policy.identity import parse

NAMES = ["billing", "zähler/eu", "x" * 255, "a=b", "producer-1a"]
NO_NAMES = [
    "",
    "a;b",
    "x" * 256,
    "producer-1",
    "rdkafka",
    "kgo",
    "sarama",
    "kafkajs",
    "aiokafka-x",
    "kafka-python-3",
    "x…",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_that_a_node_takes_for_one(name: str) -> None:
    assert ExclusiveProducer("host:1", topic="orders", name=name).name == name
    assert producer_name(name) == name.encode()


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        ExclusiveProducer("host:1", topic="orders", name=name)


def test_a_name_that_is_assigned_is_one_and_nobody_elses() -> None:
    names = {ExclusiveProducer("host:1", topic="orders").name for _ in range(100)}
    assert len(names) == 100
    assert all(producer_name(name) for name in names)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mode": "shared"}, "mode"),
        ({"topic": ""}, "topic"),
        ({"timeout": 0}, "timeout"),
        ({"bootstrap": ""}, "address"),
        ({"partitions": []}, "partitions is empty"),
        ({"partitions": [0, -1]}, "-1 is no number of a partition"),
        ({"partitions": "01"}, "'0' is no number of a partition"),
        ({"partitions": [True]}, "True is no number of a partition"),
    ],
)
def test_what_cannot_be_is_refused_at_once(settings: dict[str, Any], told: str) -> None:
    settings = {"bootstrap": "host:1", "topic": "orders"} | settings
    with pytest.raises(ValueError, match=told):
        ExclusiveProducer(**settings)


def test_before_it_begins_it_owns_nothing() -> None:
    producer = ExclusiveProducer("host:1", topic="orders", name="billing")
    assert (producer.topic, producer.generation, producer.last_sequence_id) == ("orders", 0, -1)
    assert producer.last_sequence_ids == {}


@pytest.mark.parametrize("mode", ["exclusive", "wait_for_exclusive", "exclusive_with_fencing"])
def test_the_client_id_asks_for_the_mode_and_later_for_the_generation(mode: str) -> None:
    claim = Claim((("host", 1),), "orders", "zähler/eu", mode, 1.0)
    before = parse(claim.client_id.encode())
    assert (before.name, str(before.mode), before.generation) == ("zähler/eu", mode, None)
    assert claim.client_id.endswith(";")
    claim._owned = {0: 7, 1: 4}
    assert parse(claim.client_id.encode()).generation == 4  # a higher one would take partition 1 from its new owner
    assert (claim.generation, claim.generation_of(0), claim.generation_of(1)) == (7, 7, 4)


def test_the_headers_are_those_of_the_node() -> None:
    defaults = Headers()
    assert ID_HEADER.encode() in defaults
    assert NAME_HEADER.encode() in defaults


async def test_an_array_of_numbers_is_sent_as_its_bytes() -> None:
    """Its length in a record is that of its bytes, not of its items."""
    sent: list[Pending] = []

    def add(partition: int, record: Pending) -> None:
        sent.append(record)
        record.outcome.set_result(Receipt(partition, 0, -1, False, 1))

    producer = ExclusiveProducer("host:1", topic="orders", name="billing")
    producer._claim._owned, producer._claim.count = {None: 1}, 1
    pipeline = cast("Pipeline", SimpleNamespace(add=add, error=None))
    producer._sender = Sender(producer._claim, producer._numbering, pipeline, 30.0)
    numbers: Any = array("d", [1.5, 2.5])
    await producer.send(numbers, key=numbers, headers=[("h", numbers)])
    found = sent[0]
    assert (found.key, found.value, found.headers) == (bytes(numbers), bytes(numbers), (("h", bytes(numbers)),))
    with pytest.raises(TypeError):
        await producer.send(cast("Any", "text"))


def test_what_makes_a_topic_is_said_with_newtopic() -> None:
    with pytest.raises(TypeError, match=r"create is True: NewTopic\(\)"):
        ExclusiveProducer("host:1", topic="orders", create=cast("Any", True))
