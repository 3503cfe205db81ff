"""The Kafka and the Redis that tests run on, from whichever provider this machine has: external > docker > embedded.

A test asks the fixture `services` for addresses, never for a provider; what not all providers allow is a `Capability`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sidecar.local import Kafka, KafkaConfig, Valkey
from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.ports import free_ports
from sidecar.local.probe import ask_kafka, ask_redis
from tests.wait import wait_for

KAFKA_VARIABLE = "SIDECAR_TEST_KAFKA"
REDIS_VARIABLE = "SIDECAR_TEST_REDIS"
KAFKA_IMAGE = os.environ.get("SIDECAR_TEST_KAFKA_IMAGE", f"apache/kafka:{DEFAULT_VERSION}")
REDIS_IMAGE = os.environ.get("SIDECAR_TEST_REDIS_IMAGE", "redis:8-alpine")


class Capability(Enum):
    """What a provider allows beyond talking to its servers."""

    DISPOSABLE = "nobody else uses it: all its data may be thrown away"


@dataclass(frozen=True, slots=True)
class Services:
    """Where they are: `host:port,…` of Kafka, a URL of Redis, and which provider they came from."""

    kafka_bootstrap: str
    redis_url: str
    backend: str
    capabilities: frozenset[Capability]


@dataclass(frozen=True, slots=True)
class Backend:
    """A provider. `refusal` is None where it can be used, else why not; `run` is for the whole session."""

    name: str
    refusal: Callable[[], str | None]
    run: Callable[[Path], AbstractContextManager[Services]]


def choose(name: str) -> Backend:
    """The backend called `name`; for `auto` the first that is usable (the last, embedded, always is)."""
    if name != "auto":
        return BACKENDS[name]
    return next(backend for backend in BACKENDS.values() if backend.refusal() is None)


def _external_refusal() -> str | None:
    missing = [name for name in (KAFKA_VARIABLE, REDIS_VARIABLE) if not os.environ.get(name)]
    return f"{' and '.join(missing)} not set" if missing else None


@contextmanager
def _external(_directory: Path) -> Iterator[Services]:
    yield Services(os.environ[KAFKA_VARIABLE], os.environ[REDIS_VARIABLE], "external", frozenset())


def _docker_refusal() -> str | None:
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return "no Docker engine: neither DOCKER_HOST nor /var/run/docker.sock"
    import docker  # noqa: PLC0415  slow to import, and most machines without an engine stop above
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
        finally:
            client.close()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {error}"
    return None


@contextmanager
def _docker(_directory: Path) -> Iterator[Services]:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  as docker above

    port = free_ports(1)[0]  # the broker must announce its port on this side, so it is chosen beforehand
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,INSIDE://localhost:19092,CONTROLLER://localhost:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    kafka = DockerContainer(KAFKA_IMAGE).with_bind_ports(9092, port)
    redis = DockerContainer(REDIS_IMAGE).with_exposed_ports(6379)
    redis = redis.with_command("redis-server --appendonly yes --save '' --maxmemory-policy noeviction")
    host = kafka.get_container_host_ip()
    environment["KAFKA_ADVERTISED_LISTENERS"] = f"PLAINTEXT://{host}:{port},INSIDE://localhost:19092"
    for name, value in environment.items():
        kafka = kafka.with_env(name, value)
    with ExitStack() as running:
        running.enter_context(redis)
        running.enter_context(kafka)
        redis_port = int(redis.get_exposed_port(6379))
        wait_for(lambda: ask_redis(host, redis_port), "Redis in its container", timeout=60)
        wait_for(lambda: ask_kafka(host, port), "Kafka in its container", timeout=120)
        yield Services(f"{host}:{port}", f"redis://{host}:{redis_port}/0", "docker", frozenset({Capability.DISPOSABLE}))


@contextmanager
def _embedded(directory: Path) -> Iterator[Services]:
    with Kafka(directory / "kafka", KafkaConfig(leave_archive=True)) as kafka, Valkey(directory / "valkey") as valkey:
        yield Services(kafka.bootstrap, valkey.url, "embedded", frozenset({Capability.DISPOSABLE}))


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("external", _external_refusal, _external),
        Backend("docker", _docker_refusal, _docker),
        Backend("embedded", lambda: None, _embedded),
    )
}
