"""Real clients at a node whose listener asks for TLS and certificates."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer

from sidecar.security.tls import TlsFiles, client_context
from tests.certificates import Authority
from tests.conftest import StartNode
from tests.kafka.security.secured import Secured
from tests.nodes import NodeProcess
from tests.wait import wait_for_async

Unique = Callable[[str], str]


def tls_node(secured: Secured, node_process: StartNode, authority: Authority, **settings: str) -> NodeProcess:
    certificate, key = authority.issue("node", file="node")
    given = {
        "SECURITY_PROTOCOL": "SSL",
        "SSL_CERTIFICATE": str(certificate),
        "SSL_KEY": str(key),
        "SSL_CA": str(authority.ca),
        "SSL_CLIENT_AUTH": "required",
    }
    kafka = f"127.0.0.1:{secured.ports['PLAINTEXT']}"
    return node_process(kafka=kafka, **(given | settings))


def librdkafka(node: NodeProcess, authority: Authority, pair: tuple[Path, Path] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.ca),
        "message.timeout.ms": 5000,
    }
    if pair is not None:
        found |= {"ssl.certificate.location": str(pair[0]), "ssl.key.location": str(pair[1])}
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_librdkafka_with_a_certificate_and_without(
    secured: Secured, node_process: StartNode, authority: Authority, unique: Unique
) -> None:
    topic = unique("tls")
    secured.topics(topic)
    node = tls_node(secured, node_process, authority)
    settings = librdkafka(node, authority, authority.issue("alice", file="alice"))
    producer = Producer(settings)
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(20) == 0
    settings.pop("message.timeout.ms")
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(100, 30)
    consumer.close()
    assert [message.value() for message in found] == [str(number).encode() for number in range(100)]
    with pytest.raises(KafkaException):
        Producer(librdkafka(node, authority, None)).list_topics(timeout=3)
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in node.log


async def test_aiokafka_goes_on_while_certificates_change(
    secured: Secured, node_process: StartNode, authority: Authority, unique: Unique
) -> None:
    topic = unique("tls")
    secured.topics(topic)
    node = tls_node(secured, node_process, authority)
    context: ssl.SSLContext = client_context(TlsFiles(*authority.issue("alice", file="alice"), authority.ca))
    access: dict[str, Any] = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with AIOKafkaProducer(**access) as producer:
        await producer.send_and_wait(topic, b"before")
        authority.issue("node", file="node")
        await producer.send_and_wait(topic, b"between")

        async def read_again() -> bool:
            async with AIOKafkaProducer(**access):
                return "listener_certificates_read" in node.log

        await wait_for_async(read_again, "the new certificate in use", 10)
        async with AIOKafkaProducer(**access) as another:
            await another.send_and_wait(topic, b"after")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **access) as consumer:
        found = [(await consumer.getone()).value for _ in range(3)]
    assert found == [b"before", b"between", b"after"]
