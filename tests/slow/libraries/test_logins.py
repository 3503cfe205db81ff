"""`clients/java` and `clients/go` at a node with TLS and logins, with what their client library takes for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidecar.security.tls import TlsFiles, server_context
from sidecar.security.users import user_line
from tests.certificates import Authority
from tests.conftest import StartNode, Unique
from tests.kafka.security.front import NAME, SECRET, front
from tests.nodes import NodeProcess
from tests.services import Services
from tests.slow.libraries.conftest import Start
from tests.topics import create_topic
from tests.wait import wait_for_async

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
WAIT = "WAIT_FOR_EXCLUSIVE"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


def settings(authority: Authority, mechanism: str, password: str = SECRET) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{NAME}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
    }
    return {"PEER_SETTINGS": "".join(f"{name}={value}\n" for name, value in lines.items())}


@pytest.fixture
def secured(authority: Authority, node_process: StartNode, tmp_path: Path) -> NodeProcess:
    """A node that asks for a login, by TLS."""
    certificate, key = authority.issue("node", file="node")
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{user_line(NAME, SECRET)}\n")
    return node_process(
        SECURITY_PROTOCOL="SASL_SSL",
        SSL_CERTIFICATE=str(certificate),
        SSL_KEY=str(key),
        SASL_AUTHENTICATION="file",
        SASL_USERS_FILE=str(users),
        SASL_MECHANISMS=",".join(MODULES),
        AUTHORIZER="none",
    )


@pytest.mark.parametrize("mechanism", MODULES)
def test_a_producer_and_a_candidate_log_in(
    start: Start, services: Services, secured: NodeProcess, authority: Authority, mechanism: str, unique: Unique
) -> None:
    topic, environment = create_topic(services.kafka_bootstrap, 1), settings(authority, mechanism)
    writer = start("write", secured.bootstrap, "billing", topic, WAIT, environment=environment)
    writer.expect("open 1 -1")
    writer.ask("paid")
    writer.expect("ok ")
    writer.close()
    leader = start("lead", secured.bootstrap, "a", unique("scheduler"), WAIT, "1000", environment=environment)
    leader.expect("elected 1")


async def test_a_leader_leads_on_while_sessions_end(
    start: Start, hidden: tuple[NodeProcess, int], authority: Authority, unique: Unique
) -> None:
    node, port = hidden
    pair: tuple[Path, Path] = authority.issue("front", file="front")
    context = server_context(TlsFiles(*pair))
    async with front(int(node.bootstrap.rpartition(":")[2]), port, context, lifetime_s=2) as found:
        environment = settings(authority, "SCRAM-SHA-512")
        arguments = f"127.0.0.1:{hidden[1]}", "a", unique("scheduler"), WAIT, "4000"
        peer = start("lead", *arguments, environment=environment)
        await asyncio.to_thread(peer.expect, "elected 1")
        await wait_for_async(lambda: asyncio.sleep(0, found.renewals >= 4), "two renewals of each connection", 60)
        assert peer.silent()
        peer.end()
        await asyncio.to_thread(peer.expect, "lost refused")


def test_a_login_that_is_refused_is_said_at_once_and_without_the_password(
    start: Start, secured: NodeProcess, authority: Authority, unique: Unique
) -> None:
    environment = settings(authority, "PLAIN", "not the one")
    writer = start("write", secured.bootstrap, "billing", unique("orders"), WAIT, environment=environment)
    line = writer.line()
    assert line.startswith("error refused: ")
    assert "Authentication failed" in line
    assert "not the one" not in line
    leader = start("lead", secured.bootstrap, "a", unique("scheduler"), WAIT, "1000", environment=environment)
    leader.expect("failed refused")
