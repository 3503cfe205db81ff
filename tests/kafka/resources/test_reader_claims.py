"""What a claim of a reader costs everybody else: by nodes as processes, on the real Kafka, with clients as they are."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests import raw
from tests.conftest import Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.resources.reading import (
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    TOPIC_AUTHORIZATION_FAILED,
    AiokafkaReader,
    Claimed,
    Coordinator,
    LibrdkafkaReader,
    commit,
    committed,
    coordinating,
    cursors,
)
from tests.nodes import NodeProcess, running_node
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for, wait_until

RECORDS = 10
_LONG_MS = 60_000
"""So long a poll may be parked: longer than any test takes."""


@pytest.fixture(scope="module", autouse=True)
def internal_topics(services: Services) -> None:
    create_internal_topics(services.kafka_bootstrap)


@pytest.fixture(scope="module")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One of its own: `coordinator` fences the claims coordinator of its cluster, which others' tests would find."""
    with running_node(tmp_path_factory.mktemp("node"), services.kafka_bootstrap, services.redis_url) as process:
        yield process


@pytest.fixture
async def coordinator(node: NodeProcess, services: Services) -> AsyncIterator[Coordinator]:
    async with coordinating(node, services.kafka_bootstrap) as found:
        yield found


def filled(kafka: str) -> str:
    """A topic of two partitions with records in both."""
    topic = create_topic(kafka, 2)
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    for number in range(RECORDS):
        for partition in (0, 1):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(20) == 0
    return topic


@pytest.fixture
def topic(services: Services) -> str:
    return filled(services.kafka_bootstrap)


@pytest.fixture
def guarded(rest: Rest, topic: str) -> str:
    """A topic under the policy `exclusive_reader` alone."""
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"exclusive_reader": True})
    assert status == 200, answer
    assert (answer["policy"]["exclusive_reader"], answer["policy"]["access_mode"]) == (True, "shared")
    return topic


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("readers")


def session_of(client: RawClient, rest: Rest, kafka: str) -> str:
    """The session of a connection, as the node calls it: by owning a topic through it."""
    owned = create_topic(kafka, 1)
    assert rest.call("PUT", f"/v1/topics/{owned}/policy", {"access_mode": "exclusive"})[0] == 200

    def owner() -> str:
        client.ask(raw.produce({(owned, 0): raw.batch()}))
        owner: dict[str, str] | None = rest.topic(owned)["owner"]
        return "" if owner is None else owner["session"]

    session = wait_for(owner, "the connection to own a topic")
    assert session.startswith("conn:")
    return session


def fetch_codes(client: RawClient, *places: tuple[str, int], version: int = 11) -> list[int]:
    found = raw.fetched(client.ask(raw.fetch(dict.fromkeys(places, 0), version=version)))
    return [raw.code(found[place]) for place in places]


def in_flight(node: NodeProcess) -> float:
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("sidecar_requests_in_flight{"))


# Clients as they are --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clients", [(AiokafkaReader, LibrdkafkaReader), (LibrdkafkaReader, AiokafkaReader)], ids=["aiokafka", "librdkafka"]
)
async def test_the_claim_passes_from_one_unmodified_consumer_to_another(
    node: NodeProcess,
    services: Services,
    coordinator: Coordinator,
    guarded: str,
    group: str,
    clients: tuple[type[AiokafkaReader], type[LibrdkafkaReader]],
) -> None:
    place = Claimed(group, guarded, 0)
    await coordinator.grant(place, "first")
    first, second = (
        make(node.bootstrap, name, group, guarded) for make, name in zip(clients, ("first", "second"), strict=True)
    )
    await first.start()
    assert await first.read(4) == [b"0", b"1", b"2", b"3"]
    assert await first.commit(4) == 0
    with RawClient(node.bootstrap, "first") as witness, RawClient(node.bootstrap, "second") as successor:
        for connection in (witness, successor):
            connection.ask(raw.api_versions())
        await coordinator.grant(place, "second", deposed=("first",))
        assert witness.is_closed(), "of the name that lost the claim"
        successor.ask(raw.api_versions())
    assert await first.commit(9) == ILLEGAL_GENERATION
    assert await first.refusal_of_reading() == TOPIC_AUTHORIZATION_FAILED
    assert cursors(services.kafka_bootstrap, group) == {(guarded, 0): 4}
    await second.start()
    assert await second.read(3) == [b"4", b"5", b"6"], "it goes on where the first has committed"
    assert await second.commit(7) == 0
    assert await first.commit(2) == ILLEGAL_GENERATION
    assert cursors(services.kafka_bootstrap, group) == {(guarded, 0): 7}
    await first.close()
    await second.close()
    assert cursors(services.kafka_bootstrap, group) == {(guarded, 0): 7}


async def test_group_members_of_other_groups_are_untouched(
    node: NodeProcess, services: Services, coordinator: Coordinator, topic: str, group: str, unique: Unique
) -> None:
    other = unique("members")
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": other,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found = [consumer.poll(20)]
    await coordinator.grant(Claimed(group, topic), "first")
    await coordinator.grant(Claimed(group, topic), "second", deposed=("first",))
    found += [consumer.poll(20) for _ in range(2 * RECORDS - 1)]
    assert all(message is not None and message.error() is None for message in found)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert cursors(services.kafka_bootstrap, other) == {(topic, 0): RECORDS, (topic, 1): RECORDS}


# Whose a connection is ------------------------------------------------------------------------------------------------


async def test_under_a_librarys_default_name_the_claims_own_connection_alone_may(
    node: NodeProcess, services: Services, rest: Rest, coordinator: Coordinator, guarded: str, group: str
) -> None:
    with RawClient(node.bootstrap, "rdkafka") as mine, RawClient(node.bootstrap, "rdkafka") as other:
        session = session_of(mine, rest, services.kafka_bootstrap)
        await coordinator.grant(Claimed(group, guarded, 0), "rdkafka", session)
        asked = commit(group, {(guarded, 0): 3})
        assert committed(mine.ask(asked)) == {(guarded, 0): 0}
        assert committed(other.ask(asked)) == {(guarded, 0): ILLEGAL_GENERATION}
        assert fetch_codes(mine, (guarded, 0)) == [0]
        assert fetch_codes(other, (guarded, 0)) == [TOPIC_AUTHORIZATION_FAILED]


async def test_of_two_readers_of_one_name_the_later_ones_connection_alone_may(
    node: NodeProcess, services: Services, rest: Rest, coordinator: Coordinator, guarded: str, group: str
) -> None:
    place, asked = Claimed(group, guarded), commit(group, {(guarded, 0): 3})
    former, latter, third = (RawClient(node.bootstrap, "reader") for _ in range(3))
    with former, latter, third:
        old, new = (session_of(client, rest, services.kafka_bootstrap) for client in (former, latter))
        await coordinator.grant(place, "reader", old)
        assert committed(third.ask(asked)) == {(guarded, 0): 0}, "the name is enough as long as it tells one reader"
        await coordinator.grant(place, "reader", new, deposed=("reader",))
        assert former.is_closed()
        assert committed(third.ask(asked)) == {(guarded, 0): ILLEGAL_GENERATION}
        assert fetch_codes(third, (guarded, 0)) == [TOPIC_AUTHORIZATION_FAILED]
        assert committed(latter.ask(asked)) == {(guarded, 0): 0}
        assert fetch_codes(latter, (guarded, 0)) == [0]


async def test_a_node_that_starts_later_knows_the_claims(
    node: NodeProcess, services: Services, coordinator: Coordinator, guarded: str, group: str, tmp_path: Any
) -> None:
    await coordinator.grant(Claimed(group, guarded), "first")
    later = NodeProcess(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=node.cluster, node_id=2)
    later.start()
    try:
        with RawClient(later.bootstrap, "first") as holder, RawClient(later.bootstrap, "second") as other:
            asked = commit(group, {(guarded, 0): 3})
            assert committed(other.ask(asked)) == {(guarded, 0): ILLEGAL_GENERATION}
            assert fetch_codes(other, (guarded, 1)) == [TOPIC_AUTHORIZATION_FAILED]
            assert committed(holder.ask(asked)) == {(guarded, 0): 0}
            assert fetch_codes(holder, (guarded, 1)) == [0]
            await coordinator.grant(Claimed(group, guarded), "second", deposed=("first",))
            assert holder.is_closed(), "every node severs what it has of the old holder"
    finally:
        later.stop()
    later.check_log()


async def test_a_claim_that_is_gone_leaves_all_to_everybody(
    node: NodeProcess, coordinator: Coordinator, guarded: str, group: str
) -> None:
    place, asked = Claimed(group, guarded), commit(group, {(guarded, 0): 3})
    with RawClient(node.bootstrap, "other") as other:
        await coordinator.grant(place, "first")
        assert committed(other.ask(asked)) == {(guarded, 0): ILLEGAL_GENERATION}
        await coordinator.let_go(place)
        assert committed(other.ask(asked)) == {(guarded, 0): 0}
        assert fetch_codes(other, (guarded, 0)) == [0]


# One request for several partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
async def test_what_else_a_commit_names_goes_on(
    node: NodeProcess, services: Services, coordinator: Coordinator, topic: str, group: str, version: int
) -> None:
    await coordinator.grant(Claimed(group, topic, 0), "first")
    places = {(topic, 0): 5, (topic, 1): 6, ("payments", 0): 7}
    with RawClient(node.bootstrap, "other") as other:
        found = committed(other.ask(commit(group, places, version=version)))
        assert found == {(topic, 0): ILLEGAL_GENERATION, (topic, 1): 0, ("payments", 0): 3}
        alone = committed(other.ask(commit(group, {(topic, 0): 5}, version=version)))
        assert alone == {(topic, 0): ILLEGAL_GENERATION}
    assert cursors(services.kafka_bootstrap, group) == {(topic, 1): 6}


@pytest.mark.parametrize("version", range(4))
async def test_what_else_a_transaction_commits_goes_on(
    node: NodeProcess,
    services: Services,
    coordinator: Coordinator,
    topic: str,
    group: str,
    unique: Unique,
    version: int,
) -> None:
    await coordinator.grant(Claimed(group, topic, 0), "first")
    name = unique("t")
    with RawClient(node.bootstrap, "other") as other:
        given = other.ask(request(22, 1, transactional_id=name, transaction_timeout=60_000))
        writer = {"transactional_id": name, "producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        assert raw.code(other.ask(request(25, 1, **writer, group_id=group))) == 0
        partitions = [{"partition_index": index, "committed_offset": 5} for index in (0, 1)]
        fields = {"generation_id": -1, "member_id": ""} if version >= 3 else {}
        topics = [{"name": topic, "partitions": partitions}]
        asked = request(28, version, **writer, **fields, group_id=group, topics=topics)
        assert committed(other.ask(asked)) == {(topic, 0): ILLEGAL_GENERATION, (topic, 1): 0}
        assert raw.code(other.ask(request(26, 1, **writer, committed=True))) == 0
    await wait_until(lambda: cursors(services.kafka_bootstrap, group) == {(topic, 1): 5}, "the transaction's cursors")


async def test_a_claimed_cursor_is_deleted_by_its_holder_alone(
    node: NodeProcess, services: Services, coordinator: Coordinator, topic: str, group: str
) -> None:
    places = {(topic, 0): 5, (topic, 1): 6}
    partitions = [{"partition_index": index} for index in (0, 1)]
    asked = request(47, 0, group_id=group, topics=[{"name": topic, "partitions": partitions}])
    with RawClient(node.bootstrap, "other") as other, RawClient(node.bootstrap, "first") as holder:
        assert committed(other.ask(commit(group, places))) == dict.fromkeys(places, 0)
        await coordinator.grant(Claimed(group, topic, 0), "first")
        assert committed(other.ask(asked)) == {(topic, 0): ILLEGAL_GENERATION, (topic, 1): 0}
        assert cursors(services.kafka_bootstrap, group) == {(topic, 0): 5}
        assert committed(holder.ask(asked)) == {(topic, 0): 0, (topic, 1): 0}
        assert cursors(services.kafka_bootstrap, group) == {}


@pytest.mark.parametrize("version", range(3))
async def test_a_group_with_claims_is_deleted_by_their_holder_alone(
    node: NodeProcess, services: Services, coordinator: Coordinator, topic: str, unique: Unique, version: int
) -> None:
    claimed, free = unique("claimed"), unique("free")
    asked = request(42, version, groups_names=[claimed, free])
    with RawClient(node.bootstrap, "other") as other, RawClient(node.bootstrap, "first") as holder:
        for group in (claimed, free):
            assert committed(other.ask(commit(group, {(topic, 0): 5}))) == {(topic, 0): 0}
        await coordinator.grant(Claimed(claimed, topic, 0), "first")
        found = {result.group_id: raw.code(result) for result in other.ask(asked).results}
        assert found == {claimed: NON_EMPTY_GROUP, free: 0}
        assert cursors(services.kafka_bootstrap, claimed) == {(topic, 0): 5}
        assert [raw.code(result) for result in holder.ask(request(42, version, groups_names=[claimed])).results] == [0]


@pytest.mark.parametrize("version", range(4, 12))
async def test_what_else_a_fetch_names_is_read(
    node: NodeProcess, coordinator: Coordinator, guarded: str, group: str, version: int
) -> None:
    await coordinator.grant(Claimed(group, guarded, 0), "first")
    with RawClient(node.bootstrap, "other") as other:
        found = raw.fetched(other.ask(raw.fetch({(guarded, 0): 0, (guarded, 1): 0}, version=version)))
        assert [raw.code(found[guarded, index]) for index in (0, 1)] == [TOPIC_AUTHORIZATION_FAILED, 0]
        assert not found[guarded, 0].records
        assert found[guarded, 1].records


async def test_the_cursor_alone_is_the_holders_without_the_policy(
    node: NodeProcess, coordinator: Coordinator, topic: str, group: str
) -> None:
    await coordinator.grant(Claimed(group, topic), "first")
    with RawClient(node.bootstrap, "other") as other:
        assert fetch_codes(other, (topic, 0), (topic, 1)) == [0, 0]
        assert committed(other.ask(commit(group, {(topic, 0): 5}))) == {(topic, 0): ILLEGAL_GENERATION}


async def test_a_claim_on_a_shadow_is_about_the_shadow_under_its_sources_policy(
    node: NodeProcess, rest: Rest, coordinator: Coordinator, guarded: str, group: str, unique: Unique
) -> None:
    shadow = unique("audit")
    assert rest.call("POST", f"/v1/topics/{guarded}/shadows", {"name": shadow})[0] == 201
    await coordinator.grant(Claimed(group, shadow), "auditor")
    with RawClient(node.bootstrap, "other") as other, RawClient(node.bootstrap, "auditor") as auditor:
        assert fetch_codes(other, (shadow, 0), (guarded, 0)) == [TOPIC_AUTHORIZATION_FAILED, 0]
        assert fetch_codes(auditor, (shadow, 0), (guarded, 0)) == [0, 0]
        places = {(shadow, 0): 3, (guarded, 0): 4}
        refused = {(shadow, 0): ILLEGAL_GENERATION, (guarded, 0): 0}
        assert committed(other.ask(commit(group, places))) == refused
        assert committed(auditor.ask(commit(group, places))) == dict.fromkeys(places, 0)


# Long polls that are parked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["alone", "together", "by_a_shadows_name", "by_both_names"])
async def test_a_parked_poll_of_somebody_who_may_read_no_more_ends(
    node: NodeProcess, rest: Rest, coordinator: Coordinator, guarded: str, group: str, unique: Unique, way: str
) -> None:
    names = [guarded]
    if way.startswith("by_"):
        names = [unique("audit")] + ([guarded] if way == "by_both_names" else [])
        assert rest.call("POST", f"/v1/topics/{guarded}/shadows", {"name": names[0]})[0] == 201
    readers = [RawClient(node.bootstrap, f"reader-{number}") for number in range(2 if way == "together" else 1)]
    with RawClient(node.bootstrap, "elsewhere") as bystander:
        await wait_until(lambda: in_flight(node) == 0, "what earlier tests left under way")
        at_the_end = {(name, 0): RECORDS for name in names}
        for reader in readers:
            reader.ask(raw.fetch(at_the_end, max_wait=10))
            reader.send(raw.fetch(at_the_end, max_wait=_LONG_MS))
        bystander.send(raw.fetch({(guarded, 1): RECORDS}, max_wait=_LONG_MS))
        await wait_until(lambda: in_flight(node) == len(readers) + 1, "the polls to be parked")
        await coordinator.grant(Claimed(group, names[0], 0), "first")
        for reader in readers:
            assert reader.is_closed()
            reader.close()
        assert bystander.is_silent(0.2), "what nobody claimed is waited for as before"
    with RawClient(node.bootstrap, "reader-0") as again:
        assert fetch_codes(again, (names[0], 0)) == [TOPIC_AUTHORIZATION_FAILED]


async def test_the_holders_own_parked_poll_stays(
    node: NodeProcess, services: Services, coordinator: Coordinator, guarded: str, group: str
) -> None:
    with RawClient(node.bootstrap, "first") as holder:
        await wait_until(lambda: in_flight(node) == 0, "what earlier tests left under way")
        holder.ask(raw.fetch({(guarded, 0): RECORDS}, max_wait=10))
        holder.send(raw.fetch({(guarded, 0): RECORDS}, max_wait=_LONG_MS))
        await wait_until(lambda: in_flight(node) == 1, "the poll to be parked")
        await coordinator.grant(Claimed(group, guarded, 0), "first")
        producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
        producer.produce(guarded, "news", partition=0)
        assert producer.flush(20) == 0
        found = raw.fetched(holder.receive())[guarded, 0]
        assert (raw.code(found), b"news" in found.records) == (0, True)
