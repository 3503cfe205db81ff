"""A newer Kafka than that of the matrix, and two nodes in front of it: what the tests of `further` rows run against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition

from sidecar.local import KafkaConfig
from tests.nodes import NodeProcess
from tests.rest import Rest

from . import setting
from .further import KAFKA
from .outcome import Route
from .setting import AUTHORIZED, Behind

_PATIENCE_S = 60.0
_PROMPT = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "share", "streams")
    for name, value in {
        "min.heartbeat.interval.ms": "100",
        "heartbeat.interval.ms": "300",
        "min.session.timeout.ms": "1000",
        "session.timeout.ms": "3000",
    }.items()
}
"""Broker properties: members learn of an assignment with a heartbeat, by default five seconds later."""
_PLUGIN = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
_DESCRIBED = {"group.streams.topology.description.plugin.class": _PLUGIN}
"""Brokers ask applications of Kafka Streams for a description of their topology (KIP-1331)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where clients go on each route. They start at the first node and find the second."""

    behind: Behind
    nodes: Sequence[NodeProcess]

    def at(self, route: Route) -> str:
        """The bootstrap address."""
        return self.behind.bootstrap if route is Route.DIRECT else self.nodes[0].bootstrap

    @property
    def rest(self) -> Rest:
        """The REST interface of the first node."""
        return Rest(self.nodes[0].admin_url)

    def refusals(self, topic: str) -> list[tuple[str, str, int]]:
        """What the nodes refused of the topic: error, reason, how often."""
        found = (each for node in self.nodes for each in Rest(node.admin_url).call("GET", "/v1/refusals")[1]["items"])
        return [(each["error"], each["reason"], each["count"]) for each in found if each["topic"] == topic]


@contextmanager
def standing(directory: Path) -> Iterator[Stage]:
    """All of it started; at the end the nodes' logs may not tell of an uncaught exception."""
    config = KafkaConfig(version=KAFKA, overrides=AUTHORIZED | _PROMPT | _DESCRIBED)
    with setting.own_servers(directory, config) as behind, setting.nodes_before(behind, directory, 2) as nodes:
        yield Stage(behind, nodes)


def committed(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[Message]:
    """What a reader of all partitions gets to see now; that of a partition in its order."""
    settings = {"group.id": f"look-at-{topic}", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found
