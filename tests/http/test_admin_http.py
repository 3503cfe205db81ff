"""The HTTP side over real sockets, in front of a node on paper. Every answer is held against the OpenAPI document."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import jsonschema_rs
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from sidecar.admin import passing_on
from sidecar.admin.openapi import document
from sidecar.admin.server import AdminServer
from sidecar.gateway.owners import OwnerAnswer, Waiter
from sidecar.node.port import AccessMode, Check, NotFoundError, Policy, ProducerIds, Shadow, Topic
from sidecar.settings import Address, load
from sidecar.shadow.cursors import AtTime, Cursor, Position
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.v1 import state_pb2 as state
from tests.unit.admin.paper_node import PaperNode

DOCUMENT = document("0.1.0")
ANY_PORT = Address("127.0.0.1", 0)
OWNER = OwnerAnswer("billing", "pid:7", AccessMode.EXCLUSIVE, 1_700_000_000_000, "10.0.0.1:5", 4)
BILLING = ProducerIds("billing", -1, {0: 8, 2: 7}, {0: 70, 2: None}, {0: 1_700_000_000_000, 2: 0}, False)
ORDERS = Topic("orders", 3, Policy(AccessMode.EXCLUSIVE), 4, OWNER, serving_node=1)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]


Ask = Callable[..., Awaitable[Answer]]


@dataclass
class Served:
    node: PaperNode
    server: AdminServer
    ask: Ask


@pytest.fixture
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server; `@pytest.mark.parametrize("served", [{...settings}], indirect=True)` changes its settings."""
    settings = replace(load(), admin_listen=ANY_PORT, admin_advertise=ANY_PORT, **getattr(request, "param", {}))
    node = PaperNode(ORDERS, Topic("plain", 1), *(Topic(f"many-{n}", 1) for n in range(5)))
    server = AdminServer(node, NodeMetrics({0: "Produce"}, "0.1.0"), settings)
    await server.start()
    url = f"http://{server.address}"
    async with aiohttp.ClientSession() as session:

        async def ask(method: str, path: str, **more: Any) -> Answer:
            written = URL(url + path, encoded="%" in path or "/dedup/" in path)
            async with session.request(method, written, **more) as answer:
                text = await answer.text()
                kind = answer.content_type
                body = json.loads(text) if text and kind == "application/json" else text
                found = Answer(answer.status, body, dict(answer.headers))
            check_shape(method, path, found)
            return found

        yield Served(node, server, ask)
    await server.stop()


def check_shape(method: str, path: str, answer: Answer) -> None:
    """The answer has the schema that the document gives it; every error has the one shape."""
    if answer.status >= 400:
        assert answer.headers["Content-Type"].startswith("application/json")
        assert answer.body["error_code"] == answer.status
        assert answer.body["message"]
        return
    described = DOCUMENT["paths"][template(path)][method.lower()]["responses"][str(answer.status)]
    content = described.get("content", {}).get("application/json")
    if content is not None:
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(answer.body)


def template(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    if parts[1:3] == ["v1", "topics"] and len(parts) > 3:
        parts[3] = "{topic}"
    if parts[4:5] == ["dedup"] and len(parts) > 5:
        parts[5] = "{name}"
    if parts[1:3] == ["v1", "shadows"] and len(parts) > 3:
        parts[3] = "{shadow}"
    if parts[1:4] == ["admin", "v2", "persistent"]:
        parts[4:7] = ["{tenant}", "{namespace}", "{topic}"]
    if parts[4:5] == ["cursors"] and len(parts) > 5:
        parts[5] = "{group}"
    return "/".join(parts)


async def test_a_node_that_runs_is_alive_even_if_everything_around_it_is_away(served: Served):
    served.node.down = "Kafka is away"
    served.node.readiness = [Check("kafka", False, "away")]
    assert (await served.ask("GET", "/livez")).status == 200


async def test_a_ready_node_says_so_with_its_checks(served: Served):
    served.node.readiness.append(Check("lag", False, "a little late", required=False))
    answer = await served.ask("GET", "/readyz")
    assert (answer.status, answer.body["status"]) == (200, "ready")
    assert {"name": "lag", "ok": False, "required": False, "detail": "a little late"} in answer.body["checks"]


async def test_a_node_that_is_not_ready_answers_503_and_says_what_is_wrong(served: Served):
    served.node.readiness = [Check("kafka", True), Check("redis", False, "connection refused")]
    answer = await served.ask("GET", "/readyz")
    assert answer.status == 503
    assert answer.body["message"] == "redis: connection refused"
    assert [check["ok"] for check in answer.body["checks"]] == [True, False]


async def test_metrics_are_prometheus_text(served: Served):
    answer = await served.ask("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(answer.body)}
    assert {"sidecar_build_info", "sidecar_requests", "process_resident_memory_bytes"} <= names


async def test_the_document_is_served(served: Served):
    assert (await served.ask("GET", "/openapi.json")).body == DOCUMENT


async def test_the_status_names_the_version_the_nodes_and_the_checks(served: Served):
    body = (await served.ask("GET", "/v1/status")).body
    assert (body["version"], body["node_id"], body["ready"]) == ("0.1.0", 1, True)
    assert body["nodes"] == [{"id": 1, "host": "127.0.0.1", "port": 19092}]


async def test_a_topic_is_shown_with_its_owner(served: Served):
    body = (await served.ask("GET", "/v1/topics/orders")).body
    assert (body["topic"], body["owner"]["name"], body["generation"]) == ("orders", "billing", 4)
    assert (await served.ask("GET", "/v1/topics/plain")).body["policy"] is None


@pytest.mark.parametrize("name", ["nope", "a%20b", "x%2Fy", "nope.*"])
async def test_a_topic_that_is_not_there_is_404(served: Served, name: str):
    assert (await served.ask("GET", f"/v1/topics/{name}")).status == 404


async def test_topics_come_in_pages_that_together_hold_each_once(served: Served):
    found: list[str] = []
    token: str | None = ""
    pages = 0
    while token is not None:
        body = (await served.ask("GET", f"/v1/topics?page_size=3&page_token={token}")).body
        found += [topic["topic"] for topic in body["items"]]
        token = body["next_page_token"]
        pages += 1
    assert found == sorted(served.node.known)
    assert pages == 3
    assert (await served.ask("GET", "/v1/topics")).body["next_page_token"] is None


async def test_only_governed_topics_are_listed_where_that_is_asked(served: Served):
    body = (await served.ask("GET", "/v1/topics?governed=true")).body
    assert [topic["topic"] for topic in body["items"]] == ["orders"]


async def test_names_are_found_by_a_part_of_them_page_by_page(served: Served):
    first = (await served.ask("GET", "/v1/topics?contains=ANY-&page_size=3")).body
    assert [item["topic"] for item in first["items"]] == ["many-0", "many-1", "many-2"]
    rest = (await served.ask("GET", f"/v1/topics?contains=ANY-&page_token={first['next_page_token']}")).body
    assert ([item["topic"] for item in rest["items"]], rest["next_page_token"]) == (["many-3", "many-4"], None)
    assert (await served.ask("GET", "/v1/topics?contains=nowhere")).body["items"] == []


async def test_what_a_prefix_covers_is_found_by_the_beginning_of_names(served: Served):
    found = (await served.ask("GET", "/v1/topics?prefix=many-&page_size=2")).body
    assert [item["topic"] for item in found["items"]] == ["many-0", "many-1"]
    assert found["next_page_token"] == "many-1"
    assert (await served.ask("GET", "/v1/topics?prefix=any-")).body["items"] == []
    assert (await served.ask("GET", "/v1/topics?prefix=MANY-")).body["items"] == []


@pytest.mark.parametrize("query", ["page_size=0", "page_size=1001", "page_size=x", "page_size=-1", "governed=maybe"])
async def test_a_query_that_makes_no_sense_is_400(served: Served, query: str):
    assert (await served.ask("GET", f"/v1/topics?{query}")).status == 400


@pytest.mark.parametrize(
    ("method", "target", "told"),
    [
        ("GET", "/v1/topics?governd=true", "'governd'; possible: page_size, page_token, governed, contains, prefix"),
        ("POST", "/v1/topics/orders/fence?partitoin=1", "'partitoin'; possible: partition"),
        ("POST", "/v1/topics/orders/fence?generation=1", "'generation'; possible: partition"),
        ("DELETE", "/v1/topics/orders/policy?x", "'x'; possible: partition"),
        ("GET", "/v1/status?verbose=1", "'verbose'; there are none here"),
        ("GET", "/v1/topics?page_size=1&page_size=2", "page_size is given more than once"),
    ],
)
async def test_a_parameter_that_nobody_knows_is_an_error_and_nothing_is_done(
    served: Served, method: str, target: str, told: str
):
    before = (await served.ask("GET", "/v1/topics/orders")).body
    answer = await served.ask(method, target)
    assert answer.status == 400
    assert told in answer.body["message"]
    assert (await served.ask("GET", "/v1/topics/orders")).body == before


async def test_pages_metrics_and_health_take_whatever_is_said_besides(served: Served):
    """A scraper, a load balancer, or a browser adds its own."""
    for path in ("/", "/livez", "/readyz", "/metrics", "/openapi.json"):
        assert (await served.ask("GET", f"{path}?cache=1")).status in (200, 503)


async def test_a_policy_is_merged_field_by_field(served: Served):
    put = {"access_mode": "exclusive"}
    assert (await served.ask("PUT", "/v1/topics/plain/policy", json=put)).body["policy"] == put
    answer = await served.ask("PUT", "/v1/topics/plain/policy", json={"deduplication": True, "log_append_time": True})
    assert answer.body["policy"] == {"access_mode": "exclusive", "deduplication": True, "log_append_time": True}


async def test_a_change_of_a_policy_says_who_wants_it(served: Served):
    asked: list[tuple[str, str, object]] = [
        ("POST", "/v1/topics", {"topic": "made", "policy": {"access_mode": "exclusive"}}),
        ("PUT", "/v1/topics/made/policy", {"deduplication": True}),
        ("DELETE", "/v1/topics/made/policy", None),
    ]
    for method, path, body in asked:
        served.node.changed_by = ""
        assert (await served.ask(method, path, json=body)).status in (200, 201, 204)
        assert served.node.changed_by == "an operator at 127.0.0.1"


async def test_an_empty_change_reaches_the_node(served: Served):
    assert (await served.ask("PUT", "/v1/topics/plain/policy", json={})).status == 200
    assert served.node.calls[-1] == ("merge_policy", "plain", Policy())


async def test_a_prefix_may_have_a_policy(served: Served):
    answer = await served.ask("PUT", "/v1/topics/payments.*/policy", json={"access_mode": "shared"})
    assert (answer.status, answer.body["topic"]) == (200, "payments.*")
    assert (await served.ask("DELETE", "/v1/topics/payments.*/policy")).status == 204


@pytest.mark.parametrize(
    "body", ["", "{", "null", "[]", '{"access_mode": "private"}', '{"unknown": 1}', '{"deduplication": 1}', "\xff"]
)
async def test_a_body_that_is_no_policy_is_400_and_the_node_is_not_asked(served: Served, body: str):
    assert (await served.ask("PUT", "/v1/topics/orders/policy", data=body.encode("latin-1"))).status == 400
    assert served.node.calls == []


async def test_a_body_without_end_is_413(served: Served):
    assert (await served.ask("PUT", "/v1/topics/orders/policy", data=io.BytesIO(b" " * 1_100_000))).status == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/v1/topics/orders/policy", 400),
        ("DELETE", "/admin/v2/persistent/public/default/orders/shadowTopics", 400),
        ("POST", "/v1/topics/orders/fence", 200),
    ],
)
async def test_a_body_that_is_not_encoded_as_its_headers_say_is_400_where_it_is_read_and_no_bug(
    served: Served, caplog: pytest.LogCaptureFixture, method: str, path: str, status: int, encoding: str
):
    headers = {"Content-Encoding": encoding}
    answer = await served.ask(method, path, data=b"not encoded" * 9_000, headers=headers)
    assert answer.status == status
    assert (await served.ask("GET", "/v1/status")).status == 200
    assert caplog.records == []


MANY = {str(number): 1 for number in range(70_000)}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics/orders/shadows", {"name": "x", **MANY}),
        ("POST", "/v1/topics/orders/shadows", {"name": "\0" * 100_000}),
        ("POST", "/v1/topics/orders/shadows", {"name": "x", "auto_reset_backlog_entries": [[]] * 200_000}),
        ("PATCH", "/v1/shadows/x", MANY),
        ("POST", "/v1/shadows/x/cursors/g/reset", {"to": "latest", **MANY}),
        ("POST", "/v1/shadows/x/cursors/g/reset", {"to": MANY}),
        ("POST", "/v1/shadows/x/cursors/g/reset", {"to": "latest", "partitions": [0.5] * 150_000}),
        ("PUT", "/v1/topics/orders/policy", dict.fromkeys(list(MANY)[:4_000])),
        ("PUT", "/admin/v2/persistent/public/default/orders/shadowTopics", ["\0" * 100_000]),
    ],
)
async def test_the_answer_to_a_long_body_is_short(served: Served, method: str, path: str, body: object):
    answer = await served.ask(method, path, json=body)
    assert (answer.status, len(answer.body["message"]) < 500) == (400, True)
    assert served.node.calls == []


async def test_a_policy_needs_no_long_body(served: Served):
    assert (await served.ask("PUT", "/v1/topics/orders/policy", json=MANY)).status == 413


async def test_what_the_node_cannot_take_is_400_with_its_words(served: Served):
    answer = await served.ask("PUT", "/v1/topics/orders/policy", json={"scope": "partition"})
    assert (answer.status, answer.body["message"]) == (400, "scope partition is not served by this node")


@pytest.mark.parametrize("name", ["__consumer_offsets", "__sidecar_default", "__*", "a%20b", "x" * 250])
@pytest.mark.parametrize("write", [("PUT", "policy"), ("DELETE", "policy"), ("POST", "fence"), ("POST", "release")])
async def test_internal_and_impossible_names_are_never_governed(served: Served, name: str, write: tuple[str, str]):
    method, what = write
    body = {"json": {"access_mode": "shared"}} if method == "PUT" else {}
    assert (await served.ask(method, f"/v1/topics/{name}/{what}", **body)).status == 400
    assert served.node.calls == []


async def test_a_policy_is_deleted_once(served: Served):
    answer = await served.ask("DELETE", "/v1/topics/orders/policy")
    assert (answer.status, answer.body) == (204, "")
    assert (await served.ask("DELETE", "/v1/topics/orders/policy")).status == 404


@pytest.mark.parametrize("what", ["fence", "release"])
async def test_an_owner_ends_once(served: Served, what: str):
    answer = await served.ask("POST", f"/v1/topics/orders/{what}")
    assert (answer.status, answer.body["owner"]) == (200, None)
    assert (await served.ask("POST", f"/v1/topics/orders/{what}")).status == 409
    assert (await served.ask("POST", f"/v1/topics/nope/{what}")).status == 404
    assert (await served.ask("POST", f"/v1/topics/orders.*/{what}")).status == 400


async def test_a_partition_is_named_by_a_number(served: Served):
    await served.ask("POST", "/v1/topics/orders/fence?partition=2")
    assert served.node.calls[-1] == ("fence", "orders", 2)
    for text in ("-1", "x", "", "1.0", "2147483648", "99999999999999999999", "²"):
        assert (await served.ask("POST", f"/v1/topics/orders/fence?partition={text}")).status == 400


async def test_a_partition_of_a_policy_is_refused_without_if_match_and_nothing_is_done(served: Served):
    path, change = "/v1/topics/orders/policy", {"access_mode": "shared"}
    for answer in (
        await served.ask("PUT", f"{path}?partition=2", json=change),
        await served.ask("DELETE", f"{path}?partition=2"),
    ):
        assert (answer.status, "send If-Match" in answer.body["message"]) == (400, True)
    assert served.node.calls == []
    matching = {"If-Match": '"4"'}
    assert (await served.ask("PUT", f"{path}?partition=2", json=change, headers=matching)).status == 200
    assert (await served.ask("DELETE", f"{path}?partition=2", headers=matching)).status == 204


async def test_a_producer_name_is_shown_and_forgotten_once(served: Served):
    served.node.ids["orders"] = {"billing": BILLING, "busy": replace(BILLING, name="busy", in_use=True)}
    assert (await served.ask("GET", "/v1/topics/orders/dedup/billing")).body == {
        "name": "billing",
        "last_sequence_id": -1,
        "last_sequence_ids": {"0": 8, "2": 7},
        "offsets": {"0": 70, "2": None},
        "last_seen": {"0": "2023-11-14T22:13:20.000Z", "2": "1970-01-01T00:00:00.000Z"},
        "in_use": False,
    }
    assert (await served.ask("DELETE", "/v1/topics/orders/dedup/busy")).status == 409
    answer = await served.ask("DELETE", "/v1/topics/orders/dedup/billing")
    assert (answer.status, answer.body) == (204, "")
    for method in ("GET", "DELETE"):
        assert (await served.ask(method, "/v1/topics/orders/dedup/billing")).status == 404


async def test_producer_names_are_listed_as_many_as_are_asked_for(served: Served):
    served.node.ids["orders"] = {f"p{number}": replace(BILLING, name=f"p{number}") for number in range(200)}
    body = (await served.ask("GET", "/v1/topics/orders/dedup")).body
    assert len(body["items"]) == 100
    assert body["items"][0] == {"name": "p0", "last_sequence_id": -1, "last_sequence_ids": {"0": 8, "2": 7}}
    assert len((await served.ask("GET", "/v1/topics/orders/dedup?page_size=3")).body["items"]) == 3
    assert (await served.ask("GET", "/v1/topics/orders/dedup?page_size=1001")).status == 400


async def every_page(served: Served, path: str, field: str) -> list[list[str]]:
    pages: list[list[str]] = []
    token: str | None = ""
    while token is not None:
        body = (await served.ask("GET", f"{path}?page_size=3&page_token={token}")).body
        pages.append([each[field] for each in body["items"]])
        token = body["next_page_token"]
    return pages


@pytest.mark.parametrize("name", ["p", "zähler/eu 1+{x}%", "\x00", "x" * 255])
async def test_producer_names_come_in_pages_whatever_they_are(served: Served, name: str):
    served.node.ids["orders"] = {f"{n}{name}"[:255]: replace(BILLING, name=f"{n}{name}"[:255]) for n in range(7)}
    pages = await every_page(served, "/v1/topics/orders/dedup", "name")
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [each for page in pages for each in page] == list(served.node.ids["orders"])


@pytest.mark.parametrize("path", ["/v1/shadows", "/v1/topics/orders/shadows"])
async def test_shadows_come_in_pages_by_name(served: Served, path: str):
    for n in (4, 1, 5, 2, 6, 3):
        served.node.shadows.views[f"s{n}"] = Shadow(f"s{n}", "orders", ("User:*",), 0, is_made=True)
    assert await every_page(served, path, "name") == [["s1", "s2", "s3"], ["s4", "s5", "s6"]]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/topics/nope/dedup/billing", 404),
        ("GET", "/v1/topics/plain/dedup/billing", 409),
        ("GET", "/v1/topics/plain/dedup", 409),
        ("DELETE", "/v1/topics/plain/dedup/billing", 409),
        ("GET", "/v1/topics/orders.*/dedup/billing", 400),
        ("GET", "/v1/topics/__x/dedup", 400),
        ("GET", "/v1/topics/orders/dedup/", 404),
        ("POST", "/v1/topics/orders/dedup/billing", 405),
    ],
)
async def test_where_there_are_no_ids_the_answer_says_why(served: Served, method: str, path: str, status: int):
    assert (await served.ask(method, path)).status == status


ODD_NAMES = [
    *("a b", "zähler/eu-1", "/", "{x}", "100%", "a%2Fb", "?a=b&c#d", "..", ".", "日本", "a\nb", "+", "\x00"),
    "x" * 255,
]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_name_may_hold_anything_where_it_is_encoded(served: Served, name: str):
    served.node.ids["orders"] = {name: replace(BILLING, name=name)}
    path = f"/v1/topics/orders/dedup/{quote(name, safe='')}"
    assert (await served.ask("GET", path)).body["name"] == name
    assert (await served.ask("DELETE", path)).status == 204


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("served", [{"admin_token": "s3cret"}], indirect=True)
async def test_a_question_for_another_node_is_passed_on_to_it(served: Served, name: str):
    served.node.ids["orders"] = {name: replace(BILLING, name=name)}
    asked = PaperNode(ORDERS)
    asked.elsewhere = str(served.server.address)
    settings = replace(load(), admin_listen=Address("127.0.0.1", 0), admin_token="s3cret")
    server = AdminServer(asked, NodeMetrics({}, "0.1.0"), settings)
    await server.start()
    url = URL(f"http://{server.address}/v1/topics/orders/dedup/{quote(name, safe='')}", encoded=True)
    right = {"Authorization": "Bearer s3cret"}
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as answer:
                assert (answer.status, (await answer.json())["name"]) == (200, name)
            async with session.get(url, headers={"X-Sidecar-Passed-On": "1"}) as answer:
                assert answer.status == 503  # two nodes that believe it of each other do not ask in circles
            async with session.delete(url) as answer:
                assert answer.status == 401
            async with session.delete(url, headers=right) as answer:
                assert (answer.status, await answer.read()) == (204, b"")
    finally:
        await server.stop()
    assert served.node.calls[-1] == ("forget_producer", "orders", name)


@asynccontextmanager
async def another_node(handler: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """The address of a node that answers every request so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("served", [{"admin_token": "s3cret"}, {}], indirect=True)
async def test_no_token_goes_to_another_node(served: Served):
    heard: list[tuple[str, str | None, str | None]] = []

    async def hear(request: web.Request) -> web.Response:
        assert "s3cret" not in str(request.headers)
        if request.path != "/livez":  # of which this node has no nonce
            heard.append((request.method, request.headers.get("Authorization"), request.headers.get("If-Match")))
        return web.json_response({})

    headers = {"Authorization": "Bearer s3cret", "If-Match": '"4"'}
    url = f"http://{served.server.address}/v1/topics/orders"
    served.node.ids["orders"] = {"billing": BILLING}
    async with another_node(hear) as served.node.elsewhere, aiohttp.ClientSession(headers=headers) as session:
        for method, path in (("GET", ""), ("GET", "/dedup"), ("HEAD", "/dedup/billing"), ("DELETE", "/dedup/billing")):
            async with session.request(method, url + path) as answer:
                assert answer.status == 200
    reads = [(method, None, None) for method in ("GET", "GET", "HEAD")]
    assert heard == [*reads, ("DELETE", None, '"4"')]


async def test_a_read_for_a_node_that_is_silent_ends_before_the_page_takes_its_own_node_for_silent(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    page = (Path(passing_on.__file__).parent / "page" / "api.js").read_text()
    assert (found := re.search(r"READ_MS = ([\d_]+);", page)) is not None
    assert int(found[1]) / 2 >= passing_on.READ_S * 1_000
    monkeypatch.setattr(passing_on, "READ_S", 0.1)
    over = asyncio.Event()

    async def say_nothing(request: web.Request) -> web.Response:
        if request.method == "GET":
            await over.wait()
        else:
            await asyncio.sleep(0.3)  # a change is waited for longer
        return web.Response(status=204)

    served.node.ids["orders"] = {"billing": BILLING}
    async with another_node(say_nothing) as served.node.elsewhere:
        answer = await served.ask("GET", "/v1/topics/orders/dedup/billing")
        assert (answer.status, "which does not answer" in answer.body["message"]) == (503, True)
        assert (await served.ask("DELETE", "/v1/topics/orders/dedup/billing")).status == 204
        over.set()


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/nope.js",
        "/page/..%2fserver.py",
        "/page/%2e%2e",
        "/v1",
        "/v1/topics/",
        "/v1/topics/orders/policy/x",
        "/nope",
        "/livez/",
    ],
)
async def test_other_paths_are_404_in_the_same_shape(served: Served, path: str):
    assert (await served.ask("GET", path)).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/topics/orders", "DELETE, GET, HEAD"),
        ("GET", "/v1/topics/orders/policy", "DELETE, PUT"),
        ("DELETE", "/livez", "GET, HEAD"),
        ("OPTIONS", "/v1/status", "GET, HEAD"),
        ("PATCH", "/v1/status", "GET, HEAD"),
    ],
)
async def test_other_methods_are_405_and_say_which_there_are(served: Served, method: str, path: str, allowed: str):
    answer = await served.ask(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


async def test_a_node_that_cannot_answer_is_503(served: Served):
    served.node.down = "Redis is away"
    for method, path in (("GET", "/v1/status"), ("GET", "/v1/topics"), ("POST", "/v1/topics/orders/fence")):
        answer = await served.ask(method, path)
        assert (answer.status, answer.body["message"]) == (503, "Redis is away")
    served.node.down, served.node.bug = "", TimeoutError()
    assert (await served.ask("GET", "/v1/status")).status == 503


async def test_a_bug_is_500_without_its_text_and_the_connection_goes_on(served: Served):
    served.node.bug = RuntimeError("the secret inside")
    answer = await served.ask("GET", "/v1/status")
    assert answer.status == 500
    assert "secret" not in str(answer.body)
    served.node.bug = None
    assert (await served.ask("GET", "/v1/status")).status == 200


SURROGATE = '"\\ud800"'


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/topics/orders/policy", f"{{{SURROGATE}: 1}}"),
        ("PUT", "/v1/topics/orders/policy", f'{{"access_mode": {SURROGATE}}}'),
        ("POST", "/v1/topics/orders/shadows", f'{{"name": "audit", {SURROGATE}: 1}}'),
        ("POST", "/v1/topics/orders/shadows", f'{{"name": {SURROGATE}}}'),
        ("PATCH", "/v1/shadows/audit", f"{{{SURROGATE}: 1}}"),
        ("POST", "/v1/shadows/audit/cursors/g/reset", f'{{"to": "latest", {SURROGATE}: 1}}'),
        ("POST", "/v1/shadows/audit/cursors/g/reset", f'{{"to": {SURROGATE}}}'),
        ("PUT", "/admin/v2/persistent/public/default/orders/shadowTopics", f"[{SURROGATE}]"),
    ],
)
async def test_what_no_encoding_can_hold_is_400_and_named(served: Served, method: str, path: str, body: str):
    answer = await served.ask(method, path, data=body)
    assert (answer.status, "'\\ud800'" in answer.body["message"]) == (400, True)
    assert served.node.calls == []


async def test_a_text_that_no_encoding_can_hold_is_answered_as_it_is(served: Served):
    served.node.bug = NotFoundError("\ud800")
    answer = await served.ask("GET", "/v1/status")
    assert (answer.status, answer.body["message"]) == (404, "\ud800")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "1969-12-31T23:59:59Z"])
async def test_a_time_that_kafka_cannot_know_is_400(served: Served, at: str):
    await served.ask("POST", "/v1/topics/orders/shadows", json={"name": "audit"})
    answer = await served.ask("POST", "/v1/shadows/audit/cursors/g/reset", json={"to": {"timestamp": at}})
    assert (answer.status, at in answer.body["message"]) == (400, True)


async def test_without_a_token_a_browser_led_here_by_another_site_cannot_write(served: Served):
    headers = {"Origin": "http://evil.example"}
    assert (await served.ask("POST", "/v1/topics/orders/fence", headers=headers)).status == 403
    assert (await served.ask("GET", "/v1/topics/orders", headers=headers)).status == 200
    assert served.node.known["orders"].owner == OWNER


async def test_without_a_token_a_request_passed_on_by_a_proxy_cannot_write(served: Served):
    headers = {"X-Forwarded-For": "10.0.0.1"}
    assert (await served.ask("POST", "/v1/topics/orders/fence", headers=headers)).status == 403


@pytest.mark.parametrize("served", [{"admin_token": "s3cret"}], indirect=True)
async def test_with_a_token_writes_need_it_and_reads_do_not(served: Served):
    for path in ("/livez", "/readyz", "/metrics", "/v1/status", "/v1/topics/orders"):
        assert (await served.ask("GET", path)).status == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        answer = await served.ask("POST", "/v1/topics/orders/fence", headers=headers)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert served.node.known["orders"].owner == OWNER
    right = {"Authorization": "Bearer s3cret"}
    assert (await served.ask("POST", "/v1/topics/orders/fence", headers=right)).status == 200


async def test_a_taken_port_is_an_error_that_leaves_nothing_behind(served: Served):
    settings = replace(load(), admin_listen=served.server.address)
    second = AdminServer(PaperNode(), NodeMetrics({}, "0.1.0"), settings)
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    await second.stop()
    assert (await served.ask("GET", "/livez")).status == 200


async def test_stopping_twice_is_harmless_and_frees_the_port(served: Served):
    await served.server.stop()
    await served.server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await served.ask("GET", "/livez")


@pytest.mark.parametrize("served", [{"admin_token": "s3cret"}], indirect=True)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/shadows/orders-audit", {"allow": []}),
        ("DELETE", "/v1/topics/orders", None),
        ("PUT", "/admin/v2/persistent/public/default/orders/shadowTopics", ["orders-audit"]),
        ("POST", "/admin/v2/persistent/public/default/orders/shadowTopics", ["orders-audit"]),
        ("DELETE", "/admin/v2/persistent/public/default/orders/shadowTopics", None),
    ],
)
async def test_whoever_does_not_show_the_token_changes_no_shadow(served: Served, method: str, path: str, body: object):
    assert (await served.ask(method, path, json=body)).status == 401
    assert served.node.calls == []


async def test_a_shadow_that_somebody_else_deletes_meanwhile_is_no_fault(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    shadows = served.node.shadows
    shadows.views = {name: Shadow(name, "orders", (), 0, is_made=True) for name in ("a", "b")}
    delete = shadows.delete

    async def too_late(source: str, name: str) -> None:
        await delete(source, name)
        await delete(source, name)

    monkeypatch.setattr(shadows, "delete", too_late)
    assert (await served.ask("DELETE", "/admin/v2/persistent/public/default/orders/shadowTopics")).status == 204
    assert shadows.views == {}


async def test_a_list_that_takes_too_long_is_left_between_two_names(served: Served, monkeypatch: pytest.MonkeyPatch):
    """Rather than within one, at the end of the minute."""
    create = served.node.shadows.create

    async def slow(source: str, name: str, allow: object) -> Shadow:
        await asyncio.sleep(0.02)
        return await create(source, name, None)

    monkeypatch.setattr(served.node.shadows, "create", slow)
    monkeypatch.setattr("sidecar.admin.pulsar_rest._ENOUGH_S", 0.01)
    path = "/admin/v2/persistent/public/default/orders/shadowTopics"
    answer = await served.ask("PUT", path, json=["a", "b", "c"])
    assert answer.status == 503
    assert "cannot make b: the time limit is reached" in answer.body["message"]
    assert list(served.node.shadows.views) == ["a"]


# Shadow topics: cursors and numbers ---------------------------------------------------------------------------------


async def test_cursors_come_in_pages_of_their_shape(served: Served):
    shadows = served.node.shadows
    await served.ask("POST", "/v1/topics/orders/shadows", json={"name": "audit", "auto_reset_backlog_entries": 7})
    shadows.of_groups["audit"] = [
        Cursor(f"group/{number}", "Empty", 0, {0: Position(number, 9, 9 - number)}) for number in range(3)
    ]
    first = await served.ask("GET", "/v1/shadows/audit/cursors?page_size=2")
    assert [item["group"] for item in first.body["items"]] == ["group/0", "group/1"]
    assert first.body["items"][1]["lag"] == 8
    rest = await served.ask(
        "GET", f"/v1/shadows/audit/cursors?page_token={quote(first.body['next_page_token'], safe='')}"
    )
    assert [item["group"] for item in rest.body["items"]] == ["group/2"]
    assert rest.body["next_page_token"] is None
    assert (await served.ask("GET", "/v1/shadows/nothing/cursors")).status == 404
    shown = await served.ask("GET", "/v1/shadows/audit")
    assert (shown.body["auto_reset_backlog_entries"], shown.body["stats"]["max_lag"]) == (7, 30)


async def test_a_cursor_is_reset_by_a_name_that_may_hold_anything(served: Served):
    await served.ask("POST", "/v1/topics/orders/shadows", json={"name": "audit"})
    path = f"/v1/shadows/audit/cursors/{quote('team/a ü%', safe='')}/reset"
    done = await served.ask("POST", path, json={"to": {"timestamp": "1970-01-01T01:00:01.5+01:00"}, "partitions": [3]})
    assert (done.status, done.body["group"], list(done.body["partitions"])) == (200, "team/a ü%", ["3"])
    assert served.node.calls[-1] == ("reset_cursor", "audit", "team/a ü%", AtTime(1_500), [3])
    served.node.shadows.members.add("live")
    assert (await served.ask("POST", "/v1/shadows/audit/cursors/live/reset", json={"to": "latest"})).status == 409
    for limit in (-1, True, "many", 2**63):
        body = {"name": "x", "auto_reset_backlog_entries": limit}
        refused = await served.ask("POST", "/v1/topics/orders/shadows", json=body)
        assert (refused.status, "auto_reset_backlog_entries" in refused.body["message"]) == (400, True)


def with_sessions(node: PaperNode) -> None:
    by_connection = OWNER._replace(session="conn:1-a-2")
    node.known["orders"] = replace(ORDERS, waiting=[Waiter(None, "next", "pid:8", 0)], owners={0: by_connection})
    record = state.Event(kind=state.Event.DEPOSED, topic="orders", generation=4, session="pid:7", detail="by pid:9")
    node.history.append((0, record))


_WITH_SESSIONS = ("/v1/topics/orders", "/v1/topics?governed=true", "/v1/events?from=0")


async def told(served: Served, path: str, token: str) -> str:
    """What is answered, of a stream its first event."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"} if token else {}) as session,
        session.get(f"http://{served.server.address}{path}") as answer,
    ):
        return (await (answer.content.readuntil(b"}\n\n") if "events" in path else answer.read())).decode()


@pytest.mark.parametrize("served", [{"admin_token": None}], indirect=True)
async def test_without_tokens_the_nodes_own_machine_sees_producer_ids_a_proxy_does_not(served: Served):
    with_sessions(served.node)
    for path in _WITH_SESSIONS[:2]:
        assert "pid:7" in await told(served, path, "")
        answer = await served.ask("GET", path, headers={"X-Forwarded-For": "192.0.2.7"})
        assert "pid:***" in str(answer.body)
        assert "pid:7" not in str(answer.body)


@pytest.mark.parametrize("served", [{"admin_token": "secret"}], indirect=True)
@pytest.mark.parametrize("token", ["", "guessed"])
async def test_producer_ids_are_told_to_nobody_who_shows_no_token(served: Served, token: str):
    with_sessions(served.node)
    for path in _WITH_SESSIONS:
        found = await told(served, path, token)
        assert "pid:***" in found
        assert not re.search("pid:[0-9]", found)


@pytest.mark.parametrize("served", [{"admin_token": "secret"}], indirect=True)
async def test_producer_ids_are_told_to_whoever_shows_the_token_and_connections_to_everybody(served: Served):
    with_sessions(served.node)
    for path in _WITH_SESSIONS:
        found = await told(served, path, "secret")
        assert "pid:***" not in found
        assert "pid:7" in found
    assert "conn:1-a-2" in await told(served, "/v1/topics/orders", "")
