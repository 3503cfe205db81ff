"""A client's connections to brokers: none outlives its client for long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.gateway import client as client_module
from sidecar.gateway.client import AnswerWaiter, ClientLinks
from sidecar.network.upstream import UpstreamConnection
from tests.unit.network.peers import Peer, answer_frame, broker, request


@dataclass
class Gone:
    """A client whose connection has ended."""

    closed: bool = True
    memory: None = None
    answers: None = None

    def resume(self, _reason: object) -> None:
        """Nothing waits."""


@dataclass
class Counted:
    """Connections to brokers that are open."""

    opened: int = 0
    are_many: bool = False

    def may_open(self) -> bool:
        return True

    def upstream_opened(self) -> None:
        self.opened += 1

    def upstream_closed(self) -> None:
        self.opened -= 1


@dataclass
class Brokers:
    """One broker, as `KafkaUpstream` leads to it."""

    users = None

    where: tuple[str, int]
    topics: set[bytes] = field(default_factory=set[bytes])

    def address(self, _broker: int) -> tuple[str, int]:
        return self.where

    def may_connect(self, _broker: int) -> bool:
        return True

    def connect_succeeded(self, _broker: int) -> None:
        """Not looked at."""

    def open(self, owner: Any, address: tuple[str, int], _answers: object) -> UpstreamConnection:
        connection = UpstreamConnection(owner, address, 5)
        connection.open()
        return connection


async def test_what_a_client_asked_last_arrives_and_its_connection_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that takes several steps goes on when its client has closed: its links are closed by then."""
    monkeypatch.setattr(client_module, "_LAST_S", 0.2)
    ended = asyncio.Event()

    async def talk(peer: Peer) -> None:
        assert await peer.answers(1)
        peer.writer.write(answer_frame(7))
        await peer.ended()
        ended.set()

    gone: Any = Gone()
    counted = Counted()
    async with broker(talk) as where:
        upstream: Any = Brokers(where)
        links = ClientLinks(gone, upstream, counted)
        links.close()
        waiter = AnswerWaiter(7)
        links.to(1).send_parts([request(7)], waiter)
        assert (await waiter.future).size == 8
        assert counted.opened == 1
        async with asyncio.timeout(3):
            await ended.wait()
        assert counted.opened == 0
