"""Redis with TLS and a user of its ACLs, by the URL alone: a Valkey behind a relay that ends TLS, as the one that comes
with the tests is built without.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from redis.asyncio import Redis

from metadata import MetadataError, MetadataStore
from sidecar.local.ports import HOST
from sidecar.security.tls import TlsFiles, server_context
from tests.certificates import Authority
from tests.rest import Rest, govern
from tests.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import OwnValkey, StartNode
    from tests.services import Services


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def relay(port: int, authority: Authority) -> AsyncIterator[int]:
    """The port at which TLS is spoken."""

    under_way: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(HOST, port)
        try:
            await asyncio.gather(_copy(reader, behind_writer), _copy(behind_reader, writer))
        finally:
            for each in (writer, behind_writer):
                each.transport.abort()
                with suppress(OSError):
                    await each.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(pass_on(reader, writer))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    context = server_context(TlsFiles(*authority.issue("redis", file="redis")))
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for task in list(under_way):
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


async def test_a_user_logs_in_over_tls(own_valkey: OwnValkey, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), tmp_path / "other"
    other.mkdir()
    valkey = own_valkey()
    async with Redis.from_url(valkey.url) as admin:
        await admin.acl_setuser("node", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"])
    async with relay(valkey.port, authority) as port:

        async def look(user: str, ca: Path) -> None:
            async with MetadataStore(f"rediss://{user}@{HOST}:{port}/0?ssl_ca_certs={ca}", "test") as store:
                await store.check_server()

        await look("node:secret", authority.ca)
        with pytest.raises(MetadataError) as error:
            await look("node:wrong-one", authority.ca)
        assert "wrong-one" not in str(error.value)
        with pytest.raises(MetadataError, match="certificate"):
            await look("node:secret", Authority(other).ca)


DOCUMENTED = re.compile(r"ACL SETUSER sidecar on >PASSWORD (.+)")


def documented_rights() -> list[str]:
    """What docs/operations.md says that the user of the nodes needs."""
    page = Path(__file__).parents[3] / "docs" / "operations.md"
    found = DOCUMENTED.search(page.read_text())
    assert found is not None
    return found[1].split()


async def test_a_node_and_its_tools_need_no_more_rights_than_are_documented(
    own_valkey: OwnValkey, tmp_path: Path, services: Services, node_process: StartNode
) -> None:
    authority, valkey = Authority(tmp_path), own_valkey()
    async with Redis.from_url(valkey.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "sidecar", "on", ">a/secret", *documented_rights())
        await admin.execute_command("ACL", "SETUSER", "default", "off")
    async with relay(valkey.port, authority) as port:
        url = f"rediss://sidecar:a%2Fsecret@{HOST}:{port}/0?ssl_ca_certs={authority.ca}"
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
