"""The configuration of an embedded Kafka cluster, and the server.properties that result from it. Pure: no IO."""

import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.local.errors import LocalError
from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.java import Tuning
from sidecar.local.ports import HOST

VERSION_VARIABLE = "SIDECAR_LOCAL_KAFKA_VERSION"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


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
class BrokerSecurity:
    """TLS and a login by SCRAM-SHA-512 for clients, certificates between nodes, ACLs for all but super users.

    `keys`: PEM file with the nodes' key and certificate, whose subject has to be a super user; `ca`: PEM file of the
    authority that signed it; `super_users`: principals such as `User:CN=kafka`.
    """

    keys: Path
    ca: Path
    super_users: tuple[str, ...]

    def context(self) -> ssl.SSLContext:
        """The TLS context for connections to the listener between nodes. Raises OSError."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.keys)
        return context

    def properties(self) -> dict[str, str]:
        """Properties of each broker besides its listeners."""
        return {
            "listener.name.broker.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE};",
            **pem_stores(self.keys, self.ca),
            **authorized(self.super_users),
        }


def pem_stores(keys: Path, ca: Path) -> dict[str, str]:
    """Broker properties for TLS with a PEM file of key and certificate, and a PEM file of the trusted authorities."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }


def authorized(super_users: Iterable[str]) -> dict[str, str]:
    """Broker properties that enforce ACLs, except for these principals."""
    return {"authorizer.class.name": AUTHORIZER, "super.users": ";".join(super_users)}


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """A cluster of `brokers` combined nodes (broker and controller), numbered from 1.

    `ports` are the client ports in order of node number; empty: all free ones. `heap_mb` is each node's. `overrides`
    are broker properties that override everything here. `leave_archive`: if there is no class archive yet, a single
    broker writes one for all later starts when it is stopped, which then takes seconds more.
    """

    version: str = field(default_factory=default_version)
    brokers: int = 1
    ports: tuple[int, ...] = ()
    heap_mb: int = 320
    tuning: Tuning = Tuning.QUICK
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    leave_archive: bool = False
    security: BrokerSecurity | None = None

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
    """One node's ports; `broker` is for connections between brokers if clients have to log in."""

    client: int
    controller: int
    broker: int = 0


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
        "controller.listener.names": "CONTROLLER",
        **_listeners(own, secured=config.security is not None),
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
        # A killed broker can register again once its old session has ended: 9 s by default. With much less, a
        # starved machine gives up healthy brokers.
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
    if config.security is not None:
        properties |= config.security.properties()
    return properties | dict(config.overrides)


def _listeners(own: Ports, *, secured: bool) -> dict[str, str]:
    protocols = {"CLIENTS": "SASL_SSL", "BROKER": "SSL"} if secured else {"PLAINTEXT": "PLAINTEXT"}
    advertised = [f"{name}://{HOST}:{port}" for name, port in zip(protocols, (own.client, own.broker), strict=False)]
    protocols["CONTROLLER"] = "SSL" if secured else "PLAINTEXT"
    return {
        "listeners": ",".join([*advertised, f"CONTROLLER://{HOST}:{own.controller}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "BROKER" if secured else "PLAINTEXT",
    }


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file: backslashes escaped, one pair per line."""
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items())
