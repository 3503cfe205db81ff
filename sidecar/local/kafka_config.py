"""What an embedded Kafka cluster is asked to be, and the server.properties that follow from it. Pure: no IO."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.local.errors import LocalError
from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.java import Tuning
from sidecar.local.ports import HOST

VERSION_VARIABLE = "SIDECAR_LOCAL_KAFKA_VERSION"


def default_version() -> str:
    """SIDECAR_LOCAL_KAFKA_VERSION, else the version this package was made with."""
    return os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION


def parse_version(text: str) -> tuple[int, ...]:
    """`4.1.1` → (4, 1, 1). Raises LocalError for anything else."""
    try:
        major, minor, patch = map(int, text.split("."))
    except ValueError:
        raise LocalError(f"{text!r} is not a version of Apache Kafka such as {DEFAULT_VERSION}") from None
    return major, minor, patch


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """A cluster of `brokers` combined nodes (broker and controller), numbered from 1.

    `ports` are the client ports in order of number, all free ones where empty. `heap_mb` is each node's. `overrides`
    are broker properties that win over everything here. `leave_archive`: where there is no class archive yet, a single
    broker leaves one for all later starts when it is stopped, which then takes seconds more.
    """

    version: str = field(default_factory=default_version)
    brokers: int = 1
    ports: tuple[int, ...] = ()
    heap_mb: int = 320
    tuning: Tuning = Tuning.QUICK
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    leave_archive: bool = False

    def __post_init__(self) -> None:
        parse_version(self.version)
        if self.ports and len(self.ports) != self.brokers:
            raise LocalError(f"{len(self.ports)} ports for {self.brokers} brokers")

    @property
    def numbers(self) -> range:
        """The node ids."""
        return range(1, self.brokers + 1)


@dataclass(frozen=True, slots=True)
class Ports:
    """One node's two ports."""

    client: int
    controller: int


def broker_properties(config: KafkaConfig, number: int, ports: Mapping[int, Ports], data: Path) -> dict[str, str]:
    """The server.properties of node `number`; `ports` by node id."""
    replicas = str(min(3, config.brokers))
    in_sync = str(min(2, config.brokers))
    voters = ",".join(f"{node}@{HOST}:{port.controller}" for node, port in sorted(ports.items()))
    own = ports[number]
    properties = {
        "node.id": str(number),
        "process.roles": "broker,controller",
        # Static voters are understood by every version from 3.3 on and let a cluster change its ports between runs.
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{own.client},CONTROLLER://{HOST}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{own.client}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # Internal topics with 50 partitions each make the first group and the first transaction wait.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # Each cleaner thread takes this from the heap at start; the default, 128 MiB, is half of ours.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        # A broker that was killed can register again once its old session has ended: 9 s by default. Much less, and a
        # starved machine gives up healthy ones.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    if parse_version(config.version) >= (4, 0, 0):
        properties |= {
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "4",
        }
    return properties | dict(config.overrides)


def render(properties: Mapping[str, str]) -> str:
    """As a Java properties file: backslashes escaped, one pair per line."""
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items())
