"""Topics, straight in Kafka."""

from __future__ import annotations

import uuid

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.gateway.requests import request
from tests.raw import RawClient
from tests.wait import wait_for

_NO_LEADER_YET = {3, 5, 6}
_EARLIEST = -2


def create_topic(bootstrap: str, partitions: int = 2, name: str = "", **config: str) -> str:
    """A new topic straight in Kafka, served by the one broker or node at `bootstrap`.

    On one connection without a library's client, and without Produce, for whose topics a broker counts: both would cost
    it more than the topic.
    """
    name = name or f"orders-{uuid.uuid4().hex[:10]}"
    configs = [{"name": key, "value": value} for key, value in config.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    begin = [{"partition_index": partition, "timestamp": _EARLIEST} for partition in range(partitions)]
    with RawClient(bootstrap) as wire:
        [created] = wire.ask(request(19, 4, topics=[topic], timeout=20_000)).topics
        assert created.error_code == 0, created
        looked = request(2, 2, replica_id=-1, topics=[{"name": name, "partitions": begin}])

        def is_led() -> bool:
            [found] = wire.ask(looked).topics
            return not _NO_LEADER_YET & {partition.error_code for partition in found.partitions}

        wait_for(is_led, "leaders")
    return name


def delete_records(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Retention takes all that is in a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    everything = TopicPartition(topic, partition, -1)
    admin.delete_records([everything])[everything].result(20)
