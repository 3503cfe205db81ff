"""Topics under a policy that clients name by id (KIP-516): the same owner, the same refusals, and another topic of the
name is another topic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.kafka.gateway.by_id import end_of, fetch, fetched, id_of, metadata, produce, produced, recreate
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.nodes import NodeProcess
    from tests.rest import Rest
    from tests.services import Services


@pytest.fixture
def billing(node: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node.bootstrap, "billing") as wire:
        yield wire


@pytest.fixture
def rival(node: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node.bootstrap, "rival") as wire:
        yield wire


def write(wire: RawClient, topic: str | UUID, *partitions: int, version: int = 13) -> set[int]:
    """The error codes of one batch for each partition."""
    answer = wire.ask(produce(version, {(topic, index): bytes(raw.batch()) for index in partitions}))
    assert produced(answer).keys() == {(topic, index) for index in partitions}
    return set(produced(answer).values())


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_one_owner_by_name_and_by_id(
    topic: str, services: Services, billing: RawClient, rival: RawClient, rest: Rest, partitions: tuple[int, ...]
) -> None:
    topic_id = id_of(services.kafka_bootstrap, topic)
    for _ in range(3):  # the first one takes it over, those behind go on whole
        assert write(billing, topic_id, *partitions) == {0}
        assert write(rival, topic_id, *partitions) == {ErrorCode.POLICY_VIOLATION}
    assert write(rival, topic, *partitions, version=12) == {ErrorCode.POLICY_VIOLATION}
    assert write(billing, topic, *partitions, version=12) == {0}
    assert rest.topic(topic)["owner"]["name"] == "billing"
    assert end_of(services.kafka_bootstrap, topic) > 3 * len(partitions), "markers, and what the owner wrote"


def test_metadata_by_id_leads_to_the_node_that_serves_the_topic(
    topic: str, services: Services, billing: RawClient
) -> None:
    topic_id = id_of(services.kafka_bootstrap, topic)
    by_name, by_id = (billing.ask(metadata(12, each)).topics for each in (topic, topic_id))
    assert by_name == by_id


async def test_a_takeover_of_the_new_topic_lets_nothing_in_that_was_sent_by_the_old_id(
    topic: str, node: NodeProcess, services: Services, billing: RawClient
) -> None:
    """The node has not heard yet that the topic was created anew when the first batch comes, and then hears of it."""
    old = id_of(node.bootstrap, topic)
    new = await asyncio.to_thread(recreate, services.kafka_bootstrap, topic)
    for _ in range(3):
        assert write(billing, old, 0) == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert end_of(services.kafka_bootstrap, topic) <= 2, "a fence's marker in each partition, and no record"
    assert write(billing, new, 0) == {0}


async def test_the_old_id_of_a_topic_that_was_created_anew_gets_nothing_in_and_nothing_out(
    topic: str, services: Services, billing: RawClient, rival: RawClient
) -> None:
    old = id_of(services.kafka_bootstrap, topic)
    assert write(billing, old, 0, 1) == {0}
    new = await asyncio.to_thread(recreate, services.kafka_bootstrap, topic)
    for _ in range(3):
        assert write(billing, old, 0, 1) <= {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        found = fetched(rival.ask(fetch(13, {(old, 0): 0}, wait_ms=100)))[old, 0]
        assert found[0] in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert found[2] == 0
    assert end_of(services.kafka_bootstrap, topic) <= 2, "a fence's marker in each partition, and no record"

    def by_new_id() -> bool:
        codes = [write(wire, new, 0) for wire in (billing, rival)]
        return sorted(codes, key=repr) == [{0}, {ErrorCode.POLICY_VIOLATION}]

    await asyncio.to_thread(wait_for, by_new_id, "the new topic to have one owner", 30)
    assert write(billing, old, 0) == {ErrorCode.UNKNOWN_TOPIC_ID}
