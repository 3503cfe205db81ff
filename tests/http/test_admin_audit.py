"""The audit log: an event for each act over HTTP, done or not, with fields that stay as they are, and no secret."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from sidecar.admin.audit import OTHER
from sidecar.admin.openapi import HANDLERS
from sidecar.admin.operations import handled_by
from tests.http.paper_nodes import READ_TOKEN, TOKEN, Log, PaperServer, paper_server

FENCE = "/v1/topics/orders/fence"


async def ask(server: PaperServer, method: str, path: str, token: str = TOKEN, body: object = None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session:
        data = None if body is None else json.dumps(body)
        async with session.request(method, server.url + path, headers=headers, data=data) as answer:
            await answer.read()
            return answer.status


WHO = {"who": "token", "peer": "127.0.0.1"}


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", FENCE, None, {"act": "owner.fence", "topic": "orders", "status": 200}),
        ("POST", "/v1/topics/orders/release", None, {"act": "owner.release", "topic": "orders", "status": 200}),
        ("PUT", "/v1/topics/orders/policy", {"deduplication": True},
         {"act": "policy.set", "topic": "orders", "policy": {"deduplication": True}}),
        ("DELETE", "/v1/topics/orders/policy", None, {"act": "policy.unset", "topic": "orders", "status": 204}),
        ("GET", "/v1/topics/orders/records?partition=1", None,
         {"act": "records.read", "topic": "orders", "partition": "1", "status": 200}),
        ("DELETE", "/v1/topics/orders/dedup/billing", None, {"act": "producer.forget", "producer": "billing"}),
        ("POST", "/v1/topics/orders/shadows", {"name": "audit", "allow": ["User:a"]},
         {"act": "shadow.create", "topic": "orders", "shadow": "audit", "allow": ["User:a"], "status": 201}),
        ("PUT", "/admin/v2/persistent/t/n/orders/shadowTopics", ["audit"],
         {"act": "shadow.replace", "topic": "orders", "done": ["make audit"]}),
    ],
)  # fmt: skip
async def test_what_was_done_is_told(method: str, path: str, body: object, expected: dict[str, Any], log: Log):
    async with paper_server(admin_token=TOKEN) as server:
        assert await ask(server, method, path, body=body) < 300
    (found,) = log.events("audit")
    assert found.items() >= {**WHO, "level": "info", "result": "done", "method": method, **expected}.items()


@pytest.mark.parametrize(
    ("token", "path", "expected"),
    [
        ("", FENCE, {"who": "loopback", "status": 401}),
        ("wrong", FENCE, {"who": "loopback", "status": 401}),
        (READ_TOKEN, FENCE, {"who": "read-token", "status": 401}),
        (TOKEN, "/v1/topics/nope/fence", {"who": "token", "status": 404, "topic": "nope"}),
        (TOKEN, FENCE + "?partition=1", {"who": "token", "status": 400, "partition": "1"}),
        (TOKEN, "/v1/nonsense", {"who": "token", "status": 404, "act": OTHER}),
    ],
)
async def test_what_was_refused_is_told(token: str, path: str, expected: dict[str, Any], log: Log):
    async with paper_server(admin_token=TOKEN, admin_read_token=READ_TOKEN) as server:
        await ask(server, "POST", path, token)
    (found,) = log.events("audit")
    told = {"level": "warning", "result": "refused", "act": "owner.fence", "peer": "127.0.0.1", **expected}
    assert found.items() >= told.items()


async def test_what_may_have_been_done_is_told_as_failed(log: Log):
    async with paper_server() as server:
        server.node.down = "Redis is away"
        assert await ask(server, "POST", FENCE, "") == 503
        server.node.bug = RuntimeError("a bug")
        assert await ask(server, "POST", FENCE, "") == 500
    assert [(each["result"], each["status"]) for each in log.events("audit")] == [("failed", 503), ("failed", 500)]


async def test_reads_are_told_where_they_are_refused_and_not_for_each_of_a_thousand(log: Log):
    async with paper_server(admin_read_token=READ_TOKEN) as server:
        assert await ask(server, "GET", "/v1/status", READ_TOKEN) == 200
        assert log.events("audit") == []
        for _ in range(3):
            assert await ask(server, "GET", "/v1/status", "") == 401
    (found,) = log.events("audit")
    assert found.items() >= {"act": "read", "result": "refused", "path": "/v1/status", "who": "loopback"}.items()


async def test_no_token_is_in_the_log(log: Log):
    async with paper_server(admin_token=TOKEN, admin_read_token=READ_TOKEN) as server:
        for token in (TOKEN, READ_TOKEN, "a-wrong-one"):
            await ask(server, "POST", FENCE, token)
            await ask(server, "GET", "/v1/status", token)
    for token in (TOKEN, READ_TOKEN, "a-wrong-one"):
        assert token not in log.text


def test_every_operation_that_changes_something_has_a_name():
    operations = [operation for handlers in HANDLERS for _, operation in handled_by(handlers)]
    assert {each.method for each in operations} == {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert [each.path for each in operations if each.method != "GET" and not each.act] == []
