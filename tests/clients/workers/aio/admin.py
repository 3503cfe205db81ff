"""aiokafka: AIOKafkaAdminClient, which hands out the answers of the protocol as they are."""

from __future__ import annotations

from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .. import records
from ..runtime import Cell, MismatchError, check, same, until_async
from .kit import admin, consumer, create_topic, raise_errors, read_to_end, scenarios, take, write


@scenarios("topics")
async def topics(cell: Cell) -> None:
    topic = await create_topic(cell, partitions=3, retention_ms="3600000")
    async with admin(cell) as client:
        check(topic in await client.list_topics(), "the topic is not listed")
        described = (await client.describe_topics([topic]))[0]
        same(sorted(one["partition"] for one in described["partitions"]), [0, 1, 2], "partitions described")
        try:
            await create_topic(cell)
        except TopicAlreadyExistsError:
            pass
        else:
            raise MismatchError("the topic was created twice")
        raise_errors((await client.delete_topics([topic])).topic_error_codes)

        async def gone() -> bool:
            return topic not in await client.list_topics()

        await until_async("the topic is gone", gone)
        try:
            raise_errors((await client.delete_topics([topic])).topic_error_codes)
        except UnknownTopicOrPartitionError:
            return
    raise MismatchError("the topic was deleted twice")


@scenarios("partitions")
async def partitions(cell: Cell) -> None:
    topic = await create_topic(cell, partitions=2)
    async with admin(cell) as client:
        await client.create_partitions({topic: NewPartitions(5)})

        async def five() -> bool:
            return len((await client.describe_topics([topic]))[0]["partitions"]) == 5

        await until_async("five partitions", five)
        try:
            await client.create_partitions({topic: NewPartitions(3)})
        except InvalidPartitionsError:
            pass
        else:
            raise MismatchError("fewer partitions were accepted")
    await write(cell, topic, records.numbered(3, partition=4))
    same(len(await read_to_end(cell, topic, partitions=[4])), 3, "records in the last of the new partitions")


async def settings_of(cell: Cell, kind: ConfigResourceType, name: str) -> dict[str, str]:
    async with admin(cell) as client:
        answers = await client.describe_configs([ConfigResource(kind, name)])
    same(len(answers), 1, "answers")
    found: list[Any] = answers[0].resources
    same([row[0] for row in found], [0], "error codes")
    return {entry[0]: entry[1] for entry in found[0][4]}


@scenarios("topic-configs-legacy")
async def topic_configs_legacy(cell: Cell) -> None:
    topic = await create_topic(cell, segment_ms="60000")
    same((await settings_of(cell, ConfigResourceType.TOPIC, topic))["segment.ms"], "60000", "segment.ms")
    async with admin(cell) as client:
        answers = await client.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})]
        )
    same([row[0] for answer in answers for row in answer.resources], [0], "error codes")

    async def changed() -> bool:
        return (await settings_of(cell, ConfigResourceType.TOPIC, topic))["retention.ms"] == "7200000"

    await until_async("the new value", changed)
    check(
        (await settings_of(cell, ConfigResourceType.TOPIC, topic))["segment.ms"] != "60000",
        "segment.ms was to be replaced",
    )


@scenarios("broker-configs")
async def broker_configs(cell: Cell) -> str:
    async with admin(cell) as client:
        nodes = [broker["node_id"] for broker in (await client.describe_cluster())["brokers"]]
    for node in nodes:
        found = await settings_of(cell, ConfigResourceType.BROKER, str(node))
        for name in ("log.retention.hours", "num.partitions", "min.insync.replicas"):
            check((found[name] or "").isdigit(), f"{name} of node {node} is {found[name]!r}")
    return f"{len(nodes)} node(s)"


@scenarios("list-offsets")
async def list_offsets(cell: Cell) -> str:
    topic = await create_topic(cell)
    place, days = TopicPartition(topic, 0), records.dated()
    await write(cell, topic, days)
    async with consumer(cell) as client:
        same(await client.beginning_offsets([place]), {place: 0}, "earliest offset")
        same(await client.end_offsets([place]), {place: 5}, "latest offset")
        found = (await client.offsets_for_times({place: days[3].timestamp or 0}))[place]
        same(found and found.offset, 3, "offset by time")
    return "by the consumer"


@scenarios("delete-records")
async def delete_records(cell: Cell) -> None:
    topic = await create_topic(cell, partitions=2)
    await write(cell, topic, [*records.numbered(5, partition=0), *records.numbered(5, partition=1)])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with admin(cell) as client:
        done = await client.delete_records({first: RecordsToDelete(3), second: RecordsToDelete(-1)})
    same(done, {first: 3, second: 5}, "low watermarks")
    async with consumer(cell) as client:
        same(await client.beginning_offsets([first, second]), {first: 3, second: 5}, "earliest offsets")
        client.assign([first, second])
        same([(one.partition, one.offset) for one in await take(client, 2)], [(0, 3), (0, 4)], "records left")


@scenarios("groups")
async def groups(cell: Cell) -> None:
    topic, group = await create_topic(cell), cell.name("group")
    await write(cell, topic, records.numbered(5, partition=0))
    async with consumer(cell, topic, group=group) as member, admin(cell) as client:
        await take(member, 5)
        check(
            (group, "consumer") in [tuple(one[:2]) for one in await client.list_consumer_groups()],
            "the group is not listed",
        )
        [described] = (await client.describe_consumer_groups([group]))[0].groups
        same((described[0], described[1], described[2]), (0, group, "Stable"), "error code, name and state")
        same(len(described[5]), 1, "members")


@scenarios("group-offsets")
async def group_offsets(cell: Cell) -> None:
    topic, group = await create_topic(cell), cell.name("group")
    await write(cell, topic, records.numbered(5, partition=0))
    async with consumer(cell, topic, group=group) as member, admin(cell) as client:
        await take(member, 5)
        await member.commit()
        found = await client.list_consumer_group_offsets(group)
        same({place.partition: one.offset for place, one in found.items()}, {0: 5}, "offsets of the group")
