"""Redis with TLS and a user of its ACLs, by the URL alone."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from redis.asyncio import Redis

from metadata import MetadataError, MetadataStore
from sidecar.local import TlsKeys, Valkey
from sidecar.local.ports import HOST
from tests.certificates import Authority
from tests.rest import Rest, govern
from tests.topics import create_topic

if TYPE_CHECKING:
    from tests.conftest import OwnValkey, StartNode
    from tests.services import Services


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def valkey(own_valkey: OwnValkey, authority: Authority, tmp_path: Path) -> Valkey:
    """One that takes TLS alone."""
    own = tmp_path / "redis-both.pem"
    certificate, key = authority.issue("redis", file="redis")
    own.write_bytes(key.read_bytes() + certificate.read_bytes())
    return own_valkey(keys=TlsKeys(own, authority.ca))


async def test_a_user_logs_in_over_tls(valkey: Valkey, authority: Authority, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with Redis.from_url(valkey.url) as admin:
        await admin.acl_setuser("node", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"])

    async def look(user: str, ca: Path) -> None:
        async with MetadataStore(f"rediss://{user}@{HOST}:{valkey.port}/0?ssl_ca_certs={ca}", "test") as store:
            await store.check_server()

    await look("node:secret", authority.ca)
    with pytest.raises(MetadataError) as error:
        await look("node:wrong-one", authority.ca)
    assert "wrong-one" not in str(error.value)
    with pytest.raises(MetadataError, match="certificate"):
        await look("node:secret", Authority(other).ca)


DOCUMENTED = re.compile(r"ACL SETUSER sidecar on >PASSWORD (.+)")


def documented_rights() -> list[str]:
    """What docs/operate/operations.md says that the user of the nodes needs."""
    page = Path(__file__).parents[3] / "docs" / "operate" / "operations.md"
    found = DOCUMENTED.search(page.read_text())
    assert found is not None
    return found[1].split()


async def test_a_node_and_its_tools_need_no_more_rights_than_are_documented(
    valkey: Valkey, authority: Authority, services: Services, node_process: StartNode
) -> None:
    async with Redis.from_url(valkey.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "sidecar", "on", ">a/secret", *documented_rights())
        await admin.execute_command("ACL", "SETUSER", "default", "off")
    url = f"rediss://sidecar:a%2Fsecret@{HOST}:{valkey.port}/0?ssl_ca_certs={authority.ca}"
    await asyncio.to_thread(use, services, node_process, url)


def use(services: Services, node_process: StartNode, url: str) -> None:
    """Everything that a node does at Redis: policies, claims, fences, ids, heartbeats; and what its tools look at."""
    node = node_process(redis=url)
    rest, topic = Rest(node.admin_url), create_topic(services.kafka_bootstrap, 1)
    govern(rest, topic)
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"deduplication": True})[0] == 200
    for generation in (1, 2):
        producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "billing", "enable.idempotence": True})
        headers: list[tuple[str, str | bytes | None]] = [("sidecar-sequence-id", str(generation).encode())]
        producer.produce(topic, b"x", headers=headers)
        assert producer.flush(30) == 0
        assert rest.call("POST", f"/v1/topics/{topic}/{('release', 'fence')[generation - 1]}")[0] == 200
    assert rest.call("DELETE", f"/v1/topics/{topic}/policy")[0] == 204
    told = {"BOOTSTRAP_SERVERS": services.kafka_bootstrap, "REDIS_URL": url, "ADMIN_URL": node.admin_url}
    others = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", "doctor"],
        env=others | {f"SIDECAR_{name}": value for name, value in told.items()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    redis = [line for line in done.stdout.splitlines() if "redis" in line]
    assert any("noeviction, answers" in line for line in redis), done.stdout + done.stderr
    assert "redis_unavailable" not in node.log
    assert "secret" not in done.stdout + done.stderr + node.log
