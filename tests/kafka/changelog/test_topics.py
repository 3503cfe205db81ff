"""The internal topics on a real cluster: made once, checked at each start, never made again in silence."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.changelog import ChangelogLostError, MisconfiguredError, TopicNames, open_topics
from sidecar.local import Kafka
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, DescribeTopics, Resource
from sidecar.protocol.ids import TopicPartition
from tests.conftest import Unique
from tests.kafka_calls import KafkaCalls, kafka_calls


@pytest.fixture
def cluster(unique: Unique) -> str:
    return unique("c")


async def test_a_second_start_finds_what_the_first_made(kafka: KafkaCalls, cluster: str) -> None:
    first = await open_topics(kafka.upstream, cluster)
    second = await open_topics(kafka.upstream, cluster)
    assert first == second
    assert first.ownership == TopicPartition(f"__sidecar_{cluster}", 0)
    assert set(first.ids) == set(TopicNames.of(cluster).all)
    assert not first.warnings


async def test_nodes_that_start_together_agree_on_the_topics(kafka: KafkaCalls, cluster: str) -> None:
    opened = await asyncio.gather(*[open_topics(kafka.upstream, cluster) for _ in range(4)])
    assert all(topics.ids == opened[0].ids for topics in opened)


async def test_the_topics_are_as_safe_as_three_brokers_allow(kafka_cluster: Kafka, cluster: str) -> None:
    async with kafka_calls(kafka_cluster.bootstrap) as kafka:
        topics = await open_topics(kafka.upstream, cluster)
        described = await kafka.upstream.call(None, DescribeTopics(topics.names.all))
        assert {len(part.replicas) for topic in described.topics for part in topic.partitions} == {3}
        resource = Resource(ConfigResource.TOPIC, topics.names.ownership)
        settings = (await kafka.upstream.call(None, DescribeConfigs((resource,))))[resource].values
    assert settings["min.insync.replicas"] == "2"
    assert settings["unclean.leader.election.enable"] == "false"
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["cleanup.policy"] == "compact"
    assert settings["delete.retention.ms"] == str(7 * 24 * 3600 * 1000)


async def test_a_creation_that_was_cut_short_is_finished(kafka: KafkaCalls, cluster: str) -> None:
    whole = await open_topics(kafka.upstream, cluster)
    await kafka.delete(whole.names.ownership)
    again = await open_topics(kafka.upstream, cluster)
    assert again.ids[whole.names.events] == whole.ids[whole.names.events]
    assert again.ids[whole.names.ownership] != whole.ids[whole.names.ownership]


async def test_a_deleted_ownership_topic_is_not_made_again_where_history_tells_of_it(
    kafka: KafkaCalls, cluster: str
) -> None:
    topics = await open_topics(kafka.upstream, cluster)
    await kafka.produce(TopicPartition(topics.names.events, 0), None)
    await kafka.delete(topics.names.ownership)
    with pytest.raises(ChangelogLostError, match=f"{topics.names.ownership} was deleted"):
        await open_topics(kafka.upstream, cluster)


async def test_a_topic_missing_beside_the_ownership_topic_is_not_made_again(kafka: KafkaCalls, cluster: str) -> None:
    topics = await open_topics(kafka.upstream, cluster)
    await kafka.delete(topics.names.snapshots)
    with pytest.raises(ChangelogLostError, match=topics.names.snapshots):
        await open_topics(kafka.upstream, cluster)


async def test_a_topic_that_somebody_made_with_kafkas_defaults_is_refused_with_what_to_change(
    kafka: KafkaCalls, cluster: str
) -> None:
    names = TopicNames.of(cluster)
    for name in names.all:
        await kafka.create(name)
    with pytest.raises(MisconfiguredError) as refused:
        await open_topics(kafka.upstream, cluster)
    for told in (
        f"{names.ownership}: cleanup.policy is delete, must be compact",
        f"{names.ownership}: message.timestamp.type is CreateTime, must be LogAppendTime",
        f"{names.events}: message.timestamp.type is CreateTime, must be LogAppendTime",
    ):
        assert told in str(refused.value)
