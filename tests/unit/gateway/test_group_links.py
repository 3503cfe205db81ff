"""Requests of groups that travel together: who does not, and what becomes of a coordinator that keeps silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.cluster import pools
from sidecar.cluster.pools import Pool
from sidecar.gateway.apis.table import SHARED_LINKS
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import GroupLinks
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.messages import groups
from tests.unit.network.peers import Peer, broker
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.network.upstream import Owner

_BEAT = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}


class Node:
    """A node with one broker. `alone`: correlation ids of requests that went out on the client's own connection."""

    def __init__(self, where: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.request_timeout = 0.2
        self.alone: list[int] = []
        self.pooled: list[UpstreamConnection] = []
        self._pool = Pool(self, 1)
        self._where = where
        monkeypatch.setattr(Client, "ask", self._ask_alone)

    def pool(self, _broker_id: int) -> Pool:
        return self._pool

    def address(self, broker_id: int) -> tuple[str, int]:
        return self._where

    def may_connect(self, broker_id: int) -> bool:
        return True

    def connect_succeeded(self, broker_id: int) -> None:
        """It can be reached."""

    def connect_failed(self, broker_id: int, reason: str) -> None:
        """It cannot."""

    def open(self, owner: Owner, address: tuple[str, int], answers: object = None) -> UpstreamConnection:
        self.pooled.append(UpstreamConnection(owner, address, 5))
        self.pooled[-1].open()
        return self.pooled[-1]

    async def _ask_alone(self, _client: object, _broker: int, request: Request) -> Frame:
        self.alone.append(request.correlation_id)
        return Frame(bytearray(b"alone"), 0, 5, True)


class Opened:
    """How many connections were opened for a client and have not ended. Implements `cluster.pools.Counted`."""

    def __init__(self) -> None:
        self.count = 0

    def may_open(self) -> bool:
        return True

    def upstream_opened(self) -> None:
        self.count += 1

    def upstream_closed(self) -> None:
        self.count -= 1


def client(*, are_many: bool = True, stands: bool = False) -> Any:
    links = SimpleNamespace(
        user=None, are_many=are_many, throttled=False, stands=lambda _broker: stands, opened=Opened(), borrowed=None
    )
    found: Any = SimpleNamespace(links=links, identity=None, connection=SimpleNamespace(answers=None, closed=False))
    found.send = partial(Client.send, found)
    found.ask = partial(Client.ask, found)
    return found


def read(request: Request) -> Request:
    """As `asking.read_all` leaves it."""
    request.is_read = True
    return request


def beat(correlation: int, version: int = 4) -> Request:
    data = bytearray(groups.HEARTBEAT.encode_request(version, correlation, b"c", _BEAT))
    body = 4 + 10 + 1
    return read(Request(12, version, correlation, b"c", Frame(data, 0, len(data), True), body))


def commit(correlation: int) -> Request:
    offsets = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    values = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": "m", "topics": [offsets]}
    data = bytearray(groups.OFFSET_COMMIT.encode_request(7, correlation, b"c", values))
    return read(Request(8, 7, correlation, b"c", Frame(data, 0, len(data), True), 4 + 10 + 1))


def join(correlation: int) -> Request:
    values = {
        "group_id": "g",
        "session_timeout_ms": 1,
        "rebalance_timeout_ms": 1,
        "member_id": "",
        "protocol_type": "c",
    }
    data = bytearray(groups.JOIN_GROUP.encode_request(5, correlation, b"c", values | {"protocols": []}))
    return read(Request(11, 5, correlation, b"c", Frame(data, 0, len(data), True), 4 + 10 + 1))


async def answering(peer: Peer, throttle_ms: int, version: int = 4) -> None:
    values = {"throttle_time_ms": throttle_ms, "error_code": 0}
    while not peer.reader.at_eof():
        try:
            size = int.from_bytes(await peer.reader.readexactly(4), "big")
            frame = await peer.reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return
        correlation = int.from_bytes(frame[4:8], "big")
        peer.writer.write(groups.HEARTBEAT.encode_answer(version, correlation, values))


async def test_whom_a_broker_throttles_travels_alone_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker stops reading the connection for that time: the next one would wait too."""
    async with broker(lambda peer: answering(peer, 3_600_000)) as where:
        node: Any = Node(where, monkeypatch)
        links, slow, other = GroupLinks(node, SHARED_LINKS), client(), client()
        assert (await links.ask(slow, 1, beat(1))).size > 5
        await links.ask(slow, 1, beat(2))
        await links.ask(other, 1, beat(3))
        assert node.alone == [2]
        assert [each.closed for each in node.pooled] == [True, True]


@pytest.mark.parametrize("version", [3, 4])
async def test_who_is_not_throttled_travels_with_others(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async with broker(lambda peer: answering(peer, 0, version)) as where:
        node: Any = Node(where, monkeypatch)
        links, one = GroupLinks(node, SHARED_LINKS), client()
        for number in range(5):
            await links.ask(one, 1, beat(number, version))
        assert (node.alone, len(node.pooled)) == ([], 1)


@pytest.mark.parametrize(
    ("who", "version"), [({"are_many": False}, 4), ({"stands": True}, 4), ({}, 0)], ids=["few", "has one", "old"]
)
async def test_others_keep_to_their_own(monkeypatch: pytest.MonkeyPatch, who: dict[str, bool], version: int) -> None:
    node: Any = Node(("127.0.0.1", 1), monkeypatch)
    await GroupLinks(node, SHARED_LINKS).ask(client(**who), 1, beat(1, version))
    assert (node.alone, node.pooled) == ([1], [])


async def test_a_silent_coordinator_is_lost_and_nobody_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(peer: Peer) -> None:
        await peer.reader.read()

    async with broker(silent) as where:
        node: Any = Node(where, monkeypatch)
        links = GroupLinks(node, SHARED_LINKS)
        lost = await asyncio.gather(
            *(links.ask(client(), 1, beat(number)) for number in range(10)), return_exceptions=True
        )
        assert [type(each) for each in lost] == [DisconnectedError] * 10
        assert all(each.closed for each in node.pooled)


@pytest.mark.parametrize("late", ["commit", "beat"])
async def test_nobody_waits_behind_what_waits_for_replicas(monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """A coordinator answers a commit when it is replicated, and heartbeats of groups of the same partition not before:
    up to 5 seconds where a replica stands still. Members whose heartbeats wait behind some of them are expelled.
    """
    replicated = asyncio.Event()

    async def waiting(peer: Peer) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                frame = await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))
                correlation = int.from_bytes(frame[4:8], "big")
                if correlation < 100:
                    await replicated.wait()
                if frame[1] == groups.OFFSET_COMMIT.key:
                    peer.writer.write(groups.OFFSET_COMMIT.encode_answer(7, correlation, {"topics": []}))
                else:
                    peer.writer.write(groups.HEARTBEAT.encode_answer(4, correlation, {"error_code": 0}))

    request = {"commit": commit, "beat": beat}[late]
    async with broker(waiting) as where:
        node: Any = Node(where, monkeypatch)
        node.request_timeout = 10
        monkeypatch.setattr(pools, "PATIENCE_S", 0.05)
        links, clients = GroupLinks(node, SHARED_LINKS), [client() for _ in range(100)]
        waits = [asyncio.create_task(links.ask(one, 1, request(n))) for n, one in enumerate(clients)]
        async with asyncio.timeout(5):
            for number in range(20):
                await links.ask(client(), 1, beat(1000 + number))
            await wait_until(lambda: sum(each.unanswered for each in node.pooled) == 100, "a connection for each")
        assert not replicated.is_set()
        assert (node.alone, max(each.unanswered for each in node.pooled)) == ([], 1)
        replicated.set()
        await asyncio.gather(*waits)


async def test_nothing_is_kept_of_requests_that_waited_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stands still gives none back for as long."""

    async def silent(peer: Peer) -> None:
        await peer.reader.read()

    async with broker(silent) as where:
        node: Any = Node(where, monkeypatch)
        node.request_timeout = 0.5
        monkeypatch.setattr(pools, "PATIENCE_S", 0.3)
        monkeypatch.setattr(pools, "LEAST", 1)
        links = GroupLinks(node, SHARED_LINKS)
        asked = [asyncio.create_task(links.ask(client(), 1, commit(n))) for n in range(20)]
        async with asyncio.timeout(5):
            await wait_until(lambda: len(node.pool(1)._waiting) == 19, "all but one to wait")
            asked[-1].cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        assert len(node.pool(1)._waiting) == 0
        assert len(node.pool(1)._open) == 0


async def test_commits_wait_a_moment_for_a_connection_rather_than_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is busy would be busier still: ten thousand groups took it a minute to bring into balance."""
    async with broker(lambda peer: answering(peer, 0, 7)) as where:
        node: Any = Node(where, monkeypatch)
        node.request_timeout = 10
        monkeypatch.setattr(pools, "PATIENCE_S", 60)
        links, clients = GroupLinks(node, SHARED_LINKS), [client() for _ in range(500)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(links.ask(one, 1, commit(n)) for n, one in enumerate(clients)))
        assert (len(node.pooled), node.alone) == (pools.LEAST, [])
        assert sum(one.links.opened.count for one in clients) == pools.LEAST


async def test_joins_wait_for_nobody_and_their_connections_go_when_they_are_not_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complete = asyncio.Event()

    async def joining(peer: Peer) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                frame = await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))
                await complete.wait()
                answer = {"error_code": 0, "generation_id": 1, "leader": "m", "member_id": "m", "members": []}
                peer.writer.write(groups.JOIN_GROUP.encode_answer(5, int.from_bytes(frame[4:8], "big"), answer))

    async with broker(joining) as where:
        node: Any = Node(where, monkeypatch)
        monkeypatch.setattr(pools, "KEPT_S", 0.05)
        links, clients = GroupLinks(node, SHARED_LINKS), [client() for _ in range(50)]
        joins = [asyncio.create_task(links.ask(one, 1, join(n))) for n, one in enumerate(clients)]
        async with asyncio.timeout(5):
            await wait_until(lambda: sum(each.unanswered for each in node.pooled) == 50, "all joins to wait")
            gone = clients[7]
            gone.connection.closed = True
            gone.links.borrowed.close("its client is gone")
            with pytest.raises(DisconnectedError):
                await joins[7]
            complete.set()
            await asyncio.gather(*joins[:7], *joins[8:])
            await wait_until(lambda: sum(not one.closed for one in node.pooled) == pools.LEAST, "the others to go")
        assert sum(one.links.opened.count for one in clients) == pools.LEAST


async def test_a_commit_that_waited_while_the_broker_moved_goes_to_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "LEAST", 1)
    moves = asyncio.Event()

    async def late(peer: Peer) -> None:
        await moves.wait()
        await answering(peer, 0, 7)

    async with broker(late) as before, broker(lambda peer: answering(peer, 0, 7)) as now:
        node: Any = Node(before, monkeypatch)
        node.request_timeout = 10
        monkeypatch.setattr(pools, "PATIENCE_S", 60)
        links = GroupLinks(node, SHARED_LINKS)
        asked = [asyncio.create_task(links.ask(client(), 1, commit(number))) for number in range(2)]
        await wait_until(lambda: node._pool._waiting, "the second to wait")
        node._where = now
        moves.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*asked)
        first, second = node.pooled
        assert (first.closed, second.address) == (True, now)


async def test_a_connection_that_was_waited_for_is_kept_though_its_broker_is_known_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "LEAST", 1)
    monkeypatch.setattr(pools, "PATIENCE_S", 60)
    gone = asyncio.Event()

    async def late(peer: Peer) -> None:
        await gone.wait()
        await answering(peer, 0, 7)

    def unknown(_broker_id: int) -> tuple[str, int]:
        raise DisconnectedError("broker 1 is not known", sent=False)

    async with broker(late) as where:
        node: Any = Node(where, monkeypatch)
        node.request_timeout = 10
        links = GroupLinks(node, SHARED_LINKS)
        asked = [asyncio.create_task(links.ask(client(), 1, commit(number))) for number in range(2)]
        await wait_until(lambda: node._pool._waiting, "the second to wait")
        monkeypatch.setattr(node, "address", unknown)
        gone.set()
        async with asyncio.timeout(10):
            answered, refused = await asyncio.gather(*asked, return_exceptions=True)
        assert (type(answered), type(refused)) == (Frame, DisconnectedError)
        assert list(node._pool._resting) == node.pooled, "for whom asks when the broker is known again"


async def test_a_commit_to_a_broker_that_moved_goes_to_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker(lambda peer: answering(peer, 0, 7)) as before, broker(lambda peer: answering(peer, 0, 7)) as now:
        node: Any = Node(before, monkeypatch)
        links = GroupLinks(node, SHARED_LINKS)
        await links.ask(client(), 1, commit(1))
        node._where = now
        await links.ask(client(), 1, commit(2))
        first, second = node.pooled
        assert (first.closed, second.closed, second.address) == (True, False, now)
