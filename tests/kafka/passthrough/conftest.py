from __future__ import annotations

import asyncio
import uuid
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest

from sidecar.local import Kafka, KafkaConfig, Valkey
from sidecar.local.ports import free_ports
from tests.conftest import scope_of_cluster
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.passthrough.behind_proxy import CONNECT_TIMEOUT, BehindProxy
from tests.kafka.passthrough.fault_proxy import FaultProxy, Mode
from tests.kafka_calls import kafka_calls
from tests.nodes import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Unique
    from tests.services import Services


class MakeTopic(Protocol):
    """Creates a topic: `topic(partitions=6, replicas=3, max_message_bytes="2000000")` → its name."""

    def __call__(self, partitions: int = 1, replicas: int = 1, **configs: str) -> str: ...


@contextmanager
def _running(directory: Path, kafka: str, redis: str, node_id: int) -> Iterator[NodeProcess]:
    create_internal_topics(kafka)
    node = NodeProcess(directory, kafka, redis, cluster=f"pass-{uuid.uuid4().hex[:8]}", node_id=node_id)
    node.start()
    try:
        yield node
    finally:
        node.stop()
    node.check_log()


@pytest.fixture(scope="session")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node, numbered 7, in front of the shared Kafka, for all tests of pass-through."""
    directory = tmp_path_factory.mktemp("passthrough")
    with _running(directory, services.kafka_bootstrap, services.redis_url, 7) as found:
        yield found


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("passthrough-valkey")) as found:
        yield found


@pytest.fixture(scope=scope_of_cluster)
def node_of_three(
    kafka_cluster: Kafka, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeProcess]:
    """A node, numbered 17, in front of three brokers, for all tests of pass-through."""
    with _running(tmp_path_factory.mktemp("passthrough"), kafka_cluster.bootstrap, valkey.url, 17) as found:
        yield found


@pytest.fixture
def topic(services: Services, unique: Unique) -> MakeTopic:
    """Topics on the shared Kafka."""
    return partial(create_topic, services.kafka_bootstrap, unique)


@pytest.fixture
def topic_of_three(kafka_cluster: Kafka, unique: Unique) -> MakeTopic:
    """Topics on the three brokers, their leaders spread."""
    return partial(create_topic, kafka_cluster.bootstrap, unique)


def create_topic(bootstrap: str, unique: Unique, partitions: int = 1, replicas: int = 1, **configs: str) -> str:
    async def create() -> str:
        async with kafka_calls(bootstrap) as calls:
            return await calls.create(unique("orders"), partitions, replicas, **configs)

    return asyncio.run(create())


@pytest.fixture(scope="session")
def _behind_proxy(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindProxy]:
    with ExitStack() as stack:
        (port,) = free_ports(1)
        proxy = stack.enter_context(FaultProxy(port))
        overrides = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        kafka = stack.enter_context(Kafka(tmp_path_factory.mktemp("behind-a-proxy"), KafkaConfig(overrides=overrides)))
        host, real = kafka.address(1).rsplit(":", 1)
        proxy.target = (host, int(real))
        create_internal_topics(kafka.bootstrap)
        node = NodeProcess(
            tmp_path_factory.mktemp("lost-broker"),
            kafka.bootstrap,
            valkey.url,
            cluster=f"lost-{uuid.uuid4().hex[:8]}",
            KAFKA_CONNECT_TIMEOUT_MS=str(int(CONNECT_TIMEOUT * 1000)),
        )
        node.start()
        stack.callback(node.check_log)
        stack.callback(node.stop)
        yield BehindProxy(kafka, proxy, node)


@pytest.fixture
def behind_proxy(_behind_proxy: BehindProxy) -> Iterator[BehindProxy]:
    _behind_proxy.wait_until_well()
    yield _behind_proxy
    _behind_proxy.proxy.become(Mode.PASS)


def leaders_of(bootstrap: str, topic: str) -> dict[int, int]:
    """The broker that leads each partition, as Kafka says."""

    async def ask() -> dict[int, int]:
        async with kafka_calls(bootstrap) as calls:
            return dict((await calls.upstream.layout(topic)).leaders)

    return asyncio.run(ask())
