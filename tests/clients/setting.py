"""What the clients run against: Kafka, nodes in front of it, and the commands that start the workers."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sidecar.local import Kafka, KafkaConfig, Valkey
from sidecar.local.class_archive import ClassArchive
from sidecar.local.jars import Jars
from sidecar.local.java import Java, Tuning
from tests.nodes import NodeProcess

from .javabuild import matrix_jar
from .outcome import Route
from .run import Target

_WAIT_S = 20.0
_OPEN_TO_TOOLS = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")  # java/matrix/tools/RuntimeHooks.java says why
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.logFile=System.err")
_PYTHON_WORKERS = {
    "confluent-kafka": "librdkafka",
    "aiokafka": "aio",
    "kafka-python": "kafkapython",
    "java-tools": "tools",
}

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
"""Broker properties with which ACLs work and everybody, being anonymous, may do everything all the same."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The servers behind the nodes."""

    bootstrap: str
    redis_url: str
    version: str


@contextmanager
def own_servers(directory: Path, config: KafkaConfig) -> Iterator[Behind]:
    """An embedded Kafka and Valkey for the matrix alone: unlike the ones that tests share, this Kafka has an
    authorizer.
    """
    with Kafka(directory / "kafka", config) as kafka, Valkey(directory / "valkey") as valkey:
        yield Behind(kafka.bootstrap, valkey.url, config.version)


@contextmanager
def nodes_before(behind: Behind, directory: Path, count: int) -> Iterator[list[NodeProcess]]:
    """Nodes 1 to `count` of a cluster of their own, whose clients are operators: the matrix changes ACLs and SCRAM
    credentials. Their logs may not tell of an uncaught exception.
    """
    cluster = f"matrix-{uuid.uuid4().hex[:8]}"
    nodes = [
        NodeProcess(
            directory,
            behind.bootstrap,
            behind.redis_url,
            cluster=cluster,
            node_id=number,
            SUPER_USERS="User:ANONYMOUS",
        )
        for number in range(1, count + 1)
    ]
    with ExitStack() as running:
        for node in nodes:
            running.callback(node.stop)
            node.start()
        yield nodes
    for node in nodes:
        node.check_log()


def direct(behind: Behind) -> Target:
    """Kafka itself."""
    brokers, secured = _look_at(behind.bootstrap)
    return Target(Route.DIRECT, behind.bootstrap, brokers, brokers, secured)


def through(behind: Behind, nodes: Sequence[NodeProcess]) -> Target:
    """Nodes in front of it. Clients start at the first and have to find the others."""
    addresses = [node.bootstrap for node in nodes]
    brokers, secured = _look_at(behind.bootstrap)

    def trouble() -> str | None:
        ended = [f"node {node.node_id} has ended:\n{node.log[-3000:]}" for node in nodes if not node.child.alive]
        return "\n".join(ended) or None

    return Target(Route.NODE, addresses[0], frozenset(addresses), brokers, secured, trouble)


def _look_at(bootstrap: str) -> tuple[frozenset[str], bool]:
    """The addresses of all brokers, and whether they have an authorizer."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    brokers = client.list_topics(timeout=_WAIT_S).brokers.values()
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    try:
        client.describe_acls(anything, request_timeout=_WAIT_S).result(_WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        secured = False
    else:
        secured = True
    return frozenset(f"{broker.host}:{broker.port}" for broker in brokers), secured


def tidy(behind: Behind, name: str) -> None:
    """Delete the topics of a run; its groups are empty and go when their offsets expire."""
    client = AdminClient({"bootstrap.servers": behind.bootstrap})
    topics = [topic for topic in client.list_topics(timeout=_WAIT_S).topics if topic.startswith(f"{name}.")]
    if topics:
        for deleted in client.delete_topics(topics, operation_timeout=_WAIT_S).values():
            deleted.result(_WAIT_S)


def commands(java: Java, jars: Jars) -> Mapping[str, Callable[[], Sequence[str]]]:
    """How each client's worker is started. The Java part is compiled before the first that needs it."""

    def jvm(main: str, *options: str) -> list[str]:
        # The class archive holds for class paths that begin with the broker's: the matrix's own jar comes last.
        class_path = f"{jars.class_path}:{matrix_jar(java, jars)}"
        archived = ClassArchive.of(java, jars).flags_to_use()
        return [str(java.path), *java.flags(384, Tuning.QUICK), *archived, *options, *_LOGGING, "-cp", class_path, main]

    def python(module: str) -> list[str]:
        tools = jvm("matrix.tools.Host", *_OPEN_TO_TOOLS) if module == "tools" else []
        argument = json.dumps({"jars": list(map(str, jars.paths)), "tools": tools})
        return [sys.executable, "-m", f"{__package__}.workers.{module}", argument]

    return {
        **{client: lambda module=module: python(module) for client, module in _PYTHON_WORKERS.items()},
        "java-client": lambda: jvm("matrix.Worker"),
    }
