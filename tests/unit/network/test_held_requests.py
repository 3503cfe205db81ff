"""Memory for requests that wait: all connections together stay within it, nothing is lost, nothing hangs."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.network import memory as memory_module
from sidecar.network.framing import Frame
from sidecar.network.handling import Pause
from sidecar.network.listening import close_server
from sidecar.network.memory import HeldBytes, RequestMemory
from sidecar.network.paced_tls import PIECE, PacedWire
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.primitives import I32
from sidecar.security.broker_access import BrokerAccess
from tests.certificates import Authority
from tests.unit.network.peers import LOOPBACK, Owner, Recorder, answer, broker, listening, on_uvloop, request
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.network.client import ClientConnection
    from sidecar.network.request import Exchange, Request
    from tests.unit.network.peers import Peer

KIB = 1024
MIB = 1024 * KIB
LIMIT = MIB
READ_AT_ONCE = 16 * KIB


class Keeping(Recorder):
    """A handler that keeps every request until it is told to answer; `holds`: one at a time, as cold APIs are."""

    def __init__(self, memory: RequestMemory, *, holds: bool = False) -> None:
        super().__init__(act=self._keep, memory=memory)
        self.shared = memory
        self.holds = holds
        self.kept: list[tuple[ClientConnection, Request, Exchange]] = []
        self.most = 0

    def client_closed(self, connection: ClientConnection) -> None:
        super().client_closed(connection)
        self.kept = [each for each in self.kept if each[0] is not connection]

    def _keep(self, connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        self.most = max(self.most, self.shared.used)
        asked.own()
        self.kept.append((connection, asked, exchange))
        if self.holds:
            connection.hold()

    def answer_all(self) -> None:
        """All that are here now."""
        kept, self.kept = self.kept, []
        for connection, asked, exchange in kept:
            TURN.run(lambda asked=asked, exchange=exchange: exchange.answer(answer(asked.correlation_id)))
            if self.holds:
                connection.release()


class Looking(RequestMemory):
    """Counts its looks."""

    looks = 0

    def _look(self) -> None:
        self.looks += 1
        super()._look()


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for_async(holds, what, timeout=20)


async def answered(recorder: Keeping, *waiting: Awaitable[list[int]]) -> list[list[int]]:
    """What each gets while every request is answered as it comes."""
    answers = asyncio.gather(*waiting)
    async with asyncio.timeout(20):
        while not answers.done():
            await asyncio.sleep(0.003)
            recorder.answer_all()
    return answers.result()


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("size", [1 * KIB, 12 * KIB, 100 * KIB])
@on_uvloop
async def test_requests_that_wait_take_no_more_than_there_is_and_all_are_answered(holds: bool, size: int) -> None:
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory, holds=holds)
    clients, count = 20, min(200, 800 * KIB // size)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        peers = [await opened.enter_async_context(connect()) for _ in range(clients)]
        for peer in peers:
            peer.writer.write(b"".join(request(number, body=bytes(size)) for number in range(count)))
        assert await answered(recorder, *(peer.answers(count) for peer in peers)) == [list(range(count))] * clients
        # The first read of one connection may find all of the memory free, and bring 256 KiB more than there is.
        # Of large ones the oldest is received all the same while requests that are complete take half of the memory.
        assert recorder.most <= 3 * LIMIT // 2 + 256 * KIB + clients * 2 * READ_AT_ONCE
        assert memory.waits > 0, "the memory was never used up"
        await until(lambda: not memory.used, "all of it to be given back")
        assert memory.waiting == 0
        assert recorder.rejected == []


@on_uvloop
async def test_a_connection_that_holds_nothing_is_served_while_the_memory_is_used_up() -> None:
    """What others wait for may come from it: a Release, a login's next message."""
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        holding = [await opened.enter_async_context(connect()) for _ in range(8)]
        for peer in holding:
            peer.writer.write(b"".join(request(number, body=bytes(10 * KIB)) for number in range(40)))
        await until(lambda: memory.waiting, "all of the memory to be used up")
        other = await opened.enter_async_context(connect())
        for number in range(1_000, 1_003):
            other.writer.write(request(number))
            await until(lambda number=number: number in recorder.exchanges, "its request")
            recorder.exchanges[number].answer(answer(number))
            assert await other.answers(1) == [number]
        assert memory.used > memory.limit


@on_uvloop
async def test_where_nothing_comes_back_whoever_holds_most_is_closed_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_module, "LOOK_S", 0.02)
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        other = await opened.enter_async_context(connect())
        other.writer.write(request(0, body=bytes(KIB)))
        most = await opened.enter_async_context(connect())
        most.writer.write(b"".join(request(number, body=bytes(12 * KIB)) for number in range(100, 220)))
        await until(lambda: memory.waiting, "all of the memory to be used up")
        other.writer.write(request(1, body=bytes(KIB)))
        assert await most.ended()
        await until(lambda: 1 in recorder.exchanges, "the other one to be read")
        recorder.answer_all()
        assert await other.answers(2) == [0, 1]
        assert [(reason, closed) for reason, _, closed in recorder.rejected] == [("memory", True)]


@on_uvloop
async def test_nobody_waits_for_ever_behind_large_requests_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are complete take more than half of the memory, others the rest: none of these may grow."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.02)
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        large = request(1, body=bytes(700 * KIB))
        keeping = await opened.enter_async_context(connect())
        keeping.writer.write(request(0) + large)
        await until(lambda: 1 in recorder.exchanges, "a request that is kept")
        others = [await opened.enter_async_context(connect()) for _ in range(3)]
        for number, peer in enumerate(others):
            peer.writer.write(request(10 + number) + request(20 + number, body=bytes(700 * KIB)))
        await until(lambda: memory.waiting == 3, "all others to wait")
        assert memory.used <= 2 * LIMIT
        await until(lambda: recorder.rejected, "whoever keeps it to be closed")
        assert {reason for reason, _, _ in recorder.rejected} == {"memory"}
        assert len(recorder.rejected) == 1, "the one that kept it, and nobody who waited"
        assert await answered(recorder, *(peer.answers(2) for peer in others)) == [
            [10 + number, 20 + number] for number in range(3)
        ]


@pytest.mark.parametrize("traffic", [False, True])
@on_uvloop
async def test_who_keeps_memory_behind_a_parked_request_makes_way_whatever_else_goes_on(
    monkeypatch: pytest.MonkeyPatch, traffic: bool
) -> None:
    """A Watch may last for minutes, and complete requests wait behind it. Small ones of others come and go."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.05)
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory)
    keep = recorder.act

    def act(connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        if asked.correlation_id == 0:
            connection.hold()
            connection.park()
            return
        assert keep is not None
        keep(connection, asked, exchange)

    recorder.act = act
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        holders = [await opened.enter_async_context(connect()) for _ in range(2)]
        for peer in holders:
            peer.writer.write(request(0) + request(1, body=bytes(500 * KIB)))
        await until(lambda: memory.used >= 1000 * KIB, "the memory to be kept")
        other, small = [await opened.enter_async_context(connect()) for _ in range(2)]
        other.writer.write(request(5, body=bytes(300 * KIB)))
        number = 100
        async with asyncio.timeout(20):
            while 5 not in recorder.exchanges:
                if traffic:
                    number += 1
                    small.writer.write(request(number, body=bytes(KIB)))
                await asyncio.sleep(0.005)
                recorder.answer_all()
        recorder.answer_all()
        assert await other.answers(1) == [5]
        assert {reason for reason, _, _ in recorder.rejected} == {"memory"}
        assert not any(peer.reader.at_eof() for peer in (other, small))


@on_uvloop
async def test_a_client_that_is_not_read_is_not_closed_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is on its way; the node has enough without an answer, and reads no more of it."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.05)
    memory = Looking(LIMIT)
    recorder = Keeping(memory)
    async with AsyncExitStack() as opened:
        connect = await opened.enter_async_context(listening(recorder))
        fast, other = [await opened.enter_async_context(connect()) for _ in range(2)]
        fast.writer.write(request(0))
        await until(lambda: recorder.connections and recorder.kept, "the first")
        large = request(1, body=bytes(300 * KIB))
        fast.writer.write(large[: 150 * KIB])
        await until(lambda: recorder.connections[0].unfinished_bytes, "half of a request")
        recorder.connections[0].pause(Pause.UNANSWERED)
        fast.writer.write(large[150 * KIB :])
        for number in range(10, 110):
            other.writer.write(request(number, body=bytes(20 * KIB)))
        await until(lambda: memory.waiting, "the memory to be used up")
        await until(lambda: memory.looks > 5, "looks at who is slow")
        assert recorder.rejected == []
        recorder.connections[0].resume(Pause.UNANSWERED)
        assert await answered(recorder, fast.answers(2), other.answers(100)) == [[0, 1], list(range(10, 110))]


@on_uvloop
async def test_a_connection_that_ends_while_it_is_not_read_leaves_nothing() -> None:
    memory = RequestMemory(LIMIT)
    recorder = Keeping(memory)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, body=bytes(12 * KIB)) for number in range(100)))
        await until(lambda: memory.waiting, "all of the memory to be used up")
        recorder.connections[0].abort()
        await until(lambda: recorder.closed, "its end")
        await until(lambda: not (memory.used or memory.waiting), "nothing to be left")


@on_uvloop
async def test_what_a_broker_does_not_take_counts() -> None:
    memory = RequestMemory(LIMIT)
    reads = asyncio.Event()
    arrived: list[int] = []

    async def slow(peer: Peer) -> None:
        peer.reader._transport.pause_reading()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        await reads.wait()
        peer.reader._transport.resume_reading()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        while True:
            size = I32.unpack(await peer.reader.readexactly(4))[0]
            arrived.append(I32.unpack((await peer.reader.readexactly(size))[4:8])[0])

    class Feeding(Owner):
        def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
            super().upstream_full(connection, full)
            (feeder,) = recorder.connections
            (feeder.pause if full else feeder.resume)(Pause.UPSTREAM_FULL)

    async with broker(slow) as address:
        recorder = Recorder()
        owner = Feeding()
        link = UpstreamConnection(owner, address, 5.0, requests=memory)
        recorder.act = lambda _connection, asked, _exchange: link.send_frame(asked.frame, None)
        link.open()
        await until(lambda: link.connected, "a connection")
        async with listening(recorder) as connect, connect() as peer:
            count = 4_000
            peer.writer.write(b"".join(request(number, key=99, body=bytes(8 * KIB)) for number in range(count)))
            await until(lambda: owner.full, "the broker to take no more")
            assert memory.used > 0
            reads.set()
            await until(lambda: len(arrived) == count, "all of it to arrive")
            assert arrived == list(range(count))
            await until(lambda: not memory.used, "all of it to be given back")
            link.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("finishes", [False, True])
def test_what_a_broker_with_tls_does_not_take_counts_and_stops_whoever_writes(
    authority: Authority, finishes: bool
) -> None:
    """OpenSSL would have all of it at once, and nobody would know how much that is."""
    certificate, key = authority.issue("broker", file="broker")
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(certificate, key)
    of_client = ssl.create_default_context(cafile=authority.ca)

    async def run() -> None:
        memory = RequestMemory(64 * MIB)
        reads = asyncio.Event()
        got = bytearray()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
            await reads.wait()
            writer.transport.resume_reading()  # pyright: ignore[reportAttributeAccessIssue]
            while piece := await reader.read(256 * KIB):
                got.extend(piece)
            writer.close()

        server = await asyncio.start_server(slow, LOOPBACK, 0, ssl=of_server)
        owner = Owner()
        access = BrokerAccess(lambda: of_client)
        link = UpstreamConnection(owner, server.sockets[0].getsockname()[:2], 5.0, access)
        link.open()
        await until(lambda: link.connected, "a connection")
        wanted = b""
        for number in range(3):
            size = 8 * MIB
            held = HeldBytes(I32.pack(size) + bytes([number + 1]) * size, memory)
            wanted += held
            link.send_frame(Frame(held, 0, len(held), True), None)
            del held
        await until(lambda: owner.full, "it to take no more")
        await asyncio.sleep(0.05)
        assert memory.used > 24 * MIB
        assert owner.full[-1]
        if finishes:
            link.finish()
        reads.set()
        await until(lambda: len(got) == len(wanted), "all of it to arrive")
        assert got == wanted
        await until(lambda: not memory.used, "all of it to be given back")
        await until(lambda: finishes or not owner.full[-1], "its writer to go on")
        link.close()
        await close_server(server)

    for runs in (on_uvloop(run), lambda: asyncio.run(run())):
        runs()


class Inner(asyncio.Transport):
    """Takes so many pieces."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.got: list[bytes] = []
        self.ended = ""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == PIECE

    def write(self, data: Any) -> None:
        self.got.append(bytes(data))
        self.room -= 1

    def resume_reading(self) -> None:
        """Nothing is read."""

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return 0


async def test_pieces_go_as_they_are_taken_in_their_order_and_the_end_comes_behind_them() -> None:
    inner = Inner(3)
    paced = PacedWire(inner, lambda: inner.room <= 0)
    paced.send([b"a" * PIECE, b"b" * PIECE + b"c"])
    paced.send([b"d"])
    paced.close(60.0)
    paced.send([b"too late"])
    assert b"".join(inner.got) == b"a" * PIECE + b"b" * PIECE + b"c"
    assert (paced.unsent(), inner.ended) == (1, "")
    inner.room = 1
    assert paced.pump()
    assert (inner.got[-1], inner.ended) == (b"d", "closed")


def test_what_is_left_is_dropped_with_the_connection() -> None:
    memory = RequestMemory(MIB)
    inner = Inner(1)
    paced = PacedWire(inner, lambda: inner.room <= 0)
    paced.send([HeldBytes(3 * PIECE, memory)])
    assert memory.used == 3 * PIECE
    paced.close()
    assert (memory.used, inner.ended) == (0, "aborted")


def test_a_writer_is_not_told_to_go_on_where_the_last_piece_fills_the_transport_again() -> None:
    owner = Owner()
    link = UpstreamConnection(owner, (LOOPBACK, 9092), 5.0)

    class Filled(Inner):
        """Says that it is full as an event loop does, while it is written to."""

        def write(self, data: Any) -> None:
            super().write(data)
            if self.room <= 0:
                link.pause_writing()

    inner = Filled(1)
    paced = link._paced = PacedWire(inner, lambda: link._full)
    paced.send([b"a" * 2 * PIECE])
    assert owner.full == [True]
    inner.room = 1
    link.resume_writing()
    assert paced.unsent() == 0
    assert owner.full[-1], "its writer waits until there is room"
    inner.room = 1
    link.resume_writing()
    assert not owner.full[-1]


class PaperHolder:
    """A connection on paper: how much of a request is here, and how much it holds. Notes what it is told."""

    is_awaited = True
    is_parked = False

    def __init__(self, unfinished: int = 0, held: int = 0) -> None:
        self.unfinished_bytes = unfinished
        self.held_bytes = held
        self.told: list[str] = []

    def starve(self) -> None:
        self.told.append("starve")

    def feed(self) -> None:
        self.told.append("feed")

    def refuse(self, reason: str, detail: str) -> None:
        self.told.append(reason)


async def test_who_never_ends_a_request_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait hold complete requests; the stranger has sent a few bytes, and waits for nothing."""
    monkeypatch.setattr(memory_module, "LOOK_S", 0.01)
    memory = RequestMemory(LIMIT)
    stranger: Any = PaperHolder(unfinished=8)
    other: Any = PaperHolder(held=LIMIT)
    held = [memory.begin(stranger, 8, 200 * KIB, 64 * KIB), HeldBytes(LIMIT, memory)]
    memory.hold_up(other)
    await until(lambda: "too_slow" in stranger.told, "the stranger to be closed")
    assert other.told == ["starve"]
    memory.end(stranger)
    held.clear()
    await until(lambda: other.told == ["starve", "feed"], "the other one to be read")
    assert (memory.used, memory.waiting) == (0, 0)
