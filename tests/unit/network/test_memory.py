"""Memory for large requests of all clients: who waits, who goes on, who is closed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from sidecar.network import memory as memory_module
from sidecar.network.idling import ClientWatch
from sidecar.network.keepalive import unread_at_end
from sidecar.network.memory import HeldBytes, RequestMemory
from tests.unit.network.peers import Peer, Recorder, answer, feed, listening, on_uvloop, request
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sidecar.network.client import ClientConnection
    from sidecar.network.request import Exchange, Request

MIB = 1024 * 1024


class Sharing(Recorder):
    """A handler whose connections share memory."""

    def __init__(self, memory: RequestMemory) -> None:
        super().__init__(act=self._answer, memory=memory)
        self.sizes: list[int] = []

    def _answer(self, _connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        self.sizes.append(asked.frame.size)
        exchange.answer(answer(asked.correlation_id))


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for_async(holds, what, timeout=20)


def begin(peer: Peer, size: int, sent: int) -> bytes:
    """Send a small request and the beginning of a large one; returns the rest of that."""
    whole = request(1, body=bytes(size))
    peer.writer.write(request(0) + whole[:sent])
    return whole[sent:]


@on_uvloop
async def test_many_unfinished_requests_take_no_more_than_there_is_and_all_are_served_in_the_end() -> None:
    memory = RequestMemory(8 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        peers = [await opened.enter_async_context(connect()) for _ in range(10)]
        rests = [begin(peer, 4 * MIB, 3 * MIB) for peer in peers]
        await until(lambda: memory.waiting >= 5, "those for which there is no room")
        assert memory.used <= memory.limit + 4 * MIB
        for peer, rest in zip(peers, rests, strict=True):
            peer.writer.write(rest)
        assert await asyncio.gather(*(peer.answers(2) for peer in peers)) == [[0, 1]] * 10
        await until(lambda: memory.used == 0, "all of it is given back")
        assert memory.waiting == 0
        assert memory.waits > 0
        assert recorder.rejected == []


@on_uvloop
async def test_small_requests_are_served_while_there_is_no_memory() -> None:
    memory = RequestMemory(MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        large = [await opened.enter_async_context(connect()) for _ in range(3)]
        for peer in large:
            begin(peer, 4 * MIB, 3 * MIB)
        await until(lambda: memory.waiting, "no room")
        other = await opened.enter_async_context(connect())
        other.writer.write(request(7))
        assert await other.answers(1) == [7]


@on_uvloop
async def test_who_holds_memory_and_sends_nothing_is_closed_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "LOOK_S", 0.1)
    memory = RequestMemory(2 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        slow = await opened.enter_async_context(connect())
        begin(slow, 4 * MIB, 2 * MIB + 1000)
        await until(lambda: memory.used >= 2 * MIB, "all that there is")
        other = await opened.enter_async_context(connect())
        rest = begin(other, 4 * MIB, MIB)
        other.writer.write(rest)
        assert await slow.ended()
        assert await other.answers(2) == [0, 1]
        assert [reason for reason, _, _ in recorder.rejected] == ["too_slow"]


@on_uvloop
async def test_who_holds_memory_behind_a_parked_request_is_closed_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For how long a request is parked is for its client to say: it might be for ever."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.1)
    memory = RequestMemory(2 * MIB)
    recorder = Sharing(memory)
    served = recorder.act

    def act(connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        if connection.id == 1:
            connection.hold()
            connection.park()
        else:
            served(connection, asked, exchange)

    recorder.act = act
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        slow = await opened.enter_async_context(connect())
        begin(slow, 4 * MIB, 2 * MIB + 1000)
        await until(lambda: memory.used >= 2 * MIB, "all that there is")
        other = await opened.enter_async_context(connect())
        rest = begin(other, 4 * MIB, MIB)
        other.writer.write(rest)
        assert await slow.ended()
        assert await other.answers(2) == [0, 1]
        assert [reason for reason, _, _ in recorder.rejected] == ["too_slow"]


@on_uvloop
async def test_who_is_slow_while_nobody_waits_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "LOOK_S", 0.02)
    memory = RequestMemory(2 * MIB)
    recorder = Sharing(memory)
    async with listening(recorder) as connect, connect() as slow:
        rest = begin(slow, MIB, MIB // 2)
        await asyncio.sleep(0.2)
        slow.writer.write(rest)
        assert await slow.answers(2) == [0, 1]
        assert recorder.rejected == []


@on_uvloop
async def test_a_connection_that_ends_gives_its_memory_back_and_leaves_no_place_in_the_queue() -> None:
    memory = RequestMemory(MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        peers = [await opened.enter_async_context(connect()) for _ in range(3)]
        for peer in peers:
            begin(peer, 4 * MIB, 3 * MIB)
        await until(lambda: memory.waiting, "no room")
        for peer in peers:
            peer.close()
        await until(lambda: recorder.closed == 3, "all are gone")
        await until(lambda: not (memory.used or memory.waiting), "nothing is left")


@on_uvloop
async def test_a_request_whose_rest_is_read_although_it_waits_leaves_its_connection_readable() -> None:
    memory = RequestMemory(MIB)
    recorder = Sharing(memory)
    async with listening(recorder) as connect, connect() as first, connect() as second:
        begin(first, 4 * MIB, 3 * MIB // 2)
        await until(lambda: memory.used >= MIB, "no room")
        rest = begin(second, MIB // 2, 1000)
        await until(lambda: memory.waiting, "it waits")
        connection = recorder.connections[1]
        feed(connection, rest)  # as a TLS stream hands over what it has decrypted already
        second.writer.write(request(2))
        assert await second.answers(3) == [0, 1, 2]


@on_uvloop
async def test_memory_is_taken_as_long_as_anybody_has_the_request() -> None:
    memory = RequestMemory(8 * MIB)
    recorder = Sharing(memory)
    kept: list[object] = []

    def keep(_connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        if asked.correlation_id:
            kept.append(asked.frame.view(asked.frame.start, asked.frame.end))
        exchange.answer(answer(asked.correlation_id))

    recorder.act = keep
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(begin(peer, MIB, MIB // 2))
        assert await peer.answers(2) == [0, 1]
        assert memory.used >= MIB
        kept.clear()
        assert memory.used == 0


def test_bytes_that_grow_are_counted_until_they_are_gone() -> None:
    memory = RequestMemory(100)
    held = HeldBytes(10, memory)
    held.grant(5)
    assert (len(held), memory.used) == (10, 15)
    held.grow(1)
    assert (len(held), memory.used) == (15, 15)
    held.grow(1)
    assert (len(held), memory.used) == (16, 16)
    view = memoryview(held)
    del held
    assert memory.used == 16
    del view
    assert memory.used == 0


# Peers that go while they wait ----------------------------------------------------------------------------------------


def unread(connection: ClientConnection) -> int | None:
    assert connection._transport is not None
    return unread_at_end(connection._transport)


@asynccontextmanager
async def watched(recorder: Recorder) -> AsyncIterator[None]:
    """The watch of a node looks at the connections, often."""
    watch = asyncio.create_task(ClientWatch(lambda: recorder.connections, limit_s=0.01).run())
    try:
        yield
    finally:
        watch.cancel()


@on_uvloop
async def test_who_ends_its_stream_while_it_waits_for_memory_gives_its_place_back_at_once() -> None:
    memory = RequestMemory(2 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        holding, *waiting = [await opened.enter_async_context(connect()) for _ in range(4)]
        rest = begin(holding, 4 * MIB, 2 * MIB + 1000)
        await until(lambda: memory.used >= 2 * MIB, "all that there is")
        for peer in waiting:
            begin(peer, 4 * MIB, 100_000)
        await until(lambda: memory.waiting == 3, "those that wait")
        waiting[0].writer.write_eof()
        waiting[1].close()
        await until(lambda: None not in map(unread, recorder.connections[1:3]), "FIN")
        assert memory.waiting == 3, "nobody looks yet"
        await opened.enter_async_context(watched(recorder))
        await until(lambda: recorder.closed == 2, "those that have gone")
        assert memory.waiting == 1, "who is there waits on"
        holding.writer.write(rest)
        assert await holding.answers(2) == [0, 1]


@on_uvloop
async def test_a_whole_request_counts_although_its_client_has_gone() -> None:
    """It may be one without an answer (acks=0): nobody would send it again."""
    memory = RequestMemory(2 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        holding, other = [await opened.enter_async_context(connect()) for _ in range(2)]
        rest = begin(holding, 4 * MIB, 2 * MIB + 1000)
        await until(lambda: memory.used >= 2 * MIB, "all that there is")
        more = begin(other, 100_000, 50_000) + request(2)  # fits into the receive buffer of the kernel: it is sent
        await until(lambda: memory.waiting, "no room")
        other.writer.write(more)
        other.writer.write_eof()
        await until(lambda: (unread(recorder.connections[1]) or 0) > len(more), "its end")
        await opened.enter_async_context(watched(recorder))
        await asyncio.sleep(0.1)  # some looks
        assert (recorder.closed, memory.waiting) == (0, 1)
        holding.writer.write(rest)
        await until(lambda: recorder.received.count(1) == 2, "both large requests")
        await until(lambda: recorder.closed == 1, "the end of its stream")
        assert 2 in recorder.received


@on_uvloop
@pytest.mark.parametrize("more", [b"", request(9)], ids=["nothing unread", "a request unread"])
async def test_who_is_held_up_with_a_request_without_an_answer_is_let_go_of_when_it_has_gone(more: bytes) -> None:
    memory = RequestMemory(MIB)
    recorder = Sharing(memory)
    served = recorder.act

    def act(connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        if asked.correlation_id == 1:
            asked.own()  # and no answer for now
        else:
            served(connection, asked, exchange)

    recorder.act = act
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        holding, large = [await opened.enter_async_context(connect()) for _ in range(2)]
        begin(large, 4 * MIB, MIB + 1000)
        await until(lambda: memory.used > MIB, "more than there is")
        holding.writer.write(request(1, body=bytes(1000)))
        await until(lambda: recorder.connections[0]._budget.starves, "its first request holds it up")
        holding.writer.write(more)
        holding.writer.write_eof()
        await until(lambda: unread(recorder.connections[0]) == len(more), "its end")
        await opened.enter_async_context(watched(recorder))
        await asyncio.sleep(0.1)  # some looks
        assert recorder.closed == (0 if more else 1)
        assert 9 not in recorder.received
