"""Topics by their ids (KIP-516): what a node answers, and what a broker answers to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

from sidecar.cluster.resolver import ANYBODY, Source
from sidecar.protocol.errors import ErrorCode
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
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


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, *names: str) -> None:
    asking = admin(bootstrap)
    for done in asking.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        done.result(20)


def metadata(version: int, *topics: str | UUID, auto: bool = False) -> Any:
    named = [
        {"name": None, "topic_id": each} if isinstance(each, UUID) else {"name": each, "topic_id": None}
        for each in topics
    ]
    return request(3, version, topics=named, allow_auto_topic_creation=auto)


def id_of(bootstrap: str, topic: str) -> UUID:
    def asked() -> UUID | None:
        with RawClient(bootstrap) as wire:
            return wire.ask(metadata(12, topic)).topics[0].topic_id

    found = wait_for(asked, f"the id of {topic}")
    assert found is not None
    return found


def recreate(bootstrap: str, topic: str) -> UUID:
    """Another topic of the same name; its id."""
    before = id_of(bootstrap, topic)
    asking = admin(bootstrap)
    asking.delete_topics([topic])[topic].result(20)

    def created() -> bool:
        try:
            create(bootstrap, topic)
        except KafkaException:  # it is still being deleted
            return False
        return True

    wait_for(created, f"{topic} to be created anew", 30)
    wait_for(lambda: id_of(bootstrap, topic) != before, f"the new id of {topic}", 30)
    return id_of(bootstrap, topic)


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
