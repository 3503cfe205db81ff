"""Offsets of groups by topic id (OffsetCommit 10, OffsetFetch 10) and of many groups in one request (OffsetFetch 8 and
newer): what a node answers, and what a broker answers to the same. Kafka 4.1 does not offer version 10 yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest

from sidecar.cluster.resolver import ANYBODY, Source
from sidecar.local import Kafka, KafkaConfig
from sidecar.protocol.errors import ErrorCode
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.by_id import create, id_of, recreate
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import Unique

pytestmark = pytest.mark.slow  # a Kafka of another version, for four tests
UNKNOWN = UUID(int=0x1234)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Topics(NamedTuple):
    """A topic and what may become its shadow, with the group that reads them and the node in front."""

    node: VirtualCluster
    kafka: str
    source: str
    shadow: str
    group: str

    def expose(self, allow: str = ANYBODY) -> None:
        source = Source(self.source.encode(), id_of(self.kafka, self.source), frozenset({allow}))
        self.node.resolver.set_shadows({self.shadow.encode(): source})


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VirtualCluster, str]]:
    """A node in front of a broker that offers these versions, and that broker."""
    with Kafka(tmp_path_factory.mktemp("newest"), KafkaConfig(version="4.3.1")) as kafka:
        create_internal_topics(kafka.bootstrap)
        with VirtualCluster(kafka.bootstrap, first_id=7) as cluster:
            yield cluster, kafka.bootstrap
            assert (cluster.events.failed, cluster.events.crashed) == ([], [])


@pytest.fixture
def topics(newest: tuple[VirtualCluster, str], unique: Unique) -> Iterator[Topics]:
    node, kafka = newest
    found = Topics(node, kafka, unique("orders"), unique("orders-audit"), unique("group"))
    create(kafka, found.source, found.shadow)
    yield found
    node.resolver.set_shadows({})


def commit(group: str, *places: tuple[UUID | str, int, int]) -> Any:
    """Of a consumer that is no member: topic, partition, offset."""
    named = [
        {
            "topic_id" if isinstance(topic, UUID) else "name": topic,
            "partitions": [{"partition_index": index, "committed_offset": offset, "committed_metadata": "note"}],
        }
        for topic, index, offset in places
    ]
    version = 10 if isinstance(places[0][0], UUID) else 9
    return request(8, version, group_id=group, generation_id_or_member_epoch=-1, topics=named)


def committed(answer: Any) -> list[tuple[UUID | None, int, int]]:
    return sorted(
        (
            (topic.topic_id, each.partition_index, each.error_code.value)
            for topic in answer.topics
            for each in topic.partitions
        ),
        key=repr,
    )


def fetch(version: int, groups: Mapping[str, Sequence[tuple[UUID | str, int]] | None]) -> Any:
    def named(places: Sequence[tuple[UUID | str, int]] | None) -> Any:
        if places is None:
            return None
        return [
            {"topic_id" if isinstance(topic, UUID) else "name": topic, "partition_indexes": [index]}
            for topic, index in places
        ]

    return request(9, version, groups=[{"group_id": group, "topics": named(each)} for group, each in groups.items()])


def fetched(answer: Any) -> dict[str, tuple[int, dict[tuple[UUID | str | None, int], tuple[int, int]]]]:
    """Of each group its error, and of its partitions error and offset."""
    return {
        group.group_id: (
            group.error_code.value,
            {
                (topic.topic_id if hasattr(topic, "topic_id") else topic.name, each.partition_index): (
                    each.error_code.value,
                    each.committed_offset,
                )
                for topic in group.topics
                for each in topic.partitions
            },
        )
        for group in answer.groups
    }


def test_offsets_are_committed_and_fetched_by_id_as_at_a_broker(topics: Topics) -> None:
    source, shadow = (id_of(topics.kafka, name) for name in (topics.source, topics.shadow))
    with RawClient(topics.node.bootstrap) as mine, RawClient(topics.kafka) as theirs:
        for number, places in enumerate(
            ([(source, 0, 3)], [(source, 1, 4), (shadow, 0, 5), (UNKNOWN, 0, 6)], [(UNKNOWN, 0, 6)], [(source, 77, 1)])
        ):
            asked = commit(topics.group, *places)
            assert committed(mine.ask(asked)) == committed(theirs.ask(asked)), number
        places = [(source, 0), (source, 77), (shadow, 1), (UNKNOWN, 0)]
        for asked in (
            fetch(10, {topics.group: places}),
            fetch(10, {topics.group: None}),
            fetch(10, {topics.group: places, f"{topics.group}-2": None, f"{topics.group}-3": places}),
            fetch(9, {topics.group: [(topics.source, 0), ("never-there", 0)], f"{topics.group}-2": None}),
            fetch(8, {topics.group: None}),
            fetch(10, {}),
        ):
            assert fetched(mine.ask(asked)) == fetched(theirs.ask(asked))
        found = fetched(mine.ask(fetch(10, {topics.group: None})))
    assert found[topics.group] == (0, {(source, 0): (0, 3), (source, 1): (0, 4), (shadow, 0): (0, 5)})


def test_a_shadow_has_cursors_of_its_own_by_its_own_id(topics: Topics) -> None:
    topics.expose()
    source, shadow = (id_of(topics.kafka, name) for name in (topics.source, topics.shadow))
    with RawClient(topics.node.bootstrap) as wire:
        wire.ask(commit(topics.group, (source, 0, 3), (shadow, 0, 8)))
        found = fetched(wire.ask(fetch(10, {topics.group: [(source, 0), (shadow, 0)]})))
        by_name = fetched(wire.ask(fetch(9, {topics.group: [(topics.source, 0), (topics.shadow, 0)]})))
    assert found == {topics.group: (0, {(source, 0): (0, 3), (shadow, 0): (0, 8)})}
    assert by_name == {topics.group: (0, {(topics.source, 0): (0, 3), (topics.shadow, 0): (0, 8)})}


def test_who_may_not_read_a_shadow_has_no_cursor_of_it_by_its_id(topics: Topics) -> None:
    """Neither sees nor moves one; what else the request names is done. Ids that nobody knows are no shadow's."""
    source, shadow = (id_of(topics.kafka, name) for name in (topics.source, topics.shadow))
    other = f"{topics.group}-2"
    with RawClient(topics.kafka) as kafka:
        for group in (topics.group, other):
            kafka.ask(commit(group, (source, 0, 3), (shadow, 0, 8)))
    topics.expose("User:somebody-else")
    with RawClient(topics.node.bootstrap) as wire:
        asked = commit(topics.group, (source, 0, 4), (shadow, 0, 9), (UNKNOWN, 0, 9))
        told = [(source, 0, 0), (shadow, 0, DENIED), (UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID)]
        assert committed(wire.ask(asked)) == sorted(told, key=repr)
        assert committed(wire.ask(commit(topics.group, (shadow, 0, 9)))) == [(shadow, 0, DENIED)]
        alone = fetched(wire.ask(fetch(10, {topics.group: [(shadow, 0)]})))
        assert alone == {topics.group: (0, {(shadow, 0): (DENIED, -1)})}
        both = fetched(wire.ask(fetch(10, {topics.group: [(source, 0), (shadow, 0), (UNKNOWN, 0)], other: None})))
        assert both == {
            topics.group: (0, {(source, 0): (0, 4), (shadow, 0): (DENIED, -1), (UNKNOWN, 0): (100, -1)}),
            other: (0, {(source, 0): (0, 3)}),
        }
        named = fetched(wire.ask(fetch(8, {other: None, topics.group: [(topics.shadow, 0)]})))
        assert named == {
            other: (0, {(topics.source, 0): (0, 3)}),
            topics.group: (0, {(topics.shadow, 0): (DENIED, -1)}),
        }
    with RawClient(topics.kafka) as kafka:
        left = fetched(kafka.ask(fetch(10, {topics.group: [(shadow, 0)]})))
    assert left == {topics.group: (0, {(shadow, 0): (0, 8)})}


def test_a_topic_that_was_created_anew_has_no_offset_of_the_former(topics: Topics) -> None:
    old = id_of(topics.kafka, topics.source)
    with RawClient(topics.node.bootstrap) as wire:
        assert committed(wire.ask(commit(topics.group, (old, 0, 3)))) == [(old, 0, 0)]
        new = recreate(topics.kafka, topics.source)
        refused = [(old, 0, ErrorCode.UNKNOWN_TOPIC_ID)]
        wait_for(lambda: committed(wire.ask(commit(topics.group, (old, 0, 4)))) == refused, "the old id to be gone")
        found = fetched(wire.ask(fetch(10, {topics.group: [(old, 0), (new, 0)]})))
    assert found == {topics.group: (0, {(old, 0): (100, -1), (new, 0): (0, -1)})}


async def test_groups_of_several_coordinators_are_fetched_in_one_request(
    three_nodes: VirtualCluster,
    kafka_cluster: Kafka,
    unique: Unique,
    groups_of_several_coordinators: Callable[[int], list[str]],
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    names = groups_of_several_coordinators(12)
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        for number, name in enumerate(names):
            asked = commit(name, (topic, 0, number))
            wait_for(lambda asked=asked: codes(wire.ask(asked)) == {0}, f"the offset of {name}", 30)
        for version in (8, 9):
            answer = wire.ask(
                fetch(version, {name: [(topic, 0)] if number % 2 else None for number, name in enumerate(names)})
            )
            assert [group.group_id for group in answer.groups] == names
            assert fetched(answer) == {name: (0, {(topic, 0): (0, number)}) for number, name in enumerate(names)}
        twice = [{"group_id": name, "topics": [{"name": topic, "partition_indexes": [0]}]} for name in names[:2] * 2]
        answer = wire.ask(request(9, 9, groups=twice))
    offsets = [each.committed_offset for group in answer.groups for found in group.topics for each in found.partitions]
    assert offsets == [0, 1, 0, 1], "brokers answer a group as often as it is named"
