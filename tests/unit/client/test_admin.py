"""AdminClient against servers that are no healthy node, and against the document of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from http import HTTPStatus
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from aiohttp import web

from sidecar.admin.openapi import document
from sidecar.client import AdminClient, SidecarError, SidecarUnavailableError, facts
from sidecar.local.ports import free_ports

DOCUMENT = document("0.1.0")
STATUS = {
    "version": "9.9",
    "node_id": 7,
    "cluster": "c",
    "state": "hibernating",
    "ready": True,
    "started": "2026-01-31T12:00:00.000Z",
    "advertise": "a:1",
    "kafka_cluster_id": None,
    "nodes": [{"id": 7, "host": "a", "port": 1, "rack": "r"}],
    "brokers": [],
    "client_connections": 0,
    "governed_topics": 0,
    "deduplication": {"ready": 0, "reading": 0, "lost": 0},
    "checks": [],
    "mood": "good",
}
EVENT = {
    "id": "e",
    "at": "2026-01-31T12:00:00.000Z",
    "kind": "claimed",
    "topic": "orders",
    "partition": None,
    "generation": 1,
    "session": "pid:1",
    "name": "a",
    "mode": None,
    "client": "",
    "node": 1,
    "detail": "",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve(handler)`: the URL of a server that answers everything by it."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


def says(answer: Any, status: int = 200) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    return handler


# Against the document -------------------------------------------------------------------------------------------------

OPERATIONS = {
    "status": "status",
    "listClients": "clients",
    "listSettings": "settings",
    "listRefusals": "refusals",
    "listPartitions": "partitions",
    "listGroups": "groups",
    "lastRecords": "last_records",
    "events": "events",
    "listTopics": "topics",
    "getTopic": "topic",
    "createTopic": "create_topic",
    "deleteTopic": "delete_topic",
    "putPolicy": "set_policy",
    "deletePolicy": "delete_policy",
    "fence": "fence",
    "release": "release",
    "listProducers": "producers",
    "getProducer": "producer",
    "forgetProducer": "forget_producer",
    "listShadows": "shadows",
    "listEveryShadow": "shadows",
    "getShadow": "shadow",
    "createShadow": "create_shadow",
    "changeShadow": "change_shadow",
    "deleteShadow": "delete_shadow",
    "listCursors": "cursors",
    "resetCursor": "reset_cursor",
}
FOR_OTHERS = {
    "livez",
    "readyz",
    "metrics",
    "openapi",
    "page",
    "pageFile",
    *(f"{each}Schemas" for each in ("get", "put", "post", "delete")),
}
OF_PULSAR = {"listShadowsOfPulsar", "replaceShadows", "addShadows", "removeShadows", "getProperties"}


def test_every_operation_of_a_node_has_its_method() -> None:
    described = {
        operation["operationId"]
        for item in DOCUMENT["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict) and "operationId" in operation
    }
    assert described == OPERATIONS.keys() | FOR_OTHERS | OF_PULSAR
    public = {name for name, found in vars(AdminClient).items() if callable(found) and not name.startswith("_")}
    assert public == {*OPERATIONS.values(), "close"}


SCHEMAS = DOCUMENT["components"]["schemas"]
JSON_TYPES = {str: "string", int: "integer", bool: "boolean", datetime: "string"}


def difference(hint: Any, schema: Any, where: str) -> Iterator[str]:
    """Where a type of the SDK is another one than a schema of the node."""
    schema = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    choices = schema.get("oneOf", [schema])
    said = [each.get("type", "string" if "enum" in each else "object") for each in choices]
    types = {name for each in said for name in ([each] if isinstance(each, str) else each)}
    nullable = "null" in types or None in schema.get("enum", ())
    if get_origin(hint) is UnionType:
        yield from [] if nullable else [f"{where} is never null"]
        hint = next(each for each in get_args(hint) if each is not NoneType)
    elif nullable:
        yield f"{where} may be null"
    if "oneOf" in schema:
        yield from difference(hint, choices[0], where)
    elif isinstance(hint, type) and is_dataclass(hint):
        yield from differences(hint, schema, where)
    elif get_origin(hint) is tuple:
        yield from difference(get_args(hint)[0], schema["items"], f"{where}[]")
    elif get_origin(hint) is Mapping:
        yield from difference(get_args(hint)[1], schema["additionalProperties"], f"{where}[]")
    elif JSON_TYPES[hint] not in types or (hint is datetime) != (schema.get("format") == "date-time"):
        yield f"{where} is no {hint}"


def differences(fact: type[Any], schema: Any, where: str) -> Iterator[str]:
    hints = get_type_hints(fact)
    mine = {each.metadata.get("name", each.name): each for each in fields(fact) if each.name != "position"}
    yield from (f"{where}.{name} is on one side only" for name in mine.keys() ^ schema["properties"].keys())
    for name, each in mine.items():
        hint = hints[each.name]
        if name not in schema.get("required", ()):
            hint, absent = get_args(hint)[0], hint
            yield from [] if each.default is None and absent == hint | None else [f"{where}.{name} may be absent"]
        yield from difference(hint, schema["properties"][name], f"{where}.{name}")


@pytest.mark.parametrize(
    ("fact", "schema"),
    [
        (facts.Status, "Status"),
        (facts.ConnectedClient, "Client"),
        (facts.Setting, "Setting"),
        (facts.Topic, "Topic"),
        (facts.PartitionOwner, "PartitionOwner"),
        (facts.ProducerState, "ProducerIds"),
        (facts.Shadow, "Shadow"),
        (facts.ShadowStats, "ShadowStats"),
        (facts.Cursor, "Cursor"),
        (facts.PartitionLog, "Partition"),
        (facts.LogRecord, "Record"),
        (facts.Event, "Event"),
    ],
)
def test_a_fact_has_the_fields_that_the_node_tells_with_their_types(fact: type[Any], schema: str) -> None:
    assert list(differences(fact, SCHEMAS[schema], schema)) == []


# Answers of others ----------------------------------------------------------------------------------------------------


async def test_a_newer_node_is_understood(serve: Serve) -> None:
    async with AdminClient(await serve(says(STATUS))) as admin:
        status = await admin.status()
    assert (status.state, status.nodes, status.kafka_cluster_id) == ("hibernating", (facts.Peer(7, "a", 1),), None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [({"items": None}, "answer has no version"), ([], r"answer is \[\], no object"), ("x", "no object")],
)
async def test_an_answer_that_no_node_gives_is_an_error_that_says_so(serve: Serve, answer: Any, said: str) -> None:
    async with AdminClient(await serve(says(answer))) as admin:
        with pytest.raises(SidecarError, match=said) as error:
            await admin.status()
        assert (error.value.code, error.value.retryable) == (-1, False)
        with pytest.raises(SidecarError, match="is it the admin port"):
            _ = [each async for each in admin.topics()]


async def test_a_page_of_a_web_site_is_no_answer(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>", status=200 if request.path == "/v1/status" else 404)

    async with AdminClient(await serve(handler)) as admin:
        with pytest.raises(SidecarError, match="no JSON"):
            await admin.status()
        with pytest.raises(SidecarError, match="gives no reason") as missing:
            await admin.topic("x")
        assert missing.value.code is HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, SidecarError, False),
        (401, SidecarError, False),
        (403, SidecarError, False),
        (404, SidecarError, False),
        (409, SidecarError, True),
        (500, SidecarError, False),
        (503, SidecarUnavailableError, True),
        (599, SidecarError, False),
    ],
)
async def test_a_refusal_bears_its_status_and_the_nodes_words(
    serve: Serve, status: int, kind: type[SidecarError], retryable: bool
) -> None:
    url = await serve(says({"error_code": status, "message": "so it is"}, status))
    async with AdminClient(url) as admin:
        with pytest.raises(SidecarError, match="so it is") as refused:
            await admin.fence("orders")
    assert (type(refused.value), refused.value.code, refused.value.retryable) == (kind, status, retryable)


async def test_the_token_is_shown_and_no_redirect_followed(serve: Serve) -> None:
    seen: list[str | None] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append("elsewhere")
        return web.json_response(STATUS)

    other = await serve(elsewhere)

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=307, headers={"Location": f"{other}/v1/status"})

    async with AdminClient(await serve(handler), "s3cret") as admin:
        with pytest.raises(SidecarError) as moved:
            await admin.status()
    assert (moved.value.code, seen) == (307, ["Bearer s3cret"])


async def test_names_may_hold_anything(serve: Serve) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(status=204)

    async with AdminClient(await serve(handler)) as admin:
        await admin.forget_producer("orders", "a/b?c#d%20 ä..")
        await admin.delete_policy("payments.*")
    assert seen == ["/v1/topics/orders/dedup/a%2Fb%3Fc%23d%2520%20%C3%A4..", "/v1/topics/payments.*/policy"]


async def test_where_nobody_listens_it_says_whom_it_asked() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    async with AdminClient(url) as admin:
        with pytest.raises(SidecarUnavailableError, match=url) as away:
            await admin.status()
        assert (away.value.code, away.value.retryable) == (13, True)
        with pytest.raises(SidecarUnavailableError, match=url):
            await anext(admin.events())


async def test_a_silent_node_is_given_up_in_time(serve: Serve) -> None:
    asked = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with AdminClient(await serve(handler), timeout=0.2) as admin:
        with pytest.raises(SidecarUnavailableError) as late:
            await admin.status()
    assert asked.is_set()
    assert late.value.code == 7


# Events ---------------------------------------------------------------------------------------------------------------


async def test_events_go_on_behind_the_last_one_where_the_connection_ends(serve: Serve) -> None:
    asked: list[tuple[str, str | None]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append((request.query_string, request.headers.get("Last-Event-ID")))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        number = len(asked)
        details = {"details": {"by": "b", "policy": {"scope": "topic"}}} if number == 2 else {}
        data = str({**EVENT, **details, "generation": number}).replace("'", '"').replace("None", "null")
        await answer.write(f": \n\nid: {number}\nevent: claimed\ndata: {data}\n\n: \n\n".encode())
        return answer

    async with AdminClient(await serve(handler)) as admin:
        events = admin.events("orders", after=-1)
        found = [await anext(events), await anext(events)]
        await events.aclose()
    assert [(each.position, each.generation, each.kind) for each in found] == [(1, 1, "claimed"), (2, 2, "claimed")]
    assert [each.details for each in found] == [
        None, facts.EventDetails(by="b", policy=facts.Policy(scope="topic"))]  # fmt: skip
    assert asked == [("topic=orders&from=0", None), ("topic=orders", "1")]


async def test_a_refusal_of_events_is_told(serve: Serve) -> None:
    url = await serve(says({"error_code": 400, "message": "from has to be a number"}, 400))
    async with AdminClient(url) as admin:
        with pytest.raises(SidecarError, match="from has to be"):
            await anext(admin.events(after=5))


@pytest.mark.parametrize("sent", ["id: x\ndata: {}\n\n", "id: 5\ndata: {}\n\n", "id: 5\ndata: nonsense\n\n"])
async def test_an_event_that_no_node_sends_is_an_error(serve: Serve, sent: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=sent, content_type="text/event-stream")

    async with AdminClient(await serve(handler)) as admin:
        with pytest.raises(SidecarError) as wrong:
            await anext(admin.events())
        assert wrong.value.code == -1


# What cannot be -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["127.0.0.1:18080", "ftp://x", "http://", "http://x/?a=b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        AdminClient(url)


def test_address_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIDECAR_ADMIN_URL", raising=False)
    assert AdminClient().url == "http://127.0.0.1:18080"
    monkeypatch.setenv("SIDECAR_ADMIN_URL", "http://node:1/")
    monkeypatch.setenv("SIDECAR_ADMIN_TOKEN", "s3cret")
    assert AdminClient().url == "http://node:1"
    assert AdminClient()._rest._headers["Authorization"] == "Bearer s3cret"
    assert AdminClient("http://other:2", token="")._rest._headers.keys() == {"Accept"}


async def test_a_client_is_used_once_and_within_async_with(serve: Serve) -> None:
    admin = AdminClient(await serve(says(STATUS)))
    with pytest.raises(RuntimeError, match="not open"):
        await admin.status()
    async with admin:
        with pytest.raises(ValueError, match="no time zone"):
            await admin.reset_cursor("s", "g", datetime(2026, 1, 31))  # noqa: DTZ001  that is the point
    await admin.close()
    with pytest.raises(RuntimeError, match="not open"):
        await admin.status()
    with pytest.raises(RuntimeError, match="used once"):
        await admin.__aenter__()
