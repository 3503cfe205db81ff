"""Connections to the HTTP side that ask for nothing are closed, and there are only so many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count

import pytest

from sidecar.admin import connections, rest
from sidecar.admin.connections import most_connections
from sidecar.admin.server import AdminServer
from sidecar.node.port import Status
from sidecar.settings import Address, load
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.v1 import state_pb2 as state
from tests.unit.admin.paper_node import PaperNode

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"
REFUSED = b"PUT /v1/topics/orders/policy HTTP/1.1\r\nHost: elsewhere.example\r\nContent-Length: 5\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


class SlowNode(PaperNode):
    """Tells its status when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Semaphore(0)
        self.let = asyncio.Event()

    async def status(self) -> Status:
        self.asked.release()
        await self.let.wait()
        return await super().status()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def line(self) -> bytes:
        return await self._reader.readline()

    async def closed(self) -> None:
        """Returns when the other side has closed."""
        with suppress(ConnectionError):
            while await self._reader.read(65_536):
                pass
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def serving(node: PaperNode, schema_registry_url: str | None = None) -> AsyncIterator[AdminServer]:
    settings = replace(load(), admin_listen=Address("127.0.0.1", 0), schema_registry_url=schema_registry_url)
    server = AdminServer(node, NodeMetrics({0: "Produce"}, "0.1.0"), settings)
    await server.start()
    async with asyncio.timeout(30):
        yield server
    await server.stop()


async def connect(server: AdminServer, data: bytes = b"") -> Client:
    client = Client(*await asyncio.open_connection(server.address.host, server.address.port))
    client.send(data)
    return client


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 0.2)
    monkeypatch.setattr(connections, "_LOOK_S", 0.02)


@pytest.mark.parametrize("sent", [b"", b"GET /li", LIVEZ[:-2] + b"X-A: ", LIVEZ, LIVEZ + b"GET /li"])
async def test_who_asks_for_nothing_is_closed(short: None, sent: bytes):
    async with serving(PaperNode()) as server:
        client = await connect(server, sent)
        await client.closed()


async def test_who_waits_for_an_answer_is_not_closed(short: None):
    node = SlowNode()
    async with serving(node) as server:
        slow = await connect(server, STATUS)
        await node.asked.acquire()
        await (await connect(server)).closed()
        await (await connect(server)).closed()
        node.let.set()
        assert await slow.line() == OK
        await slow.closed()


async def test_where_there_are_too_many_the_one_that_is_silent_for_longest_goes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MOST", 3)
    monkeypatch.setattr(connections, "_SPARE", 0)
    node = SlowNode()
    async with serving(node) as server:
        used, silent = await connect(server, LIVEZ), await connect(server)
        assert await used.line() == OK
        busy = await connect(server, STATUS)
        await node.asked.acquire()
        used.send(LIVEZ)
        while not (await used.line()).endswith(OK):
            pass
        more = await connect(server, STATUS)
        await silent.closed()
        await node.asked.acquire()
        last = await connect(server, STATUS)
        await used.closed()
        await node.asked.acquire()
        node.let.set()
        assert [await each.line() for each in (busy, more, last)] == [OK, OK, OK]
        for each in (busy, more, last):
            each.send(b"nonsense\r\n\r\n")
            await each.closed()


async def test_health_is_answered_while_every_place_has_a_request_under_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MOST", 3)
    monkeypatch.setattr(connections, "_SPARE", 2)
    node = SlowNode()
    async with serving(node) as server:
        busy = [await connect(server, STATUS) for _ in range(3)]
        for _ in busy:
            await node.asked.acquire()
        refused = await connect(server, STATUS)
        assert (await refused.line()).startswith(b"HTTP/1.1 503")
        await refused.closed()
        others = [await connect(server) for _ in range(5)]
        for _ in range(3):
            others.append(await connect(server, LIVEZ))
            assert await others[-1].line() == OK
        node.let.set()
        assert [await each.line() for each in busy] == [OK, OK, OK]
    for each in (*busy, *others):
        await each.closed()


SLOW_BODY = b"POST /schemas/subjects/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"


async def test_health_is_answered_while_strangers_send_bodies_that_never_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MOST", 8)
    monkeypatch.setattr(connections, "_SPARE", 2)
    async with serving(PaperNode(), schema_registry_url="http://127.0.0.1:1") as server:
        clients = [await connect(server, SLOW_BODY) for _ in range(40)]
        for path in (b"livez", b"metrics"):
            clients.append(await connect(server, b"GET /" + path + b" HTTP/1.1\r\nHost: x\r\n\r\n"))
            assert await clients[-1].line() == OK
    for each in clients:
        await each.closed()


async def test_a_body_that_does_not_arrive_in_time_ends_its_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_BODY_S", 0.1)
    monkeypatch.setattr(connections, "_LOOK_S", 0.02)
    async with serving(PaperNode(), schema_registry_url="http://127.0.0.1:1") as server:
        await (await connect(server, SLOW_BODY)).closed()


async def test_a_body_that_comes_after_its_refusal_keeps_no_place(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MOST", 3)
    monkeypatch.setattr(connections, "_SPARE", 1)
    async with serving(PaperNode()) as server:
        strangers: list[Client] = []
        for _ in range(6):
            strangers.append(await connect(server, REFUSED))
            assert await strangers[-1].line() == b"HTTP/1.1 403 Forbidden\r\n"
            strangers[-1].send(b"late!" + LIVEZ)
            while not (await strangers[-1].line()).endswith(OK):  # so the body has arrived
                pass
        client = await connect(server, LIVEZ)
        assert await client.line() == OK
        assert len(server._connections._silent) == len(server._connections._open) == 4  # pyright: ignore[reportPrivateUsage]
    for each in (*strangers, client):
        await each.closed()


async def test_a_late_body_ends_the_wait_for_the_next_request_no_more_than_an_early_one(short: None):
    async with serving(PaperNode()) as server:
        client = await connect(server, REFUSED)
        assert await client.line() == b"HTTP/1.1 403 Forbidden\r\n"
        client.send(b"late!")
        await client.closed()


async def test_a_request_whose_body_has_arrived_may_take_its_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_BODY_S", 0.1)
    monkeypatch.setattr(connections, "_LOOK_S", 0.02)
    node = SlowNode()
    async with serving(node) as server:
        slow = await connect(server, STATUS[:-2] + b"Content-Length: 2\r\n\r\n{")
        await node.asked.acquire()
        slow.send(b"}")
        await (await connect(server, SLOW_BODY)).closed()
        node.let.set()
        assert await slow.line() == OK
    await slow.closed()


class EventfulNode(PaperNode):
    """Tells of large events for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[tuple[int, state.Event] | None]:
        try:
            yield None
            for position in count():
                yield position, state.Event(kind=state.Event.POLICY, topic="orders", detail="." * 1_000_000)
        finally:
            self.over.set()


async def test_a_reader_of_events_who_reads_no_more_gives_his_place_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rest, "_TAKEN_S", 0.2)
    node = EventfulNode()
    async with serving(node) as server:
        reader = await connect(server, b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.line() == OK
        await node.over.wait()
        await reader.closed()


class WatchedNode(PaperNode):
    """Tells of nothing, for ever."""

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[tuple[int, state.Event] | None]:
        while True:
            yield None
            await asyncio.sleep(0.01)


async def test_a_stream_of_events_ends_with_the_token_that_it_was_asked_for_with():
    old, new = (replace(load(), admin_read_token=token) for token in ("old", "new"))
    ask = b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n"
    async with serving(WatchedNode()) as server:
        server.take(replace(old, admin_token="operator"))
        reader, operator = await connect(server, ask % b"old"), await connect(server, ask % b"operator")
        assert (await reader.line(), await operator.line()) == (OK, OK)
        server.take(replace(new, admin_token="operator"))
        await reader.closed()
        assert await operator.line(), "who has a token that still is one goes on"
        refused = await connect(server, ask % b"old")
        assert b" 401 " in await refused.line()
        await refused.closed()
        server.take(new)
        await operator.closed()


@pytest.mark.parametrize(("files", "most"), [(-1, 256), (65_536, 256), (1_024, 256), (256, 64), (2, 1)])
def test_most_files_are_for_clients_of_kafka(files: int, most: int):
    assert most_connections(files) == most
