"""What is said of connections with TLS that did not come about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecar.security.tls import TlsFiles, client_context, server_context
from sidecar.security.words import in_words
from tests.certificates import Authority

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

OTHER_HOST = "192.0.2.1"


async def refusal(server: ssl.SSLContext | None, client: ssl.SSLContext) -> str:
    """What is said of a client that cannot connect."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=server)
    async with listening:
        host, port = listening.sockets[0].getsockname()
        with pytest.raises(OSError) as error:  # noqa: PT011 - which one it is, is the test
            await asyncio.open_connection(host, port, ssl=client)
        return in_words(error.value)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server(authority: Authority, host: str = "127.0.0.1") -> ssl.SSLContext:
    return server_context(TlsFiles(*authority.issue("broker", host=host)))


async def test_a_certificate_that_is_not_trusted(authority: Authority) -> None:
    said = await refusal(server(authority), client_context(TlsFiles()))
    assert said == "its certificate is not trusted: unable to get local issuer certificate"


async def test_a_certificate_for_another_host(authority: Authority) -> None:
    said = await refusal(server(authority, OTHER_HOST), client_context(TlsFiles(ca=authority.ca)))
    assert said.startswith("its certificate is for another host: ")
    assert "127.0.0.1" in said


async def test_a_port_without_tls(authority: Authority) -> None:
    assert "without TLS" in await refusal(None, client_context(TlsFiles(ca=authority.ca)))


def test_what_is_not_about_tls_is_said_as_it_is() -> None:
    assert in_words(ConnectionRefusedError(111, "Connection refused")) == "[Errno 111] Connection refused"
