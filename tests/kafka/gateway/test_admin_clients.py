"""The admin clients that people use, unchanged, against three nodes in front of three brokers."""

# The client libraries are untyped, or typed for other uses than these.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.wait import wait_for, wait_for_async

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster


with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPartition
    from kafka.admin import NewTopic as PythonNewTopic


def done(futures: Any) -> dict[Any, Any]:
    """The results of what confluent_kafka asked for, by what was asked."""
    return {name: future.result(30) for name, future in futures.items()}


@pytest.fixture
def admin(three_nodes: VirtualCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": three_nodes.bootstrap})


@pytest.fixture
def consumed(three_nodes: VirtualCluster, unique: Unique) -> tuple[str, str]:
    """A topic with a record, and a group without members that has read it."""
    topic, group = unique("orders"), unique("group")
    producer = Producer({"bootstrap.servers": three_nodes.bootstrap})
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": three_nodes.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        (message,) = consumer.consume(1, timeout=30)
        assert message.value() == b"first"
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    return topic, group


def test_librdkafka_administers_topics_and_configurations(
    admin: AdminClient, three_nodes: VirtualCluster, unique: Unique
) -> None:
    topic = unique("orders")
    done(admin.create_topics([NewTopic(topic, 2, 3, config={"retention.ms": "86400000"})]))
    done(admin.create_partitions([NewPartitions(topic, 4)]))
    wait_for(lambda: len(admin.list_topics(topic, 30).topics[topic].partitions) == 4, "the new partitions")
    assert admin.list_topics(timeout=30).brokers.keys() == three_nodes.ids
    of_topic = ConfigResource(ConfigResource.Type.TOPIC, topic)
    of_node = ConfigResource(ConfigResource.Type.BROKER, "12")
    found = done(admin.describe_configs([of_topic])) | done(admin.describe_configs([of_node]))
    assert found[of_topic]["retention.ms"].value == "86400000"
    assert found[of_node]["node.id"].value == "12"
    set_cleanup = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[set_cleanup])]
        )
    )
    wait_for(lambda: done(admin.describe_configs([of_topic]))[of_topic]["cleanup.policy"].value == "compact", "it")
    with pytest.raises(KafkaException, match="through a sidecar"):
        done(
            admin.incremental_alter_configs(
                [ConfigResource(ConfigResource.Type.BROKER, "12", incremental_configs=[set_cleanup])]
            )
        )
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        done(admin.create_topics([NewTopic("__sidecar_mine", 1, 1)]))
    with pytest.raises(KafkaException, match="let Kafka place them"):
        done(admin.create_topics([NewTopic(unique("assigned"), 1, replica_assignment=[[11, 12]])]))
    done(admin.delete_topics([topic]))


def test_librdkafka_administers_groups(admin: AdminClient, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    listed = admin.list_consumer_groups(request_timeout=30).result()
    assert (group in {found.group_id for found in listed.valid}, listed.errors) == (True, [])
    described = done(admin.describe_consumer_groups([group], request_timeout=30))[group]
    assert (described.state.name, described.members) == ("EMPTY", [])
    assert described.coordinator.id in {11, 12, 13}
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (partition,) = done(admin.list_consumer_group_offsets([asked]))[group].topic_partitions
    assert partition.offset == 1
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    done(admin.alter_consumer_group_offsets([moved]))
    (partition,) = done(admin.list_consumer_group_offsets([asked]))[group].topic_partitions
    assert partition.offset == 0
    done(admin.delete_consumer_groups([group]))
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        done(admin.delete_consumer_groups([group]))


def test_librdkafka_describes_the_cluster_and_reads_and_deletes_records(
    admin: AdminClient, consumed: tuple[str, str], three_nodes: VirtualCluster
) -> None:
    topic, _ = consumed
    cluster = admin.describe_cluster(request_timeout=30).result()
    assert {node.id for node in cluster.nodes} == three_nodes.ids
    assert {node.port for node in cluster.nodes} == {node.port for node in three_nodes.nodes}
    partition = TopicPartition(topic, 0)
    assert done(admin.list_offsets({partition: OffsetSpec.latest()}))[partition].offset == 1
    assert done(admin.delete_records([TopicPartition(topic, 0, 1)]))[TopicPartition(topic, 0, 1)].low_watermark == 1
    assert done(admin.list_offsets({partition: OffsetSpec.earliest()}))[partition].offset == 1


def test_librdkafka_keeps_scram_credentials_and_hears_that_there_are_no_acls(
    admin: AdminClient, unique: Unique
) -> None:
    user = unique("user")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"secret")]))

    def described() -> Any:
        try:
            return done(admin.describe_user_scram_credentials([user]))[user].scram_credential_infos
        except KafkaException:
            return None

    (found,) = wait_for(described, "the credential")
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)]))
    rule = ("orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        done(admin.create_acls([AclBinding(ResourceType.TOPIC, *rule)]))
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        done(admin.delete_acls([AclBindingFilter(ResourceType.TOPIC, *rule)]))


def test_kafka_python_administers(three_nodes: VirtualCluster, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    admin = KafkaAdminClient(bootstrap_servers=three_nodes.bootstrap)
    try:
        admin.create_topics([PythonNewTopic(topic, 2, 3)])
        producer = KafkaProducer(bootstrap_servers=three_nodes.bootstrap)
        producer.send(topic, b"first", partition=0).get(30)
        producer.close()
        consumer = KafkaConsumer(
            topic, bootstrap_servers=three_nodes.bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        assert next(iter(consumer)).value == b"first"
        consumer.close()
        assert admin.list_group_offsets({group: None})[group][PythonPartition(topic, 0)].offset == 1
        assert group in {found["group_id"] for found in admin.list_groups()}
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
        assert topic in admin.list_topics()
        assert admin.delete_groups([group]) == {group: "OK"}
        admin.delete_topics([topic])
    finally:
        admin.close()


async def test_aiokafka_administers(three_nodes: VirtualCluster, unique: Unique) -> None:
    topic, group = unique("orders"), unique("group")
    admin = AIOKafkaAdminClient(bootstrap_servers=three_nodes.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic(topic, 1, 3)])
        await admin.create_partitions({topic: AioNewPartitions(total_count=2)})
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=three_nodes.bootstrap, group_id=group)
        await consumer.start()
        await asyncio.wait_for(consumer.position(AioPartition(topic, 0)), 30)
        await consumer.commit()

        async def listed() -> bool:
            return any(found[0] == group for found in await admin.list_consumer_groups())

        await wait_for_async(listed, "the group")
        assert AioPartition(topic, 0) in await admin.list_consumer_group_offsets(group)
        await consumer.stop()
        described: Any
        (described,) = await admin.describe_consumer_groups([group])
        assert described.groups[0][1] == group
        await admin.delete_topics([topic])
    finally:
        await admin.close()


def test_javas_tools_administer(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, consumed: tuple[str, str], unique: Unique
) -> None:
    topic, group = consumed
    at = ("--bootstrap-server", three_nodes.bootstrap)

    def run(tool: str, *arguments: str) -> str:
        return kafka_cluster.tools.run(tool, *at, *arguments, timeout=90).stdout

    tools = "org.apache.kafka.tools."
    groups = run(tools + "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    assert [line.split()[:5] for line in groups.splitlines() if line.startswith(group)] == [
        [group, topic, "0", "1", "1"]
    ]
    assert f"{group} " in run(tools + "GroupsCommand", "--list")
    assert "Classic" in next(line for line in run(tools + "GroupsCommand", "--list").splitlines() if group in line)
    configs = run("kafka.admin.ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "13")
    assert "node.id=13 " in configs
    assert not any(kafka_cluster.address(broker) in configs for broker in kafka_cluster.config.numbers)
    directories = run(tools + "LogDirsCommand", "--describe", "--topic-list", topic)
    assert "from brokers 11,12,13" in directories
    assert f'"partition":"{topic}-0"' in directories
    producers = run(tools + "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert producers.startswith("ProducerId")
    assert "No partition reassignments found" in run(tools + "reassign.ReassignPartitionsCommand", "--list")
