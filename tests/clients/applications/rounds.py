"""`rounds.py NAME BOOTSTRAP...`: at each address an administrator makes a topic, producers write to it, also in
transactions, and members of a group read it one after the other.

Runs with any version of confluent-kafka since 1.8, and the Python that this has; no module of the tests is there.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS: Final = 10
PATIENCE_S: Final = 30.0


def administer(admin: AdminClient, topic: str) -> None:
    """Make the topic, and print the brokers of the cluster."""
    for made in admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)]).values():
        made.result(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while True:
        found = admin.list_topics(timeout=PATIENCE_S)
        if topic in found.topics and len(found.topics[topic].partitions) == 2:
            break
        assert time.monotonic() < until, "the topic is not shown"
    sys.stdout.write("nodes " + ",".join(sorted(f"{node.host}:{node.port}" for node in found.brokers.values())) + "\n")


def remove(admin: AdminClient, topic: str) -> None:
    """Delete the topic."""
    for gone in admin.delete_topics([topic]).values():
        gone.result(PATIENCE_S)


def write(bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
    """A producer with these settings writes; with a transactional id, in a transaction."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, f"value{number}", f"key{number}", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None] * RECORDS
    if "transactional.id" in settings:
        producer.commit_transaction(PATIENCE_S)


def read(bootstrap: str, topic: str) -> None:
    """A new member of the group reads, and commits: the next member begins after it."""
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    found: set[bytes] = set()
    count, until = 0, time.monotonic() + PATIENCE_S
    while count < RECORDS:
        assert time.monotonic() < until, f"{count} records came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add(message.value() or b"")
            count += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(found) == count == RECORDS


def main() -> None:
    name, *addresses = sys.argv[1:]
    for number, bootstrap in enumerate(addresses):
        topic, admin = f"{name}-{number}", AdminClient({"bootstrap.servers": bootstrap})
        administer(admin, topic)
        for settings in ({}, {"enable.idempotence": True}, {"transactional.id": topic}):
            write(bootstrap, topic, settings)
            read(bootstrap, topic)
        remove(admin, topic)


main()
