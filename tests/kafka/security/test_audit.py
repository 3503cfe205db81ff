"""The audit log of what clients change through a node: by principal, which the broker's own log cannot tell."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sidecar.protocol.own import Own, Release
from sidecar.security.credentials import PasswordCredentials
from sidecar.v1 import control_pb2 as control
from tests.kafka.node_log import events
from tests.kafka.security.secured import NODE, PASSWORD, Secured, Wire
from tests.kafka.security.test_listener import allow
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import OwnValkey, StartNode, Unique
    from tests.nodes import NodeProcess

NEW_PASSWORD = "bob's new secret"


@pytest.fixture
def node(secured: Secured, own_valkey: OwnValkey, node_process: StartNode) -> NodeProcess:
    return node_process(
        kafka=f"127.0.0.1:{secured.ports['SASL_PLAINTEXT']}",
        redis=own_valkey().url,
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        SUPER_USERS=f"User:{NODE}",
        KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_SASL_MECHANISM="PLAIN",
        KAFKA_SASL_USERNAME=NODE,
        KAFKA_SASL_PASSWORD=PASSWORD,
    )


def client(node: NodeProcess, name: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": node.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": PASSWORD,
            "client.id": f"{name}-tool",
        }
    )


def heard(node: NodeProcess, act: str, count: int = 1) -> list[dict[str, Any]]:
    """So many audited acts of a kind; they are written behind the answer."""
    found: list[dict[str, Any]] = []

    def enough() -> bool:
        found[:] = _acts(node, act)
        return len(found) >= count

    wait_for(enough, f"{count} × {act}")
    return found


def _acts(node: NodeProcess, act: str) -> list[dict[str, Any]]:
    return [each for each in events(node, "audit") if each["act"] == act]


def done(futures: dict[Any, Any]) -> None:
    for each in futures.values():
        each.result(30)


def test_what_clients_change_is_told_with_who_it_was_and_what_came_of_it(
    secured: Secured, node: NodeProcess, unique: Unique
) -> None:
    topic, admin = unique("orders"), client(node, NODE)
    done(admin.create_topics([NewTopic(topic, 1, 1)]))
    (created,) = heard(node, "CreateTopics")
    who = {"who": f"User:{NODE}", "client_id": f"{NODE}-tool", "result": "done", "level": "info"}
    assert created.items() >= {**who, "on": [topic]}.items()
    assert created["peer"].startswith("127.0.0.1:")

    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    done(admin.create_acls([rule]))
    (ruled,) = heard(node, "CreateAcls")
    assert ruled["on"] == [f"ALLOW User:alice from * READ on TOPIC {topic} LITERAL"]

    setting = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
    kind = ConfigResource.Type.TOPIC
    done(admin.incremental_alter_configs([ConfigResource(kind, topic, incremental_configs=[setting])]))
    (altered,) = heard(node, "IncrementalAlterConfigs")
    assert altered.items() >= {**who, "on": [f"topic {topic}: retention.ms"]}.items()
    assert "1234567" not in node.log

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, NEW_PASSWORD.encode())]))
    assert heard(node, "AlterUserScramCredentials")[0]["on"] == ["set bob"]
    assert NEW_PASSWORD not in node.log

    done(admin.delete_topics([topic]))
    assert heard(node, "DeleteTopics")[0].items() >= {**who, "on": [topic]}.items()


def test_what_is_refused_is_told_with_the_code(secured: Secured, node: NodeProcess, unique: Unique) -> None:
    topic, bob = unique("orders"), client(node, "bob")
    with pytest.raises(KafkaException):
        done(bob.create_topics([NewTopic(topic, 1, 1)]))
    (refused,) = heard(node, "CreateTopics")
    told = {"who": "User:bob", "result": "refused", "level": "warning", "on": [topic]}
    assert refused.items() >= told.items()
    assert len(refused["errors"]) == 1
    assert refused["errors"][0].endswith("AUTHORIZATION_FAILED")


async def test_claims_by_request_are_told(secured: Secured, node: NodeProcess, unique: Unique) -> None:
    name, token = unique("leader"), uuid.uuid4().bytes
    host, _, port = node.bootstrap.rpartition(":")
    resource = control.Resource(name=name)
    claim = control.OwnRequest(
        claims=[control.Claim(resource=resource)],
        mode=control.EXCLUSIVE,
        producer_name="a",
        token=token,
        producer_id=-1,
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    with closing(writer):
        wire = Wire(reader, writer)
        await wire.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
        assert (await wire.ask(Own(claim))).error == control.NONE
        release = Release(control.ReleaseRequest(resources=[resource], token=token))
        assert (await wire.ask(release)).error == control.NONE
    for act in ("Own", "Release"):
        (found,) = await asyncio.to_thread(heard, node, act)
        assert found.items() >= {"who": "User:alice", "result": "done", "on": [name]}.items()


@pytest.mark.parametrize("settings", ["mode=exclusive_with_fencing", "generation=7"])
def test_an_owner_that_a_client_deposes_is_told_with_who_it_was(
    secured: Secured, node: NodeProcess, unique: Unique, settings: str
) -> None:
    """By the mode or the generation in its client.id. An owner that nobody lost is no act."""
    topic = unique("orders")
    secured.topics(topic)
    allow(secured, ResourceType.TOPIC, topic, AclOperation.WRITE)
    first = writer(node, "alice", "first;mode=exclusive")
    wait_for(lambda: writes(first, topic) is None, "a right to write", 20)
    assert _acts(node, "Depose") == []
    assert writes(writer(node, NODE, f"second;{settings}"), topic) is None
    (act,) = heard(node, "Depose")
    said = {"who": f"User:{NODE}", "client_id": "second", "result": "done", "on": [topic], "deposed": ["first"]}
    assert act.items() >= said.items()
    assert act["peer"].startswith("127.0.0.1:")
    lost = writes(first, topic)
    assert lost is not None
    assert lost.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    secured.forget_acls()


def writer(node: NodeProcess, user: str, client_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "client.id": client_id,
            "message.timeout.ms": 20_000,
        }
    )


def writes(producer: Producer, topic: str) -> KafkaError | None:
    """Write a record; the error that its client hears of."""
    found: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: found.append(error))
    except KafkaException as error:  # what it heard of the topic before
        return error.args[0]
    producer.flush(30)
    return found[0]
