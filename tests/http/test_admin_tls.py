"""The admin port with TLS: who reaches it, with which certificate, by what tools."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sidecar.client import AdminClient, SidecarError, SidecarUnavailableError
from sidecar.security import files
from sidecar.security.tls import TlsFileError, TlsFiles, client_context
from tests.certificates import Authority
from tests.http.paper_cli import run
from tests.http.paper_nodes import READ_TOKEN, TOKEN, Log, PaperServer, paper_server
from tests.wait import wait_for_async


@dataclass
class Certificates:
    """A node's, an operator's, a stranger's; one authority for the first two."""

    authority: Authority
    node: tuple[Path, Path]
    operator: tuple[Path, Path]
    stranger: tuple[Path, Path]

    def server(self, *, asks: bool = False) -> dict[str, Any]:
        found = {"admin_ssl_certificate": str(self.node[0]), "admin_ssl_key": str(self.node[1])}
        return found | ({"admin_ssl_ca": str(self.authority.ca)} if asks else {})

    def client(self, shown: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        return client_context(TlsFiles(*(shown or (None, None)), self.authority.ca))


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    other = tmp_path / "other"
    other.mkdir()
    authority = Authority(tmp_path)
    node, operator = authority.issue("node", file="node"), authority.issue("alice", file="alice")
    return Certificates(authority, node, operator, Authority(other).issue("mallory"))


async def get(server: PaperServer, path: str, tls: ssl.SSLContext, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(server.url + path, ssl=tls, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_the_port_speaks_tls_alone_and_the_certificate_is_checked(certificates: Certificates):
    async with paper_server(**certificates.server()) as server:
        assert (await get(server, "/v1/status", certificates.client()))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(server, "/v1/status", ssl.create_default_context())
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(server.url.replace("https", "http") + "/v1/status")


async def test_a_certificate_that_changes_is_shown_to_the_next_connection(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, log: Log
):
    monkeypatch.setattr(files, "LOOK_S", 0.0)

    async def serial(server: PaperServer) -> int:
        reader, writer = await asyncio.open_connection(
            server.server.address.host, server.server.address.port, ssl=certificates.client()
        )
        shown = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        await reader.read()
        return int(shown, 16)

    async with paper_server(**certificates.server()) as server:
        first = await serial(server)
        certificates.authority.issue("node", file="node")
        assert await serial(server) != first
        assert len(log.events("admin_certificates_read")) == 1
        certificates.node[0].write_text("nonsense")
        assert await serial(server) != first
        (bad,) = log.events("admin_certificates_bad")
        assert str(certificates.node[0]) in bad["problem"]


async def test_a_certificate_that_cannot_be_used_stops_the_start(certificates: Certificates):
    certificates.node[1].unlink()
    with pytest.raises(TlsFileError, match=str(certificates.node[1])):
        async with paper_server(**certificates.server()):
            pass


async def test_where_client_certificates_are_asked_for_all_but_health_needs_one(certificates: Certificates):
    async with paper_server(**certificates.server(asks=True), admin_token=TOKEN) as server:
        without = certificates.client()
        assert (await get(server, "/livez", without))[0] == 200
        assert (await get(server, "/readyz", without))[0] == 200
        for path in ("/v1/status", "/metrics", "/", "/openapi.json"):
            status, answer = await get(server, path, without, TOKEN)
            assert (status, "client certificate" in answer["message"]) == (403, True)
        assert (await get(server, "/v1/status", certificates.client(certificates.operator)))[0] == 200


async def test_a_certificate_of_somebody_else_is_not_let_in(certificates: Certificates):
    async with paper_server(**certificates.server(asks=True)) as server:
        with pytest.raises(aiohttp.ClientError):
            await get(server, "/livez", certificates.client(certificates.stranger))


async def test_a_name_that_leads_here_matters_no_more_with_tls(certificates: Certificates):
    async with paper_server(**certificates.server()) as server, aiohttp.ClientSession() as session:
        where, tls = server.url + "/v1/status", certificates.client()
        async with session.get(where, ssl=tls, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 200


async def test_a_client_that_says_nothing_does_not_keep_others_out(certificates: Certificates):
    async with paper_server(**certificates.server()) as server:
        silent = [
            await asyncio.open_connection(server.server.address.host, server.server.address.port) for _ in range(20)
        ]
        assert (await get(server, "/livez", certificates.client()))[0] == 200
        for _, writer in silent:
            writer.close()


# The SDK --------------------------------------------------------------------------------------------------------------


async def test_handshakes_that_nobody_finishes_hold_few_files_and_keep_nobody_out(certificates: Certificates):
    """The oldest go; 1,024 of them would have been more files than are kept back for the port."""
    async with paper_server(**certificates.server()) as server:
        address = server.server.address
        opened = [await asyncio.open_connection(address.host, address.port) for _ in range(100)]

        async def closed() -> bool:
            return sum(reader.at_eof() for reader, _ in opened) == 100 - 64

        await wait_for_async(closed, "the oldest to be closed", 10)
        assert (await get(server, "/v1/status", certificates.client()))[0] == 200
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(*[writer.wait_closed() for _, writer in opened], return_exceptions=True)


async def test_the_admin_client_takes_a_context_and_a_token(certificates: Certificates):
    settings = certificates.server(asks=True) | {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
    async with paper_server(**settings) as server:
        tls = certificates.client(certificates.operator)
        async with AdminClient(server.url, TOKEN, ssl_context=tls) as admin:
            assert (await admin.fence("orders")).topic == "orders"
        async with AdminClient(server.url, READ_TOKEN, ssl_context=tls) as admin:
            assert (await admin.status()).node_id == 1
            with pytest.raises(SidecarError) as refused:
                await admin.fence("orders")
            assert refused.value.code == 401
        async with AdminClient(server.url, TOKEN) as admin:
            with pytest.raises(SidecarUnavailableError, match="certificate"):
                await admin.status()


async def test_the_admin_client_shows_the_token_to_read_where_it_knows_no_other(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SIDECAR_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv("SIDECAR_ADMIN_READ_TOKEN", READ_TOKEN)
    async with (
        paper_server(**certificates.server(), admin_read_token=READ_TOKEN) as server,
        AdminClient(server.url, ssl_context=certificates.client()) as admin,
    ):
        assert (await admin.status()).node_id == 1


def test_a_context_without_tls_is_a_mistake():
    with pytest.raises(ValueError, match="https"):
        AdminClient("http://127.0.0.1:1", ssl_context=ssl.create_default_context())


# The commands ---------------------------------------------------------------------------------------------------------

Environment = Callable[..., None]


@pytest.fixture
def environment(nothing_set: None, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.delenv("SIDECAR_ADMIN_TOKEN")

    def say(**variables: object) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"SIDECAR_{name}", str(value))

    return say


async def said(*arguments: str) -> tuple[int, str]:
    found = await asyncio.to_thread(run, *arguments)
    return found.code, found.out + found.err


async def test_commands_find_a_node_far_away_by_its_authority_with_a_certificate_and_a_token(
    certificates: Certificates, environment: Environment
):
    settings = certificates.server(asks=True) | {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
    async with paper_server(**settings) as server:
        environment(ADMIN_URL=server.url)
        code, text = await said("topic", "show", "orders")
        assert (code, "SIDECAR_ADMIN_CLIENT_SSL_CA" in text) == (5, True), text
        environment(ADMIN_CLIENT_SSL_CA=certificates.authority.ca)
        code, text = await said("topic", "show", "orders")
        assert (code, "client certificate" in text) == (1, True), text
        certificate, key = certificates.operator
        environment(ADMIN_CLIENT_SSL_CERTIFICATE=certificate, ADMIN_CLIENT_SSL_KEY=key)
        code, text = await said("topic", "show", "orders")
        assert (code, "SIDECAR_ADMIN_TOKEN" in text) == (1, True), text
        environment(ADMIN_READ_TOKEN=READ_TOKEN)
        assert (await said("topic", "show", "orders"))[0] == 0
        code, text = await said("producer", "fence", "orders", "--yes")
        assert (code, "SIDECAR_ADMIN_TOKEN" in text) == (1, True), text
        environment(ADMIN_TOKEN=TOKEN)
        assert (await said("producer", "fence", "orders", "--yes"))[0] == 0


async def test_beside_a_node_its_own_settings_are_enough_whatever_name_its_certificate_has(
    certificates: Certificates, environment: Environment
):
    elsewhere = certificates.authority.issue("node-7", file="elsewhere", host="192.0.2.7")
    settings = {"admin_ssl_certificate": str(elsewhere[0]), "admin_ssl_key": str(elsewhere[1])}
    async with paper_server(**settings) as server:
        environment(ADMIN_LISTEN=server.server.address, ADMIN_SSL_CERTIFICATE=elsewhere[0], ADMIN_SSL_KEY=elsewhere[1])
        assert (await said("healthcheck"))[0] == 0
        assert (await said("status"))[0] == 0
        environment(ADMIN_SSL_CERTIFICATE=certificates.operator[0])  # of the same authority, and another's
        code, text = await said("healthcheck")
        assert (code, "not trusted" in text) == (5, True), text


async def test_the_health_check_needs_neither_token_nor_client_certificate(
    certificates: Certificates, environment: Environment
):
    settings = certificates.server(asks=True) | {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
    async with paper_server(**settings) as server:
        environment(ADMIN_URL=server.url, ADMIN_CLIENT_SSL_CA=certificates.authority.ca)
        assert (await said("healthcheck"))[0] == 0


async def test_a_url_without_tls_says_what_may_be_wrong(certificates: Certificates, environment: Environment):
    async with paper_server(**certificates.server()) as server:
        environment(ADMIN_URL=server.url.replace("https", "http"))
        code, text = await said("healthcheck")
        assert (code, "https://" in text) == (5, True), text


async def test_a_file_that_cannot_be_read_is_named(certificates: Certificates, environment: Environment):
    environment(ADMIN_URL="https://127.0.0.1:1", ADMIN_CLIENT_SSL_CA="missing.pem")
    code, text = await said("healthcheck")
    assert (code, "missing.pem" in text) == (2, True), text
