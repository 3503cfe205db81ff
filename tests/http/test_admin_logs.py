"""Logs of topics over HTTP: partitions, groups and the last records, in front of a node on paper."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from sidecar.shadow.cursors import Cursor, Position
from tests.http.paper_nodes import READ_TOKEN, TOKEN, PaperServer, paper_server
from tests.unit.admin.paper_logs import record

RECORDS = "/v1/topics/orders/records"


async def ask(server: PaperServer, path: str, token: str = TOKEN, **headers: str) -> tuple[int, Any]:
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with aiohttp.ClientSession() as session, session.get(server.url + path, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_partitions_come_in_pages():
    async with paper_server() as server:
        first = (await ask(server, "/v1/topics/orders/partitions?page_size=2"))[1]
        rest = (await ask(server, "/v1/topics/orders/partitions?page_token=1"))[1]
    assert [each["partition"] for each in first["items"]] == [0, 1]
    assert first["items"][1] == {"partition": 1, "leader": 1, "start": 1, "end": 10, "bytes": None}
    assert (first["next_page_token"], [each["partition"] for each in rest["items"]]) == ("1", [2])
    assert rest["next_page_token"] is None


async def test_groups_come_in_pages():
    async with paper_server() as server:
        server.node.logs.of_groups = [Cursor(name, "Stable", 2, {0: Position(3, 10, 7)}) for name in ("a", "b", "c")]
        first = (await ask(server, "/v1/topics/orders/groups?page_size=1"))[1]
        rest = (await ask(server, "/v1/topics/orders/groups?page_token=a"))[1]
    position = {"offset": 3, "end": 10, "lag": 7}
    assert first["items"] == [{"group": "a", "state": "Stable", "members": 2, "lag": 7, "partitions": {"0": position}}]
    assert (first["next_page_token"], [each["group"] for each in rest["items"]]) == ("a", ["b", "c"])


@pytest.mark.parametrize("path", ["partitions", "groups", "records?partition=9"])
async def test_what_is_not_there_is_said(path: str):
    async with paper_server() as server:
        status, body = await ask(server, f"/v1/topics/{'orders' if '?' in path else 'nope'}/{path}")
    assert (status, "no topic nope" in body["message"] or "no partition 9" in body["message"]) in (
        (404, True),
        (400, True),
    )


async def test_a_record_is_shown_as_text_or_as_digits_and_never_whole():
    async with paper_server() as server:
        server.node.logs.kept = [
            record(9, "grüße\n".encode()),
            record(8, b"\x1b[2J"),
            record(7, b"\xff\x00", writer=None),
        ]
        status, body = await ask(server, f"{RECORDS}?limit=3")
    assert status == 200
    newest, control, binary = body["items"]
    assert newest == {
        "partition": 0,
        "offset": 9,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "key": {"text": "k", "size": 1, "cut": False},
        "value": {"text": "grüße\n", "size": 8, "cut": False},
        "headers": [
            {"name": "trace", "value": {"hex": "00ff", "size": 2, "cut": False}},
            {"name": "none", "value": None},
        ],
        "sequence_id": 9,
        "producer_name": None,
        "producer_id": 7,
        "producer_epoch": 2,
        "generation": 3,
    }
    assert control["value"]["hex"] == "1b5b324a"  # what would steer a terminal is no text
    assert (binary["value"]["hex"], binary["producer_id"]) == ("ff00", None)


async def test_a_time_that_no_calendar_has_is_null():
    async with paper_server() as server:
        server.node.logs.kept = [record(1, timestamp_ms=each) for each in (2**62, -1)]
        items = (await ask(server, RECORDS))[1]["items"]
    assert [each["timestamp"] for each in items] == [None, None]


@pytest.mark.parametrize(("token", "status"), [(TOKEN, 200), (READ_TOKEN, 401), ("wrong", 401), ("", 401)])
async def test_with_a_token_on_the_node_only_its_holder_looks_at_records(token: str, status: int):
    async with paper_server(admin_token=TOKEN, admin_read_token=READ_TOKEN) as server:
        server.node.logs.kept = [record(1, b"secret")]
        found, body = await ask(server, RECORDS, token)
        assert (found, "secret" in str(body)) == (status, status == 200)
        assert [call for call in server.node.calls if call[0] == "records"] == [("records", "orders", None, 20)] * (
            status == 200
        )
        for path in ("partitions", "groups"):  # numbers are reads like others
            assert (await ask(server, f"/v1/topics/orders/{path}", token))[0] == (
                200 if token in (TOKEN, READ_TOKEN) else 401
            )


async def test_without_a_token_a_page_of_another_site_reads_no_records():
    async with paper_server() as server:
        assert (await ask(server, RECORDS, ""))[0] == 200
        assert (await ask(server, RECORDS, "", Origin="http://evil.example"))[0] == 403
        assert (await ask(server, RECORDS, "", **{"X-Forwarded-For": "10.0.0.1"}))[0] == 403
        calls = len(server.node.calls)
        for site in ("cross-site", "same-site"):  # an image, or a link: without an Origin
            assert (await ask(server, RECORDS, "", **{"Sec-Fetch-Site": site}))[0] == 403
        assert len(server.node.calls) == calls
        for site in ("same-origin", "none"):
            assert (await ask(server, RECORDS, "", **{"Sec-Fetch-Site": site}))[0] == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "partition=-1", "offset=1"])
async def test_how_many_records_is_bounded(query: str):
    async with paper_server() as server:
        assert (await ask(server, f"{RECORDS}?{query}"))[0] == 400
        assert [call for call in server.node.calls if call[0] == "records"] == []


async def test_a_producer_that_is_called_records_is_no_record():
    async with paper_server(admin_token=TOKEN, admin_read_token=READ_TOKEN) as server:
        assert (await ask(server, "/v1/topics/orders/dedup/records", READ_TOKEN))[0] == 404
