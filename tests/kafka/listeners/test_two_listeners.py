"""Real clients at two nodes with two listeners each: whoever comes in by one is led on by it (KIP-103)."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.listeners import check_advertised
from sidecar.cli.root import cli
from sidecar.local.ports import HOST, free_ports, is_free
from sidecar.local.process import Child, Command
from sidecar.settings import load
from tests.rest import Rest, govern
from tests.topics import create_topic
from tests.wait import wait_for, wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka.admin import ClusterMetadata

    from tests.kafka.listeners.conftest import Pair, Place, Starter
    from tests.services import Services

    Unique = Callable[[str], str]

LISTENER_NOT_FOUND = 72


def brokers(seen: ClusterMetadata) -> set[str]:
    return {f"{each.host}:{each.port}" for each in seen.brokers.values()}


def admin_at(pair: Pair, place: Place, listener: str) -> AdminClient:
    outside = listener == "OUTSIDE"
    return AdminClient(pair.librdkafka(place.outside) if outside else {"bootstrap.servers": place.inside})


def coordinator_at(admin: AdminClient, group: str) -> str:
    """Where a client is led for a group, "" while Kafka makes the topic of offsets."""
    try:
        found = admin.describe_consumer_groups([group], request_timeout=10)[group].result().coordinator
    except KafkaException:
        return ""
    return "" if found is None else f"{found.host}:{found.port}"


def rest_of(place: Place) -> Rest:
    return Rest(place.process.admin_url)


@pytest.mark.parametrize("listener", ["INSIDE", "OUTSIDE"])
def test_every_answer_names_nodes_by_the_listener_of_its_client(services: Services, pair: Pair, listener: str) -> None:
    there, topic = pair.inside if listener == "INSIDE" else pair.outside, create_topic(services.kafka_bootstrap, 4)
    for place in (pair.one, pair.two):
        admin = admin_at(pair, place, listener)
        assert brokers(admin.list_topics(topic, timeout=20)) == there
        cluster = admin.describe_cluster(request_timeout=20).result()
        assert {f"{node.host}:{node.port}" for node in cluster.nodes} == there
        wait_for(lambda admin=admin: coordinator_at(admin, topic) in there, "a coordinator", 60)
        for number, own in ((1, pair.one), (2, pair.two)):
            asked = ConfigResource(ResourceType.BROKER, str(number))
            shown = admin.describe_configs([asked], request_timeout=20)[asked].result()
            at = own.inside if listener == "INSIDE" else own.outside
            assert shown["advertised.listeners"].value == f"{listener}://{at}"


async def test_clients_inside_and_outside_share_topics_and_groups(services: Services, pair: Pair) -> None:
    topic = create_topic(services.kafka_bootstrap, 3)
    outside = Producer(pair.librdkafka(pair.two.outside, message_timeout_ms=20_000))
    for number in range(50):
        outside.produce(topic, f"outside {number}".encode())
    assert await asyncio.to_thread(outside.flush, 30) == 0
    async with AIOKafkaProducer(bootstrap_servers=pair.two.inside) as inside:
        for number in range(50):
            await inside.send_and_wait(topic, f"inside {number}".encode())
    wanted = {f"{side} {number}".encode() for side in ("inside", "outside") for number in range(50)}
    async with AIOKafkaConsumer(
        topic, **pair.aiokafka(pair.one.outside), group_id=topic, auto_offset_reset="earliest"
    ) as reader:
        found = set[bytes | None]()
        async with asyncio.timeout(60):
            while found != wanted:
                found.add((await reader.getone()).value)
        await reader.commit()
    consumer = Consumer({"bootstrap.servers": pair.one.inside, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    async with AIOKafkaProducer(**pair.aiokafka(pair.two.outside)) as last:
        await last.send_and_wait(topic, b"behind the commit")
    (message,) = await asyncio.to_thread(consumer.consume, 1, 30)
    consumer.close()
    assert message.value() == b"behind the commit"


def test_the_owner_of_a_topic_is_led_to_its_node_by_the_listener_it_came_through(
    services: Services, pair: Pair, unique: Unique
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(rest_of(pair.one), topic)
    owner = Producer(pair.librdkafka(pair.one.outside, client_id=unique("owner"), message_timeout_ms=30_000))
    owner.produce(topic, b"mine")
    assert owner.flush(40) == 0
    node = rest_of(pair.one).call("GET", f"/v1/topics/{topic}")[1]["serving_node"]
    for listener in ("INSIDE", "OUTSIDE"):
        for place in (pair.one, pair.two):
            seen = admin_at(pair, place, listener).list_topics(topic, timeout=20)
            assert seen.topics[topic].partitions[0].leader == node


def test_a_login_counts_at_its_listener_alone(pair: Pair) -> None:
    wrong = pair.librdkafka(pair.one.outside) | {"sasl.password": "another"}
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)
    wait_for(lambda: "login_refused" in pair.one.process.log, "the refusal in the log")
    login_inside = pair.librdkafka(pair.one.inside) | {"security.protocol": "sasl_plaintext"}
    with pytest.raises(KafkaException):
        AdminClient(login_inside).list_topics(timeout=3)
    assert brokers(AdminClient({"bootstrap.servers": pair.one.inside}).list_topics(timeout=20)) == pair.inside


def test_listeners_are_shown_and_counted(pair: Pair) -> None:
    assert pair.one.status["listeners"] == [
        {"name": "INSIDE", "listen": pair.one.inside, "advertise": pair.one.inside, "security_protocol": "PLAINTEXT"},
        {"name": "OUTSIDE", "listen": pair.one.outside, "advertise": pair.one.outside, "security_protocol": "SASL_SSL"},
    ]
    shown = CliRunner().invoke(cli, ["status", "--admin-url", pair.one.process.admin_url]).output
    assert f"{pair.one.outside} (OUTSIDE, SASL_SSL)" in shown
    admin = admin_at(pair, pair.one, "OUTSIDE")
    admin.list_topics(timeout=20)
    assert 'sidecar_listener_connections{listener="OUTSIDE"}' in pair.one.metrics


def test_a_certificate_of_one_listener_is_read_again_when_it_changes(pair: Pair) -> None:
    assert "listener_certificates_read" not in pair.one.process.log
    pair.authority.issue("node", file="node")

    def read_again() -> bool:
        AdminClient(pair.librdkafka(pair.one.outside)).list_topics(timeout=20)
        return "listener_certificates_read" in pair.one.process.log

    wait_for(read_again, "the new certificate")
    line = next(line for line in pair.one.process.log.splitlines() if "listener_certificates_read" in line)
    assert "OUTSIDE" in line


def test_a_node_without_a_listener_is_left_out_there(services: Services, start: Starter) -> None:
    both = start.both(second_outside=False)
    assert brokers(admin_at(both, both.one, "INSIDE").list_topics(timeout=20)) == both.inside
    outside = admin_at(both, both.one, "OUTSIDE")
    assert brokers(outside.list_topics(timeout=20)) == {both.one.outside}
    assert '"peer_lacks_listener"' in both.one.process.log
    topic = create_topic(services.kafka_bootstrap, 6)
    assert {each.leader for each in outside.list_topics(topic, timeout=20).topics[topic].partitions.values()} == {1}
    for topic, node in governed_by_each(both, services.kafka_bootstrap).items():
        partition = outside.list_topics(topic, timeout=20).topics[topic].partitions[0]
        led = (partition.leader, partition.error.code() if partition.error else 0)
        assert led == ((1, 0) if node == 1 else (-1, LISTENER_NOT_FOUND))


def governed_by_each(both: Pair, kafka: str) -> dict[str, int]:
    """Governed topics, at least one of each node, with the node that serves it."""
    found: dict[str, int] = {}
    while {*found.values()} != {1, 2}:
        topic = create_topic(kafka, 1)
        govern(rest_of(both.two), topic)
        owner = Producer({"bootstrap.servers": both.two.inside, "message.timeout.ms": 30_000, "client.id": topic})
        owner.produce(topic, b"x")
        assert owner.flush(40) == 0
        found[topic] = rest_of(both.two).topic(topic)["serving_node"]
    return found


async def test_doctor_knows_tls_and_the_names_in_the_certificate_of_each_listener(pair: Pair, tmp_path: Path) -> None:
    (admin,) = free_ports(1)
    settings = load(
        {
            "admin_listen": f"127.0.0.1:{admin}",
            "listeners": f"INSIDE://{pair.one.inside},OUTSIDE://{pair.one.outside}",
            "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
            "listener_outside_ssl_certificate": str(tmp_path / "node.pem"),
            "listener_outside_sasl_authentication": "file",
            "listener_outside_sasl_users_file": str(tmp_path / "users.toml"),
        }
    )
    inside, outside = await check_advertised(settings, pair.one.status)
    assert (inside.name, inside.level, outside.name, outside.level) == (
        "advertised INSIDE",
        Level.OK,
        "advertised OUTSIDE",
        Level.OK,
    )
    assert f"{pair.one.outside} answers with SASL_SSL and its certificate and serves" in outside.detail
    _, elsewhere = await check_advertised(load(), pair.one.status)
    assert "its certificate was not looked at" in elsewhere.detail
    pair.authority.issue("node", file="node", host="10.1.2.3")

    async def is_wrong() -> bool:
        _, outside = await check_advertised(settings, pair.one.status)
        return outside.level is Level.FAIL and "IP address mismatch" in outside.detail

    await wait_for_async(is_wrong, "a certificate for another address to be told")
    stopped = await check_advertised(settings, None)
    assert [each.detail.partition(":")[0] for each in stopped] == ["nobody can listen at 127.0.0.1"] * 2


def test_each_worker_has_a_port_of_its_own_at_every_listener(
    services: Services, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside, outside, admin = beginnings(3)
    told = {
        "bootstrap-servers": services.kafka_bootstrap,
        "redis-url": services.redis_url,
        "cluster": unique("c"),
        "listeners": f"INSIDE://{HOST}:{inside},OUTSIDE://{HOST}:{outside}",
        "listener-security-protocol-map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "admin-listen": f"{HOST}:{admin}",
    }
    words = [word for name, value in told.items() for word in (f"--{name}", value)]
    command = Command("workers", (sys.executable, "-m", "sidecar", "serve", "--workers", "2", *words), tmp_path / "log")
    child = Child.start(command)
    try:
        for first in (inside, outside):
            there = {f"{HOST}:{first}", f"{HOST}:{first + 1}"}
            for at in there:
                wait_for(lambda at=at, there=there: seen_at(at) == there, f"both workers at {at}", 60)
    finally:
        assert child.stop(grace=30) == 0, child.log_text()


def seen_at(bootstrap: str) -> set[str]:
    try:
        return brokers(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=2))
    except KafkaException:
        return set()


def beginnings(count: int) -> list[int]:
    """Ports that are free, as are those behind them."""
    found = [port for port in free_ports(30) if port % 2 == 0 and is_free(port + 1)]
    assert len(found) >= count, "not enough neighbouring ports are free"
    return found[:count]
