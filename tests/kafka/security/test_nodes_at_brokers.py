"""A node in front of a Kafka with TLS and logins: all its connections begin with them, and go on when sessions end."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from sidecar.local.errors import StartError
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.tls import TlsFiles, client_context
from tests.certificates import Authority
from tests.kafka.security.secured import NODE, PASSWORD, SCRAM, SHORT_REAUTHENTICATION_MS, Secured
from tests.rest import Rest
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sidecar.local import Valkey
    from tests.conftest import OwnValkey, StartNode
    from tests.nodes import NodeProcess

    Unique = Callable[[str], str]

WRONG = "a wrong secret"
RECORDS = 20


@pytest.fixture
def valkey(own_valkey: OwnValkey) -> Valkey:
    return own_valkey()


class StartSecuredNode:
    """Starts a node that uses a listener of the broker. `host`: the name by which it gets there."""

    def __init__(self, secured: Secured, valkey: Valkey, start: StartNode) -> None:
        self._secured = secured
        self._valkey = valkey
        self._start = start

    def __call__(self, protocol: str, *, host: str = "127.0.0.1", ready: bool = True, **settings: str) -> NodeProcess:
        given: dict[str, Any] = {f"KAFKA_{name}": value for name, value in settings.items()}
        if protocol.endswith("SSL"):
            given.setdefault("KAFKA_SSL_CA", str(self._secured.authority.ca))
        return self._start(
            kafka=f"{host}:{self._secured.ports[protocol]}",
            redis=self._valkey.url,
            ready=ready,
            KAFKA_SECURITY_PROTOCOL=protocol,
            **given,
        )


@pytest.fixture
def secured_node(secured: Secured, valkey: Valkey, node_process: StartNode) -> StartSecuredNode:
    return StartSecuredNode(secured, valkey, node_process)


@pytest.fixture(scope="module")
def certificate(secured: Secured) -> dict[str, Any]:
    made, key = secured.authority.issue(NODE, file="node")
    return {"SSL_CERTIFICATE": str(made), "SSL_KEY": str(key)}


def login(mechanism: str) -> dict[str, Any]:
    return {"SASL_MECHANISM": mechanism, "SASL_USERNAME": NODE, "SASL_PASSWORD": PASSWORD}


class Owner:
    """Writes numbers to a topic that it owns through a node; `errors` are all that its client heard of."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self.errors: list[KafkaError] = []
        self.written = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "client.id": "w;mode=exclusive",
                "enable.idempotence": True,
                "linger.ms": 0,
                "error_cb": self.errors.append,
            }
        )

    def write(self) -> None:
        def outcome(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.errors.append(error)

        self._producer.produce(self._topic, str(self.written).encode(), on_delivery=outcome)
        self.written += 1
        self._producer.poll(0.01)

    def finish(self) -> None:
        assert self._producer.flush(30) == 0


def read(node: NodeProcess, topic: str, count: int, group: str) -> list[bytes]:
    """What a consumer group reads through a node: as many as `count`, and whatever else comes with the last ones."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    found: list[bytes] = []

    def read_more() -> bool:
        for message in consumer.consume(1_000, 0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(value)
        return len(found) >= count

    try:
        consumer.subscribe([topic])
        wait_for(read_more, f"{count} records")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def check_use(secured: Secured, node: NodeProcess, unique: Unique) -> None:
    """An owner writes and a group reads; no secret is in the node's log."""
    topic = unique("orders")
    secured.topics(topic)
    owner = Owner(node, topic)
    for _ in range(RECORDS):
        owner.write()
    owner.finish()
    assert owner.errors == []
    assert read(node, topic, RECORDS, unique("group")) == [str(number).encode() for number in range(RECORDS)]
    assert Rest(node.admin_url).topic(topic)["owner"]["name"] == "w"
    assert PASSWORD not in node.log


def test_over_tls_with_a_certificate(
    secured: Secured, secured_node: StartSecuredNode, certificate: dict[str, Any], unique: Unique
) -> None:
    check_use(secured, secured_node("SSL", **certificate), unique)


def test_with_plain(secured: Secured, secured_node: StartSecuredNode, unique: Unique) -> None:
    check_use(secured, secured_node("SASL_PLAINTEXT", **login("PLAIN")), unique)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_with_scram(secured: Secured, secured_node: StartSecuredNode, unique: Unique, mechanism: str) -> None:
    secured.scram_user(NODE, mechanism)
    check_use(secured, secured_node("SASL_PLAINTEXT", **login(mechanism)), unique)


def test_with_scram_over_tls(secured: Secured, secured_node: StartSecuredNode, unique: Unique) -> None:
    secured.scram_user(NODE, "SCRAM-SHA-256")
    check_use(secured, secured_node("SASL_SSL", **login("SCRAM-SHA-256")), unique)


async def test_a_writer_goes_on_while_the_brokers_sessions_end(
    secured: Secured, secured_node: StartSecuredNode, unique: Unique
) -> None:
    secured.scram_user(NODE, "SCRAM-SHA-256")
    node = secured_node("SASL_SSL", **login("SCRAM-SHA-256"))
    async with secured.wire("SASL_SSL", client_context(TlsFiles(ca=secured.authority.ca))) as wire:
        session = await wire.login(PasswordCredentials("SCRAM-SHA-256", NODE, PASSWORD))
    assert session.lifetime_s == SHORT_REAUTHENTICATION_MS / 1_000
    topic = unique("orders")
    secured.topics(topic)
    owner = Owner(node, topic)
    until = time.monotonic() + 4 * SHORT_REAUTHENTICATION_MS / 1_000
    while time.monotonic() < until:
        owner.write()
    owner.finish()
    assert owner.errors == []
    found = Counter(read(node, topic, owner.written, unique("group")))
    assert found == Counter(str(number).encode() for number in range(owner.written))
    assert "broker_unreachable" not in node.log


def readiness(node: NodeProcess) -> tuple[int, str]:
    status, answer = Rest(node.admin_url).call("GET", "/readyz")
    return status, str(answer)


def why_not_ready(node: NodeProcess, word: str) -> str:
    """What /readyz says once it says `word`."""

    def says() -> str:
        status, answer = readiness(node)
        assert status == 503, answer
        return answer if word in answer else ""

    return wait_for(says, f"a reason with {word!r}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_and_its_file_read_again(
    secured: Secured, secured_node: StartSecuredNode, tmp_path: Path, unique: Unique, mechanism: str
) -> None:
    if mechanism in SCRAM:
        secured.scram_user(NODE, mechanism)
    file = tmp_path / "password"
    file.write_text(WRONG)
    settings: dict[str, Any] = {"SASL_MECHANISM": mechanism, "SASL_USERNAME": NODE, "SASL_PASSWORD_FILE": str(file)}
    node = secured_node("SASL_PLAINTEXT", ready=False, **settings)
    why_not_ready(node, "log in")
    assert "Authentication failed" in node.log
    file.write_text(PASSWORD)
    wait_for(lambda: readiness(node)[0] == 200, "a ready node")
    check_use(secured, node, unique)
    assert WRONG not in node.log


def test_a_certificate_for_another_host_is_refused(secured: Secured, secured_node: StartSecuredNode) -> None:
    """The broker's is for 127.0.0.1."""
    secured.scram_user(NODE, "SCRAM-SHA-256")
    node = secured_node("SASL_SSL", host="localhost", ready=False, **login("SCRAM-SHA-256"))
    assert "localhost" in why_not_ready(node, "certificate")


def test_unless_hosts_are_not_checked(secured: Secured, secured_node: StartSecuredNode, unique: Unique) -> None:
    secured.scram_user(NODE, "SCRAM-SHA-256")
    settings: dict[str, Any] = {**login("SCRAM-SHA-256"), "SSL_CHECK_HOSTNAME": "false"}
    check_use(secured, secured_node("SASL_SSL", host="localhost", **settings), unique)


# Certificates ---------------------------------------------------------------------------------------------------------


def shown(certificate: Path, key: Path) -> dict[str, Any]:
    return {"SSL_CERTIFICATE": str(certificate), "SSL_KEY": str(key)}


@pytest.mark.parametrize("what", ["none", "of another authority", "expired"])
def test_a_certificate_that_brokers_refuse_is_told(
    secured: Secured, secured_node: StartSecuredNode, tmp_path: Path, what: str
) -> None:
    authority = Authority(tmp_path, "another")
    if what == "expired":
        authority = secured.authority
        authority.lifetime = timedelta(seconds=-60)
    issued = authority.issue(NODE, file="refused")
    secured.authority.lifetime = timedelta(days=1)
    node = secured_node("SSL", ready=False, **({} if what == "none" else shown(*issued)))
    assert "does not accept the certificate" in why_not_ready(node, "certificate")


def test_a_certificate_of_a_principal_without_rights_is_told(secured: Secured, secured_node: StartSecuredNode) -> None:
    with pytest.raises(StartError, match=r"cannot_start.*TOPIC_AUTHORIZATION_FAILED"):
        secured_node("SSL", **shown(*secured.authority.issue("nobody", file="nobody")))


@pytest.mark.parametrize("what", ["certificate", "authority"])
def test_a_file_that_changes_is_for_new_connections_to_brokers_and_old_ones_go_on(
    secured: Secured, secured_node: StartSecuredNode, tmp_path: Path, unique: Unique, what: str
) -> None:
    """The node's certificate, or its trust in brokers, becomes another authority's and then the right one again."""
    other = tmp_path / "other"
    other.mkdir()
    wrong = Authority(other, "another")
    right = {
        "certificate": b"".join(path.read_bytes() for path in secured.authority.issue(NODE, file="changing")),
        "authority": secured.authority.ca.read_bytes(),
    }
    changed = {
        "certificate": b"".join(path.read_bytes() for path in wrong.issue(NODE)),
        "authority": wrong.ca.read_bytes(),
    }
    files = {name: tmp_path / f"{name}.pem" for name in right}
    for name, content in right.items():
        files[name].write_bytes(content)
    node = secured_node("SSL", SSL_CERTIFICATE=str(files["certificate"]), SSL_CA=str(files["authority"]))
    topic = unique("changing")
    secured.topics(topic)
    owner = Owner(node, topic)
    owner.write()
    owner.finish()
    files[what].write_bytes(changed[what])
    reason = {"certificate": "does not accept the certificate", "authority": "its certificate is not trusted"}[what]

    def is_refused() -> bool:
        """Each client has its own connection to a broker."""
        producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 1_000})
        producer.produce(unique("new"), b"")
        producer.flush(5)
        return reason in node.log

    wait_for(is_refused, "a refused connection", 30)
    owner.write()
    owner.finish()
    assert owner.errors == []
    assert readiness(node)[0] == 200
    files[what].write_bytes(right[what])
    wait_for(lambda: node.log.count("kafka_certificates_read") == 2, "the right file in use", 20)
    check_use(secured, node, unique)
