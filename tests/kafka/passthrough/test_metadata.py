"""Metadata as libraries read it: what a node answers must not be less than their readers count on."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.nodes import NodeProcess
from tests.services import Services

_TOPICS = 100


@pytest.fixture
def small_topics(services: Services) -> list[str]:
    """One partition each, names of three characters: as few bytes in an answer as a topic can have."""
    names = [f"z{number:02d}" for number in range(_TOPICS)]
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    return names


def test_librdkafka_reads_the_metadata_of_many_small_topics(
    node: NodeProcess, services: Services, small_topics: list[str]
) -> None:
    told: list[str] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 30_000, "log_level": 0})
    for name in small_topics:
        producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error.name() if error else "ok"))
    producer.flush(60)
    assert told == ["ok"] * _TOPICS
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for future in admin.delete_topics(small_topics).values():
        future.result(60)
