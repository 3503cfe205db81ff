"""What keeps a producer from writing to a broker directly, as docs/operate/live-topic.md says: Kafka's ACLs, and users
whom brokers do not know.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sidecar.local.ports import HOST
from sidecar.security.users import user_line
from tests.conftest import StartNode, Unique
from tests.kafka.security.secured import NODE, PASSWORD, Secured
from tests.wait import wait_for

CAROLS = "carol's secret"


def write(
    bootstrap: str,
    topic: str,
    user: str = "",
    password: str = PASSWORD,
    mechanism: str = "PLAIN",
    *,
    timeout_ms: int = 10_000,
) -> str:
    """What becomes of one record: "written", or the name of the error."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user}
    settings = {"bootstrap.servers": bootstrap, "message.timeout.ms": timeout_ms, "log_level": 0}
    producer = Producer({**settings, **(login if user else {}), **({"sasl.password": password} if user else {})})
    said: list[str] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: said.append(error.name() if error else "written"))
    producer.flush(20)
    return said[0]


@pytest.fixture
def topic(secured: Secured, unique: Unique) -> Iterator[str]:
    name = unique("direct")
    secured.topics(name)
    yield name
    secured.forget_acls()


def allow_write(secured: Secured, user: str, topic: str) -> None:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = AclBinding(ResourceType.TOPIC, topic, literal, f"User:{user}", "*", AclOperation.WRITE, allow)
    for made in secured.admin.create_acls([rule]).values():
        made.result(30)


def take_write(secured: Secured, user: str, topic: str) -> None:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = AclBindingFilter(ResourceType.TOPIC, topic, literal, f"User:{user}", "*", AclOperation.WRITE, allow)
    for taken in secured.admin.delete_acls([rule]).values():
        taken.result(30)


@pytest.fixture
def direct(secured: Secured) -> str:
    """The broker, as a program reaches it that goes round the nodes."""
    return f"{HOST}:{secured.ports['SASL_PLAINTEXT']}"


TOWARDS: dict[str, Any] = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "KAFKA_SASL_MECHANISM": "PLAIN",
    "KAFKA_SASL_USERNAME": NODE,
    "KAFKA_SASL_PASSWORD": PASSWORD,
}
"""How a node logs in at the broker."""


def test_where_only_nodes_may_write_kafka_refuses_who_comes_directly(
    secured: Secured, direct: str, node_process: StartNode, topic: str
) -> None:
    allow_write(secured, "alice", topic)
    assert write(direct, topic, "alice") == "written"
    take_write(secured, "alice", topic)
    wait_for(lambda: write(direct, topic, "alice") == "TOPIC_AUTHORIZATION_FAILED", "the rule to be gone")
    assert write(node_process(kafka=direct, **TOWARDS).bootstrap, topic) == "written"


def test_a_user_of_the_nodes_alone_writes_through_them_and_cannot_log_in_at_a_broker(
    secured: Secured, direct: str, node_process: StartNode, tmp_path: Path, topic: str
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{user_line('carol', CAROLS)}\n")
    users.chmod(0o600)
    listener: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_AUTHENTICATION": "file",
        "SASL_USERS_FILE": str(users),
        "SASL_MECHANISMS": "SCRAM-SHA-256",
    }
    node = node_process(kafka=direct, **TOWARDS, **listener)
    login = ("carol", CAROLS, "SCRAM-SHA-256")
    assert write(node.bootstrap, topic, *login) == "TOPIC_AUTHORIZATION_FAILED", "Kafka's ACLs hold for her"
    allow_write(secured, "carol", topic)
    wait_for(lambda: write(node.bootstrap, topic, *login) == "written", "the rule to be known")
    assert write(direct, topic, *login, timeout_ms=3_000) == "_MSG_TIMED_OUT"
