"""The backend `docker` on a real engine: what tests ask of Kafka and Redis, it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from redis import Redis

from sidecar.local.probe import ask_kafka
from tests.containers import NotStartedError
from tests.services import BACKENDS, Services

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Unique

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def in_containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    docker = BACKENDS["docker"]
    if reason := docker.refusal():
        pytest.skip(reason)
    try:
        docker.bring(print)
    except NotStartedError as error:
        pytest.skip(f"the Docker engine here has no images: {error}")
    with docker.run(tmp_path_factory.mktemp("containers")) as running:
        yield running


def test_the_broker_says_where_it_is_reached(in_containers: Services):
    host, port = in_containers.kafka_bootstrap.rsplit(":", 1)
    view = ask_kafka(host, int(port))

    assert view is not None
    assert (view.brokers, view.controller) == ({1: (host, int(port))}, 1)


def test_a_transaction_is_committed_and_read_by_a_group(in_containers: Services, unique: Unique):
    """The coordinators write into topics of their own, and markers through the listener of the inside."""
    topic = unique("orders")
    bootstrap: dict[str, Any] = {"bootstrap.servers": in_containers.kafka_bootstrap}
    admin = AdminClient(bootstrap)  # one that nothing refers to takes its requests with it
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    producer = Producer(bootstrap | {"transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(60)

    consumer = Consumer(bootstrap | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"value")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_redis_keeps_what_it_is_told(in_containers: Services, unique: Unique):
    key = unique("key")
    with Redis.from_url(in_containers.redis_url) as redis:
        redis.set(key, "value", ex=60)
        assert redis.get(key) == b"value"
        settings = redis.config_get("maxmemory-policy", "appendonly", "save")
    assert settings == {"maxmemory-policy": "noeviction", "appendonly": "yes", "save": ""}
