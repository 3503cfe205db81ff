"""What a log holds, straight from Kafka."""

from __future__ import annotations

import uuid
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.wait import wait_for

_NOT_THERE = (
    KafkaError._TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""What is told of a partition that was created this moment, whose broker stood still, or whose leader is new: it knows
its high watermark only when a follower has fetched (KIP-207).
"""


def read_messages(bootstrap: str, topic: str, partition: int = 0) -> list[Message]:
    """Every record of a partition."""
    settings = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, "enable.partition.eof": True})
    try:
        at = TopicPartition(topic, partition)
        _, end = watermarks(consumer, at)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Message] = []
        while max(0, consumer.position([at])[0].offset) < end:  # negative before the first record
            message = consumer.poll(0.5)  # which returns at the end of the log too, as an error
            if message is not None and not message.error():
                found.append(message)
        return found
    finally:
        consumer.close()


def watermarks(consumer: Consumer, at: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition and the one behind its last, once it has a leader that knows it is one."""
    refused: list[KafkaException] = []

    def found() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(at, timeout=5)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE:
                raise
            refused.append(error)
            with suppress(KafkaException):  # the broker that it asks may be starting: the wait goes on
                consumer.list_topics(at.topic, timeout=5)  # or the leader it knows is asked again and again
            return None

    try:
        known = wait_for(found, f"{at.topic}-{at.partition} to be known", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; {len(refused)} times refused: {refused[-1]}") from None
    assert known is not None
    return known


def read_log(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """The value of every record of a partition."""
    return [message.value() or b"" for message in read_messages(bootstrap, topic, partition)]
