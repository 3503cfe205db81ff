"""Topics, straight in Kafka."""

from __future__ import annotations

import uuid

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from tests.kafka.exclusive.producers import RawProducer
from tests.wait import wait_for


def create_topic(bootstrap: str, partitions: int = 2, name: str = "", **config: str) -> str:
    """A new topic straight in Kafka."""
    name = name or f"orders-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(20)
    with RawProducer(bootstrap, "probe") as probe:  # a batch without records: the leader answers 87 once it is one
        for partition in range(partitions):
            wait_for(lambda: probe.send(name, [], partition=partition).error not in (3, 5, 6), "a leader")  # noqa: B023
    return name


def delete_records(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Retention takes all that is in a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    everything = TopicPartition(topic, partition, -1)
    admin.delete_records([everything])[everything].result(20)
