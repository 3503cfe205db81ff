"""Reader claims by request, and what they mean for consumers as they are: the whole way (Kafka wiki)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalGenerationError, TopicAuthorizationFailedError

from sidecar.v1 import control_pb2 as control
from tests.conftest import Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.own import FENCING, OwnClient, new_token, topic
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.fixture
def orders(services: Services, rest: Rest, node: NodeProcess) -> str:
    """A topic with three records in partition 0 that claimed readers alone may read."""
    name = create_topic(services.kafka_bootstrap)
    status, found = rest.call("PUT", f"/v1/topics/{name}/policy", {"exclusive_reader": True})
    assert status == 200, found
    with RawProducer(node.bootstrap, "writer") as writer:
        assert writer.send(name, [b"0", b"1", b"2"]).error == 0
    return name


def generations(told: control.OwnResponse) -> list[int]:
    assert told.error == control.NONE, told
    return [found.generation for found in told.ownerships]


def reader(node: NodeProcess, name: str, group: str, partition: TopicPartition) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=node.bootstrap,
        client_id=name,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    consumer.assign([partition])
    return consumer


async def test_two_consumers_with_manual_assignment_never_both_read_and_commit(
    node: NodeProcess, orders: str, unique: Unique
) -> None:
    group, partition = unique("readers"), TopicPartition(orders, 0)
    own = await asyncio.to_thread(OwnClient, node.bootstrap, "coordination")
    first, second = reader(node, "first", group, partition), reader(node, "second", group, partition)
    claim = topic(orders, 0)
    assert generations(await asyncio.to_thread(own.own, claim, group=group, name="first")) == [1]
    await first.start()
    await second.start()  # a consumer reads ahead: before the claim it would have
    try:
        record = await asyncio.wait_for(first.getone(), 20)
        assert record.value == b"0"
        behind = record.offset + 1
        await first.commit({partition: behind})
        with pytest.raises(CommitFailedError) as refused:
            await second.commit({partition: behind + 2})
        assert isinstance(refused.value.__cause__, IllegalGenerationError)
        with pytest.raises(TopicAuthorizationFailedError):
            await asyncio.wait_for(second.getone(), 20)

        rival = await asyncio.to_thread(OwnClient, node.bootstrap, "coordination")
        granted = await asyncio.to_thread(rival.own, claim, group=group, name="second", generation=1)
        assert generations(granted) == [2]
        assert await asyncio.to_thread(own.is_severed)
        with pytest.raises(CommitFailedError):
            await first.commit({partition: behind + 2})
        assert await second.committed(partition) == behind
        second.seek(partition, behind)
        got = await asyncio.wait_for(second.getone(), 20)
        assert (got.offset, got.value) == (behind, b"1")
        await second.commit({partition: behind + 1})
        assert await second.committed(partition) == behind + 1
        rival.close()
    finally:
        await first.stop()
        await second.stop()
        own.close()


def test_a_topic_claimed_for_reading_keeps_others_from_its_partitions(
    node: NodeProcess, orders: str, unique: Unique
) -> None:
    group = unique("readers")
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
        assert generations(own.own(topic(orders), group=group, name="all")) == [1]
        assert other.own(topic(orders, 1), group=group, name="one").error == control.HELD
        assert generations(other.own(topic(orders, 1), group=unique("another"), name="one")) == [1]
        assert generations(other.own(topic(orders, 1), group=group, name="one", mode=FENCING)) == [2]
        assert own.is_severed()
        wait_for(lambda: not other.owner(topic(orders), group=group).owner_session, "the topic's claim to end")


def test_a_reader_claims_what_is_there(node: NodeProcess, orders: str, unique: Unique) -> None:
    group = unique("readers")
    with OwnClient(node.bootstrap) as own:
        for resource in (topic(orders, 99), topic("no-such-topic"), topic("a/b")):
            assert own.own(resource, group=group).error == control.UNKNOWN_RESOURCE
        token = new_token()
        told = own.own(topic(orders, 0), topic(orders, 1), group=group, token=token)
        assert generations(told) == [1, 1]
        found = own.owners(group=group)
        assert {each.resource.partition for each in found.ownerships} == {0, 1}
        assert own.release(token, topic(orders, 0), group=group).error == control.NONE
        assert [each.resource.partition for each in own.owners(group=group).ownerships] == [1]
