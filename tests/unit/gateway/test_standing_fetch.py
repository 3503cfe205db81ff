"""A request that a reader repeats is answered as if it were read: by its number, at its offset, in its turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.resolver import Source
from sidecar.fanout.waiting import AT_A_TIME
from sidecar.gateway.client import ClientLogin
from sidecar.gateway.kafka_quotas import SentAs
from sidecar.protocol.calls.tails import error_of
from sidecar.protocol.errors import ErrorCode
from tests.unit.gateway.fetching import Consumer, Node
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.gateway.client import Client


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


async def test_it_is_not_read_anew_and_answered_by_its_own_number_at_its_own_offset(node: Node) -> None:
    reader = await node.reader()
    answers = [(1, 0, 1)]
    for number in range(2, 6):
        node.broker.append()
        await reader.is_told(*answers)
        reader.asks(number, node.broker.end)
        await wait_until(lambda: node.broker.polls, "it waits again")
        answers.append((number, 0, 1))
    node.broker.append()
    await reader.is_told(*answers)
    assert node.walks == 0


async def test_at_an_offset_that_was_just_passed_it_is_answered_at_once(node: Node) -> None:
    reader = await node.reader()
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.asks(2, node.broker.end - 1)
    await reader.is_told((1, 0, 1), (2, 0, 1))
    assert node.walks == 0


async def test_one_behind_another_waits_for_its_turn(node: Node) -> None:
    reader = await node.reader()
    reader.asks(2, 7)
    reader.asks(3, 7)
    assert not reader.told
    node.broker.append()
    await reader.is_told((1, 0, 1), (2, 0, 1), (3, 0, 1))


async def test_it_waits_as_long_as_it_asks_to_and_is_then_told_where_the_log_ends(node: Node) -> None:
    reader = await node.reader()
    reader.asks(2, 7, wait_ms=20)  # another request: it is read, and those that repeat it are not
    node.broker.append()
    await reader.is_told((1, 0, 1), (2, 0, 1))
    walks = node.walks
    reader.asks(3, 8, wait_ms=20)
    await reader.is_told((1, 0, 1), (2, 0, 1), (3, 0, 0))
    reader.asks(4, 8, wait_ms=20)
    await reader.is_told((1, 0, 1), (2, 0, 1), (3, 0, 0), (4, 0, 0))
    assert node.walks == walks


async def test_what_was_found_for_an_earlier_request_is_nothing_to_it(node: Node) -> None:
    reader = await node.reader()
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.asks(2, 8)
    exchange: Any = reader.connection.repeating
    earlier = exchange._repeat._line.at(7).question
    exchange.arrived({earlier: node.broker._answer(earlier.position)})
    exchange.expired(exchange._tick - 1)
    assert reader.told == [(1, 0, 1)]
    await wait_until(lambda: node.broker.polls, "it waits")
    node.broker.append()
    await reader.is_told((1, 0, 1), (2, 0, 1))


async def test_of_a_shadow_that_is_gone_nothing_is_read_any_more(node: Node) -> None:
    node.resolver.set_shadows({b"copy": Source(b"orders", UUID(int=1))})
    reader = await node.reader(b"copy")
    node.broker.append()
    await reader.is_told((1, 0, 1))
    node.resolver.set_shadows({b"copy": Source(b"orders", UUID(int=1), frozenset({"User:alice"}))})
    reader.asks(2, 8)
    await wait_until(lambda: len(reader.told) == 2, "it is refused")
    assert reader.told[1][1] != 0
    assert node.walks > 0


class Meter:
    """Keeps in whose name each answer's records were read."""

    def __init__(self) -> None:
        self.sent_as: list[SentAs] = []

    def expected(self, _: Any) -> None: ...
    def answered(self, exchange: Any) -> None:
        self.sent_as.append(exchange.sent_as)


@pytest.mark.parametrize(("topic", "alone"), [(b"orders", SentAs.CLIENT), (b"copy", SentAs.NODE_FOR_CLIENT)])
async def test_what_is_too_large_for_a_reader_is_read_in_the_name_that_may_read_it(
    topic: bytes, alone: SentAs, node: Node
) -> None:
    """A shadow's source is read as the node even on the client's own connection."""
    node.resolver.set_shadows({b"copy": Source(b"orders", UUID(int=1))})
    reader, meter = await node.reader(topic), Meter()
    reader.connection.meter = cast("Any", meter)
    node.broker.append()
    await reader.is_told((1, 0, 1))
    node.broker.end += 2_000
    reader.asks(2, 8)
    await wait_until(lambda: len(reader.told) == 2, "it is answered")
    reader.asks(3, node.broker.end)
    await wait_until(lambda: node.broker.polls, "it waits")
    node.broker.append()
    await wait_until(lambda: len(reader.told) == 3, "it is answered")
    assert meter.sent_as == [SentAs.NODE, alone, SentAs.NODE]


async def test_one_by_another_client_id_is_read_and_so_are_those_behind_it(node: Node) -> None:
    reader = await node.reader()
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.asks(2, 8, client=b"another")
    assert node.walks == 1
    client: Client = reader.connection.state
    assert client.identity is not None
    assert client.identity.name == "another"


async def test_behind_the_end_of_its_session_it_is_refused(node: Node) -> None:
    reader = await node.reader()
    client: Client = reader.connection.state
    client.login = ClientLogin(asyncio.get_running_loop().call_later(60, lambda: None))
    client.login.done, client.login.expires_at = True, None
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.asks(2, 8)
    await wait_until(lambda: node.broker.polls, "it waits")
    node.broker.append()
    await reader.is_told((1, 0, 1), (2, 0, 1))
    client.login.expires_at = 1.0
    reader.asks(3, 9)
    assert reader.transport.is_closed
    client.login.end()


async def test_one_that_has_no_header_is_refused_also_where_its_bytes_come_apart(node: Node) -> None:
    reader = await node.reader()
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.sends(b"\0\0\0\2")
    assert not reader.transport.is_closed
    reader.sends(b"ab")
    assert reader.transport.is_closed


async def test_a_client_that_hung_up_is_forgotten(node: Node) -> None:
    reader = await node.reader()
    node.broker.append()
    await reader.is_told((1, 0, 1))
    reader.asks(2, 8)
    waiting = node.fetches.tails.waiting
    reader.connection.connection_lost(None)
    assert (node.fetches.tails.waiting, reader.connection.repeating) == (waiting - 1, None)


async def test_who_asks_again_before_its_turn_to_be_woken_and_goes_is_waited_for_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was left among those that the question is asked for: for as long as nothing was written there, a poll went on
    for nobody, and its connection was kept.
    """
    tails = node.fetches.tails
    await node.reader()
    for _ in range(AT_A_TIME):
        Consumer(node).asks(1, 7)
    reader = Consumer(node)
    reader.asks(1, 7)
    with monkeypatch.context() as patched:
        patched.setattr(node.broker, "_answer", lambda _: error_of(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        node.broker.polls.pop().set_result(None)
        for _ in range(100):
            if tails.waking.is_busy:
                break
            await asyncio.sleep(0)
    assert tails.waking.left, "its turn is to come"
    exchange: Any = reader.connection.repeating
    exchange.expired(exchange._tick)
    reader.asks(2, 7)
    await reader.is_told((1, 0, 0), (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0))
    reader.connection.connection_lost(None)
    assert (tails.waiting, tails._parked) == (0, 0)
