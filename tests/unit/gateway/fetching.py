"""Readers of a log at one node, over paper sockets and a paper broker."""

from __future__ import annotations

import asyncio
from struct import Struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.fanout.crowd import LEAST
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.handler import Apis, Gateway
from sidecar.protocol import fetch, usual_fetch
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.tails import Fetched, Position, element_of
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.cursor_room import Readers
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.network.client import ClientConnection

_ANSWER = Struct(">ihqqqiii")
_CORRELATION = Struct(">i")
_AWAY = 6
_GONE = 3
_ROUTE = SimpleNamespace(topic_id=UUID(int=1))


class Hooks:
    """Nobody counts."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


class Broker:
    """Leads the log `orders`, which ends at `end`; a record of one byte is at each offset. `polls`: those that wait."""

    def __init__(self) -> None:
        self.view = SimpleNamespace(
            leader=lambda *_: 1, only_leader=lambda _: 1, route=lambda _: _ROUTE, missing=lambda _: set(), names={}
        )
        self.end = 7
        self.users = None
        self.polls: list[asyncio.Future[None]] = []

    def serves(self, key: int, version: int) -> bool:
        return True

    def may_connect(self, _: int) -> bool:
        return False

    def address(self, _: int) -> tuple[str, int]:
        raise DisconnectedError("nobody reads alone here", sent=False)

    def refresh_soon(self, topics: set[bytes]) -> None:
        """It leads for ever."""

    async def call(self, _: int, request: Any, **__: Any) -> dict[tuple[bytes, int], Fetched]:
        if request.max_wait_ms and all(position.offset >= self.end for position in request.positions):
            self.polls.append(asyncio.get_running_loop().create_future())
            await self.polls[-1]
        return {position.of: self._answer(position) for position in request.positions}

    def _answer(self, position: Position) -> Fetched:
        size = max(0, self.end - position.offset)
        return Fetched(0, size, _ANSWER.pack(position.partition, 0, self.end, self.end, 0, -1, -1, size) + b"r" * size)

    def append(self) -> None:
        self.end += 1
        for poll in self.polls:
            if not poll.done():
                poll.set_result(None)
        self.polls.clear()


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return SimpleNamespace(family=0, setsockopt=lambda *_: None) if name == "socket" else default

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Consumer:
    """One connection of a reader."""

    def __init__(self, node: Node, topic: bytes = b"orders") -> None:
        self._topic = topic
        self.transport = Transport()
        self.connection: ClientConnection = node.gateway.new_connection()
        self.connection.connection_made(self.transport)

    def asks(self, correlation: int, offset: int, *, client: bytes = b"app", wait_ms: int = 60_000) -> None:
        element = element_of(Position(self._topic, 0, -1, offset), 1000)
        asked = (wait_ms, 1, 1000, 0)
        self.sends(fetch.encode_request(correlation, client, 11, asked, [(self._topic, element)]))

    def sends(self, data: bytes) -> None:
        memoryview(self.connection.get_buffer(-1))[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def told(self) -> list[tuple[int, int, int]]:
        """Of each answer so far: the correlation id, the error, the bytes of records."""
        found, at, data = list[tuple[int, int, int]](), 0, bytes(self.transport.written)
        while at < len(data):
            end = at + 4 + _CORRELATION.unpack_from(data, at)[0]
            (part,) = fetch.walk_answer(data, at, end, 11).parts
            found.append((_CORRELATION.unpack_from(data, at + 4)[0], part.error, part.record_bytes))
            at = end
        return found

    async def is_told(self, *answers: tuple[int, int, int]) -> None:
        await wait_until(lambda: len(self.told) >= len(answers), "it is answered")
        assert self.told == list(answers)


class Node:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.resolver = Broker(), NameResolver()
        self.gateway = Gateway(cast("Any", self.broker), 1, "boot", 1 << 20, cast("Any", Hooks()))
        claims, self.readers = ReaderClaims(lambda _: False), Readers(self.resolver)
        self.fetches = FetchApi(
            cast("Any", self.broker),
            NodeDirectory(NodeAddress(1, "here", 1)),
            self.resolver,
            claims,
            self.gateway.tasks,
            self.readers,
            longest_wait_s=60.0,
        )
        self.gateway.closed_callbacks.append(self.fetches.client_closed)
        self.gateway.serve(Apis({1: self.fetches.handle}, {}), [VersionRange(1, 4, 11)])
        self.walks = 0
        walk = usual_fetch.walk

        def counted(*arguments: Any) -> Any:
            self.walks += 1
            return walk(*arguments)

        monkeypatch.setattr(usual_fetch, "walk", counted)

    async def reader(self, topic: bytes = b"orders") -> Consumer:
        """One that waits at the end with others, its request read."""
        for _ in range(LEAST - 1):  # fewer read alone
            Consumer(self).asks(1, 7)
        found = Consumer(self, topic)
        found.asks(1, self.broker.end)
        await wait_until(lambda: self.broker.polls, "it waits")
        self.walks = 0
        return found
