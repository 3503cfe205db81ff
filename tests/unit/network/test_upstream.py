"""A connection to a broker: order, loss, back-pressure before it stands, and who is to blame when it ends."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sidecar.network.upstream import UpstreamConnection
from sidecar.network.wire import LoopWire
from sidecar.protocol.primitives import I32
from tests.unit.network.peers import LOOPBACK, Asked, Owner, Peer, answer_frame, broker, frame_of, on_uvloop
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB = 1024


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for_async(holds, what, timeout=5)


async def read_one(peer: Peer) -> int:
    """The correlation id of the next request."""
    size = I32.unpack(await peer.reader.readexactly(4))[0]
    return I32.unpack((await peer.reader.readexactly(size))[:4])[0]


async def echo(peer: Peer) -> None:
    """A broker that answers each request with its correlation id."""
    while True:
        peer.writer.write(answer_frame(await read_one(peer), b"!"))


async def silent(peer: Peer) -> None:
    await asyncio.Event().wait()


def ask(connection: UpstreamConnection, correlation: int, size: int = 0) -> Asked:
    asked = Asked(correlation)
    connection.send_parts([frame_of(I32.pack(correlation) + bytes(size))], asked)
    return asked


@contextmanager
def blackhole() -> Iterator[tuple[str, int]]:
    """An address that never answers a connection attempt: a listening socket whose queue is full."""
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    listener.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    try:
        yield listener.getsockname()
    finally:
        for one in (*fillers, listener):
            one.close()


@on_uvloop
async def test_requests_sent_before_the_connection_stands_are_answered_in_order() -> None:
    owner = Owner()
    async with broker(echo) as address:
        connection = UpstreamConnection(owner, address, 5.0)
        asked = [ask(connection, number) for number in range(3)]
        connection.open()
        await until(lambda: all(found.over for found in asked), "answers")
        assert [found.got for found in asked] == [b"!"] * 3
        assert owner.opened == 1
        connection.close()
        assert owner.closed == 1
        assert connection.failure is None


@on_uvloop
async def test_a_refused_connection_tells_that_nothing_was_sent() -> None:
    owner = Owner()
    with socket.socket() as unused:
        unused.bind((LOOPBACK, 0))
        connection = UpstreamConnection(owner, unused.getsockname(), 5.0)
        asked = ask(connection, 1)
        connection.open()
        await until(lambda: asked.over, "the refusal")
    assert asked.lost is not None
    assert not asked.lost.sent
    assert connection.failure is not None
    assert "cannot connect" in connection.failure
    late = ask(connection, 2)
    assert late.lost is not None
    assert not late.lost.sent


@on_uvloop
async def test_a_broker_that_swallows_connection_attempts_costs_the_timeout_and_no_more() -> None:
    with blackhole() as address:
        connection = UpstreamConnection(Owner(), address, 0.2)
        asked = ask(connection, 1)
        connection.open()
        await until(lambda: asked.over, "the timeout")
    assert connection.failure is not None
    assert "timed out" in connection.failure


@on_uvloop
async def test_a_host_that_is_no_name_is_a_failure_like_any_other() -> None:
    connection = UpstreamConnection(Owner(), ("x" * 70 + ".invalid", 1), 5.0)
    asked = ask(connection, 1)
    connection.open()
    await until(lambda: asked.over, "the failure")
    assert connection.failure is not None


@on_uvloop
async def test_a_connection_given_up_by_its_client_says_nothing_of_the_broker() -> None:
    with blackhole() as address:
        owner = Owner()
        connection = UpstreamConnection(owner, address, 5.0)
        asked = ask(connection, 1)
        connection.open()
        await asyncio.sleep(0)
        connection.close("its client is gone")
        assert asked.lost is not None
        assert not asked.lost.sent
        assert owner.closed == 1
        assert connection.failure is None
        assert not connection.lost


@on_uvloop
async def test_a_broker_that_closes_before_its_first_answer_has_failed() -> None:
    async def hang_up(peer: Peer) -> None:
        await read_one(peer)
        peer.close()

    owner = Owner()
    async with broker(hang_up) as address:
        connection = UpstreamConnection(owner, address, 5.0)
        asked = ask(connection, 1)
        connection.open()
        await until(lambda: asked.over, "the end")
        assert asked.lost is not None
        assert asked.lost.sent
        assert connection.failure is not None
        assert connection.lost
        assert owner.opened == 0


@on_uvloop
async def test_a_broker_that_closes_after_an_answer_has_not_failed_but_the_answers_are_lost() -> None:
    async def answer_once(peer: Peer) -> None:
        peer.writer.write(answer_frame(await read_one(peer)))
        await read_one(peer)
        peer.writer.close()

    async with broker(answer_once) as address:
        connection = UpstreamConnection(Owner(), address, 5.0)
        asked = [ask(connection, number) for number in range(3)]
        connection.open()
        await until(lambda: all(found.over for found in asked), "the end")
        assert [found.got for found in asked] == [b"", None, None]
        assert connection.failure is None
        assert connection.lost


@pytest.mark.parametrize(
    "said",
    [answer_frame(77), I32.pack(-1), frame_of(b"abc"), answer_frame(1) + answer_frame(2)],
    ids=["another correlation id", "a negative length", "too short", "one more than was asked"],
)
def test_a_broker_that_is_out_of_step_is_dropped(said: bytes) -> None:
    async def misbehave(peer: Peer) -> None:
        await read_one(peer)
        peer.writer.write(said)
        await silent(peer)

    @on_uvloop
    async def run() -> None:
        owner = Owner()
        async with broker(misbehave) as address:
            connection = UpstreamConnection(owner, address, 5.0)
            ask(connection, 1)
            connection.open()
            await until(lambda: connection.closed, "the end")
            assert owner.closed == 1

    run()


@on_uvloop
async def test_whoever_sends_is_held_back_while_the_connection_does_not_stand() -> None:
    owner = Owner()
    async with broker(echo) as address:
        connection = UpstreamConnection(owner, address, 5.0)
        first = ask(connection, 0, 200 * KIB)
        assert owner.full == []
        second = ask(connection, 1, 200 * KIB)
        third = ask(connection, 2, 200 * KIB)
        assert owner.full == [True]
        connection.open()
        await until(lambda: first.over and second.over and third.over, "answers")
        assert owner.full[-1] is False


@on_uvloop
async def test_whoever_sends_is_held_back_while_the_broker_does_not_read() -> None:
    reading = asyncio.Event()

    async def late(peer: Peer) -> None:
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await reading.wait()
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await echo(peer)

    owner = Owner()
    async with broker(late) as address:
        connection = UpstreamConnection(owner, address, 5.0)
        connection.open()
        await until(lambda: connection.connected, "the connection")
        asked: list[Asked] = []

        def one_more() -> bool:  # a kernel sets aside as much as it likes
            asked.append(ask(connection, len(asked), 512 * KIB))
            return owner.full == [True]

        await until(one_more, "back-pressure")
        reading.set()
        await until(lambda: all(found.over for found in asked), "answers")
        assert owner.full == [True, False]


@on_uvloop
async def test_answers_are_not_read_while_their_reader_is_full() -> None:
    async with broker(echo) as address:
        connection = UpstreamConnection(Owner(), address, 5.0)
        connection.pause()
        asked = ask(connection, 1)
        connection.open()
        await until(lambda: connection.connected, "the connection")
        await asyncio.sleep(0.05)
        assert not asked.over
        connection.resume()
        await until(lambda: asked.over, "the answer")


@on_uvloop
async def test_a_broker_that_fell_silent_is_looked_for_by_the_kernel() -> None:
    async with broker(echo) as address:
        connection = UpstreamConnection(Owner(), address, 5.0)
        connection.open()
        await until(lambda: connection.connected, "the connection")
        assert isinstance(connection._wire, LoopWire)
        sock: socket.socket = connection._wire._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 25_000
        connection.close()


@on_uvloop
async def test_what_left_as_the_time_to_connect_ran_out_may_have_arrived() -> None:
    """The loop is late just as the connection stands: the timer finds the connecting task unfinished."""
    received: list[int] = []

    async def listen(peer: Peer) -> None:
        received.append(await read_one(peer))
        await asyncio.Event().wait()

    class Late(UpstreamConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            time.sleep(0.3)

    async with broker(listen) as address:
        connection = Late(Owner(), address, 0.2)
        connection.open()
        asked = ask(connection, 7)
        await until(lambda: asked.lost, "the end of the time to connect")
        await until(lambda: received == [7], "the request to arrive all the same")
        assert asked.lost is not None
        assert asked.lost.sent
