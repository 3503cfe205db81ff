"""Sequence ids on topics that a real Kafka compacts: what compaction would take is in a snapshot before, or the node
says that it cannot know.
"""

from __future__ import annotations

import asyncio

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from metadata.ownership import AccessMode
from sidecar.policy.policies import PolicyFields
from tests.conftest import OwnKafka, StartNode, Unique
from tests.kafka.exclusive.deduplicated import write
from tests.kafka.exclusive.room import Room, open_room, until
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

QUICK = {"log.cleaner.backoff.ms": "200"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1"}
"""A new segment with each append, the old ones cleaned at once."""


def append(bootstrap: str, topic: str, key: str, value: str, sequence_id: int | None = None, name: str = "raw") -> int:
    """One record, by a client of its own; its offset."""
    found: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": name, "enable.idempotence": True})
    headers: list[tuple[str, str | bytes | None]] = []
    if sequence_id is not None:
        headers = [("sidecar-sequence-id", str(sequence_id))]

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offset = message.offset()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        found.append(-1 if offset is None else offset)  # pyright: ignore[reportUnknownArgumentType]

    producer.produce(topic, value, key, partition=0, headers=headers, on_delivery=delivered)
    assert not producer.flush(60)
    return found[0]


def log_of(bootstrap: str, topic: str) -> list[str]:
    """The values in the log, as it is now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while (message := consumer.poll(20)) is not None and not message.error():
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def configure(bootstrap: str, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([changed])[changed].result(20)


def test_compaction_takes_no_record_before_a_snapshot_has_its_id(
    own_kafka: OwnKafka, services: Services, node_process: StartNode
) -> None:
    """It took alice's highest id within a second; the node died, and the next one wrote the record again."""
    kafka = own_kafka(overrides=QUICK).bootstrap
    node = node_process(kafka=kafka, redis=services.redis_url, LEASE_MS="1000", RECONNECT_GRACE_MS="0")
    topic, twin = create_topic(kafka, 1, **COMPACTED), create_topic(kafka, 1, **COMPACTED)
    status, answer = Rest(node.admin_url).call("PUT", f"/v1/topics/{topic}/policy", {"deduplication": True})
    assert status == 200
    assert "min.compaction.lag.ms was raised from 0 to 86400000" in answer["warnings"][0]
    assert append(node.bootstrap, topic, "k", "alice", 100, "alice") >= 0
    for number in range(5):
        append(node.bootstrap, topic, "k", f"bob {number}", number, "bob")
    node.kill()
    for number in range(6):
        append(kafka, twin, "k", f"bob {number}")
    wait_for(lambda: "bob 0" not in log_of(kafka, twin), "compaction of a topic without ids", 60)
    node.start()
    assert append(node.bootstrap, topic, "k", "alice", 100, "alice") == -1
    assert log_of(kafka, topic).count("alice") == 1


async def test_ids_that_compaction_took_before_a_snapshot_had_them_stop_the_topic_until_somebody_decides(
    own_kafka: OwnKafka, services: Services, unique: Unique
) -> None:
    """The settings were changed past the nodes. The next node took what was left for all there ever was."""
    kafka, redis, cluster = own_kafka(overrides=QUICK).bootstrap, services.redis_url, unique("d")
    async with open_room(kafka, redis, cluster) as first:
        topic = await compacted_behind(first, kafka)
        first.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as second:
        billing = second.connect("billing")
        await until(lambda: billing.send_ids(topic, [2], sequence=0), 5)
        result = await billing.begin(topic, ids=[2], sequence=0)
        while "compaction has removed records" not in (result.message or ""):
            assert result.error == 5
            result = await billing.begin(topic, ids=[2], sequence=0)
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=False))
        await asyncio.to_thread(configure, kafka, topic, cleanup_policy="delete")
        await second.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
        await until(lambda: billing.send_ids(topic, [3], sequence=0))


async def compacted_behind(room: Room, kafka: str) -> str:
    """Write ids to a topic, and have Kafka compact them away."""
    topic = await asyncio.to_thread(create_topic, kafka, 1)
    await room.governed.env.catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE, deduplication=True))
    billing = room.connect("billing")
    for number in range(3):
        assert (await write(billing, topic, number))[0] == 0
    assert room.told.snapshots == []
    settings = {name.replace(".", "_"): value for name, value in COMPACTED.items()}
    await asyncio.to_thread(configure, kafka, topic, **settings)
    for number in range(2):  # each begins a segment; records without a key are not kept
        await asyncio.to_thread(append, kafka, topic, "k", f"other {number}")
    left = lambda: set(log_of(kafka, topic)).isdisjoint({"0", "1", "2"})  # noqa: E731
    await asyncio.to_thread(wait_for, left, "compaction", 60)
    return topic
