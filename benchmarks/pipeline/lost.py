"""A topic's sequence ids, forgotten by Redis and by the snapshot topic: what `rebuild` is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from confluent_kafka import Consumer, Producer, TopicPartition
from redis import Redis

if TYPE_CHECKING:
    from benchmarks.arena import Arena

_PARTITIONS: Final = 8
_PATIENCE_S: Final = 20.0


def lose_ids(arena: Arena, topic: str) -> None:
    """Take away all that is known of a topic's ids outside of its node, which knows them still."""
    environment = arena.environment()
    kafka, cluster = environment["SIDECAR_BOOTSTRAP_SERVERS"], environment["SIDECAR_CLUSTER"]
    client = Redis.from_url(environment["SIDECAR_REDIS_URL"])
    client.delete(f"sidecar:{{{cluster}}}:snapshots")
    client.close()
    at = TopicPartition(f"__sidecar_{cluster}_snapshots", crc32(topic.encode()) % _PARTITIONS, 0)
    producer = Producer({"bootstrap.servers": kafka})
    for key in _keys(kafka, at, f"{topic}/".encode()):
        producer.produce(at.topic, None, key, at.partition)
    producer.flush(_PATIENCE_S)


def _keys(kafka: str, at: TopicPartition, prefix: bytes) -> set[bytes]:
    settings = {"bootstrap.servers": kafka, "group.id": "lost", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        _, end = consumer.get_watermark_offsets(at, timeout=_PATIENCE_S)
        consumer.assign([at])
        found: set[bytes] = set()
        while consumer.position([at])[0].offset < end:
            message = consumer.poll(1.0)
            key = message.key() if message is not None and not message.error() else None
            if key is not None and key.startswith(prefix):
                found.add(key)
        return found
    finally:
        consumer.close()
