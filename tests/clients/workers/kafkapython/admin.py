"""kafka-python: KafkaAdminClient, for topics, their configuration and groups."""

from __future__ import annotations

from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidPartitionsError, NoError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .. import records
from ..runtime import Cell, MismatchError, check, same, until
from .kit import admin, consumer, create_topic, read_to_end, scenarios, take, write


@scenarios("topics")
def topics(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3, retention_ms="3600000")
    with admin(cell) as client:
        check(topic in client.list_topics(), "the topic is not listed")
        [described] = client.describe_topics([topic])
        same(sorted(one["partition_index"] for one in described["partitions"]), [0, 1, 2], "partitions described")
        try:
            create_topic(cell)
        except TopicAlreadyExistsError:
            pass
        else:
            raise MismatchError("the topic was created twice")
        client.delete_topics([topic])
        until("the topic is gone", lambda: topic not in client.list_topics())
        try:
            client.delete_topics([topic])
        except UnknownTopicOrPartitionError:
            return
    raise MismatchError("the topic was deleted twice")


@scenarios("partitions")
def partitions(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    with admin(cell) as client:
        client.create_partitions({topic: 5})
        until("five partitions", lambda: len(client.describe_topics([topic])[0]["partitions"]) == 5)
        try:
            client.create_partitions({topic: 3})
        except InvalidPartitionsError:
            pass
        else:
            raise MismatchError("fewer partitions were accepted")
    write(cell, topic, records.numbered(3, partition=4))
    same(len(read_to_end(cell, topic, partitions=[4])), 3, "records in the last of the new partitions")


def settings_of(cell: Cell, kind: str, name: str) -> dict[str, str]:
    with admin(cell) as client:
        found = client.describe_configs([ConfigResource(kind, name)], config_filter="all")[kind.lower()][name]
    return {key: entry["value"] for key, entry in found.items()}


@scenarios("topic-configs")
def topic_configs(cell: Cell) -> None:
    topic = create_topic(cell, retention_ms="3600000", segment_ms="60000")
    same(settings_of(cell, "TOPIC", topic)["retention.ms"], "3600000", "retention.ms")
    changes = {"retention.ms": "7200000", "segment.ms": ("DELETE", None), "cleanup.policy": ("APPEND", "compact")}
    with admin(cell) as client:
        done = client.alter_configs([ConfigResource("TOPIC", topic, changes)], incremental=True)
        same(done["topic"][topic], "OK", "result")
        until("the new value", lambda: settings_of(cell, "TOPIC", topic)["retention.ms"] == "7200000")
        after = settings_of(cell, "TOPIC", topic)
        check(after["segment.ms"] != "60000", "segment.ms was removed and is still there")
        same(set(after["cleanup.policy"].split(",")), {"delete", "compact"}, "cleanup.policy")
        refused = client.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "soon"})], incremental=True)
        check("InvalidConfig" in refused["topic"][topic], f"a bad value was answered with {refused}")


@scenarios("topic-configs-legacy")
def topic_configs_legacy(cell: Cell) -> None:
    topic = create_topic(cell, segment_ms="60000")
    with admin(cell) as client:
        # The library sends what is set along with the change, so nothing is lost.
        done = client.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "7200000"})], incremental=False)
    same(done["topic"][topic], "OK", "result")
    until("the new value", lambda: settings_of(cell, "TOPIC", topic)["retention.ms"] == "7200000")
    same(settings_of(cell, "TOPIC", topic)["segment.ms"], "60000", "segment.ms")


@scenarios("broker-configs")
def broker_configs(cell: Cell) -> str:
    same(ConfigResourceType.BROKER.value, 4, "the resource type of brokers")
    with admin(cell) as client:
        nodes = [broker["broker_id"] for broker in client.describe_cluster()["brokers"]]
    for node in nodes:
        found = settings_of(cell, "BROKER", str(node))
        for name in ("log.retention.hours", "num.partitions", "min.insync.replicas"):
            check((found[name] or "").isdigit(), f"{name} of node {node} is {found[name]!r}")
    return f"{len(nodes)} node(s)"


@scenarios("groups")
def groups(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    write(cell, topic, records.numbered(5, partition=0))
    with consumer(cell, topic, group=group) as member, admin(cell) as client:
        take(member, 5)
        check(group in [one["group_id"] for one in client.list_groups()], "the group is not listed")
        stable = [one["group_id"] for one in client.list_groups(states_filter=["Stable"])]
        check(group in stable, "the group is not listed as stable")
        described = client.describe_groups([group])[group]
        same(
            (described["error"], described["group_state"], len(described["members"])),
            (None, "Stable", 1),
            "description",
        )
        same(client.delete_groups([group]), {group: "NonEmptyGroupError"}, "deleting a group in use")


@scenarios("groups-delete")
def groups_delete(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    read_and_commit(cell, topic, group)
    with admin(cell) as client:
        same(client.delete_groups([group]), {group: "OK"}, "result")
        same(client.delete_groups([group]), {group: "GroupIdNotFoundError"}, "result of deleting it again")


def read_and_commit(cell: Cell, topic: str, group: str) -> None:
    write(cell, topic, records.numbered(5, partition=0))
    with consumer(cell, topic, group=group) as member:
        take(member, 5)
        member.commit()


def offsets_of(cell: Cell, group: str) -> dict[int, int]:
    with admin(cell) as client:
        return {place.partition: one.offset for place, one in client.list_group_offsets({group: None})[group].items()}


@scenarios("group-offsets")
def group_offsets(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    read_and_commit(cell, topic, group)
    same(offsets_of(cell, group), {0: 5}, "offsets of the group")


@scenarios("group-offsets-alter")
def group_offsets_alter(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    read_and_commit(cell, topic, group)
    place = TopicPartition(topic, 0)
    with admin(cell) as client:
        same(client.alter_group_offsets(group, {place: OffsetAndMetadata(2, "", -1)}), {place: NoError}, "result")
    same(offsets_of(cell, group), {0: 2}, "offsets of the group")
    with consumer(cell, topic, group=group) as member:
        same(records.values(take(member, 3)), [b"2", b"3", b"4"], "values read by the next member")


@scenarios("group-offsets-delete")
def group_offsets_delete(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    read_and_commit(cell, topic, group)
    place = TopicPartition(topic, 0)
    with admin(cell) as client:
        same(client.delete_group_offsets(group, [place]), {place: NoError}, "result")
    same(offsets_of(cell, group), {}, "offsets of the group")
