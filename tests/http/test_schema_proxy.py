"""`/schemas` over real sockets, in front of a node on paper and of registries that behave well or do not."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from sidecar.admin import schema_upstream, schemas
from sidecar.admin.server import AdminServer
from sidecar.node.port import Shadow, Topic
from sidecar.settings import Address, load
from sidecar.telemetry.hooks import NodeMetrics
from tests.registry import TYPE, Registry, running_registry
from tests.unit.admin.paper_node import PaperNode

ORDER = json.dumps({"type": "record", "name": "Order", "fields": []})
OTHER = json.dumps({"type": "string"})


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A proxy. `ask("GET", "/subjects")` asks it."""

    node: PaperNode
    server: AdminServer
    session: aiohttp.ClientSession

    def url(self, path: str) -> URL:
        return URL(f"http://{self.server.address}/schemas{path}", encoded=True)

    async def ask(self, method: str, path: str, sent: object = None, **headers: str) -> Answer:
        body = None if sent is None else sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method,
            self.url(path),
            data=BytesIO(body) if body else None,
            headers={"Content-Type": TYPE, **shown},
            allow_redirects=False,
        ) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)


def paper_node() -> PaperNode:
    """Two shadows of `orders`, a topic with a longer name than one of them, and a shadow whose source is gone."""
    node = PaperNode(*(Topic(name, 1) for name in ("orders", "orders-us", "orders-audit-values", "other")))
    for name, source in {"orders-audit": "orders", "copy": "orders", "lost": "gone"}.items():
        node.shadows.views[name] = Shadow(name, source, ("User:*",), 0, is_made=True)
    return node


@asynccontextmanager
async def proxy(url: str | None, **settings: Any) -> AsyncIterator[Served]:
    found = replace(load(), admin_listen=Address("127.0.0.1", 0), schema_registry_url=url, **settings)
    node = paper_node()
    server = AdminServer(node, NodeMetrics({}, "0.1.0"), found)
    await server.start()
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield Served(node, server, session)
    finally:
        await server.stop()


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    with running_registry() as found:
        for subject in ("orders-value", "orders-key", "other-value", "orders-us-value", "orders-audit-values-value"):
            found.answer("POST", f"/subjects/{subject}/versions", json.dumps({"schema": ORDER}).encode())
        yield found


@pytest.fixture
async def served(registry: Registry) -> AsyncIterator[Served]:
    async with proxy(registry.url) as found:
        yield found


Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def upstream(handle: Handle, **settings: Any) -> AsyncIterator[Served]:
    """A proxy in front of a registry that does what `handle` says."""
    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with proxy(f"http://127.0.0.1:{runner.addresses[0][1]}", **settings) as found:
            yield found
    finally:
        await runner.cleanup()


# Shadows ------------------------------------------------------------------------------------------------------------


async def test_reads_of_a_shadow_are_the_sources_under_its_own_name(served: Served) -> None:
    for path in ("/versions/1", "/versions/latest"):
        direct = (await served.ask("GET", f"/subjects/orders-value{path}")).json
        assert (await served.ask("GET", f"/subjects/orders-audit-value{path}")).json == {
            **direct,
            "subject": "orders-audit-value",
        }
    assert (await served.ask("POST", "/subjects/copy-key", {"schema": ORDER})).json["subject"] == "copy-key"
    assert (await served.ask("GET", "/subjects/copy-key/versions")).json == [1]
    assert (await served.ask("GET", "/subjects/copy-key/versions/1/schema")).json == json.loads(ORDER)
    assert (await served.ask("GET", "/subjects/copy-key/versions/1/referencedby")).json == []
    compatible = await served.ask("POST", "/compatibility/subjects/copy-value/versions/1", {"schema": OTHER})
    assert compatible.json == {"is_compatible": False}
    await served.ask("PUT", "/config/orders-value", {"compatibility": "FULL"})
    await served.ask("PUT", "/mode/orders-value", {"mode": "READONLY"})
    assert (await served.ask("GET", "/config/orders-audit-value")).json == {"compatibilityLevel": "FULL"}
    assert (await served.ask("GET", "/mode/orders-audit-value")).json == {"mode": "READONLY"}


async def test_writes_to_a_shadow_are_refused_and_nothing_reaches_the_registry(
    served: Served, registry: Registry
) -> None:
    writes = [
        *[("POST", "/subjects/copy-value/versions"), ("DELETE", "/subjects/copy-value"), ("PUT", "/mode/copy-value")],
        *[("DELETE", "/subjects/copy-value/versions/1?permanent=true"), ("DELETE", "/mode/copy-value")],
        *[("PUT", "/config/copy-value"), ("DELETE", "/config/copy-value"), ("POST", "/subjects/copy%2Dvalue/versions")],
        *[("POST", "/subjects/copy/versions"), ("POST", "/subjects/%3A.eu%3Acopy-value/versions")],
        *[("DELETE", "/contexts/.eu/subjects/copy-value"), ("POST", "/subjects/copy-value%2Fversions")],
        *[("POST", "/subjects/lost-value/versions"), ("POST", "/subjects/copy-us-value/versions")],
        *[("PUT", "/anything?subject=copy-value"), ("DELETE", "/schemas/ids/1?subject=copy-value")],
    ]
    for method, path in writes:
        answer = await served.ask(method, path, {"schema": OTHER})
        assert (answer.status, answer.json["error_code"]) == (403, 40301), path
        assert "is a shadow of" in answer.json["message"]
        assert answer.headers["Content-Type"].startswith(TYPE)
    message = (await served.ask("POST", "/subjects/copy-value/versions", {})).json["message"]
    assert "write to orders-value" in message
    assert registry.asked == []


async def test_other_topics_are_none_of_a_shadows_business(served: Served, registry: Registry) -> None:
    for subject in ("orders-audit-values-value", "orders-value", "other-value", "com.example.Order"):
        answer = await served.ask("POST", f"/subjects/{subject}/versions", {"schema": OTHER})
        assert answer.status == 200, subject
    assert (await served.ask("GET", "/subjects/orders-us-value/versions/1")).json["subject"] == "orders-us-value"
    hidden = await served.ask("GET", "/subjects/orders-audit-us-value/versions/1")
    assert (hidden.status, hidden.json["error_code"]) == (404, 40401)
    assert "belongs to another topic" in hidden.json["message"]


async def test_a_closed_shadow_says_so(served: Served, registry: Registry) -> None:
    for method, path in (
        ("GET", "/subjects/lost-value/versions/1"),
        ("POST", "/subjects/lost-key"),
        ("GET", "/config/lost"),
    ):
        answer = await served.ask(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.json["error_code"]) == (404, 40401)
        assert "lost is closed: gone was deleted or created again" in answer.json["message"]
    assert registry.asked == []


async def test_lists_show_the_subjects_of_shadows_beside_the_sources(served: Served, registry: Registry) -> None:
    registry.answer("POST", "/subjects/lost-value/versions", json.dumps({"schema": ORDER}).encode())
    registry.answer("POST", "/subjects/copy-value/versions", json.dumps({"schema": OTHER}).encode())
    everything = [
        *("orders-value", "orders-audit-value", "copy-value", "orders-key", "orders-audit-key", "copy-key"),
        *("other-value", "orders-us-value", "orders-audit-values-value"),
    ]
    assert (await served.ask("GET", "/subjects")).json == everything
    for subject in everything:
        assert (await served.ask("GET", f"/subjects/{subject}/versions/1")).json["schema"] == ORDER
    assert (await served.ask("GET", "/schemas/ids/1/subjects")).json == everything
    pairs = (await served.ask("GET", "/schemas/ids/1/versions")).json
    assert pairs == [{"subject": subject, "version": 1} for subject in everything]
    listed = (await served.ask("GET", "/schemas")).json
    assert [each["subject"] for each in listed] == everything
    assert {each["schema"] for each in listed} == {ORDER}


@pytest.mark.parametrize(
    "prefix", ["orders-audit", "copy", "orders", "orders-audit-v", "o", "other", "co", "", "x", "lost"]
)
async def test_lists_may_be_asked_for_by_prefix_and_in_pages(served: Served, prefix: str) -> None:
    everything = (await served.ask("GET", "/subjects")).json
    wanted = [subject for subject in everything if subject.startswith(prefix)]
    assert (await served.ask("GET", f"/subjects?subjectPrefix={prefix}")).json == wanted
    found: list[str] = []
    for offset in range(0, 12, 2):
        page = (await served.ask("GET", f"/subjects?subjectPrefix={prefix}&offset={offset}&limit=2")).json
        assert len(page) <= 2
        found += page
    assert found == wanted


async def test_subjects_of_other_contexts_keep_them(served: Served, registry: Registry) -> None:
    for subject in (":.eu:orders-value", ":.eu:else-value"):
        registry.answer("POST", f"/subjects/{subject}/versions", json.dumps({"schema": OTHER}).encode())
    path = f"/subjects/{quote(':.eu:copy-value', safe='')}"
    assert (await served.ask("GET", f"{path}/versions/1")).json["subject"] == ":.eu:copy-value"
    assert (await served.ask("POST", path, {"schema": OTHER})).json["subject"] == ":.eu:copy-value"
    prefix = quote(":.eu:copy", safe="")
    assert (await served.ask("GET", f"/subjects?subjectPrefix={prefix}")).json == [":.eu:copy-value"]
    assert ":.eu:orders-audit-value" in (await served.ask("GET", "/subjects")).json
    assert ":.eu:copy-value" not in (await served.ask("GET", "/subjects?subjectPrefix=copy")).json


async def test_a_schemas_id_is_looked_up_for_the_sources_subject(served: Served, registry: Registry) -> None:
    assert (await served.ask("GET", "/schemas/ids/1?subject=copy-value&x=a%26b")).json == {"schema": ORDER}
    assert registry.asked[-1].target == "/schemas/ids/1?x=a%26b&subject=orders-value"
    assert (await served.ask("GET", "/schemas/ids/1/subjects?subject=copy-value")).status == 200
    assert (await served.ask("GET", "/schemas/ids/1?subject=lost-value")).status == 404


# What passes --------------------------------------------------------------------------------------------------------


async def test_everything_else_passes_both_ways_as_it_is() -> None:
    seen: list[tuple[str, str, Mapping[str, str], bytes]] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.method, request.raw_path, request.headers, await request.read()))
        headers = {"Content-Type": TYPE, "X-Own": "yes", "Connection": "x-hop", "X-Hop": "1", "ETag": '"7"'}
        return web.Response(body=gzip.compress(b"{}"), status=409, headers={**headers, "Content-Encoding": "gzip"})

    async with upstream(handle) as served:
        path = "/subjects/a%2Fb%3Bc/versions?normalize=true&x=%20y"
        sent = {
            "Authorization": "Basic abc",
            "Accept_Encoding": "gzip",
            "X_Own": "1",
            "Connection": "close, x-hop",
            "X_Hop": "1",
        }
        answer = await served.ask("POST", path, b" { } ", **sent)
    [(method, target, headers, body)] = seen
    assert (method, target, body) == ("POST", path, b" { } ")
    assert (headers["Authorization"], headers["Accept-Encoding"], headers["X-Own"]) == ("Basic abc", "gzip", "1")
    assert headers["Content-Type"] == TYPE
    assert "X-Hop" not in headers
    assert (answer.status, answer.body) == (409, gzip.compress(b"{}"))
    assert (answer.headers["X-Own"], answer.headers["ETag"], answer.headers["Content-Type"]) == ("yes", '"7"', TYPE)
    assert "X-Hop" not in answer.headers


async def test_answers_without_a_body_stay_without_one(served: Served) -> None:
    for path in ("/subjects/other-value/versions/1", "/subjects/copy-value/versions/1"):
        answer = await served.ask("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=204)

    async with upstream(handle) as other:
        assert (await other.ask("DELETE", "/config/other-value")).status == 204


async def test_errors_of_the_registry_are_its_own(served: Served) -> None:
    for path in ("/subjects/nothing-value/versions/1", "/subjects/copy-else/versions/1"):
        answer = await served.ask("GET", path)
        assert (answer.status, answer.json["error_code"]) == (404, 40401)
        assert "not found" in answer.json["message"]


async def test_without_shadows_lists_pass_to_the_byte() -> None:
    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b' [ "orders-value" ] ', content_type="application/json")

    async with upstream(handle) as served:
        served.node.shadows.views.clear()
        assert (await served.ask("GET", "/subjects")).body == b' [ "orders-value" ] '


# Who may ------------------------------------------------------------------------------------------------------------


async def test_the_nodes_token_opens_writes_and_goes_no_further(registry: Registry) -> None:
    async with proxy(registry.url, admin_token="s3cret") as served:
        write = ("POST", "/subjects/other-value/versions", {"schema": OTHER})
        for headers in ({}, {"Authorization": "Basic abc"}):
            refused = await served.ask(*write, **headers)
            assert (refused.status, refused.json["error_code"]) == (401, 401)
        assert registry.asked == []
        assert (await served.ask(*write, Authorization="Bearer s3cret")).status == 200
        assert "Authorization" not in registry.asked[-1].headers
        for method, path in (("GET", "/subjects"), ("POST", "/subjects/other-value"), ("GET", "/config/other-value")):
            assert (await served.ask(method, path, {"schema": OTHER} if method == "POST" else None)).status != 401
        compatible = await served.ask("POST", "/compatibility/subjects/other-value/versions", {"schema": OTHER})
        assert compatible.status == 200
        assert (await served.ask("GET", "/subjects", Authorization="Bearer other")).status == 200
        assert registry.asked[-1].headers["Authorization"] == "Bearer other"
        assert (await served.ask("POST", "/subjects/other-value%2Fversions", {"schema": OTHER})).status == 401
        assert (await served.ask("PUT", "/config", {"compatibility": "NONE"})).status == 401


async def test_a_page_of_another_site_registers_nothing(served: Served, registry: Registry) -> None:
    write = ("POST", "/subjects/other-value/versions", {"schema": OTHER})
    assert (await served.ask(*write, Origin="http://evil.example")).status == 403
    assert registry.asked == []


async def test_credentials_in_the_setting_are_for_whoever_shows_none(registry: Registry) -> None:
    async with proxy(registry.url.replace("//", "//us%40er:pass@")) as served:
        assert (await served.ask("GET", "/subjects/copy-value/versions")).status == 200
        wanted = f"Basic {base64.b64encode(b'us@er:pass').decode()}"
        assert registry.asked[-1].headers["Authorization"] == wanted
        await served.ask("GET", "/subjects/copy-value/versions", Authorization="Basic own")
        assert registry.asked[-1].headers["Authorization"] == "Basic own"


# Trouble ------------------------------------------------------------------------------------------------------------


async def test_without_a_registry_the_answer_names_the_setting() -> None:
    async with proxy(None) as served:
        answer = await served.ask("GET", "/subjects")
        assert (answer.status, answer.json["error_code"]) == (501, 501)
        assert "SIDECAR_SCHEMA_REGISTRY_URL" in answer.json["message"]


async def test_a_registry_that_is_away_is_told_without_its_password() -> None:
    async with proxy("http://user:hush@127.0.0.1:1") as served:
        for path in ("/subjects", "/subjects/copy-value/versions", "/subjects/other-value/versions"):
            answer = await served.ask("GET", path)
            assert (answer.status, answer.json["error_code"]) == (502, 502)
            assert "http://127.0.0.1:1 cannot be asked" in answer.json["message"]
            assert "hush" not in answer.json["message"]


async def test_a_node_that_knows_no_shadows_yet_lets_nothing_pass(served: Served, registry: Registry) -> None:
    served.node.down = "Kafka is away"
    for method, path in (("POST", "/subjects/x/versions"), ("GET", "/subjects"), ("GET", "/subjects/x/versions")):
        answer = await served.ask(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.json) == (503, {"error_code": 503, "message": "Kafka is away"})
    assert registry.asked == []


async def test_a_silent_registry_is_504(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(schema_upstream, "_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    async with upstream(handle) as served:
        answer = await served.ask("GET", "/subjects/other-value/versions")
        assert (answer.status, answer.json["error_code"]) == (504, 504)
        assert "does not answer in time" in answer.json["message"]


async def test_redirects_are_not_followed() -> None:
    seen: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "http://elsewhere.example/subjects"})

    async with upstream(handle) as served:
        for path in ("/subjects", "/subjects/other-value/versions", "/subjects/copy-value/versions"):
            answer = await served.ask("GET", path, Authorization="Basic abc")
            assert answer.status == 502
            assert "redirects to http://elsewhere.example/subjects" in answer.json["message"]
    assert len(seen) == 3


async def test_a_setting_that_leads_back_to_a_node_ends_at_once(registry: Registry) -> None:
    async with proxy(registry.url) as inner, proxy(f"http://{inner.server.address}/schemas") as outer:
        answer = await outer.ask("GET", "/subjects/other-value/versions")
        assert answer.status == 508
        assert "set it to the registry itself" in answer.json["message"]
    assert registry.asked == []


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'["a"', b"\xff"])
async def test_an_answer_that_cannot_be_read_is_502(body: bytes) -> None:
    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    async with upstream(handle) as served:
        answer = await served.ask("GET", "/subjects")
        assert (answer.status, answer.json["error_code"]) == (502, 502)


async def test_a_path_with_two_meanings_is_400(served: Served, registry: Registry) -> None:
    for path in (
        "/subjects;a=1/copy-value/versions",
        "/subjects%2Fcopy-value%2Fversions",
        "/subjects//versions",
        "/a/%2e%2e/b",
    ):
        answer = await served.ask("POST", path, {"schema": OTHER})
        assert (answer.status, answer.json["error_code"]) == (400, 400), path
    assert registry.asked == []


# Bounds -------------------------------------------------------------------------------------------------------------


async def test_bodies_have_a_bound_whether_their_length_is_told_or_not(served: Served, registry: Registry) -> None:
    sent = b" " * (schema_upstream.REQUEST_LIMIT + 1)
    assert (await served.ask("POST", "/subjects/other-value/versions", sent)).status == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(schema_upstream.REQUEST_LIMIT // 65536 + 1):
            yield b" " * 65536

    async with served.session.post(served.url("/subjects/other-value/versions"), data=pieces()) as answer:
        assert answer.status == 413
        assert "longer than" in (await answer.json(content_type=None))["message"]
    assert registry.asked == []
    fitting = json.dumps({"schema": "x" * (schema_upstream.REQUEST_LIMIT - 100)}).encode()
    assert (await served.ask("POST", "/subjects/other-value/versions", fitting)).status == 200


async def test_answers_that_have_to_be_read_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=json.dumps(["orders-value", "x" * 5000]).encode(), content_type="application/json")

    monkeypatch.setattr(schemas, "LIST_LIMIT", 4000)
    async with upstream(handle) as served:
        answer = await served.ask("GET", "/subjects")
        assert answer.status == 502
        assert "longer than 4000 bytes" in answer.json["message"]


async def test_a_long_answer_passes_piece_by_piece() -> None:
    """The first piece is there before the registry has sent the last one."""
    more = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await more.wait()
        await answer.write(b"last")
        return answer

    async with upstream(handle) as served, served.session.get(served.url("/schemas/ids/1")) as answer:
        assert await answer.content.readany() == b"first"
        more.set()
        assert await answer.content.read() == b"last"


async def test_an_answer_that_breaks_off_is_never_a_whole_one() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b'{"schema": "x"}')
        assert request.transport is not None
        request.transport.abort()
        return answer

    async with upstream(handle) as served:
        with pytest.raises(aiohttp.ClientError):
            await served.ask("GET", "/schemas/ids/1")


@pytest.mark.parametrize("path", ["/schemas/ids/1", "/subjects", "/subjects/copy-value/versions/1"])
async def test_what_a_client_no_longer_waits_for_is_cancelled(path: str) -> None:
    arrived, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        arrived.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with upstream(handle) as served:
        asking = asyncio.ensure_future(served.ask("GET", path))
        await asyncio.wait_for(arrived.wait(), 10)
        asking.cancel()
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_no_more_requests_are_with_the_registry_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "PLACES", 3)
    running, most, full, go = 0, 0, asyncio.Event(), asyncio.Event()

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await go.wait()
        running -= 1
        return web.json_response({})

    async with upstream(handle) as served:
        asking = [asyncio.ensure_future(served.ask("GET", "/schemas/ids/1")) for _ in range(10)]
        await asyncio.wait_for(full.wait(), 10)
        go.set()
        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    assert most == 3


async def test_a_long_list_leaves_other_work_its_turns() -> None:
    subjects = json.dumps([f"orders-record.{number}" for number in range(60_000)]).encode()

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=subjects, content_type="application/json")

    async with upstream(handle) as served:
        turns = 0
        asking = asyncio.ensure_future(served.ask("GET", "/subjects"))
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await asking).json) == 180_000
    assert turns > 200
