"""The readers of one shadow take no more than their share, and others notice nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cluster.resolver import Source
from sidecar.cluster.view import NO_LEADER
from sidecar.fanout.crowd import LEAST
from sidecar.gateway.quotas import PLACE_S, AudienceLimits, Audiences, Places
from sidecar.network.handling import Pause
from sidecar.protocol.errors import ErrorCode
from tests.unit.gateway.fetching import Consumer, Node
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.network.client import ClientConnection

_AWAY = ErrorCode.NOT_LEADER_OR_FOLLOWER
_SHADOWS = {name: Source(b"orders", UUID(int=1)) for name in (b"busy", b"calm")}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node(monkeypatch)
    found.resolver.set_shadows(_SHADOWS)
    return found


def bound(node: Node, limits: AudienceLimits) -> Audiences:
    """As a node does whose settings say so. The clock stands still."""
    audiences = Audiences(limits, node.gateway.clients, lambda: 0.0)
    node.fetches.audiences = audiences
    node.readers.took = audiences.took
    return audiences


def is_muted(connection: ClientConnection) -> bool:
    return bool(connection._budget.pauses & Pause.AUDIENCE)


_STEPS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([b"a", b"b"]), st.floats(0, PLACE_S), st.booleans()), max_size=60
)


@given(st.integers(1, 3), _STEPS)
def test_no_more_connections_than_there_are_places_have_read_a_shadow_within_a_minute(
    most: int, steps: list[tuple[int, bytes, float, bool]]
) -> None:
    places, now, last = Places(most), 0.0, dict[tuple[bytes, int], float]()
    for connection, shadow, seconds, leaves in steps:
        now += seconds
        if leaves:
            places.leaves(connection)
            last = {key: at for key, at in last.items() if key[1] != connection}
            continue
        others = [key for key, at in last.items() if key[0] == shadow and key[1] != connection and now - at < PLACE_S]
        holds = (shadow, connection) in last and now - last[shadow, connection] < PLACE_S
        takes = places.takes(shadow, connection, now)
        if holds or len(others) < most - 1:
            assert takes, "it has a place, or one is free"
        if takes:
            last[shadow, connection] = now
        assert sum(key[0] == shadow and now - at < PLACE_S for key, at in last.items()) <= most


async def test_a_reader_without_a_place_asks_again_until_one_is_free(node: Node) -> None:
    bound(node, AudienceLimits(readers=LEAST))
    readers = [Consumer(node, b"busy") for _ in range(LEAST + 1)]
    for reader in readers:
        reader.asks(1, 7)
    *_, last = readers
    await last.is_told((1, _AWAY, 0))
    calm = Consumer(node, b"calm")
    calm.asks(1, 7)
    await wait_until(lambda: node.broker.polls, "the others wait")
    readers[0].connection.connection_lost(None)
    last.asks(2, 7)
    node.broker.append()
    await last.is_told((1, _AWAY, 0), (2, 0, 1))
    await calm.is_told((1, 0, 1))


async def test_a_place_is_asked_for_by_repeated_requests_too(node: Node) -> None:
    audiences = bound(node, AudienceLimits(readers=LEAST))
    reader = await node.reader(b"busy")
    node.broker.append()
    await reader.is_told((1, 0, 1))
    for number in range(100, 100 + LEAST):  # as if it had lost its place to others
        audiences._places = audiences._places or Places(LEAST)
        audiences._places.leaves(reader.connection.id)
        assert audiences.admits(b"busy", number)
    reader.asks(2, 8)
    await reader.is_told((1, 0, 1), (2, _AWAY, 0))


async def test_an_audience_that_took_too_much_waits_and_nobody_else(node: Node) -> None:
    bound(node, AudienceLimits(byte_rate=LEAST))
    busy, calm, own = ([Consumer(node, name) for _ in range(LEAST)] for name in (b"busy", b"calm", b"orders"))
    for reader in (*busy, *calm[:1], *own):
        reader.asks(1, 7)
    await wait_until(lambda: node.broker.polls, "they wait")
    for reader in (*busy, *own):
        if reader.told:  # whoever came first found nobody else and read alone
            reader.asks(2, 7)
    node.broker.append()
    for reader in busy:
        await wait_until(lambda reader=reader: reader.told[-1:] and reader.told[-1][2] == 1, "it has the record")
    assert not any(is_muted(reader.connection) for reader in busy), "that was all that they may have at once"
    busy[0].asks(3, 7)
    await wait_until(lambda: len(busy[0].told) > 1, "it is told once more")
    assert is_muted(busy[0].connection)
    assert not any(is_muted(reader.connection) for reader in (*busy[1:], *calm, *own))
    answers = len(busy[0].told)
    busy[0].asks(4, 7)
    calm[0].asks(4, 7)
    await wait_until(lambda: calm[0].told[-1][0] == 4, "another audience is served")
    assert len(busy[0].told) == answers
    busy[0].connection.resume(Pause.AUDIENCE)
    await wait_until(lambda: busy[0].told[-1][0] == 4, "what it sent meanwhile is taken up")


async def test_of_a_client_that_hung_up_nothing_is_kept(node: Node) -> None:
    audiences = bound(node, AudienceLimits(LEAST, byte_rate=1))
    reader = await node.reader(b"busy")
    for offset in (7, 8):
        node.broker.append()
        await wait_until(lambda offset=offset: len(reader.told) > offset - 7, "it is told")
        if not is_muted(reader.connection):
            reader.asks(offset, offset + 1)
            await wait_until(lambda: node.broker.polls, "it waits")
    assert is_muted(reader.connection)
    reader.connection.connection_lost(None)
    assert not audiences._muted


async def test_a_client_that_goes_while_leaders_are_looked_up_gets_no_place(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would give it back."""
    audiences = bound(node, AudienceLimits(LEAST))
    asked, found = asyncio.Event(), asyncio.Event()

    async def find_leaders(_: set[bytes]) -> bool:
        asked.set()
        await found.wait()
        return True

    view = node.broker.view
    view.missing, view.leader, view.only_leader = (lambda _: {b"orders"}), (lambda *_: NO_LEADER), (lambda _: NO_LEADER)
    monkeypatch.setattr(node.broker, "find_leaders", find_leaders, raising=False)
    reader = Consumer(node, b"busy")
    reader.asks(1, 7)
    await asyncio.wait_for(asked.wait(), 5)
    reader.connection.connection_lost(None)
    found.set()
    await wait_until(lambda: not node.gateway.tasks._tasks, "the request to be over")
    assert audiences._places is not None
    assert audiences._places._last == {}
