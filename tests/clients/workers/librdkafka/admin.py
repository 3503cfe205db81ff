"""confluent-kafka: the AdminClient."""

from __future__ import annotations

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from .. import records
from ..runtime import Cell, MismatchError, check, same, until
from .kit import WAIT_S, admin, consumer, create_topic, read_to_end, scenarios, take, write


def failing(code: int, future) -> None:
    """Wait for a call that has to fail with this error code."""
    try:
        future.result(WAIT_S)
    except KafkaException as error:
        same(error.args[0].code(), code, f"error code ({error.args[0].str()})")
    else:
        raise MismatchError(f"succeeded instead of failing with {code}")


@scenarios("topics")
def topics(cell: Cell) -> None:
    topic, client = create_topic(cell, partitions=3, retention_ms="3600000"), admin(cell)
    same(len(client.list_topics(timeout=WAIT_S).topics[topic].partitions), 3, "partitions listed")
    described = client.describe_topics(TopicCollection([topic]), request_timeout=WAIT_S)[topic].result(WAIT_S)
    same([one.id for one in described.partitions], [0, 1, 2], "partitions described")
    try:
        create_topic(cell)
    except KafkaException as error:
        same(error.args[0].code(), KafkaError.TOPIC_ALREADY_EXISTS, "error code of creating it again")
    client.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    until("the topic is gone", lambda: topic not in client.list_topics(timeout=WAIT_S).topics)
    failing(KafkaError.UNKNOWN_TOPIC_OR_PART, client.delete_topics([topic], operation_timeout=WAIT_S)[topic])


@scenarios("partitions")
def partitions(cell: Cell) -> None:
    topic, client = create_topic(cell, partitions=2), admin(cell)
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
    until("five partitions", lambda: len(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 5)
    failing(KafkaError.INVALID_PARTITIONS, client.create_partitions([NewPartitions(topic, 3)])[topic])

    def written() -> bool:
        # Another broker may be asked than the one that knew of the new partitions.
        try:
            return len(write(cell, topic, records.numbered(3, partition=4))) == 3
        except KafkaException as error:
            same(error.args[0].code(), KafkaError._UNKNOWN_PARTITION, "error code")
            return False

    until("the last of the new partitions is known", written)
    same(len(read_to_end(cell, topic, partitions=[4])), 3, "records in the last of the new partitions")


def settings_of(cell: Cell, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    return admin(cell).describe_configs([resource], request_timeout=WAIT_S)[resource].result(WAIT_S)


@scenarios("topic-configs")
def topic_configs(cell: Cell) -> None:
    topic, client = create_topic(cell, retention_ms="3600000", segment_ms="60000"), admin(cell)
    before = settings_of(cell, ResourceType.TOPIC, topic)
    same((before["retention.ms"].value, before["retention.ms"].is_default), ("3600000", False), "retention.ms")
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    client.incremental_alter_configs([change], request_timeout=WAIT_S)[change].result(WAIT_S)
    until("the new value", lambda: settings_of(cell, ResourceType.TOPIC, topic)["retention.ms"].value == "7200000")
    after = settings_of(cell, ResourceType.TOPIC, topic)
    check(after["segment.ms"].is_default, "segment.ms was removed and is still there")
    same(set((after["cleanup.policy"].value or "").split(",")), {"delete", "compact"}, "cleanup.policy")
    bad = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)],
    )
    failing(KafkaError.INVALID_CONFIG, client.incremental_alter_configs([bad], request_timeout=WAIT_S)[bad])


@scenarios("topic-configs-legacy")
def topic_configs_legacy(cell: Cell) -> None:
    topic, client = create_topic(cell, segment_ms="60000"), admin(cell)
    change = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "7200000"})
    client.alter_configs([change], request_timeout=WAIT_S)[change].result(WAIT_S)
    until("the new value", lambda: settings_of(cell, ResourceType.TOPIC, topic)["retention.ms"].value == "7200000")
    check(
        settings_of(cell, ResourceType.TOPIC, topic)["segment.ms"].is_default,
        "segment.ms was to be replaced by its default",
    )


@scenarios("broker-configs")
def broker_configs(cell: Cell) -> str:
    nodes = admin(cell).describe_cluster(request_timeout=WAIT_S).result(WAIT_S).nodes
    for node in nodes:
        found = settings_of(cell, ResourceType.BROKER, str(node.id))
        for name in ("log.retention.hours", "num.partitions", "min.insync.replicas"):
            check((found[name].value or "").isdigit(), f"{name} of node {node.id} is {found[name].value!r}")
    return f"{len(nodes)} node(s)"


@scenarios("list-offsets")
def list_offsets(cell: Cell) -> None:
    topic = create_topic(cell)
    days = records.dated()
    write(cell, topic, days)
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 5),
        (OffsetSpec.for_timestamp(days[3].timestamp), 3),
        (OffsetSpec.max_timestamp(), 4),
    ):
        place = TopicPartition(topic, 0)
        found = admin(cell).list_offsets({place: spec}, request_timeout=WAIT_S)[place].result(WAIT_S)
        same(found.offset, expected, f"offset for {type(spec).__name__}")


@scenarios("delete-records")
def delete_records(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    write(cell, topic, [*records.numbered(5, partition=0), *records.numbered(5, partition=1)])
    places = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 5)]
    done = admin(cell).delete_records(places, request_timeout=WAIT_S, operation_timeout=WAIT_S)
    same(
        {place.partition: future.result(WAIT_S).low_watermark for place, future in done.items()},
        {0: 3, 1: 5},
        "low watermarks",
    )
    read = read_to_end(cell, topic, partitions=[0, 1])
    same([(one.partition, one.offset) for one in read], [(0, 3), (0, 4)], "records left")


@scenarios("elect-leaders")
def elect_leaders(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    done = admin(cell).elect_leaders(ElectionType.PREFERRED, places).result(WAIT_S)
    codes = {place.partition: error.code() if error else 0 for place, error in done.items()}
    same(codes, dict.fromkeys((0, 1), KafkaError.ELECTION_NOT_NEEDED), "results by partition")


def joined(cell: Cell, topic: str, group: str, client) -> None:
    """Have the consumer join, read and commit the five records of the topic."""
    write(cell, topic, records.numbered(5, partition=0))
    client.subscribe([topic])
    take(client, 5)
    client.commit(asynchronous=False)


@scenarios("groups")
def groups(cell: Cell) -> None:
    topic, group, client = create_topic(cell), cell.name("group"), admin(cell)
    with consumer(cell, group) as member:
        joined(cell, topic, group, member)
        listed = client.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)
        check(group in {one.group_id for one in listed.valid}, "the group is not listed")
        same(listed.errors, [], "errors of the list")
        described = client.describe_consumer_groups([group], request_timeout=WAIT_S)[group].result(WAIT_S)
        same(described.state.name, "STABLE", "state")
        assigned = [(one.topic, one.partition) for one in described.members[0].assignment.topic_partitions]
        same(assigned, [(topic, 0)], "assignment of the only member")
        failing(KafkaError.NON_EMPTY_GROUP, client.delete_consumer_groups([group], request_timeout=WAIT_S)[group])


@scenarios("groups-delete")
def groups_delete(cell: Cell) -> None:
    topic, group, client = create_topic(cell), cell.name("group"), admin(cell)
    with consumer(cell, group) as member:
        joined(cell, topic, group, member)
    client.delete_consumer_groups([group], request_timeout=WAIT_S)[group].result(WAIT_S)
    failing(KafkaError.GROUP_ID_NOT_FOUND, client.delete_consumer_groups([group], request_timeout=WAIT_S)[group])


def offsets_of(cell: Cell, group: str) -> dict[int, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin(cell).list_consumer_group_offsets(asked, request_timeout=WAIT_S)[group].result(WAIT_S)
    return {one.partition: one.offset for one in found.topic_partitions}


@scenarios("group-offsets")
def group_offsets(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    with consumer(cell, group) as member:
        joined(cell, topic, group, member)
        same(offsets_of(cell, group), {0: 5}, "offsets of the group")


@scenarios("group-offsets-alter")
def group_offsets_alter(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    with consumer(cell, group) as member:
        joined(cell, topic, group, member)
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin(cell).alter_consumer_group_offsets([change], request_timeout=WAIT_S)[group].result(WAIT_S)
    same(offsets_of(cell, group), {0: 2}, "offsets of the group")
    with consumer(cell, group) as member:
        member.subscribe([topic])
        same(records.values(take(member, 3)), [b"2", b"3", b"4"], "values read by the next member")


@scenarios("acls")
def acls(cell: Cell) -> str:
    client = admin(cell)
    rules = [
        AclBinding(kind, cell.name(), pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for kind, pattern, operation in (
            (ResourceType.TOPIC, ResourcePatternType.PREFIXED, AclOperation.READ),
            (ResourceType.GROUP, ResourcePatternType.LITERAL, AclOperation.READ),
        )
    ]
    created = client.create_acls(rules, request_timeout=WAIT_S)
    if not cell.secured:
        failing(KafkaError.SECURITY_DISABLED, created[rules[0]])
        return "security is disabled"
    for done in created.values():
        done.result(WAIT_S)
    any_rule = AclBindingFilter(
        ResourceType.ANY,
        cell.name(),
        ResourcePatternType.ANY,
        "User:alice",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    until(
        "both are described",
        lambda: set(client.describe_acls(any_rule, request_timeout=WAIT_S).result(WAIT_S)) == set(rules),
    )
    deleted = client.delete_acls([any_rule], request_timeout=WAIT_S)[any_rule].result(WAIT_S)
    same(set(deleted), set(rules), "rules deleted")
    until("none is left", lambda: not client.describe_acls(any_rule, request_timeout=WAIT_S).result(WAIT_S))
    return ""


@scenarios("scram")
def scram(cell: Cell) -> None:
    user, client, kind = cell.name("user"), admin(cell), ScramMechanism.SCRAM_SHA_256
    upsert = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 8192), b"secret")
    client.alter_user_scram_credentials([upsert], request_timeout=WAIT_S)[user].result(WAIT_S)

    def found() -> list[tuple[ScramMechanism, int]]:
        try:
            described = client.describe_user_scram_credentials([user], request_timeout=WAIT_S)[user].result(WAIT_S)
        except KafkaException as error:
            same(error.args[0].code(), KafkaError.RESOURCE_NOT_FOUND, "error code without a credential")
            return []
        return [(one.mechanism, one.iterations) for one in described.scram_credential_infos]

    until("the credential", lambda: found() == [(kind, 8192)])
    deletion = UserScramCredentialDeletion(user, kind)
    client.alter_user_scram_credentials([deletion], request_timeout=WAIT_S)[user].result(WAIT_S)
    until("none is left", lambda: found() == [])
