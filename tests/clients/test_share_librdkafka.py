"""librdkafka's ShareConsumer (KIP-932) on brokers, and through two nodes in front of them."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conftest import Unique
from tests.topics import create_topic
from tests.wait import wait_for

from .outcome import Route
from .test_share_consumers import SHADOW_REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
each_route = pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
PATIENCE_S = 60.0
RECORDS = 40


@pytest.fixture
def members() -> Iterator[ExitStack]:
    """Closes those that enter it."""
    with ExitStack() as joined:
        yield joined


def member(bootstrap: str, group: str, topic: str, acknowledgement: str, **more: object) -> ShareConsumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    consumer = ShareConsumer({**settings, "share.acknowledgement.mode": acknowledgement, **more})
    consumer.subscribe([topic])
    return consumer


def group_from_the_beginning(bootstrap: str, name: str) -> str:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)
    return name


def written(bootstrap: str) -> str:
    """A topic with the numbers below `RECORDS`, each a batch of its own."""
    topic, producer = create_topic(bootstrap, 2), Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
    return topic


def polled(consumer: ShareConsumer) -> list[Message]:
    found = list(consumer.poll(0.2))
    for message in found:
        assert message.error() is None, message.error()
    return found


def committed(consumer: ShareConsumer) -> None:
    assert not [error for error in consumer.commit_sync(PATIENCE_S).values() if error is not None]


@pytest.mark.further("share-librdkafka")
@each_route
def test_records_are_accepted_released_and_rejected(
    stage: Stage, route: Route, unique: Unique, members: ExitStack
) -> None:
    topic, at = written(stage.behind.bootstrap), stage.at(route)
    group = group_from_the_beginning(at, unique("group"))
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT)
    seen = defaultdict[int, list[tuple[AcknowledgeType, int]]](list)
    consumer = members.enter_context(member(at, group, topic, "explicit"))

    def settled() -> bool:
        for message in polled(consumer):
            number = int(message.value() or b"")
            kind = AcknowledgeType.ACCEPT if seen[number] else kinds[number % 4]
            seen[number].append((kind, message.delivery_count()))
            consumer.acknowledge(message, kind)
        committed(consumer)
        return len(seen) == RECORDS and all(each[-1][0] is not AcknowledgeType.RELEASE for each in seen.values())

    wait_for(settled, "all records to be accepted or rejected", PATIENCE_S)
    again = [(AcknowledgeType.RELEASE, 1), (AcknowledgeType.ACCEPT, 2)]
    assert seen == {number: again if number % 4 == 1 else [(kinds[number % 4], 1)] for number in range(RECORDS)}


@pytest.mark.further("share-librdkafka")
@each_route
def test_two_members_share(stage: Stage, route: Route, unique: Unique, members: ExitStack) -> None:
    topic, at = written(stage.behind.bootstrap), stage.at(route)
    group = group_from_the_beginning(at, unique("group"))
    both = [members.enter_context(member(at, group, topic, "implicit", **{"max.poll.records": 5})) for _ in range(2)]
    seen: list[list[int]] = [[], []]

    def took_all() -> bool:
        for consumer, numbers in zip(both, seen, strict=True):
            numbers.extend(int(message.value() or b"") for message in polled(consumer))
            committed(consumer)
        return sum(map(len, seen)) >= RECORDS

    wait_for(took_all, "all records", PATIENCE_S)
    assert sorted(seen[0] + seen[1]) == [*range(RECORDS)]
    assert all(seen), "both took some"


@pytest.mark.further("share-librdkafka-shadow")
def test_a_member_is_refused_on_a_shadow_once(stage: Stage, unique: Unique, members: ExitStack) -> None:
    """librdkafka shows no reasons."""
    source, shadow = create_topic(stage.behind.bootstrap, 2), unique("audit")
    assert stage.rest.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})[0] == 201
    consumer = members.enter_context(member(stage.at(Route.NODE), unique("group"), shadow, "implicit"))

    def refused() -> KafkaError | None:
        try:
            return next((error for each in consumer.poll(0.2) if (error := each.error()) is not None), None)
        except KafkaException as error:
            return error.args[0]

    error = wait_for(refused, "the refusal", PATIENCE_S)
    assert error is not None
    assert (error.code(), error.fatal()) == (KafkaError.INVALID_REQUEST, True)
    assert stage.refusals(shadow) == [("INVALID_REQUEST", SHADOW_REFUSED, 1)]
