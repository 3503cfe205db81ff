"""The HTTP client, against a web server on loopback."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sidecar.security.web import ANSWER_BYTES, WebAnswer, WebClient, WebError
from tests.certificates import certificate


@asynccontextmanager
async def server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"{'https' if context else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


async def echo(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.method} {request.headers.get('X-A')} {await request.text()}", status=203)


async def test_a_form_is_posted_and_anything_else_is_got() -> None:
    client = WebClient()
    async with server(echo) as url:
        assert await client(url, form={"a": "b c"}, headers={"X-A": "1"}) == WebAnswer(203, b"POST 1 a=b+c")
        assert await client(url) == WebAnswer(203, b"GET None ")
        await client.close()
        assert (await client(url)).status == 203
        await client.close()


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/")

    client = WebClient()
    async with server(away) as url:
        assert (await client(url)).status == 302
    await client.close()


async def test_more_than_an_answer_may_have_is_an_error() -> None:
    async def long(request: web.Request) -> web.Response:
        return web.Response(body=bytes(ANSWER_BYTES + 1))

    client = WebClient()
    async with server(long) as url:
        with pytest.raises(WebError, match="more than"):
            await client(url)
    await client.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense", "http://", "ftp://127.0.0.1/"])
async def test_a_server_that_cannot_be_asked_is_an_error(url: str) -> None:
    client = WebClient()
    with pytest.raises(WebError, match="cannot be asked"):
        await client(url)
    await client.close()


async def test_a_server_is_trusted_by_the_context_of_now(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    (tmp_path / "pair.pem").write_text(chain + key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "pair.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    contexts = [ssl.create_default_context(), trusting]
    client = WebClient(lambda: contexts.pop(0))
    async with server(echo, serving) as url:
        with pytest.raises(WebError, match="cannot be asked"):
            await client(url)
        assert (await client(url)).status == 203
    await client.close()


async def test_what_is_compressed_is_not_opened() -> None:
    """Of 1 MiB that may be had in an answer, gzip makes a thousand."""
    asked: list[str | None] = []

    async def bomb(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Accept-Encoding"))
        return web.Response(body=gzip.compress(bytes(64 * ANSWER_BYTES)), headers={"Content-Encoding": "gzip"})

    client = WebClient()
    async with server(bomb) as url:
        answer = await client(url)
    await client.close()
    assert asked == ["identity"]
    assert len(answer.body) < ANSWER_BYTES
