"""Real clients at a node whose listener asks for TLS, certificates and logins."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from sidecar.local.ports import free_ports
from sidecar.protocol.messages.cluster import METADATA
from sidecar.security.credentials import TokenCredentials
from sidecar.security.exchange import Session
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.tokens import Tokens
from sidecar.security.users import user_line
from tests.certificates import Authority
from tests.conftest import StartNode
from tests.kafka.security.secured import NODE, PASSWORD, Secured, Wire
from tests.kafka.security.test_logins import Unsigned
from tests.nodes import NodeProcess
from tests.wait import wait_for, wait_for_async

Unique = Callable[[str], str]


def tls_node(secured: Secured, node_process: StartNode, authority: Authority, **settings: Any) -> NodeProcess:
    certificate, key = authority.issue("node", file="node")
    given: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SSL",
        "SSL_CERTIFICATE": str(certificate),
        "SSL_KEY": str(key),
        "SSL_CLIENT_AUTH": "required",
        "AUTHORIZER": "none",
    }
    given |= settings
    if given["SSL_CLIENT_AUTH"] == "required":
        given["SSL_CA"] = str(authority.ca)
    kafka = f"127.0.0.1:{secured.ports['PLAINTEXT']}"
    return node_process(kafka=kafka, **given)


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


# Logins ---------------------------------------------------------------------------------------------------------------

RELAY: dict[str, Any] = {
    "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "AUTHORIZER": "none",
    "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "KAFKA_SASL_MECHANISM": "PLAIN",
    "KAFKA_SASL_USERNAME": NODE,
    "KAFKA_SASL_PASSWORD": PASSWORD,
}


def relaying(secured: Secured, node_process: StartNode, **settings: Any) -> NodeProcess:
    return node_process(kafka=f"127.0.0.1:{secured.ports['SASL_PLAINTEXT']}", **(RELAY | settings))


def sasl(node: NodeProcess, mechanism: str, name: str, password: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        **settings,
    }


def passes(settings: dict[str, Any], topic: str) -> None:
    producer = Producer({**settings, "message.timeout.ms": 20000})
    for number in range(20):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(20, 30)
    consumer.close()
    assert [message.value() for message in found] == [str(number).encode() for number in range(20)]


def refusal_of(settings: dict[str, Any]) -> str:
    """What librdkafka says of its login."""
    said: list[str] = []
    producer = Producer({**settings, "error_cb": lambda error: said.append(str(error))})  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=3)
    producer.poll(0.1)
    return " ".join(said)


def test_logins_are_relayed_to_brokers(secured: Secured, node_process: StartNode, unique: Unique) -> None:
    plain, scram, user = unique("plain"), unique("scram"), unique("user")
    secured.topics(plain, scram)
    secured.scram_user(user, "SCRAM-SHA-512")
    node = relaying(secured, node_process)
    passes(sasl(node, "PLAIN", "alice", PASSWORD), plain)
    passes(sasl(node, "SCRAM-SHA-512", user, PASSWORD), scram)
    assert "Authentication failed" in refusal_of(sasl(node, "PLAIN", "alice", "wrong"))
    assert "Authentication failed" in refusal_of(sasl(node, "SCRAM-SHA-512", unique("nobody"), PASSWORD))
    metrics = urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10).read().decode()
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        for result in ("success", "failure"):
            assert f'sidecar_authentications_total{{mechanism="{mechanism}",result="{result}"}}' in metrics
    assert "login_refused" in node.log
    assert PASSWORD not in node.log


def allow(secured: Secured, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Alice may do so, by Kafka's own ACLs."""
    found = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for made in secured.admin.create_acls(found).values():
        made.result(30)


def test_who_has_logged_in_may_do_what_kafkas_acls_allow(
    secured: Secured, node_process: StartNode, unique: Unique
) -> None:
    """Upstream all of it arrives as the node, which may do everything."""
    topic, user = unique("acls"), unique("user")
    secured.topics(topic)
    secured.scram_user(user, "SCRAM-SHA-512")
    allow(secured, ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    allow(secured, ResourceType.GROUP, topic, AclOperation.READ)
    node = relaying(secured, node_process, AUTHORIZER="kafka")
    passes(sasl(node, "PLAIN", "alice", PASSWORD), topic)
    other = Producer({**sasl(node, "SCRAM-SHA-512", user, PASSWORD), "message.timeout.ms": 20000})
    told: list[int] = []
    other.produce(topic, b"not mine", on_delivery=lambda error, _: told.append(error.code() if error else 0))
    other.flush(30)
    assert told == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert topic not in other.list_topics(timeout=10).topics
    secured.forget_acls()
    mine = Producer({**sasl(node, "PLAIN", "alice", PASSWORD), "message.timeout.ms": 20000})

    def is_refused() -> bool:
        codes: list[int] = []
        mine.produce(topic, b"no more", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
        mine.flush(30)
        return codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED]

    wait_for(is_refused, "the end of the right to write", 20)


def test_logins_are_checked_against_a_file(
    secured: Secured, node_process: StartNode, authority: Authority, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("file")
    secured.topics(topic)
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{user_line('alice', PASSWORD)}\n")
    given: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SSL_CLIENT_AUTH": "none",
        "SASL_AUTHENTICATION": "file",
        "SASL_USERS_FILE": str(users),
        "SASL_MECHANISMS": "PLAIN,SCRAM-SHA-256",
    }
    node = tls_node(secured, node_process, authority, **given)
    tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": str(authority.ca)}
    passes(sasl(node, "PLAIN", "alice", PASSWORD, **tls), topic)
    assert "Authentication failed" in refusal_of(sasl(node, "SCRAM-SHA-256", "alice", "wrong", **tls))
    assert "PLAIN,SCRAM-SHA-256" in refusal_of(sasl(node, "SCRAM-SHA-512", "alice", PASSWORD, **tls))
    assert "Authentication failed" in refusal_of(sasl(node, "SCRAM-SHA-256", "bob", PASSWORD, **tls))
    users.write_text(f"[users]\n{user_line('bob', PASSWORD)}\n")
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):

        def is_gone(mechanism: str = mechanism) -> bool:
            producer = Producer(sasl(node, mechanism, "alice", PASSWORD, **tls))
            try:
                producer.list_topics(timeout=3)
            except KafkaException:
                return True
            return False

        wait_for(is_gone, "the user who is not in the file any more", 20)
        another = unique("file")
        secured.topics(another)
        passes(sasl(node, mechanism, "bob", PASSWORD, **tls), another)


def test_each_listener_has_its_own_way_in(
    secured: Secured, node_process: StartNode, authority: Authority, unique: Unique
) -> None:
    """Logins of one are relayed to brokers, the other asks for a certificate: each client is who it is there."""
    topic = unique("ways")
    secured.topics(topic)
    allow(secured, ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    allow(secured, ResourceType.GROUP, topic, AclOperation.READ)
    certificate, key = authority.issue("node", file="node")
    logins, certificates = (f"127.0.0.1:{port}" for port in free_ports(2))
    relaying(
        secured,
        node_process,
        LISTEN="",
        SECURITY_PROTOCOL="",
        LISTENERS=f"LOGINS://{logins},CERTIFICATES://{certificates}",
        LISTENER_SECURITY_PROTOCOL_MAP="LOGINS:SASL_PLAINTEXT,CERTIFICATES:SSL",
        LISTENER_CERTIFICATES_SSL_CERTIFICATE=str(certificate),
        LISTENER_CERTIFICATES_SSL_KEY=str(key),
        LISTENER_CERTIFICATES_SSL_CA=str(authority.ca),
        LISTENER_CERTIFICATES_SSL_CLIENT_AUTH="required",
        LISTENER_CERTIFICATES_SSL_PRINCIPAL_MAPPING_RULES="RULE:^CN=([a-z]+)$/$1/",
        AUTHORIZER="kafka",
    )
    pair = authority.issue("alice", file="alice")
    tls = {
        "bootstrap.servers": certificates,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.ca),
        "ssl.certificate.location": str(pair[0]),
        "ssl.key.location": str(pair[1]),
    }
    login = {
        "bootstrap.servers": logins,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    for settings, there in ((login, logins), (tls, certificates)):
        producer = Producer({**settings, "message.timeout.ms": 20000})
        producer.produce(topic, there.encode())
        assert producer.flush(30) == 0
        seen = producer.list_topics(topic, timeout=10)
        assert [f"{each.host}:{each.port}" for each in seen.brokers.values()] == [there]
    assert "Authentication failed" in refusal_of(login | {"sasl.password": "wrong"})
    consumer = Consumer({**tls, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = {message.value() for message in consumer.consume(2, 30)}
    consumer.close()
    secured.forget_acls()
    assert found == {logins.encode(), certificates.encode()}


async def test_tokens_are_relayed_and_sessions_are_renewed(
    secured: Secured, node_process: StartNode, unique: Unique
) -> None:
    topic = unique("tokens")
    secured.topics(topic)
    node = relaying(secured, node_process)
    host, port = node.bootstrap.split(":")

    async def login(lifetime_s: float, wire: Wire) -> Session:
        return await wire.login(TokenCredentials(Tokens(Unsigned(lifetime_s))))

    wires: list[asyncio.StreamWriter] = []
    for _ in range(2):
        reader, writer = await asyncio.open_connection(host, int(port))
        wires.append(writer)
        wire = Wire(reader, writer)
        session = await login(3.0, wire)
        assert session.lifetime_s is not None
        assert 0 < session.lifetime_s <= 3.0
        assert (await wire.ask_table(METADATA, 5, {"topics": None, "allow_auto_topic_creation": False}))["brokers"]
        if len(wires) == 1:  # the first renews its session in time
            await asyncio.sleep(1.1)
            renewed = await login(60.0, wire)
            assert renewed.lifetime_s is not None
            assert renewed.lifetime_s > 3.0
            await asyncio.sleep(2.5)
            assert (await wire.ask_table(METADATA, 5, {"topics": None, "allow_auto_topic_creation": False}))["brokers"]
        else:
            await asyncio.sleep(3.1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await wire.ask_table(METADATA, 5, {"topics": None, "allow_auto_topic_creation": False})
    for writer in wires:
        writer.close()
    assert '"reason": "session_ended"' in node.log


async def test_aiokafka_logs_in_by_scram(secured: Secured, node_process: StartNode, unique: Unique) -> None:
    topic, user = unique("aio"), unique("user")
    secured.topics(topic)
    secured.scram_user(user, "SCRAM-SHA-256")
    node = relaying(secured, node_process)
    access: dict[str, Any] = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }
    async with AIOKafkaProducer(**access) as producer:
        await producer.send_and_wait(topic, b"one")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **access) as consumer:
        assert (await consumer.getone()).value == b"one"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("expired", "certificate: certificate has expired"),
        ("of another authority", "certificate: unable to get local issuer certificate"),
        ("of nobody", "no rule"),
        ("in plain text", "WRONG_VERSION_NUMBER"),
    ],
)
def test_a_wrong_certificate_lets_nobody_in(
    secured: Secured, node_process: StartNode, authority: Authority, tmp_path: Path, what: str, reason: str
) -> None:
    """The rules of the listener have a principal for alice alone."""
    node = tls_node(secured, node_process, authority, SSL_PRINCIPAL_MAPPING_RULES="RULE:^CN=(alice)$/$1/")
    assert Producer(librdkafka(node, authority, authority.issue("alice", file="right"))).list_topics(timeout=10).brokers
    other = tmp_path / "other"
    other.mkdir()
    if what == "expired":
        authority.lifetime = timedelta(seconds=-60)
    issuing = Authority(other, "another") if what == "of another authority" else authority
    settings = librdkafka(node, authority, issuing.issue("bob" if what == "of nobody" else "alice", file="wrong"))
    if what == "in plain text":
        settings = {"bootstrap.servers": node.bootstrap}
    with pytest.raises(KafkaException):
        Producer(settings).list_topics(timeout=3)
    assert reason in node.log


async def test_an_authority_that_is_trusted_no_more_lets_nobody_new_in_and_open_connections_go_on(
    secured: Secured, node_process: StartNode, authority: Authority, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.ca.read_bytes())
    node = tls_node(secured, node_process, authority, SSL_CLIENT_AUTH="requested", SSL_CA=str(trusted))
    context = client_context(TlsFiles(*authority.issue("alice", file="alice"), authority.ca))
    host, port = node.bootstrap.split(":")

    async def works(wire: Wire) -> bool:
        answer = await wire.ask_table(METADATA, 5, {"topics": None, "allow_auto_topic_creation": False})
        return bool(answer["brokers"])

    async def is_refused() -> bool:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            return not await works(Wire(reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            return True
        finally:
            writer.transport.abort()

    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    before = Wire(reader, writer)
    assert await works(before)
    trusted.write_bytes(Authority(other, "other").ca.read_bytes())
    await wait_for_async(is_refused, "a refused certificate", 20)
    assert await works(before)
    writer.transport.abort()
