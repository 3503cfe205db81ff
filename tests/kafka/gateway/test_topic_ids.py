"""Topics by their ids (KIP-516): what a node answers, and what a broker answers to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from confluent_kafka.admin import (
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

from sidecar.cluster.resolver import ANYBODY, Source
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.logs import LIST_OFFSETS
from tests import raw
from tests.kafka.gateway.by_id import (
    admin,
    create,
    end_of,
    fetch,
    fetched,
    id_of,
    metadata,
    mislead,
    produce,
    produced,
    recreate,
    write,
)
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.services import Services

UNKNOWN = UUID(int=0x1234)


class Topics(NamedTuple):
    """A topic, another one of which it is the source, and where they are served."""

    node: VirtualCluster
    kafka: str
    source: str
    shadow: str

    def wires(self) -> tuple[RawClient, RawClient]:
        """To the node, and to Kafka."""
        return RawClient(self.node.bootstrap), RawClient(self.kafka)

    def expose(self, allow: str = ANYBODY) -> None:
        source = Source(self.source.encode(), id_of(self.kafka, self.source), frozenset({allow}))
        self.node.resolver.set_shadows({self.shadow.encode(): source})


@pytest.fixture
def topics(one_node: VirtualCluster, services: Services, unique: Unique) -> Iterator[Topics]:
    found = Topics(one_node, services.kafka_bootstrap, unique("orders"), unique("orders-audit"))
    create(services.kafka_bootstrap, found.source, found.shadow)
    yield found
    one_node.resolver.set_shadows({})


# Metadata -----------------------------------------------------------------------------------------------------------


def described(answer: Any) -> list[tuple[int, str | None, UUID | None, bool, int]]:
    return sorted(
        (
            (each.error_code.value, each.name, each.topic_id, each.is_internal, len(each.partitions))
            for each in answer.topics
        ),
        key=repr,
    )


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_by_name_has_the_ids_that_a_broker_has(topics: Topics, version: int) -> None:
    mine, theirs = topics.wires()
    with mine, theirs:
        asked = metadata(version, topics.source, topics.shadow, "never-there", "..", "a b")
        assert described(mine.ask(asked)) == described(theirs.ask(asked))
        assert {each[1] for each in described(mine.ask(request(3, version, topics=None)))} >= {topics.source}


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_by_id_is_answered_as_by_a_broker(topics: Topics, version: int) -> None:
    ids = [id_of(topics.kafka, name) for name in (topics.source, topics.shadow)]
    mine, theirs = topics.wires()
    with mine, theirs:
        for asked in (
            metadata(version, *ids, UNKNOWN),
            metadata(version, ids[0], ids[0], topics.shadow, "never-there"),
            metadata(version, UNKNOWN),
        ):
            ours, brokers = mine.ask(asked), theirs.ask(asked)
            assert described(ours) == described(brokers)
            assert getattr(ours, "error_code", 0) == getattr(brokers, "error_code", 0)


def test_a_shadow_has_its_own_id_and_the_partitions_of_its_source(topics: Topics) -> None:
    topics.expose()
    shadow_id, source_id = (id_of(topics.kafka, name) for name in (topics.shadow, topics.source))
    with RawClient(topics.node.bootstrap) as wire:
        (shadow,) = wire.ask(metadata(12, shadow_id)).topics
        (source,) = wire.ask(metadata(12, source_id)).topics
    assert (shadow.name, shadow.topic_id) == (topics.shadow, shadow_id)
    assert (source.name, source.topic_id) == (topics.source, source_id)
    epochs = [[(each.partition_index, each.leader_epoch) for each in found.partitions] for found in (shadow, source)]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 2


def test_a_shadow_that_its_allow_list_hides_has_no_name_by_its_id(topics: Topics) -> None:
    topics.expose("User:somebody-else")
    shadow_id = id_of(topics.kafka, topics.shadow)
    with RawClient(topics.node.bootstrap) as wire:
        answers = [wire.ask(metadata(12, asked)).topics for asked in (shadow_id, topics.shadow)]
    assert [(each.error_code.value, each.name, each.topic_id, each.partitions) for (each,) in answers] == [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, shadow_id, ()),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics.shadow, None, ()),
    ]


def test_a_topic_that_was_created_anew_is_not_found_by_its_old_id(topics: Topics) -> None:
    old = id_of(topics.kafka, topics.source)
    with RawClient(topics.node.bootstrap) as wire:
        assert wire.ask(metadata(12, old)).topics[0].name == topics.source
        new = recreate(topics.kafka, topics.source)
        assert described(wire.ask(metadata(12, old, new, uuid4())))[0][:3] == (0, topics.source, new)
        assert wire.ask(metadata(12, old)).topics[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_ID
    view = topics.node.nodes[0].upstream.view
    assert (view.names.get(new.bytes), view.names.get(old.bytes)) == (topics.source.encode(), None)


# Produce ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 11, 12])
def test_batches_are_written_by_name_in_versions_that_carry_leaders(topics: Topics, version: int) -> None:
    with RawClient(topics.node.bootstrap) as wire:
        answer = wire.ask(produce(version, {(topics.source, 0): bytes(raw.batch())}))
        assert produced(answer) == {(topics.source, 0): 0}
        assert answer.node_endpoints == ()
    assert end_of(topics.kafka, topics.source) == 1


def test_batches_are_written_by_id_and_answered_as_by_a_broker(topics: Topics) -> None:
    source, shadow = (id_of(topics.kafka, name) for name in (topics.source, topics.shadow))
    mine, theirs = topics.wires()
    with mine, theirs:
        for parts in (
            {(source, 0): bytes(raw.batch())},
            {(source, 1): bytes(raw.batch()), (shadow, 0): bytes(raw.batch())},
            {(UNKNOWN, 0): bytes(raw.batch())},
            {(UNKNOWN, 0): bytes(raw.batch()), (source, 0): bytes(raw.batch()), (shadow, 99): bytes(raw.batch())},
        ):
            asked = produce(13, dict(parts))
            assert produced(mine.ask(asked)) == produced(theirs.ask(asked))
    assert end_of(topics.kafka, topics.source) == 2 * 3
    assert end_of(topics.kafka, topics.shadow) == 2 * 1


def test_nothing_is_written_by_id_that_may_not_be_written_by_name(topics: Topics) -> None:
    topics.expose()
    create(topics.kafka, "__sidecar_tests")
    internal, shadow = (id_of(topics.kafka, name) for name in ("__sidecar_tests", topics.shadow))
    source = id_of(topics.kafka, topics.source)
    topics.node.resolver.set_policies([topics.source], [])
    try:
        with RawClient(topics.node.bootstrap) as wire:
            for parts in ([internal], [shadow], [source], [internal, shadow, source, UNKNOWN]):
                found = produced(wire.ask(produce(13, {(each, 0): bytes(raw.batch()) for each in parts})))
                told = {
                    internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    shadow: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    source: ErrorCode.POLICY_VIOLATION,  # what stands for the room of governed topics here
                    UNKNOWN: ErrorCode.UNKNOWN_TOPIC_ID,
                }
                assert found == {(each, 0): told[each] for each in parts}
    finally:
        topics.node.resolver.set_policies([], [])
        asking = admin(topics.kafka)
        asking.delete_topics(["__sidecar_tests"])["__sidecar_tests"].result(20)
    assert end_of(topics.kafka, topics.source) == end_of(topics.kafka, topics.shadow) == 0


def test_a_batch_for_a_topic_that_was_created_anew_does_not_get_into_the_new_one(topics: Topics) -> None:
    old = id_of(topics.kafka, topics.source)
    with RawClient(topics.node.bootstrap) as wire:
        assert produced(wire.ask(produce(13, {(old, 0): bytes(raw.batch())}))) == {(old, 0): 0}
        new = recreate(topics.kafka, topics.source)
        for _ in range(3):  # before the node knows of it, and after
            refused = produced(wire.ask(produce(13, {(old, 0): bytes(raw.batch())})))
            assert refused == {(old, 0): ErrorCode.UNKNOWN_TOPIC_ID}
        assert produced(wire.ask(produce(13, {(new, 0): bytes(raw.batch())}))) == {(new, 0): 0}
    assert end_of(topics.kafka, topics.source) == 1


@pytest.mark.parametrize("version", [11, 12])
def test_no_client_writes_under_a_transactional_id_of_the_sidecar(topics: Topics, version: int) -> None:
    batch = bytes(raw.batch(producer=(7, 0)))
    with RawClient(topics.node.bootstrap) as wire:
        answer = wire.ask(produce(version, {(topics.source, 0): batch}, "sidecar.default.orders"))
    assert produced(answer) == {(topics.source, 0): ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert end_of(topics.kafka, topics.source) == 0


# New leaders (KIP-951) ----------------------------------------------------------------------------------------------


@pytest.fixture
def topic_of_three(kafka_cluster: Kafka, unique: Unique) -> str:
    """One replica: followers answer consumers (KIP-392)."""
    name = unique("orders")
    asking = admin(kafka_cluster.bootstrap)
    asking.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    wait_for(lambda: end_of_one(kafka_cluster.bootstrap, name) == 0, "a leader")
    return name


def end_of_one(bootstrap: str, topic: str) -> int:
    ends: list[int] = []
    for broker in bootstrap.split(","):
        with RawClient(broker) as wire:
            answer = wire.ask(raw.list_offsets({(topic, 0): -1}))
        ends += [found.offset for each in answer.topics for found in each.partitions]
    return max(ends)


@pytest.mark.parametrize("version", [10, 13])
def test_a_producer_hears_of_a_new_leader_by_the_node_and_never_of_a_broker(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, topic_of_three: str, version: int
) -> None:
    epoch = mislead(three_nodes, topic_of_three)
    topic = topic_of_three if version < 13 else id_of(three_nodes.bootstrap.split(",")[1], topic_of_three)
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        asked = produce(version, {(topic, 0): bytes(raw.batch())})
        answer = wire.ask(asked)
        assert produced(answer) == {(topic, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
        (leader,) = (found.current_leader for each in answer.responses for found in each.partition_responses)
        assert leader.leader_epoch == epoch
        assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
            (node.id, "127.0.0.1", node.port) for node in three_nodes.nodes if node.id == leader.leader_id
        ]
        assert produced(wire.ask(asked)) == {(topic, 0): 0}, "the node goes by what the broker said"
    assert end_of_one(kafka_cluster.bootstrap, topic_of_three) == 1


# Fetch --------------------------------------------------------------------------------------------------------------

FETCH_VERSIONS = range(12, 19)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_are_read_as_from_a_broker(topics: Topics, version: int) -> None:
    write(topics.kafka, topics.source)
    source, shadow, nowhere = topics.source, topics.shadow, "never-there"
    named: list[str | UUID] = [source, shadow, nowhere]
    if version >= 13:
        named = [id_of(topics.kafka, source), id_of(topics.kafka, shadow), UNKNOWN]
    mine, theirs = topics.wires()
    with mine, theirs:
        for positions in (
            {(named[0], 0): 0},
            {(named[0], 0): 0, (named[0], 1): 1},
            {(named[0], 0): 0, (named[1], 1): 0, (named[2], 0): 0, (named[0], 77): 0},
            {(named[0], 0): 99},
            {(named[2], 0): 0},
        ):
            asked = fetch(version, dict(positions))
            assert fetched(mine.ask(asked)) == fetched(theirs.ask(asked)), positions


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_shadow_is_read_by_its_own_id_from_the_log_of_its_source(topics: Topics, version: int) -> None:
    write(topics.kafka, topics.source)
    topics.expose()
    names: list[str | UUID] = [topics.shadow, topics.source]
    if version >= 13:
        names = [id_of(topics.kafka, name) for name in (topics.shadow, topics.source)]
    with RawClient(topics.node.bootstrap) as wire:
        both = [wire.ask(fetch(version, {(name, 0): 0})) for name in names]
        together = wire.ask(fetch(version, {(name, index): 0 for name in names for index in (0, 1)}))
        two = wire.ask(fetch(version, {(names[0], index): 0 for index in (0, 1)}))
    (error, end, size), source = fetched(both[0])[names[0], 0], fetched(both[1])[names[1], 0]
    assert (error, end, size) == source
    assert (error, end) == (0, 3)
    assert fetched(together) == {(name, index): source for name in names for index in (0, 1)}
    assert fetched(two) == {(names[0], index): source for index in (0, 1)}


def test_a_shadow_that_somebody_else_may_read_is_not_read_by_its_id(topics: Topics) -> None:
    write(topics.kafka, topics.source)
    topics.expose("User:somebody-else")
    shadow = id_of(topics.kafka, topics.shadow)
    with RawClient(topics.node.bootstrap) as wire:
        found = fetched(wire.ask(fetch(13, {(shadow, 0): 0})))
    assert found == {(shadow, 0): (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)}


@pytest.mark.parametrize("readers", [1, 3])
def test_nothing_of_a_topic_that_was_created_anew_is_read_by_the_old_id(topics: Topics, readers: int) -> None:
    """Be it by a poll of its own, or by one that all readers share."""
    old = id_of(topics.kafka, topics.source)
    write(topics.kafka, topics.source)
    wires = [RawClient(topics.node.bootstrap) for _ in range(readers)]
    try:
        for _ in range(3):  # they know the end, and wait there together
            for wire in wires:
                wire.send(fetch(13, {(old, 0): 3}, wait_ms=300))
            assert [fetched(wire.receive()) for wire in wires] == [{(old, 0): (0, 3, 0)}] * readers
        new = recreate(topics.kafka, topics.source)
        write(topics.kafka, topics.source, 7)
        for _ in range(3):
            for wire in wires:
                wire.send(fetch(13, {(old, 0): 3}, wait_ms=300))
            answers = [fetched(wire.receive())[old, 0] for wire in wires]
            assert {error for error, _, _ in answers} <= {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            assert {size for _, _, size in answers} == {0}
        for wire in wires:
            assert fetched(wire.ask(fetch(13, {(new, 0): 3})))[new, 0][:2] == (0, 7)
    finally:
        for wire in wires:
            wire.close()


def test_a_former_id_is_unknown_as_at_a_broker_that_is_asked_without_a_session(topics: Topics) -> None:
    """A broker says 103 INCONSISTENT_TOPIC_ID within a session that knows the former id; nodes decline sessions."""
    old = id_of(topics.kafka, topics.source)
    asked, parts = {"session_id": 0, "session_epoch": 0}, {(old, 0): 0}
    node, direct = topics.wires()
    with node, direct:
        session = direct.ask(fetch(13, parts, 0, **asked)).session_id
        assert session != 0
        assert node.ask(fetch(13, parts, 0, **asked)).session_id == 0
        recreate(topics.kafka, topics.source)
        within = direct.ask(fetch(13, {}, 0, session_id=session, session_epoch=1))
        assert fetched(within)[old, 0][0] == ErrorCode.INCONSISTENT_TOPIC_ID
        unknown = {(old, 0): (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)}
        for wire in (direct, node):
            assert fetched(wire.ask(fetch(13, parts, 0, **asked))) == unknown


def test_readers_that_wait_at_a_shadow_go_on_when_it_has_the_new_topic_for_its_source(topics: Topics) -> None:
    """They ask the same again, by the shadow's id, which stays: nothing of it shows that the source has another."""
    write(topics.kafka, topics.source)
    topics.expose()
    shadow = id_of(topics.kafka, topics.shadow)
    wires = [RawClient(topics.node.bootstrap) for _ in range(3)]
    try:
        for _ in range(3):
            for wire in wires:
                wire.send(fetch(13, {(shadow, 0): 3}, wait_ms=300))
            assert [fetched(wire.receive()) for wire in wires] == [{(shadow, 0): (0, 3, 0)}] * 3
        recreate(topics.kafka, topics.source)
        write(topics.kafka, topics.source, 3)
        topics.expose()

        def all_read() -> bool:
            for wire in wires:
                wire.send(fetch(13, {(shadow, 0): 3}, wait_ms=300))
            return [fetched(wire.receive())[shadow, 0][:2] for wire in wires] == [(0, 3)] * 3

        wait_for(all_read, "readers of the new topic", 5)
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_readers_of_all_versions_wait_together(topics: Topics, version: int) -> None:
    write(topics.kafka, topics.source)
    topic: str | UUID = topics.source if version < 13 else id_of(topics.kafka, topics.source)
    wires = [RawClient(topics.node.bootstrap) for _ in range(3)]
    tails = topics.node.nodes[0].fetches.tails
    try:
        for _ in range(2):
            for wire in wires:
                wire.send(fetch(version, {(topic, 0): 3}, wait_ms=400))
            assert [fetched(wire.receive()) for wire in wires] == [{(topic, 0): (0, 3, 0)}] * 3
        for wire in wires:
            wire.send(fetch(version, {(topic, 0): 3}, wait_ms=30_000))
        wait_for(lambda: tails.waiting >= 2, "readers that wait for a poll of the node")
        write(topics.kafka, topics.source, 1)
        found = [fetched(wire.receive())[topic, 0] for wire in wires]
        assert {each[:2] for each in found} == {(0, 4)}
        assert all(size for _, _, size in found)
        assert len({size for _, _, size in found}) == 1
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("version", [16, 18])
def test_a_consumer_hears_of_a_new_leader_by_the_node_and_never_of_a_broker(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, topic_of_three: str, version: int
) -> None:
    topic = id_of(three_nodes.bootstrap.split(",")[1], topic_of_three)
    epoch = mislead(three_nodes, topic_of_three)
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        answer = wire.ask(fetch(version, {(topic, 0): 0}))
        assert fetched(answer)[topic, 0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (leader,) = (found.current_leader for each in answer.responses for found in each.partitions)
        assert leader.leader_epoch == epoch
        assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
            (node.id, "127.0.0.1", node.port) for node in three_nodes.nodes if node.id == leader.leader_id
        ]
        assert fetched(wire.ask(fetch(version, {(topic, 0): 0})))[topic, 0][0] == 0


# DeleteTopics and ListOffsets ---------------------------------------------------------------------------------------


def deletion(*topics: str | UUID | tuple[str, UUID] | None) -> Any:
    named: list[dict[str, Any]] = []
    for each in topics:
        name, topic_id = each if isinstance(each, tuple) else (each, None)
        if isinstance(each, UUID):
            name, topic_id = None, each
        named.append({"name": name, "topic_id": topic_id})
    return request(20, 6, topics=named, timeout=20_000)


def deleted(answer: Any) -> list[tuple[int, str | None, UUID | None, str | None]]:
    found = ((each.error_code.value, each.name, each.topic_id, each.error_message) for each in answer.responses)
    return sorted(found, key=repr)


def test_topics_are_deleted_by_id_as_by_a_broker(topics: Topics) -> None:
    source, shadow = (id_of(topics.kafka, name) for name in (topics.source, topics.shadow))
    mine, theirs = topics.wires()
    with mine, theirs:
        for asked in (
            deletion(UNKNOWN),
            deletion("never-there", UNKNOWN, None),
            deletion((topics.source, source), shadow, shadow),
            deletion(topics.source, topics.source),
        ):
            assert deleted(mine.ask(asked)) == deleted(theirs.ask(asked))
        assert deleted(mine.ask(deletion(source, topics.shadow))) == deleted_both(topics, source, shadow)
        assert deleted(mine.ask(deletion(source))) == deleted(theirs.ask(deletion(source)))
        assert described(theirs.ask(metadata(12, source, shadow)))[0][0] == ErrorCode.UNKNOWN_TOPIC_ID


def deleted_both(topics: Topics, source: UUID, shadow: UUID) -> list[tuple[int, str | None, UUID | None, str | None]]:
    return sorted([(0, topics.source, source, None), (0, topics.shadow, shadow, None)], key=repr)


def test_nothing_is_deleted_by_id_that_may_not_be_deleted_by_name(topics: Topics) -> None:
    topics.expose()
    create(topics.kafka, "__sidecar_tests")
    try:
        ids = {name: id_of(topics.kafka, name) for name in ("__sidecar_tests", topics.shadow, topics.source)}
        with RawClient(topics.node.bootstrap) as wire:
            answer = wire.ask(deletion(*ids.values(), UNKNOWN))
        assert {(each.name, each.topic_id): each.error_code.value for each in answer.responses} == {
            ("__sidecar_tests", ids["__sidecar_tests"]): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            (topics.shadow, ids[topics.shadow]): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            (topics.source, ids[topics.source]): ErrorCode.POLICY_VIOLATION,
            (None, UNKNOWN): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        for name, topic_id in ids.items():
            assert id_of(topics.kafka, name) == topic_id
    finally:
        asking = admin(topics.kafka)
        asking.delete_topics(["__sidecar_tests"])["__sidecar_tests"].result(20)


@pytest.mark.parametrize("version", range(7, 11))
@pytest.mark.parametrize("time", [-1, -2, -3, -4, -5, -6, 0])
def test_offsets_are_listed_as_by_a_broker(topics: Topics, version: int, time: int) -> None:
    write(topics.kafka, topics.source)
    indexes, names = ((0, 1, 7), (topics.source, "never-there")) if time > -3 else ((0, 1), (topics.source,))
    parts = [{"partition_index": index, "timestamp": time, "current_leader_epoch": -1} for index in indexes]
    named = [{"name": name, "partitions": parts} for name in names]
    limit = {"timeout": 5_000} if version >= 10 else {}
    asked = request(2, version, replica_id=-1, isolation_level=0, topics=named, **limit)
    mine, theirs = topics.wires()
    with mine, theirs:
        assert listed(mine.ask_values(LIST_OFFSETS, asked)) == listed(theirs.ask_values(LIST_OFFSETS, asked))


def listed(answer: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (topic["name"], each["partition_index"], each["error_code"], each["offset"], each["leader_epoch"])
        for topic in answer["topics"]
        for each in topic["partitions"]
    )
