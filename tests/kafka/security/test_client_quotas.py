"""Kafka's client quotas: a client of a node has the throttle times that Kafka itself would give it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.security.test_limits import metric, node_with
from tests.raw import RawClient
from tests.rest import Rest, govern
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Unique
    from tests.services import Services

QUOTA = 4_000
"""Bytes per second: a client may have ten times as much at once."""
_AT_ONCE = 10 * QUOTA
_READERS = 4


def set_quota(kafka: str, client_id: str, **values: float) -> None:
    ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    asked = request(49, 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
    with RawClient(kafka) as wire:
        assert [raw.code(entry) for entry in wire.ask(asked).entries] == [0]


def produced(address: str, client_id: str, topic: str, size: int) -> tuple[int, int]:
    """Error, and throttle time in ms, of one batch on a new connection."""
    with RawClient(address, client_id) as wire:
        answer = wire.ask(raw.produce({(topic, 0): raw.batch(bytes(size))}))
    return raw.code(raw.produced(answer)[topic, 0]), milliseconds(answer)


def milliseconds(answer: Any) -> int:
    return round(answer.throttle_time.total_seconds() * 1000)


def limited(services: Services, unique: Unique, **quota: float) -> str:
    """A client id with this quota, once brokers enforce new quotas."""
    found: list[str] = []
    topic = create_topic(services.kafka_bootstrap, 1)

    def is_enforced() -> bool:
        probe, name = (unique(prefix) for prefix in ("probe", "limited"))
        set_quota(services.kafka_bootstrap, name, **quota)
        set_quota(services.kafka_bootstrap, probe, producer_byte_rate=QUOTA)
        found[:] = [name]
        return produced(services.kafka_bootstrap, probe, topic, 2 * _AT_ONCE)[1] > 0

    wait_for(is_enforced, "brokers to enforce a new quota", 20)
    return found[0]


def test_a_producer_has_the_throttle_time_of_kafka_on_a_governed_topic(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    size = 2 * _AT_ONCE
    name = limited(services, unique, producer_byte_rate=QUOTA)
    with node_with(services, tmp_path, {}) as (node, topic):
        error, at_kafka = produced(services.kafka_bootstrap, name, topic, size)
        assert (error, at_kafka > 0) == (0, True)
        govern(Rest(node.admin_url), topic, "shared")
        error, at_node = produced(node.bootstrap, name, topic, size)
        assert (error, at_node) == (0, pytest.approx(at_kafka, abs=1))
        assert produced(node.bootstrap, unique("free"), topic, size) == (0, 0)
        labels = '{level="client-id",quota="producer_byte_rate"}'
        assert metric(node, f"sidecar_client_quota_throttles_total{labels}") == 1
        assert metric(node, f"sidecar_client_quota_throttle_seconds_total{labels}") == pytest.approx(at_node / 1000)


def test_a_producer_of_an_ordinary_topic_is_throttled_by_brokers_alone(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    name = limited(services, unique, producer_byte_rate=QUOTA)
    with node_with(services, tmp_path, {}) as (node, topic):
        error, at_node = produced(node.bootstrap, name, topic, 2 * _AT_ONCE)
        assert (error, at_node > 0) == (0, True)
        labels = '{level="client-id",quota="producer_byte_rate"}'
        assert metric(node, f"sidecar_client_quota_throttles_total{labels}") == 0


def read_at_once(address: str, kafka: str, client_id: str, topic: str) -> list[int]:
    """The throttle times of readers of one client id that wait at the end of a log, sorted."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(RawClient(address, client_id)) for _ in range(_READERS)]
        for _ in range(3):  # a node then knows that several read there
            for wire in wires:
                wire.ask(raw.fetch({(topic, 0): end_of(kafka, topic)}, max_wait=20))
        for wire in wires:
            wire.send(raw.fetch({(topic, 0): end_of(kafka, topic)}, max_wait=20_000))
        assert produced(kafka, "writer", topic, 3 * _AT_ONCE // 4) == (0, 0)
        return sorted(milliseconds(wire.receive()) for wire in wires)


def end_of(kafka: str, topic: str) -> int:
    with RawClient(kafka) as wire:
        return wire.ask(raw.list_offsets({(topic, 0): -1})).topics[0].partitions[0].offset


def test_readers_that_share_polls_have_one_quota_as_at_kafka(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    """Three quarters of what they may have at once: the second one is over. Kafka then holds the records back."""
    names = [limited(services, unique, consumer_byte_rate=QUOTA) for _ in range(2)]
    with node_with(services, tmp_path, {}) as (node, topic):
        kafka = services.kafka_bootstrap
        at_kafka = read_at_once(kafka, kafka, names[0], topic)
        at_node = read_at_once(node.bootstrap, kafka, names[1], topic)
        assert at_node[:2] == pytest.approx(at_kafka[:2], abs=1_000), "to the current window"
        assert at_node[1] > 4_000
        assert at_node[2] > at_node[1] + 5_000
        labels = '{level="client-id",quota="consumer_byte_rate"}'
        assert metric(node, f"sidecar_client_quota_throttles_total{labels}") == _READERS - 1


def test_an_owner_that_dies_while_it_is_throttled_gives_its_topic_up(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    """Its throttle time is a minute and a half, and a batch of it still waits."""
    name = limited(services, unique, producer_byte_rate=QUOTA)
    with node_with(services, tmp_path, {}) as (node, topic):
        govern(Rest(node.admin_url), topic, "exclusive")

        def code_of(wire: RawClient, records: bytes) -> int:
            return raw.code(raw.produced(wire.ask(raw.produce({(topic, 0): raw.batch(records)})))[topic, 0])

        with RawClient(node.bootstrap, name) as owner, RawClient(node.bootstrap, unique("next")) as successor:
            assert code_of(owner, bytes(10 * _AT_ONCE)) == 0
            assert code_of(successor, b"too early") == 44
            owner.send(raw.produce({(topic, 0): raw.batch(b"waits")}), answered=False)
            owner.socket.close()
            wait_for(lambda: code_of(successor, b"in its place") == 0, "the topic to be free", 30)
        with RawClient(node.bootstrap) as reader:
            records = bytes(raw.fetched(reader.ask(raw.fetch({(topic, 0): 0})))[topic, 0].records)
        assert records.index(b"waits") < records.index(b"in its place")
