"""Redis with TLS and a user of its ACLs, by the URL alone: a Valkey behind a relay that ends TLS."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from metadata import MetadataError, MetadataStore
from sidecar.local.ports import HOST
from sidecar.security.tls import TlsFiles, server_context
from tests.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import OwnValkey


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def relay(port: int, authority: Authority) -> AsyncIterator[int]:
    """The port at which TLS is spoken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(_copy(reader, behind_writer), _copy(behind_reader, writer))

    context = server_context(TlsFiles(*authority.issue("redis", file="redis")))
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


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
