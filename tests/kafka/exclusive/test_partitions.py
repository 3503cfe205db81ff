"""Owners of single partitions (scope partition): the rules of owning hold for each of them by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.policy.policies import PolicyFields, Scope
from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.checked import CheckedProducer
from tests.kafka.exclusive.conftest import Connect
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.kafka.exclusive.room import Room, open_room, until
from tests.logs import read_log
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK, AGAIN, REFUSED, STALE_EPOCH, FENCED = 0, 7, 44, 47, 90
WAITING, FENCING = "mode=wait_for_exclusive", "mode=exclusive_with_fencing"
EACH = PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.PARTITION)
WHOLE = PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.TOPIC)


def govern_each(rest: Rest, topic: str, **fields: Any) -> dict[str, Any]:
    status, answer = rest.call(
        "PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "scope": "partition", **fields}
    )
    assert status == 200, answer
    return answer


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    """A topic of three partitions with an owner each."""
    name = create_topic(services.kafka_bootstrap, 3)
    govern_each(rest, name)
    return name


async def governed(room: Room, services: Services, policy: PolicyFields = EACH) -> str:
    name = await asyncio.to_thread(create_topic, services.kafka_bootstrap)
    await room.governed.env.catalog.set(name, policy)
    return name


async def log(services: Services, topic: str, partition: int = 0) -> list[bytes]:
    return await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition)


def test_each_partition_has_an_owner_of_its_own(services: Services, topic: str, connect: Connect, rest: Rest) -> None:
    one, two = connect("one"), connect("two")
    assert one.send(topic, b"0", sequence=0).error == OK
    assert two.send(topic, b"1", sequence=0, partition=1).error == OK
    refused = two.send(topic, b"x", sequence=0)
    assert refused.error == REFUSED
    assert (refused.message or "").startswith("Topic has an existing exclusive producer: one (generation 1). ")
    assert one.send(topic, b"2", sequence=0, partition=2).error == OK, "one session may own several"
    found = rest.topic(topic)
    assert {partition: (each["name"], each["generation"]) for partition, each in found["owners"].items()} == {
        "0": ("one", 1), "1": ("two", 1), "2": ("one", 1),
    }  # fmt: skip
    assert (found["owner"], found["generation"]) == (None, 1)
    one.begin_all(topic, {0: (b"3", 1), 2: (b"4", 1)})
    assert {partition: sent.error for partition, sent in one.finish_all().items()} == {0: OK, 2: OK}
    one.begin_all(topic, {0: (b"5", 2), 1: (b"x", 0)})
    assert {partition: sent.error for partition, sent in one.finish_all().items()} == {0: OK, 1: REFUSED}
    assert read_log(services.kafka_bootstrap, topic, 0) == [b"0", b"3", b"5"]
    assert read_log(services.kafka_bootstrap, topic, 1) == [b"1"]
    stamps = {
        partition: fetch_batches(services.kafka_bootstrap, topic, partition)[-1].producer_id for partition in range(3)
    }
    assert len(set(stamps.values())) == 3, "a slot for each partition"


def test_an_owner_that_leaves_frees_its_partitions_and_nobody_elses(topic: str, connect: Connect, rest: Rest) -> None:
    one, two, waiter = connect("one"), connect("two"), connect(f"waiter;{WAITING}")
    assert one.send(topic, b"0", sequence=0).error == OK
    assert two.send(topic, b"1", sequence=0, partition=1).error == OK
    assert waiter.send(topic, b"w", sequence=0).error == AGAIN
    assert waiter.send(topic, b"w", sequence=0, partition=1).error == AGAIN
    assert waiter.send(topic, b"w", sequence=0, partition=2).error == OK
    found = [(each["name"], each["partition"]) for each in rest.topic(topic)["waiting"]]
    assert found == [("waiter", 0), ("waiter", 1)]
    one.close()
    wait_for(lambda: waiter.send(topic, b"w", sequence=0).error == OK, "its turn")
    assert waiter.send(topic, b"w", sequence=0, partition=1).error == AGAIN
    assert rest.topic(topic)["owners"]["0"]["generation"] == 2
    assert rest.topic(topic)["owners"]["1"]["name"] == "two"


def test_a_fencer_takes_one_partition_and_what_is_on_its_way_there_is_refused(
    services: Services, topic: str, connect: Connect
) -> None:
    one, fencer = connect("one"), connect(f"fencer;{FENCING}")
    assert [one.send(topic, b"%d" % index, sequence=0, partition=index).error for index in (0, 1)] == [OK, OK]
    stale = [fetch_batches(services.kafka_bootstrap, topic, index)[-1] for index in (0, 1)]
    assert fencer.send(topic, b"f", sequence=0).error == OK
    assert one.send(topic, b"x", sequence=1).error == FENCED
    assert one.send(topic, b"1", sequence=1, partition=1).error == OK, "the other partition is still its own"
    with RawProducer(services.kafka_bootstrap, "late", stale[0].producer_id, epoch=stale[0].producer_epoch) as late:
        assert late.send(topic, b"late", sequence=1).error == STALE_EPOCH
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"f"]
    assert read_log(services.kafka_bootstrap, topic, 1) == [b"1", b"1"]


def test_the_owner_of_one_partition_is_fenced_or_released_by_name(topic: str, connect: Connect, rest: Rest) -> None:
    one = connect("one")
    assert [one.send(topic, b"x", sequence=0, partition=index).error for index in (0, 1)] == [OK, OK]
    path = f"/v1/topics/{topic}"
    status, answer = rest.call("POST", f"{path}/fence")
    assert (status, answer["message"]) == (400, f"{topic} has the scope partition: say which one")
    status, answer = rest.call("POST", f"{path}/fence?partition=2")
    assert (status, answer["message"]) == (409, f"nobody owns {topic}-2")
    assert rest.call("POST", f"{path}/release?partition=1")[0] == 200
    assert list(rest.topic(topic)["owners"]) == ["0"]
    assert one.send(topic, b"y", sequence=1, partition=1).error == OK, "who was released may claim again"
    assert rest.call("POST", f"{path}/fence?partition=0")[0] == 200
    assert one.send(topic, b"y", sequence=1).error == FENCED
    assert list(rest.topic(topic)["owners"]) == ["1"]


async def test_where_the_scope_changes_nobody_goes_on_with_what_he_had(room: Room, services: Services) -> None:
    topic = await governed(room, services, WHOLE)
    owner = room.connect("owner")
    assert await owner.send(topic, b"0", sequence=0) == OK
    await room.governed.env.catalog.set(topic, EACH)
    one = room.connect("one")
    await until(lambda: one.send(topic, b"1", sequence=0))
    assert await owner.send(topic, b"x", sequence=1) == REFUSED
    await until(lambda: owner.send(topic, b"0", sequence=0, partition=1))
    await room.governed.env.catalog.set(topic, WHOLE)
    whole = room.connect("whole")
    await until(lambda: whole.send(topic, b"2", sequence=0))
    assert await one.send(topic, b"x", sequence=1) == REFUSED
    assert room.topic(topic).generation == 3
    whole.close()
    await room.governed.env.catalog.set(topic, EACH)
    await until(lambda: one.send(topic, b"3", sequence=2))
    found = room.governed.topic(topic)
    assert [part.generation for part in found.parts if part.scope.partition == 0] == [4], "it was not its own between"
    assert await log(services, topic) == [b"0", b"1", b"2", b"3"]


async def test_the_slot_of_a_partition_does_not_get_in_behind_an_owner_of_the_whole(
    services: Services, unique: Unique
) -> None:
    """The node stands still in the middle of giving a partition away, while scope and node of the topic change."""
    cluster, kafka, redis = unique("p"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await governed(first, services)
        settled = first.connect("settled")
        await until(lambda: settled.send(topic, b"s", sequence=0, partition=1))
        gate = first.gates.hold("InitProducerId")
        late = first.connect("late")
        answer = late.begin(topic, b"late")
        await gate.reached()
        await first.gives_up(topic)
        await second.governed.env.catalog.set(topic, WHOLE)
        owner = second.connect(f"owner;{FENCING}")
        await until(lambda: owner.send(topic, b"0", sequence=0))
        gate.open()
        assert (await answer).error in (5, 6)
        await until(lambda: owner.send(topic, b"1", sequence=1))
        assert await log(services, topic) == [b"0", b"1"]


@pytest.mark.slow
def test_partitions_go_on_at_another_node_when_their_own_is_killed(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("p")
    nodes = [node_process(cluster=cluster, node_id=number, LEASE_MS="1000") for number in (1, 2)]
    topic = create_topic(services.kafka_bootstrap, 1)
    rest = Rest(nodes[0].admin_url)
    govern_each(rest, topic)
    with CheckedProducer(",".join(node.bootstrap for node in nodes), "a", topic) as producer:
        producer.goes_on(500)
        wait_for(lambda: rest.topic(topic)["serving_node"], "a node to serve it")
        killed = nodes[rest.topic(topic)["serving_node"] - 1]
        killed.kill()
        producer.goes_on(500)
        survivor = next(node for node in nodes if node is not killed)
        assert Rest(survivor.admin_url).topic(topic)["owners"]["0"]["generation"] == 1
    assert producer.failed == []
    assert read_log(services.kafka_bootstrap, topic) == producer.sent
