"""compose.yaml with deploy/compose/secured.yaml, on a Docker engine. Skipped with a reason where there is none.

What needs no engine is in tests/unit/deploy/test_secured.py, what servers do with these settings in
tests/slow/local/test_up_secured.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.slow.deploy.stack import PATIENCE_S, Stack, refusal, running
from tests.wait import wait_for

pytestmark = pytest.mark.timeout(1800)

INSIDE = """
import ssl
from aiokafka import AIOKafkaProducer
import asyncio, sys
async def main():
    context = ssl.create_default_context(cafile="/etc/sidecar/ca.pem")
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "app", "sasl_plain_password": sys.stdin.read()}
    servers = "sidecar-1:19092,sidecar-2:19092"
    async with AIOKafkaProducer(
        bootstrap_servers=servers, security_protocol="SASL_SSL", ssl_context=context, **login
    ) as producer:
        print((await producer.send_and_wait("app-inside", b"value")).offset)
asyncio.run(main())
"""


def redis_uid() -> str:
    """Who the image's Redis is: another one than 999 in images of distributions."""
    command = ["docker", "run", "--rm", "redis:8-alpine", "id", "-u", "redis"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()


class Secured:
    """The stack, and the files that it has for clients."""

    def __init__(self, stack: Stack, clients: Path) -> None:
        self.run, self.query, self.clients = stack.run, stack.query, clients
        self.copy_files()

    def copy_files(self) -> None:
        self.run("cp", "keys:/keys-of-clients/.", str(self.clients))

    def settings(self, user: str, **more: str) -> dict[str, Any]:
        lines = (self.clients / f"{user}.conf").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return {**found, "ssl.ca.location": str(self.clients / "ca.pem"), "message.timeout.ms": "30000", **more}


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if reason := refusal():
        pytest.skip(reason)
    with running(secured=True, REDIS_UID=redis_uid()) as stack:
        yield Secured(stack, tmp_path_factory.mktemp("clients"))


def produce(settings: dict[str, Any], topic: str) -> int:
    codes: list[int] = []
    producer = Producer(settings)
    producer.produce(topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(60)
    return codes[0]


def test_a_client_on_the_host_writes_where_it_may(compose: Secured):
    assert produce(compose.settings("app"), "app-orders") == 0
    assert produce(compose.settings("app"), "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce(compose.settings("admin"), "orders") == 0


def test_a_client_in_a_container_comes_in_by_the_other_listener(compose: Secured):
    compose.run("exec", "-T", "sidecar-1", "sidecar", "topic", "set", "app-inside", "--access", "exclusive")
    assert produce(compose.settings("admin", **{"client.id": "first"}), "app-inside") == 0
    password = compose.settings("app")["sasl.password"]
    wait_for(lambda: int(compose.run("exec", "-T", "sidecar-2", "python", "-c", INSIDE, stdin=password)) > 0, "a turn")


def test_a_second_start_keeps_users_and_data(compose: Secured):
    before = (compose.clients / "app.conf").read_text()
    compose.run("up", "--wait", "--force-recreate")
    compose.copy_files()
    assert (compose.clients / "app.conf").read_text() == before
    assert produce(compose.settings("app"), "app-orders") == 0


def test_prometheus_scrapes_both_nodes_with_its_token(compose: Secured):
    wait_for(lambda: compose.query("sum(up) == 3"), "two scraped nodes and itself", PATIENCE_S)
