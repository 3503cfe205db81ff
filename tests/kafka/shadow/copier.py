"""Consume, transform, produce, with each step in one transaction (KIP-98, KIP-447), by librdkafka, as a process.

`python copier.py BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID STOP_AT`: each transaction copies some records with `!`
behind the value. Every third one is aborted, and its records are read again. In transaction STOP_AT (0: in none)
everything is sent, "sent" is told, and then nothing happens any more: somebody kills it. Otherwise it ends with
"done N", the number of records, once it has read to the end. `Copier.java` of the matrix is the same.
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

_SOME = 7
_WAIT_S = 30.0


def _read(consumer: Consumer, ended: set[int]) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of a few records; none at the end of all partitions."""
    found: list[tuple[int, int, bytes]] = []
    while len(found) < _SOME and not _has_read_all(consumer, ended):
        message = consumer.poll(_WAIT_S)
        assert message is not None, "nothing comes, not even an end"
        partition, error = message.partition() or 0, message.error()
        if error is None:
            found.append((partition, message.offset() or 0, message.value() or b""))
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        ended.add(partition)  # told once
    return found


def _has_read_all(consumer: Consumer, ended: set[int]) -> bool:
    assigned = {place.partition for place in consumer.assignment()}
    return bool(assigned) and assigned <= ended


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str, stop_at: int) -> int:
    """The number of records copied by this process."""
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**common, "transactional.id": transactional_id})
    producer.init_transactions(_WAIT_S)
    wanted = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    # A member that was killed leaves no word: its session has to end before the next one gets its partitions.
    wanted |= {"session.timeout.ms": 6000, "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**common, **wanted})
    consumer.subscribe([source])
    copied, number, ended = 0, 0, set[int]()
    while records := _read(consumer, ended):
        number += 1
        producer.begin_transaction()
        for partition, _, value in records:
            producer.produce(target, value + b"!", partition=partition)
        assert producer.flush(_WAIT_S) == 0
        read_to = {partition: offset + 1 for partition, offset, _ in records}
        offsets = [TopicPartition(source, partition, offset) for partition, offset in read_to.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _WAIT_S)
        if number == stop_at:
            print("sent", flush=True)  # noqa: T201
            signal.pause()
        if number % 3:
            producer.commit_transaction(_WAIT_S)
            copied += len(records)
        else:
            producer.abort_transaction(_WAIT_S)
            for partition in read_to:
                first = min(offset for found, offset, _ in records if found == partition)
                consumer.seek(TopicPartition(source, partition, first))
                ended.discard(partition)
    consumer.close()
    return copied


if __name__ == "__main__":
    *names, stop = sys.argv[1:]
    bootstrap, source, target, group, transactional_id = names
    print("done", copy(bootstrap, source, target, group, transactional_id, int(stop)), flush=True)  # noqa: T201
