"""Two nodes with clients over SASL_SSL, in front of a broker over SASL_SSL: one is killed, all are restarted, and
nothing that was acknowledged is lost, doubled or out of order.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from sidecar.local.ports import HOST
from tests.kafka.security.secured import NODE, PASSWORD, Secured, secured_kafka
from tests.rest import Rest
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import OwnValkey, StartNode
    from tests.nodes import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Unique = Callable[[str], str]
BETWEEN = 50
"""Records acknowledged between two events."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("over-tls"), tls_mechanisms="PLAIN,SCRAM-SHA-512") as running:
        for name in ("alice", NODE):
            running.scram_user(name, "SCRAM-SHA-512")
        yield running


@pytest.fixture
def nodes(secured: Secured, own_valkey: OwnValkey, node_process: StartNode, unique: Unique) -> list[NodeProcess]:
    valkey, cluster = own_valkey(), unique("c")
    certificate, key = secured.authority.issue("node", file="nodes")
    given: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SSL_CERTIFICATE": str(certificate),
        "SSL_KEY": str(key),
        "AUTHORIZER": "none",
        "LEASE_MS": "1000",
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SSL_CA": str(secured.authority.ca),
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": NODE,
        "KAFKA_SASL_PASSWORD": PASSWORD,
    }
    kafka = f"{HOST}:{secured.ports['SASL_SSL']}"
    return [node_process(kafka=kafka, redis=valkey.url, cluster=cluster, node_id=number, **given) for number in (1, 2)]


def access(secured: Secured, nodes: list[NodeProcess], **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(node.bootstrap for node in nodes),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.authority.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        **more,
    }


class Owner:
    """Writes numbers for as long as it is asked to; `acknowledged` and `refused` are what became of them."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []
        self._topic = topic
        self._written = 0
        self._producer = Producer(
            {**settings, "client.id": "w;mode=exclusive", "enable.idempotence": True, "message.timeout.ms": 120_000}
        )

    def write_until(self, done: Callable[[], bool]) -> None:
        """Write on until something holds, a few records ahead of what is acknowledged."""
        until = time.monotonic() + 90
        while not done():
            assert time.monotonic() < until, f"{len(self.acknowledged)} of {self._written} acknowledged"
            if self._written - len(self.acknowledged) - len(self.refused) < 100:
                self._producer.produce(self._topic, str(self._written).encode(), on_delivery=self._told)
                self._written += 1
            self._producer.poll(0.005)

    def write(self, more: int = BETWEEN) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + more
        self.write_until(lambda: len(self.acknowledged) >= goal)

    def finish(self) -> None:
        assert self._producer.flush(90) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
            return
        value = message.value()
        assert value is not None
        self.acknowledged.append(int(value))


def test_a_killed_node_and_a_rolling_restart_lose_and_double_nothing(
    secured: Secured, nodes: list[NodeProcess], unique: Unique
) -> None:
    topic = unique("orders")
    secured.topics(topic)
    owner = Owner(access(secured, nodes), topic)
    owner.write()
    serving = Rest(nodes[0].admin_url).topic(topic)["serving_node"]
    killed = nodes[serving - 1]
    killed.kill()
    owner.write()
    killed.start()
    owner.write()
    for node in nodes:
        assert node.stop() == 0
        owner.write()
        node.start()
        owner.write()
    owner.finish()
    assert owner.refused == []
    assert owner.acknowledged == sorted(set(owner.acknowledged))
    found: list[int] = []
    consumer = Consumer(access(secured, nodes, **{"group.id": unique("group"), "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])

    def read_all() -> bool:
        for message in consumer.consume(1_000, 0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(int(value))
        return len(found) >= len(owner.acknowledged)

    try:
        wait_for(read_all, "everything that was acknowledged", 60)
    finally:
        consumer.close()
    assert found == owner.acknowledged
    states = [Rest(node.admin_url).topic(topic)["owner"]["name"] for node in nodes]
    assert states == ["w", "w"]
