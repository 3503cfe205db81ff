"""Whether the brokers of a cluster have found each other again, and their replicas are in sync."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from sidecar.local import Kafka
from sidecar.local.probe import ask_kafka


def is_whole(kafka: Kafka) -> bool:
    """Every broker knows all others, and every partition has a leader and all its replicas in sync."""
    for number in kafka.config.numbers:
        host, port = kafka.address(number).rsplit(":", 1)
        view = ask_kafka(host, int(port))
        if view is None or view.brokers.keys() != {*kafka.config.numbers}:
            return False
    try:
        topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
    except KafkaException:
        return False
    partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
    return all(found.leader >= 0 and {*found.isrs} == {*found.replicas} for found in partitions)
