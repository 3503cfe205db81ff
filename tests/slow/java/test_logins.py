"""`clients/java` at a node with TLS and logins, by the settings of every Kafka client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidecar.security.tls import TlsFiles, server_context
from tests.certificates import Authority
from tests.conftest import Unique
from tests.kafka.security.front import NAME, SECRET, front
from tests.nodes import NodeProcess
from tests.services import Services
from tests.slow.java.conftest import Start
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


def door(authority: Authority, hidden: tuple[NodeProcess, int], lifetime_s: float = 0):
    pair: tuple[Path, Path] = authority.issue("front", file="front")
    node, port = hidden
    return front(int(node.bootstrap.rpartition(":")[2]), port, server_context(TlsFiles(*pair)), lifetime_s=lifetime_s)


@pytest.mark.parametrize("mechanism", MODULES)
async def test_a_producer_logs_in_by_kafkas_settings(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], authority: Authority, mechanism: str
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    async with door(authority, hidden):
        environment = settings(authority, mechanism)
        peer = start("write", f"127.0.0.1:{hidden[1]}", "billing", topic, WAIT, environment=environment)
        await asyncio.to_thread(peer.expect, "open 1 -1")
        peer.ask("paid")
        await asyncio.to_thread(peer.expect, "ok ")
        await asyncio.to_thread(peer.close)


async def test_a_leader_leads_on_while_sessions_end(
    start: Start, hidden: tuple[NodeProcess, int], authority: Authority, unique: Unique
) -> None:
    async with door(authority, hidden, lifetime_s=2) as found:
        environment = settings(authority, "SCRAM-SHA-512")
        arguments = f"127.0.0.1:{hidden[1]}", "a", unique("scheduler"), WAIT, "4000"
        peer = start("lead", *arguments, environment=environment)
        await asyncio.to_thread(peer.expect, "elected 1")
        await wait_for_async(lambda: asyncio.sleep(0, found.renewals >= 4), "two renewals of each connection", 60)
        assert peer.silent()
        peer.end()
        await asyncio.to_thread(peer.expect, "lost SidecarException")


async def test_a_login_that_is_refused_is_said_at_once_and_without_the_password(
    start: Start, hidden: tuple[NodeProcess, int], authority: Authority, unique: Unique
) -> None:
    async with door(authority, hidden):
        at, environment = f"127.0.0.1:{hidden[1]}", settings(authority, "PLAIN", "not the one")
        writer = start("write", at, "billing", unique("orders"), WAIT, environment=environment)
        line = await asyncio.to_thread(writer.line)
        assert line.startswith("error SaslAuthenticationException")
        assert "not the one" not in line
        leader = start("lead", at, "a", unique("scheduler"), WAIT, "1000", environment=environment)
        await asyncio.to_thread(leader.expect, "failed SaslAuthenticationException")
