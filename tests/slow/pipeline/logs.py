"""Logs in a real Kafka, written as a test says: batch by batch, or by a real producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from sidecar.pipeline.routes import Connection, addresses
from sidecar.pipeline.security import Security
from sidecar.protocol.calls.logs import ProduceBatch
from sidecar.protocol.ids import TopicPartition as Partition


def append(bootstrap: str, topic: str, batches: Sequence[bytes], partition: int = 0) -> int:
    """Produce batches as they are, to a single broker; the offset of the last one."""
    connection, offset = Connection(addresses(bootstrap)[0], 20, Security()), -1
    for batch in batches:
        answer = connection.call(ProduceBatch(Partition(topic, partition), batch, 10_000), 20)
        assert answer.error == 0, answer
        offset = answer.base_offset
    connection.close()
    return offset


def produce(bootstrap: str, topic: str, count: int, *, partition: int = 0, size: int = 10, **settings: Any) -> None:
    """So many records with rising ids and one name."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **settings})
    for number in range(count):
        headers: list[tuple[str, str | bytes | None]] = [
            ("sidecar-sequence-id", str(number)), ("sidecar-producer-name", "billing")
        ]  # fmt: skip
        while True:
            try:
                producer.produce(topic, b"v" * size, key=str(number), partition=partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def move_start(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """What retention does: the log begins at `offset`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    at = TopicPartition(topic, partition, offset)
    assert admin.delete_records([at])[at].result(20).low_watermark == offset
