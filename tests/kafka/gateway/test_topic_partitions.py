"""DescribeTopicPartitions: what a node answers, page by page, and what a broker answers to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sidecar.cluster.resolver import ANYBODY, Source
from sidecar.protocol.errors import ErrorCode
from tests.kafka.gateway.by_id import create, id_of, metadata
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.services import Services

Place = tuple[str, int]


def pages(*names: str, limit: int = 2000, cursor: Place | None = None) -> Any:
    place = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return request(75, 0, topics=[{"name": name} for name in names], response_partition_limit=limit, cursor=place)


def next_of(answer: Any) -> Place | None:
    found = answer.next_cursor
    return None if found is None else (found.topic_name, found.partition_index)


def told(answer: Any) -> tuple[list[Any], Place | None]:
    """All but who leads and has the partitions."""
    return [
        (
            (topic.error_code.value, topic.name, topic.topic_id, topic.is_internal, topic.topic_authorized_operations),
            [(each.error_code.value, each.partition_index, each.leader_epoch) for each in topic.partitions],
        )
        for topic in answer.topics
    ], next_of(answer)


class Topics(NamedTuple):
    """Four topics of two partitions each, in their order, and where they are served."""

    node: VirtualCluster
    kafka: str
    names: list[str]

    def expose(self, shadow: str, source: str, allow: str = ANYBODY) -> None:
        found = Source(source.encode(), id_of(self.kafka, source), frozenset({allow}))
        self.node.resolver.set_shadows({shadow.encode(): found})


@pytest.fixture
def topics(one_node: VirtualCluster, services: Services, unique: Unique) -> Iterator[Topics]:
    first = unique("orders")
    names = [f"{first}-{letter}" for letter in "abcd"]
    create(services.kafka_bootstrap, *names)
    yield Topics(one_node, services.kafka_bootstrap, names)
    one_node.resolver.set_shadows({})


@pytest.mark.parametrize("limit", [-1, 1, 2, 3, 5, 100])
def test_pages_are_those_of_a_broker(topics: Topics, limit: int) -> None:
    *names, last = topics.names
    with RawClient(topics.node.bootstrap) as mine, RawClient(topics.kafka) as theirs:
        for asked in ((*names, "never-there", last, last, "..", "a b"), ()):
            cursor: Place | None = (names[0], 0)
            for _ in range(12):
                page = pages(*asked, limit=limit, cursor=cursor)
                answer = mine.ask(page)
                assert told(answer) == told(theirs.ask(page))
                cursor = next_of(answer)
                if cursor is None or cursor[0] > last:
                    break
            else:
                pytest.fail("the pages never end")


def test_what_no_broker_answers_is_refused_as_by_one(topics: Topics) -> None:
    first, second, *_ = topics.names
    with RawClient(topics.node.bootstrap) as mine, RawClient(topics.kafka) as theirs:
        for page in (
            pages(first, cursor=(second, 0)),
            pages(first, second, cursor=(first, -1)),
            pages(cursor=(first, -1)),
            pages(first, second, cursor=("a", 0)),
            pages(second, cursor=(second, 77)),
        ):
            assert told(mine.ask(page)) == told(theirs.ask(page))


async def test_nodes_lead_and_have_all_replicas_as_metadata_shows_them(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    names = [unique("orders"), unique("governed")]
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        for name in names:
            await calls.create(name, partitions=6, replicas=3)
    three_nodes.resolver.set_policies(names[1:], [])
    try:
        with RawClient(three_nodes.nodes[0].bootstrap) as wire:
            described, shown = wire.ask(pages(*names)), wire.ask(metadata(12, *names))
    finally:
        three_nodes.resolver.set_policies([], [])
    leaders = {
        topic.name: [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions]
        for topic in shown.topics
    }
    assert {
        topic.name: [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions]
        for topic in described.topics
    } == {name: sorted(found) for name, found in leaders.items()}
    for topic in described.topics:
        for each in topic.partitions:
            assert each.replica_nodes == each.isr_nodes == (each.leader_id,)
            assert (each.eligible_leader_replicas, each.last_known_elr, each.offline_replicas) == ((), (), ())
    assert {leader for found in leaders.values() for _, leader, _ in found} <= three_nodes.ids


def test_a_shadow_has_its_own_id_and_the_partitions_of_its_source_on_every_page(topics: Topics) -> None:
    source, shadow, *_ = topics.names
    topics.expose(shadow, source)
    with RawClient(topics.node.bootstrap) as wire:
        (log,) = wire.ask(pages(source)).topics
        epochs = [(each.partition_index, each.leader_epoch) for each in log.partitions]
        first = wire.ask(pages(source, shadow, limit=3))
        rest = wire.ask(pages(source, shadow, limit=3, cursor=next_of(first)))
    assert [topic.name for topic in first.topics] == [source, shadow]
    assert next_of(first) == (shadow, 1)
    (half,) = rest.topics
    assert half.topic_id == id_of(topics.kafka, shadow) != log.topic_id
    found = [*first.topics[1].partitions, *half.partitions]
    assert [(each.partition_index, each.leader_epoch) for each in found] == epochs


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_page_and_no_cursor_names_a_shadow_that_the_client_may_not_read(topics: Topics, limit: int) -> None:
    first, hidden, *others = topics.names
    topics.expose(hidden, others[0], allow="User:somebody-else")
    with RawClient(topics.node.bootstrap) as wire:
        seen: list[Place] = []
        cursor: Place | None = (first, 0)
        for _ in range(12):
            answer = wire.ask(pages(limit=limit, cursor=cursor))
            count = [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]
            assert len(count) == limit or answer.next_cursor is None
            seen += count
            cursor = next_of(answer)
            assert cursor is None or cursor[0] != hidden
            if cursor is None or cursor[0] > others[-1]:
                break
        listed = [place for place in seen if place[0] in topics.names]
        assert listed == [(name, index) for name in (first, *others) for index in (0, 1)]
        named = wire.ask(pages(*topics.names))
        assert [(topic.error_code.value, topic.name, topic.topic_id, len(topic.partitions)) for topic in named.topics][
            -1
        ] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden, None, 0)
        alone = wire.ask(pages(hidden, cursor=(hidden, 1)))
        assert told(alone)[0][0][0][:2] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden)


def test_a_list_of_all_topics_omits_a_closed_shadow(topics: Topics) -> None:
    first, shadow, *_ = topics.names
    closed = Source(b"deleted", id_of(topics.kafka, first), frozenset({ANYBODY}))
    topics.node.resolver.set_shadows({shadow.encode(): closed})
    with RawClient(topics.node.bootstrap) as wire:
        listed = {topic.name for topic in wire.ask(pages(cursor=(first, 0))).topics}
        (named,) = wire.ask(pages(shadow)).topics
    assert first in listed
    assert shadow not in listed
    assert named.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
