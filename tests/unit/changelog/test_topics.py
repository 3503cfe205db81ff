"""The internal topics: made once, checked at each start, never made again in silence."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.changelog import (
    Changelog,
    ChangelogError,
    ChangelogLostError,
    Key,
    Kind,
    MisconfiguredError,
    Record,
    TopicNames,
    open_topics,
)
from sidecar.network.backoff import RetryTimeoutError
from sidecar.protocol.caller import UnknownTopicError
from sidecar.protocol.calls.admin import ConfigResource, CreatePartitions, CreateTopics, DescribeConfigs, Resource
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.metadata import MetadataCall
from sidecar.v1 import state_pb2 as state
from tests.sim.kafka.direct import SimulatedKafka

NAMES = TopicNames.of("c")
LIST_OFFSETS, METADATA, CREATE_TOPICS, DESCRIBE_CONFIGS = 2, 3, 19, 32


async def test_ownership_is_made_last_and_a_second_start_finds_what_the_first_made(
    kafka: SimulatedKafka,
) -> None:
    node = kafka.node()
    first = await open_topics(node, "c")
    created = [topic for request in node.requests(CreateTopics) for topic in request.topics]
    assert list(dict.fromkeys((topic.name, topic.partitions) for topic in created)) == [
        (NAMES.snapshots, 8), (NAMES.events, 1), (NAMES.ownership, 1),
    ]  # fmt: skip
    assert first.ownership == TopicPartition("__sidecar_c", 0)
    assert set(first.ids) == {*NAMES.all}
    assert not first.warnings
    assert await open_topics(kafka.node(), "c") == first


async def test_a_broker_may_have_the_number_0() -> None:
    kafka = SimulatedKafka(brokers=(0,))
    changelog = await Changelog.open(kafka.upstream, "c", clock=kafka.clock())
    offset = await changelog.append([Record(Key(Kind.POLICY, "orders"), state.Policy(version=7))])
    await changelog.tailer.reached(offset, timeout=10)
    assert await changelog.tailer.read_to_end(10) == offset + 1
    await changelog.close()
    await kafka.close()


async def test_nodes_that_start_together_agree_on_the_topics(kafka: SimulatedKafka) -> None:
    opened = await asyncio.gather(*[open_topics(kafka.node(), "c") for _ in range(4)])
    assert all(topics == opened[0] for topics in opened)


async def test_the_topics_are_as_safe_as_three_brokers_allow(kafka: SimulatedKafka) -> None:
    topics = await open_topics(kafka.upstream, "c")
    for name in NAMES.all:
        assert {len(part.replicas) for part in kafka.cluster.controller.topics[name].partitions} == {3}
    resource = Resource(ConfigResource.TOPIC, topics.names.ownership)
    settings = (await kafka.upstream.call(None, DescribeConfigs((resource,))))[resource].values
    assert settings["min.insync.replicas"] == "2"
    assert settings["unclean.leader.election.enable"] == "false"
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["cleanup.policy"] == "compact"
    assert settings["delete.retention.ms"] == str(7 * 24 * 3600 * 1000)


async def test_a_topics_snapshots_stay_where_they_are_when_partitions_are_added(kafka: SimulatedKafka) -> None:
    before = await open_topics(kafka.upstream, "c")
    await kafka.upstream.call(None, CreatePartitions(NAMES.snapshots, 11, 1_000))
    await kafka.pause(1)
    after = await open_topics(kafka.upstream, "c")
    topics = [f"orders-{number}" for number in range(40)]
    assert [after.snapshots_of(topic) for topic in topics] == [before.snapshots_of(topic) for topic in topics]
    assert {before.snapshots_of(topic).partition for topic in topics} == set(range(8))


async def test_a_fence_covers_the_ownership_topic_and_the_snapshots_of_a_topic_with_ids(changelog: Changelog) -> None:
    kept = changelog.snapshots_of("orders")
    assert kept == changelog.topics.snapshots_of("orders")
    assert changelog.fenced() == {NAMES.ownership: [0]}
    assert changelog.fenced("orders") == {NAMES.ownership: [0], NAMES.snapshots: [kept.partition]}


async def test_somebodys_smaller_snapshot_topic_is_used_as_it_is(kafka: SimulatedKafka) -> None:
    kafka.cluster.create_topic(
        NAMES.snapshots, 3, configs={"cleanup.policy": "compact", "delete.retention.ms": str(2**60),
        "message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed", "min.insync.replicas": "2"},
    )  # fmt: skip
    await kafka.pause(1)
    topics = await open_topics(kafka.upstream, "c")
    assert {topics.snapshots_of(f"orders-{number}").partition for number in range(40)} == {0, 1, 2}
    assert ["max.message.bytes is" in finding.what for finding in topics.warnings] == [True]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        (CREATE_TOPICS, ErrorCode.NOT_CONTROLLER),
        (CREATE_TOPICS, ErrorCode.REQUEST_TIMED_OUT),
        (CREATE_TOPICS, ErrorCode.INVALID_REPLICATION_FACTOR),
        (METADATA, ErrorCode.LEADER_NOT_AVAILABLE),
        (DESCRIBE_CONFIGS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_passes_is_waited_for(kafka: SimulatedKafka, api: int, error: ErrorCode) -> None:
    kafka.refuse(api, error, times=2)
    topics = await open_topics(kafka.upstream, "c")
    assert {*topics.ids} == {*kafka.cluster.controller.topics} & {*NAMES.all}
    assert kafka.cluster.effects["refused"]


async def test_a_broker_that_does_not_know_yet_what_another_one_has_shown_is_asked_again(kafka: SimulatedKafka) -> None:
    kafka.cluster.create_topic(NAMES.snapshots, 8)
    await kafka.pause(1)
    node, lagged = kafka.node(), list[str]()

    async def lag(request: object) -> None:
        if isinstance(request, MetadataCall) and not lagged:
            lagged.append(NAMES.snapshots)
            raise UnknownTopicError(NAMES.snapshots)

    node.before = lag
    with pytest.raises(MisconfiguredError, match=NAMES.snapshots):
        await open_topics(node, "c")
    assert lagged


@pytest.mark.parametrize("api", [CREATE_TOPICS, METADATA])
async def test_a_refusal_ends_the_start(kafka: SimulatedKafka, api: int) -> None:
    kafka.refuse(api, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ChangelogError, match=r"topic __sidecar_c_snapshots.*TOPIC_AUTHORIZATION_FAILED"):
        await open_topics(kafka.upstream, "c")


@pytest.mark.parametrize(("lasts", "is_enough"), [(50, True), (70, False)])
async def test_leaders_are_waited_for_a_minute_long(kafka: SimulatedKafka, lasts: int, is_enough: bool) -> None:
    """All in-sync replicas of one topic are down."""
    for name in NAMES.all:
        kafka.cluster.create_topic(name, 1, assignment={0: [3 if name == NAMES.events else 1]})
    await kafka.pause(1)
    kafka.cluster.brokers[3].kill()
    kafka.call_later(lasts, kafka.cluster.brokers[3].start)
    opening = open_topics(kafka.upstream, "c")
    await kafka.pause(5)
    with pytest.raises(MisconfiguredError if is_enough else RetryTimeoutError):
        await opening


async def test_a_creation_that_was_cut_short_is_finished(kafka: SimulatedKafka) -> None:
    whole = await open_topics(kafka.upstream, "c")
    await kafka.delete(whole.names.ownership)
    await kafka.pause(1)
    again = await open_topics(kafka.node(), "c")
    assert again.ids[NAMES.events] == whole.ids[NAMES.events]
    assert again.ids[NAMES.ownership] != whole.ids[NAMES.ownership]


@pytest.mark.parametrize("present", [NAMES.snapshots, NAMES.events])
async def test_a_deleted_ownership_topic_is_not_made_again_where_another_topic_tells_of_it(
    kafka: SimulatedKafka, present: str
) -> None:
    """Also where a leader does not say at once what it has."""
    await open_topics(kafka.upstream, "c")
    await kafka.pause(1)
    assert not (await kafka.produce(TopicPartition(present, 0), None)).error
    await kafka.delete(NAMES.ownership)
    await kafka.pause(1)
    kafka.refuse(LIST_OFFSETS, ErrorCode.LEADER_NOT_AVAILABLE)
    with pytest.raises(ChangelogLostError, match="__sidecar_c was deleted"):
        await open_topics(kafka.node(), "c")
    assert NAMES.ownership not in kafka.cluster.controller.topics


@pytest.mark.parametrize("lost", [NAMES.snapshots, NAMES.events])
async def test_a_topic_missing_beside_the_ownership_topic_is_not_made_again(kafka: SimulatedKafka, lost: str) -> None:
    await open_topics(kafka.upstream, "c")
    await kafka.delete(lost)
    await kafka.pause(1)
    with pytest.raises(ChangelogLostError, match=f"there: {lost}$"):
        await open_topics(kafka.node(), "c")
    assert lost not in kafka.cluster.controller.topics


async def test_topics_that_somebody_made_with_kafkas_defaults_are_refused_with_what_to_change(
    kafka: SimulatedKafka,
) -> None:
    for name in NAMES.all:
        await kafka.create(name)
    with pytest.raises(MisconfiguredError) as refused:
        await open_topics(kafka.upstream, "c")
    for finding in (
        f"{NAMES.ownership}: cleanup.policy is delete, must be compact",
        f"{NAMES.ownership}: message.timestamp.type is CreateTime, must be LogAppendTime",
        f"{NAMES.snapshots}: cleanup.policy is delete, must be compact",
        f"{NAMES.events}: message.timestamp.type is CreateTime, must be LogAppendTime",
    ):
        assert finding in str(refused.value)
    assert "events: cleanup.policy" not in str(refused.value)
