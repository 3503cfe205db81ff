"""What one node passes on to another: allowed by a signature that nobody can make up or send again, and over TLS."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sidecar.security.tls import TlsFiles, client_context
from tests.certificates import Authority
from tests.http.paper_nodes import READ_TOKEN, TOKEN, Log, PaperServer, paper_server

BOTH = {"admin_token": TOKEN, "admin_read_token": READ_TOKEN}
FORGET = "/v1/topics/orders/dedup/billing"


@asynccontextmanager
async def pair(asked: dict[str, Any], serving: dict[str, Any]) -> AsyncIterator[tuple[PaperServer, PaperServer]]:
    """A node that is asked, and the one that serves the topic."""
    async with paper_server(**serving) as second, paper_server(**asked) as first:
        first.node.elsewhere = str(second.server.address)
        yield first, second


async def ask(
    server: PaperServer, method: str, path: str, token: str = TOKEN, **more: Any
) -> tuple[int, dict[str, Any] | None]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.url + path, headers=headers | more.pop("headers", {}), **more) as answer,
    ):
        return answer.status, await answer.json() if answer.content_type == "application/json" else None


@asynccontextmanager
async def overheard(server: PaperServer) -> AsyncIterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """The address of somebody who passes everything on to a server, and what he hears."""
    heard: list[tuple[str, str, dict[str, str]]] = []

    async def hear(request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        heard.append((request.method, request.raw_path, headers))
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, server.url + request.raw_path, headers=headers) as answer,
        ):
            back = {name: value for name, value in answer.headers.items() if name == "WWW-Authenticate"}
            return web.Response(status=answer.status, body=await answer.read(), headers=back)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hear)
    async with TestServer(app) as relay:
        yield f"127.0.0.1:{relay.port}", heard


async def test_a_write_is_done_by_the_node_that_serves_the_topic_and_both_say_for_whom(log: Log):
    async with pair(BOTH, BOTH) as (first, second):
        assert (await ask(first, "DELETE", FORGET))[0] == 204
        assert "billing" not in second.node.ids["orders"]
    at_first, at_second = sorted(log.events("audit"), key=lambda each: "via" in each)
    what = {"act": "producer.forget", "topic": "orders", "producer": "billing", "result": "done", "status": 204}
    assert at_first.items() >= {**what, "who": "token", "passed_to": str(second.server.address)}.items()
    assert at_second.items() >= {**what, "who": "token", "via": "127.0.0.1"}.items()


async def test_a_read_is_passed_on_where_reads_need_a_token():
    async with pair(BOTH, BOTH) as (first, second):
        del first.node.ids["orders"]
        status, found = await ask(first, "GET", FORGET, READ_TOKEN)
        assert (status, found and found["name"]) == (200, "billing")
        assert (await ask(first, "DELETE", FORGET, READ_TOKEN))[0] == 401
        assert "billing" in second.node.ids["orders"]


async def test_an_open_read_names_producer_ids_to_the_token_wherever_it_is_asked():
    tokens = {"admin_token": TOKEN}
    async with pair(tokens, tokens) as (first, second):
        for server in (first, second):
            for token, session in ((TOKEN, "pid:7"), ("", "pid:***")):
                status, found = await ask(server, "GET", "/v1/topics/orders", token)
                assert (status, found and found["owner"]["session"]) == (200, session)


async def test_neither_token_is_heard_by_who_listens_between_nodes():
    async with pair(BOTH, BOTH) as (first, second), overheard(second) as (first.node.elsewhere, heard):
        await ask(first, "DELETE", FORGET)
        assert [each[:2] for each in heard] == [("GET", "/livez"), ("DELETE", FORGET)]
        assert TOKEN not in str(heard)
        assert READ_TOKEN not in str(heard)


async def test_what_was_signed_for_another_address_is_refused():
    """So a node that Redis names wrongly cannot use the signature elsewhere."""
    async with pair(BOTH, BOTH) as (first, second), overheard(second) as (first.node.elsewhere, _):
        assert (await ask(first, "DELETE", FORGET))[0] == 503
        assert "billing" in second.node.ids["orders"]


@pytest.fixture
async def signed_request() -> AsyncIterator[tuple[PaperServer, dict[str, str]]]:
    """A server at a known address, and the headers of a request to it that was signed, heard, and done."""
    async with paper_server(**BOTH) as second, overheard(second) as (address, heard):
        host, _, port = address.rpartition(":")
        second.server._advertise = second.server.address._replace(host=host, port=int(port))  # pyright: ignore[reportPrivateUsage]
        async with paper_server(**BOTH) as first:
            first.node.elsewhere = address
            assert (await ask(first, "DELETE", FORGET))[0] == 204
        second.node.ids["orders"] = {"billing": first.node.ids["orders"]["billing"]}
        yield second, heard[-1][2]


async def test_what_was_heard_cannot_be_sent_again(signed_request: tuple[PaperServer, dict[str, str]]):
    server, headers = signed_request
    status, _ = await ask(server, "DELETE", FORGET, "", headers=headers)
    assert (status, "billing" in server.node.ids["orders"]) == (401, True)


async def test_what_was_heard_is_no_right_to_anything_else(signed_request: tuple[PaperServer, dict[str, str]]):
    server, headers = signed_request
    for method, path in (("POST", "/v1/topics/orders/fence"), ("GET", "/v1/status")):
        assert (await ask(server, method, path, "", headers=headers))[0] == 401


@pytest.mark.parametrize(
    "forged", ["Sidecar-Node e30=", "Sidecar-Node", "Sidecar-Node eyJyb2xlIjoidG9rZW4ifQ==", f"Bearer {READ_TOKEN}"]
)
async def test_to_say_that_a_request_was_passed_on_is_no_right(forged: str):
    async with paper_server(**BOTH) as server:
        headers = {"X-Sidecar-Passed-On": "1", "Authorization": forged}
        assert (await ask(server, "DELETE", FORGET, "", headers=headers))[0] == 401
        assert "billing" in server.node.ids["orders"]


@pytest.mark.parametrize(
    "serving", [{"admin_token": "another"}, {"admin_token": "another", "admin_read_token": READ_TOKEN}]
)
async def test_a_node_with_another_token_is_named_and_nothing_is_done(serving: dict[str, str]):
    async with pair(BOTH, serving) as (first, second):
        status, answer = await ask(first, "DELETE", FORGET)
        assert status == 503
        assert answer is not None
        assert "another node serves orders" in answer["message"]
        assert "the same SIDECAR_ADMIN_TOKEN" in answer["message"]
        assert "billing" in second.node.ids["orders"]


async def test_a_body_too_large_to_be_signed_is_refused():
    async with paper_server(**BOTH) as server:
        headers = {"X-Sidecar-Passed-On": "1", "Authorization": "Sidecar-Node e30="}
        assert (await ask(server, "DELETE", FORGET, "", headers=headers, data=io.BytesIO(b" " * 2_000_000)))[0] == 401


# With TLS -------------------------------------------------------------------------------------------------------------


def tls(authority: Authority, name: str, *, asks: bool = False) -> dict[str, str]:
    certificate, key = authority.issue(name, file=name)
    found = {"admin_ssl_certificate": str(certificate), "admin_ssl_key": str(key)}
    return found | {"admin_ssl_ca" if asks else "admin_client_ssl_ca": str(authority.ca)}


@pytest.mark.parametrize("asks", [False, True], ids=["server certificates", "client certificates too"])
async def test_nodes_ask_each_other_over_tls_with_their_own_certificates(tmp_path: Path, asks: bool, log: Log):
    authority = Authority(tmp_path)
    serving = tls(authority, "second", asks=asks) | BOTH
    operator = authority.issue("alice", file="alice")
    async with pair(tls(authority, "first", asks=asks) | BOTH, serving) as (first, second):
        context = client_context(TlsFiles(*operator, authority.ca))
        assert (await ask(first, "DELETE", FORGET, ssl=context))[0] == 204
        assert "billing" not in second.node.ids["orders"]
    known = [each.get("certificate") for each in log.events("audit")]
    assert known == (["CN=alice", "CN=alice"] if asks else [None, None])


async def test_a_node_that_shows_no_trusted_certificate_is_asked_nothing(tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    ours, theirs = Authority(tmp_path), Authority(other)
    async with pair(tls(ours, "first") | BOTH, tls(theirs, "second") | BOTH) as (first, second):
        del first.node.ids["orders"]
        context = client_context(TlsFiles(ca=ours.ca))
        status, answer = await ask(first, "GET", FORGET, READ_TOKEN, ssl=context)
        assert (status, "not trusted" in str(answer)) == (503, True)
        assert second.node.calls == []
