"""How long of a request a broker was waited for: from handing it on to reading its answer, by a clock on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from sidecar.network import request, turn, upstream
from sidecar.network.client import ClientConnection
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamConnection, UpstreamLostError
from sidecar.protocol.primitives import I32
from tests.unit.network.peers import LOOPBACK, Owner, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.network.handling import Handler


class Passed(Exchange):
    """A request that goes on as it came."""

    def answer_received(self, frame: Frame) -> None:
        self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.answer([b""])


class PaperNode:
    """A client's connection and one to a broker, without sockets. `done`: (started, upstream) of what was answered."""

    def __init__(self) -> None:
        self.now = 100.0
        self.done: list[tuple[float, float]] = []
        self.client = ClientConnection(cast("Handler[ClientConnection]", self), 1, 1_000)
        self.broker = UpstreamConnection(Owner(), (LOOPBACK, 1), 1.0)

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        self.done.append((exchange.started, exchange.upstream))

    def turn(self, *actions: Callable[[], object]) -> None:
        """Do these as one read."""
        TURN.begin()
        for action in actions:
            action()
        TURN.end()

    def passes(self) -> None:
        """A millisecond."""
        self.now += 0.001

    def request(self, number: int) -> Passed:
        exchange = Passed(self.client, Request(0, 7, number, b"", Frame(bytearray(), 0, 0, True), 0))
        self.client.expect(exchange)
        return exchange

    def send(self, number: int) -> None:
        self.broker.send_parts([b"?"], self.request(number))

    def answer(self, number: int) -> None:
        frame = frame_of(I32.pack(number))
        self.broker._received(Frame(bytearray(frame), 0, len(frame), True))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> PaperNode:
    found = PaperNode()
    for module in (request, turn, upstream):
        monkeypatch.setattr(module, "perf_counter", lambda: found.now)
    return found


def test_a_request_begins_when_it_is_read_and_its_broker_is_waited_for_from_then_on_that_it_was_asked(
    node: PaperNode,
) -> None:
    node.turn(node.passes, lambda: node.send(1), node.passes, lambda: node.send(2))
    node.now = 100.010
    node.turn(node.passes, lambda: node.answer(1), lambda: node.answer(2))
    assert node.done == [(100.0, pytest.approx(0.009)), (100.0, pytest.approx(0.008))]


def test_an_answer_of_the_nodes_own_waited_for_no_broker(node: PaperNode) -> None:
    node.turn(lambda: node.send(1), lambda: node.request(2).answer([b"no"]))
    node.now = 103.0
    node.turn(lambda: node.answer(1))
    assert node.done == [(100.0, 3.0), (100.0, 0.0)]


async def test_a_broker_that_is_lost_was_waited_for_until_then(node: PaperNode) -> None:
    node.turn(lambda: node.send(1), node.passes, lambda: node.send(2))
    node.now = 103.0
    node.broker.close("lost")
    node.request(3).answer([b"from a timer"])
    assert node.done == [(100.0, 3.0), (100.0, pytest.approx(2.999)), (103.0, 0.0)]


def test_an_answer_that_makes_no_sense_was_waited_for_and_so_were_those_behind_it(node: PaperNode) -> None:
    def nonsense() -> None:
        node.answer(9)  # nobody asked that

    node.turn(lambda: node.send(1), lambda: node.send(2))
    node.now = 103.0
    node.turn(nonsense)
    assert node.done == [(100.0, 3.0), (100.0, 3.0)]


async def test_what_is_answered_after_a_brokers_turn_did_not_wait_for_that_broker(node: PaperNode) -> None:
    node.turn(lambda: node.send(1))
    node.now = 103.0
    node.turn(lambda: node.answer(1))
    node.request(2).answer([b"from a timer"])
    assert node.done == [(100.0, 3.0), (103.0, 0.0)]
