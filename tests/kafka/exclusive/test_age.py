"""What time does to a fence, on a broker that forgets within seconds: keep-alives, old records, topics that change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,  # pyright: ignore[reportPrivateImportUsage]
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

from sidecar.local import Kafka, KafkaConfig
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.logs import read_log
from tests.nodes import NodeProcess, running_node
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK, INVALID_TIMESTAMP, REFUSED, STALE_EPOCH = 0, 32, 44, 47
FORGETS_S = 2.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    overrides = {
        "producer.id.expiration.ms": str(int(FORGETS_S * 1000)),
        "producer.id.expiration.check.interval.ms": "200",
        "transactional.id.expiration.ms": str(int(FORGETS_S * 1000)),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with Kafka(tmp_path_factory.mktemp("forgetful"), KafkaConfig(overrides=overrides)) as found:
        yield found


@pytest.fixture(scope="module")
def node(kafka: Kafka, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node"), kafka.bootstrap, services.redis_url) as process:
        yield process


@pytest.fixture
def rest(node: NodeProcess) -> Rest:
    return Rest(node.admin_url)


@pytest.fixture
def topic(kafka: Kafka, rest: Rest) -> str:
    name = create_topic(kafka.bootstrap)
    govern(rest, name)
    return name


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Callable[[str], RawProducer]]:
    made: list[RawProducer] = []

    def connect(client_id: str) -> RawProducer:
        made.append(RawProducer(node.bootstrap, client_id))
        made[-1].initialise()
        return made[-1]

    yield connect
    for each in made:
        each.close()


Connect = Callable[[str], RawProducer]


def stamped(kafka: Kafka, topic: str) -> tuple[int, int, int]:
    """Producer id, epoch and next sequence of the newest data batch."""
    header = [found for found in fetch_batches(kafka.bootstrap, topic) if not found.is_control][-1]
    return header.producer_id, header.producer_epoch, header.base_sequence + header.records


def late(kafka: Kafka, topic: str, stamp: tuple[int, int, int]) -> int:
    """What Kafka answers to a batch under a stamp, sent past the node."""
    producer_id, epoch, sequence = stamp
    with RawProducer(kafka.bootstrap, "late", producer_id, epoch=epoch) as producer:
        return producer.send(topic, b"late", sequence=sequence).error


# Keep-alives --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aged:
    """A topic that has been left alone for longer than the broker remembers."""

    topic: str
    old: tuple[int, int, int]
    """What its first owner's batch was stamped with."""
    owner: RawProducer
    late: int | None = None
    """What Kafka answered to a batch of that stamp when the time was over."""


Aging = Callable[[Kafka, NodeProcess, ExitStack], Aged]


def handed_over(kafka: Kafka, node: NodeProcess, stack: ExitStack) -> Aged:
    """It went from its first owner to the second."""
    topic = create_topic(kafka.bootstrap)
    govern(Rest(node.admin_url), topic)
    with RawProducer(node.bootstrap, "first") as first:
        first.initialise()
        assert first.send(topic, b"0", sequence=0).error == OK
        old = stamped(kafka, topic)
    second = stack.enter_context(RawProducer(node.bootstrap, "second"))
    second.initialise()
    wait_for(lambda: second.send(topic, b"1", sequence=0).error == OK, "the next owner")
    return Aged(topic, old, second)


def freed(kafka: Kafka, node: NodeProcess, stack: ExitStack) -> Aged:
    """The second owner has gone too."""
    found = handed_over(kafka, node, stack)
    found.owner.close()
    wait_for(lambda: Rest(node.admin_url).topic(found.topic)["owner"] is None, "the topic to be free")
    return found


def stamped_by_brokers(kafka: Kafka, node: NodeProcess, stack: ExitStack) -> Aged:
    """Brokers gave its records their time, and now no longer do."""
    name = create_topic(kafka.bootstrap, 2, **{"message.timestamp.type": "LogAppendTime"})
    govern(Rest(node.admin_url), name)
    owner = stack.enter_context(RawProducer(node.bootstrap, "owner"))
    owner.initialise()
    assert owner.send(name, b"0", sequence=0).error == OK
    old = stamped(kafka, name)
    wait_for(lambda: owner.send(name, b"1", sequence=1, timestamp_ms=ago(86_400)).error == OK, "old ones to be taken")
    set_timestamps(kafka, name, "CreateTime")
    wait_for(
        lambda: owner.send(name, b"2", sequence=2, timestamp_ms=ago(FORGETS_S)).error == OK, "the first one behind it"
    )
    assert owner.send(name, b"x", sequence=3, timestamp_ms=ago(FORGETS_S)).error in (INVALID_TIMESTAMP, 5)
    return Aged(name, old, owner)


@pytest.fixture(scope="module")
def aged(kafka: Kafka, node: NodeProcess) -> Iterator[dict[Aging, Aged]]:
    """All of them; they grow old together."""
    with ExitStack() as stack:
        found = {aging: aging(kafka, node, stack) for aging in (handed_over, freed, stamped_by_brokers)}
        time.sleep(2 * FORGETS_S)
        for aging in (handed_over, freed):  # at once, not when other tests have had their turn
            found[aging] = replace(found[aging], late=late(kafka, found[aging].topic, found[aging].old))
        yield found


@pytest.mark.parametrize("free", [False, True], ids=["owned", "free"])
def test_a_fence_outlives_the_memory_of_the_brokers(kafka: Kafka, aged: dict[Aging, Aged], *, free: bool) -> None:
    found = aged[freed if free else handed_over]
    assert found.late == STALE_EPOCH
    if not free:
        assert found.owner.send(found.topic, b"2", sequence=1).error == OK
    assert read_log(kafka.bootstrap, found.topic) == [b"0", b"1", b"2"][: 2 if free else 3]


@pytest.mark.slow
def test_a_topic_that_nobody_serves_is_adopted_by_a_node(kafka: Kafka, services: Services, tmp_path: Path) -> None:
    """The node was killed and missed for so long that its slot gets another producer id: the fence of both stays alive,
    though no client comes.
    """
    settings = {"RECONNECT_GRACE_MS": "500", "LEASE_MS": "900"}
    with running_node(tmp_path, kafka.bootstrap, services.redis_url, **settings) as node:
        rest, topic = Rest(node.admin_url), create_topic(kafka.bootstrap)
        govern(rest, topic)
        with RawProducer(node.bootstrap, "first") as first:
            first.initialise()
            assert first.send(topic, b"0", sequence=0).error == OK
            old = stamped(kafka, topic)
            node.kill()
            time.sleep(2 * FORGETS_S)
            node.start()
            wait_for(lambda: rest.topic(topic)["serving_node"] == 1, "the adoption")
        time.sleep(2 * FORGETS_S)
        assert late(kafka, topic, old) == STALE_EPOCH
        with RawProducer(node.bootstrap, "first", first.producer_id) as again:
            assert again.send(topic, b"1", sequence=1).error == OK
        assert rest.topic(topic)["generation"] == 1
    assert read_log(kafka.bootstrap, topic) == [b"0", b"1"]


# Old records --------------------------------------------------------------------------------------------------------


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


def test_records_older_than_the_fence_can_outlive_are_refused(kafka: Kafka, topic: str, connect: Connect) -> None:
    owner = connect("owner")
    assert owner.send(topic, b"0", sequence=0).error == OK
    wait_for(lambda: owner.send(topic, b"x", sequence=1, timestamp_ms=ago(60)).error != 5, "the settings to be known")
    refused = owner.send(topic, b"x", sequence=1, timestamp_ms=ago(FORGETS_S))
    assert refused.error == INVALID_TIMESTAMP
    assert "producer.id.expiration.ms of the brokers" in (refused.message or "")
    assert "--log-append-time" in (refused.message or "")
    assert connect("rival").send(topic, b"x", sequence=0, timestamp_ms=ago(60)).error == REFUSED
    assert owner.send(topic, b"1", sequence=1, timestamp_ms=ago(0.5)).error == OK
    assert read_log(kafka.bootstrap, topic) == [b"0", b"1"]


def test_where_brokers_stamp_records_any_age_is_taken(kafka: Kafka, aged: dict[Aging, Aged]) -> None:
    found = aged[stamped_by_brokers]
    assert found.owner.send(found.topic, b"3", sequence=3).error == OK
    assert read_log(kafka.bootstrap, found.topic) == [b"0", b"1", b"2", b"3"]


def test_the_policy_has_brokers_stamp_records(kafka: Kafka, topic: str, connect: Connect, rest: Rest) -> None:
    owner = connect("owner")
    wait_for(lambda: owner.send(topic, b"0", sequence=0).error == OK, "the first")  # slower than a second, it is old
    status, found = rest.call("PUT", f"/v1/topics/{topic}/policy", {"log_append_time": True})
    assert (status, found["policy"]["log_append_time"]) == (200, True)
    wait_for(lambda: owner.send(topic, b"1", sequence=1, timestamp_ms=ago(86_400)).error == OK, "old ones to be taken")
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"log_append_time": False})[0] == 200
    tries = count(2)  # one that is taken until then would be taken again, as a duplicate
    wait_for(
        lambda: owner.send(topic, b"x", sequence=next(tries), timestamp_ms=ago(60)).error == INVALID_TIMESTAMP,
        "the rule",
    )
    assert rest.call("PUT", "/v1/topics/a*/policy", {"access_mode": "exclusive", "log_append_time": True})[0] == 400
    status, refused = rest.call(
        "PUT", "/v1/topics/not-there/policy", {"access_mode": "exclusive", "log_append_time": True}
    )
    assert (status, "sidecar topic create" in refused["message"]) == (400, True)
    assert rest.call("GET", "/v1/topics/not-there")[0] == 404


def set_timestamps(kafka: Kafka, topic: str, kind: str) -> None:
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(20)


# Topics that change -------------------------------------------------------------------------------------------------


def test_a_partition_that_is_added_is_fenced_before_it_is_written(kafka: Kafka, topic: str, connect: Connect) -> None:
    first, second = connect("first"), connect("second;mode=exclusive_with_fencing")
    assert first.send(topic, b"0", sequence=0).error == OK
    old = stamped(kafka, topic)
    assert second.send(topic, b"1", sequence=0).error == OK
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    wait_for(lambda: second.send(topic, b"2", sequence=0, partition=2).error == OK, "the new partition")
    with RawProducer(kafka.bootstrap, "late", old[0], epoch=old[1]) as late_one:
        assert late_one.send(topic, b"late", sequence=0, partition=2).error == STALE_EPOCH
    assert second.send(topic, b"3", sequence=1).error == OK
    assert read_log(kafka.bootstrap, topic, 2) == [b"2"]


def test_a_topic_that_is_created_anew_under_its_name_is_a_new_one(
    kafka: Kafka, topic: str, connect: Connect, rest: Rest
) -> None:
    """Its owner goes on counting, as clients do; a late batch of the epoch that it had is refused."""
    owner = connect("owner")
    for i in range(3):
        assert owner.send(topic, b"old", sequence=i).error == OK
    old, generation = stamped(kafka, topic), rest.topic(topic)["generation"]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    wait_for(lambda: created(admin, topic), "the new topic")
    wait_for(lambda: owner.send(topic, b"3", sequence=3).error == OK, "the owner to go on")
    wait_for(lambda: rest.topic(topic)["generation"] > generation, "the new fence")
    assert owner.send(topic, b"4", sequence=4).error == OK
    assert late(kafka, topic, old) == STALE_EPOCH
    assert connect("rival").send(topic, b"x", sequence=0).error == REFUSED
    assert read_log(kafka.bootstrap, topic) == [b"3", b"4"]


def created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    except Exception:  # noqa: BLE001  the old one is still being deleted
        return False
    return True
