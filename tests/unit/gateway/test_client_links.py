"""A client's connections to brokers: none outlives its client for long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
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

    def open(self, owner: Any, address: tuple[str, int], *_: object) -> UpstreamConnection:
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


class _Users:
    """Tokens for principals; who asked is kept."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def login(self, principal: str, _broker: int) -> Any:
        self.asked.append(principal)
        return SimpleNamespace(began=False, problem=None)


class _WithTokens(Brokers):
    users: Any

    def open(self, owner: Any, address: tuple[str, int], *_: object) -> UpstreamConnection:
        return super().open(owner, address)


def _links(where: tuple[str, int], principal: str, login: object) -> tuple[ClientLinks, _Users, Counted]:
    client: Any = Gone(closed=False)
    client.state = SimpleNamespace(principal=principal, login=login)
    upstream: Any = _WithTokens(where)
    upstream.users, counted = _Users(), Counted()
    return ClientLinks(client, upstream, counted), upstream.users, counted


@pytest.mark.parametrize(
    ("principal", "login", "asked"),
    [
        ("User:alice", None, ["User:alice"]),  # by certificate
        ("User:ANONYMOUS", object(), ["User:ANONYMOUS"]),  # a user with that name
        ("User:ANONYMOUS", None, []),
    ],
)
async def test_who_has_logged_in_is_not_served_under_the_nodes_name(
    principal: str, login: object, asked: list[str]
) -> None:
    async def talk(peer: Peer) -> None:
        await peer.ended()

    async with broker(talk) as where:
        links, users, _ = _links(where, principal, login)
        links.to(1)
        links.to(1, as_node=True)
        assert users.asked == asked
        links.close()


async def test_a_client_that_reads_elsewhere_gives_up_its_connection_for_sources_of_shadows_too() -> None:
    async def talk(peer: Peer) -> None:
        await peer.ended()

    async with broker(talk) as where:
        links, _, counted = _links(where, "User:alice", None)
        links.to(1)
        links.to(1, as_node=True)
        assert counted.opened == 2
        links.rest(1)
        assert counted.opened == 0
