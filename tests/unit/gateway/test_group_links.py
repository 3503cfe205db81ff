"""Requests of groups that travel together: who does not, and what becomes of a coordinator that keeps silent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway import passing
from sidecar.gateway.group_links import GroupLinks
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.messages import groups
from tests.unit.network.peers import Peer, broker

if TYPE_CHECKING:
    from sidecar.protocol.caller import Channel

_BEAT = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}


class Node:
    """A node with one broker. `alone`: correlation ids of requests that went out on the client's own connection."""

    def __init__(self, where: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.request_timeout = 0.2
        self.alone: list[int] = []
        self.opened: dict[tuple[int, Channel], UpstreamConnection] = {}
        self._where = where
        monkeypatch.setattr(passing, "ask", self._ask_alone)

    def connection(self, broker_id: int, channel: Channel) -> UpstreamConnection:
        found = self.opened.get((broker_id, channel))
        if found is None or found.closed:
            owner: Any = SimpleNamespace(
                upstream_opened=lambda _: None, upstream_closed=lambda _: None, upstream_full=lambda *_: None
            )
            found = self.opened[broker_id, channel] = UpstreamConnection(owner, self._where, 5)
            found.open()
        return found

    async def _ask_alone(self, _client: object, _broker: int, request: Request) -> Frame:
        self.alone.append(request.correlation_id)
        return Frame(bytearray(b"alone"), 0, 5, True)


def client(*, are_many: bool = True, stands: bool = False) -> Any:
    links = SimpleNamespace(are_many=are_many, throttled=False, stands=lambda _broker: stands)
    return SimpleNamespace(links=links, identity=None)


def beat(correlation: int, version: int = 4) -> Request:
    data = bytearray(groups.HEARTBEAT.encode_request(version, correlation, b"c", _BEAT))
    body = 4 + 10 + 1
    return Request(12, version, correlation, b"c", Frame(data, 0, len(data), True), body)


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
    """The broker stops reading the connection for that time: others would wait too."""
    async with broker(lambda peer: answering(peer, 50)) as where:
        node: Any = Node(where, monkeypatch)
        links, slow, other = GroupLinks(node), client(), client()
        assert (await links.ask(slow, 1, beat(1))).size > 5
        await links.ask(slow, 1, beat(2))
        await links.ask(other, 1, beat(3))
        assert node.alone == [2]


@pytest.mark.parametrize("version", [3, 4])
async def test_who_is_not_throttled_travels_with_others(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async with broker(lambda peer: answering(peer, 0, version)) as where:
        node: Any = Node(where, monkeypatch)
        links, one = GroupLinks(node), client()
        for number in range(5):
            await links.ask(one, 1, beat(number, version))
        assert (node.alone, len(node.opened)) == ([], 1)


@pytest.mark.parametrize(
    ("who", "version"), [({"are_many": False}, 4), ({"stands": True}, 4), ({}, 0)], ids=["few", "has one", "old"]
)
async def test_others_keep_to_their_own(monkeypatch: pytest.MonkeyPatch, who: dict[str, bool], version: int) -> None:
    node: Any = Node(("127.0.0.1", 1), monkeypatch)
    await GroupLinks(node).ask(client(**who), 1, beat(1, version))
    assert (node.alone, node.opened) == ([1], {})


async def test_a_silent_coordinator_is_lost_and_nobody_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(peer: Peer) -> None:
        await peer.reader.read()

    async with broker(silent) as where:
        node: Any = Node(where, monkeypatch)
        links = GroupLinks(node)
        lost = await asyncio.gather(
            *(links.ask(client(), 1, beat(number)) for number in range(10)), return_exceptions=True
        )
        assert [type(each) for each in lost] == [DisconnectedError] * 10
        assert len(node.opened) == 8
        assert all(each.closed for each in node.opened.values())
