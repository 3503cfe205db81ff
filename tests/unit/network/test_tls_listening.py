"""Clients that come by TLS: handshakes, certificates that change, crowds, strangers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sidecar.network import tls_listening
from sidecar.network.admission import Admission, ConnectionLimits, Refusal
from sidecar.network.framing import RECEIVE_BYTES
from sidecar.network.keepalive import has_silent_peer
from sidecar.network.tls_listening import HANDSHAKE_S, PER_TURN, UNFINISHED, TlsListener
from sidecar.security.tls import ClientAuth, TlsFiles, client_context, server_context
from tests.certificates import Authority
from tests.unit.network.peers import LOOPBACK, Peer, Recorder, answer, on_uvloop, request
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

_TOO_MANY = "too many without a finished handshake"


class Told:
    """What was told of handshakes."""

    def __init__(self) -> None:
        self.done = 0
        self.failed: list[str] = []
        self.some = asyncio.Event()
        self.hundred = asyncio.Event()

    def handshake_done(self) -> None:
        self.done += 1
        if self.done == 100:
            self.hundred.set()

    def handshake_failed(self, peer: str, reason: str) -> None:
        assert peer.startswith(f"{LOOPBACK}:")
        self.failed.append(reason)
        self.some.set()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server(authority: Authority, auth: ClientAuth = ClientAuth.NONE, file: str = "node") -> ssl.SSLContext:
    return server_context(TlsFiles(*authority.issue("node", file=file), authority.ca), auth)


@asynccontextmanager
async def listening(
    recorder: Recorder,
    context: Callable[[], ssl.SSLContext],
    told: Told,
    admission: Admission | None = None,
    handshake_s: float = HANDSHAKE_S,
    unfinished: int = UNFINISHED,
) -> AsyncIterator[TlsListener]:
    listener = TlsListener(recorder.factory, context, told, admission, handshake_s, unfinished)
    await listener.bind(LOOPBACK, 0)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()
        for connection in recorder.connections:
            connection.abort()
        await asyncio.sleep(0.01)


async def connect(listener: TlsListener, context: ssl.SSLContext | None = None) -> Peer:
    return Peer(*await asyncio.open_connection(LOOPBACK, listener.port, ssl=context))


def client(authority: Authority, name: str | None = None) -> ssl.SSLContext:
    pair = authority.issue(name, file=name) if name is not None else (None, None)
    return client_context(TlsFiles(*pair, authority.ca))


@on_uvloop
async def test_requests_and_answers_pass_and_the_certificate_is_known(authority: Authority) -> None:
    recorder, told = Recorder(), Told()
    recorder.act = lambda connection, request, exchange: exchange.answer(answer(request.correlation_id, b"x" * 300_000))
    context = server(authority, ClientAuth.REQUIRED)
    async with listening(recorder, lambda: context, told) as listener:
        peer = await connect(listener, client(authority, "alice"))
        peer.writer.write(b"".join(request(number) for number in range(20)))
        assert await peer.answers(20) == list(range(20))
        found = recorder.connections[0].tls
        assert found is not None
        assert found.getpeercert(binary_form=True)
        assert recorder.connections[0].peer.startswith(f"{LOOPBACK}:")
        peer.close()
    assert (told.done, told.failed) == (1, [])


@on_uvloop
@pytest.mark.parametrize("tls", [True, False])
async def test_a_connection_that_is_ending_is_not_silent(authority: Authority, tls: bool) -> None:
    """The watch may look between the end of a stream and `connection_lost`, when a TLS transport has no socket."""
    context, ended = server(authority), asyncio.Event()
    looks: list[bool] = []

    class Ending(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            asyncio.get_running_loop().call_soon(self.end)

        def end(self) -> None:
            self.transport.abort()  # type: ignore[attr-defined]
            self.look()

        def look(self) -> None:
            looks.append(has_silent_peer(self.transport, 0.0))
            if len(looks) < 10:
                asyncio.get_running_loop().call_soon(self.look)

        def connection_lost(self, exc: Exception | None) -> None:
            ended.set()

    serving = await asyncio.get_running_loop().create_server(Ending, LOOPBACK, 0, ssl=context if tls else None)
    async with serving:
        port = serving.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=client(authority) if tls else None)
        await asyncio.wait_for(ended.wait(), 5)
        await wait_for_async(lambda: _has(looks, 10), "ten looks")
        writer.transport.abort()
    await asyncio.sleep(0.01)
    assert looks == [False] * 10


async def _has(looks: list[bool], count: int) -> bool:
    return len(looks) == count


@on_uvloop
async def test_new_connections_get_the_context_of_now_and_old_ones_stay(authority: Authority) -> None:
    recorder, told = Recorder(), Told()
    recorder.act = lambda connection, request, exchange: exchange.answer(answer(request.correlation_id))
    contexts = [server(authority)]
    async with listening(recorder, lambda: contexts[-1], told) as listener:
        old = await connect(listener, client(authority))
        contexts.append(server(authority, file="next"))
        new = await connect(listener, client(authority))
        serials = [peer.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"] for peer in (old, new)]
        assert serials[0] != serials[1]
        for peer in (old, new):
            peer.writer.write(request(1))
            assert await peer.answers(1) == [1]
            peer.close()


@on_uvloop
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("without", "PEER_DID_NOT_RETURN_A_CERTIFICATE"), ("foreign", "certificate: "), ("plain", "HTTP_REQUEST")],
)
async def test_who_may_not_connect_is_told_and_closed(
    authority: Authority, tmp_path: Path, kind: str, reason: str
) -> None:
    recorder, told = Recorder(), Told()
    context = server(authority, ClientAuth.REQUIRED)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    foreign = TlsFiles(*Authority(elsewhere).issue("alice"), authority.ca)
    contexts = {"without": client(authority), "foreign": client_context(foreign)}
    async with listening(recorder, lambda: context, told) as listener:
        with suppress(OSError):
            peer = await connect(listener, contexts.get(kind))
            peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await peer.ended()
            peer.close()
        async with asyncio.timeout(5):
            await told.some.wait()
    assert len(told.failed) == 1
    assert told.failed[0].startswith(reason)
    assert not recorder.connections


@on_uvloop
async def test_a_probe_that_only_connects_is_no_failure(authority: Authority) -> None:
    recorder, told = Recorder(), Told()
    recorder.act = lambda connection, request, exchange: exchange.answer(answer(request.correlation_id))
    context = server(authority)
    async with listening(recorder, lambda: context, told) as listener:
        for _ in range(3):
            (await connect(listener)).writer.close()
        peer = await connect(listener, client(authority))
        peer.writer.write(request(1))
        assert await peer.answers(1) == [1]
        peer.close()
        assert (told.done, told.failed) == (1, [])


@on_uvloop
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
async def test_who_takes_too_long_is_closed_and_told(authority: Authority, said: bytes) -> None:
    context, told = server(authority), Told()
    admission = Admission(ConnectionLimits(10, 10, 0, 0, 10, 10))
    async with listening(Recorder(), lambda: context, told, admission, 0.5) as listener:
        # What it says is there before it is let in: a client may wait for its turn on a busy machine.
        silent = socket.create_connection((LOOPBACK, listener.port))
        silent.sendall(said)
        peer = Peer(*await asyncio.open_connection(sock=silent))
        assert await peer.ended()
        peer.close()
    assert len(told.failed) == 1
    assert said or told.failed == ["said nothing in time"]
    assert admission.connections == 0


@on_uvloop
async def test_one_address_too_often_is_closed_before_its_handshake_costs_anything(authority: Authority) -> None:
    recorder, context, told = Recorder(), server(authority), Told()
    refused: list[Refusal] = []
    limits = ConnectionLimits(connections=10, per_address=2, per_principal=0, rate=0, files=10, address_files=10)
    admission = Admission(limits, lambda reason, _host: refused.append(reason))
    async with listening(recorder, lambda: context, told, admission) as listener:
        first, silent = await connect(listener, client(authority)), await connect(listener)
        second = await connect(listener)
        assert await second.ended()
        assert refused == [Refusal.ADDRESS]
        assert recorder.connections[0].seat is not None
        silent.close()
        await wait_for_async(lambda: _is(lambda: admission.connections == 1), "the silent one's seat is free")
        third = await connect(listener, client(authority))
        await wait_for_async(lambda: _is(lambda: len(recorder.connections) == 2), "both handshakes are done")
        for each in (first, second, third):
            each.close()
        await wait_for_async(lambda: _is(lambda: recorder.closed == 2), "both are gone")
        for connection in recorder.connections:
            assert connection.seat is not None
            connection.seat.leave()
    assert admission.connections == 0


async def _is(condition: Callable[[], bool]) -> bool:
    return condition()


@on_uvloop
async def test_one_too_many_without_a_handshake_takes_the_place_of_the_oldest_and_is_told(authority: Authority) -> None:
    context, told, recorder = server(authority), Told(), Recorder()
    recorder.act = lambda connection, request, exchange: exchange.answer(answer(request.correlation_id))
    async with listening(recorder, lambda: context, told, unfinished=3) as listener:
        silent = [await connect(listener) for _ in range(3)]
        silent[1].writer.write(b"\x16\x03\x01")  # one of them has begun
        peer = await connect(listener, client(authority))
        assert await silent[0].ended()
        assert told.failed == [_TOO_MANY]
        second = await connect(listener, client(authority))
        for each in (peer, second):
            each.writer.write(request(1))
            assert await each.answers(1) == [1]
            each.close()
        for each in silent:
            each.close()


@on_uvloop
async def test_the_oldest_may_go_between_the_turn_that_begins_its_handshake_and_the_next(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, told, recorder = server(authority), Told(), Recorder()
    admission = Admission(ConnectionLimits.of(1_000))
    async with listening(recorder, lambda: context, told, admission, unfinished=1) as listener:
        oldest = await connect(listener)
        await wait_for_async(lambda: _is(lambda: len(listener._unfinished) == 1), "it has not spoken")
        listener._accept_no_more()
        next_one = await connect(listener)
        begin = listener._begin

        def begin_and_accept() -> None:
            begin()
            listener._accept(listener._sockets[0])

        monkeypatch.setattr(listener, "_begin", begin_and_accept)
        oldest.writer.write(b"\x16\x03\x01")
        assert await oldest.ended()
        assert len(listener._unfinished) == admission.connections == 1
        monkeypatch.setattr(listener, "_begin", begin)
        listener._accept_on()
        last = await connect(listener)
        assert await next_one.ended()
        for each in (oldest, next_one, last):
            each.close()
        await wait_for_async(lambda: _is(lambda: admission.connections == 0), "all seats are free")
        assert told.failed == [_TOO_MANY, _TOO_MANY]


@on_uvloop
async def test_the_end_of_a_stream_drops_nothing_that_was_sent_in_front_of_it(authority: Authority) -> None:
    """Whether the client says by TLS that it ends (close_notify) or only closes, as one that dies does."""
    context, told, recorder = server(authority), Told(), Recorder()
    flood = [request(number, key=99) for number in range(40_000)]
    async with listening(recorder, lambda: context, told) as listener:
        for says_so in (True, False):
            recorder.received.clear()
            closed = recorder.closed

            def send(says_so: bool = says_so) -> socket.socket:
                plain = socket.create_connection((LOOPBACK, listener.port))
                encrypted = client(authority).wrap_socket(plain, server_hostname=LOOPBACK)
                encrypted.sendall(b"".join(flood))
                if says_so:
                    with suppress(OSError):
                        return encrypted.unwrap()
                encrypted.shutdown(socket.SHUT_WR)
                return encrypted

            gone = await asyncio.to_thread(send)
            await wait_for_async(lambda c=closed: _is(lambda: recorder.closed > c), "the end", timeout=20)
            gone.close()
            assert recorder.received == [*range(len(flood))], says_so


@on_uvloop
async def test_a_handshake_that_fails_for_an_unknown_reason_takes_no_seat(authority: Authority) -> None:
    context, told, recorder = server(authority), Told(), Recorder()
    recorder.act = lambda _connection, asked, exchange: exchange.answer(answer(asked.correlation_id))
    admission = Admission(ConnectionLimits(2, 2, 0, 0, 4, 4))
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint["exception"]))
    fails = True

    def asked() -> ssl.SSLContext:
        if fails:
            raise ZeroDivisionError
        return context

    async with listening(recorder, asked, told, admission) as listener:
        for number in range(3):
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await connect(listener, client(authority))
            await wait_for_async(lambda number=number: _is(lambda: len(complaints) > number), "a complaint")
        assert admission.connections == 0
        fails = False
        peer = await connect(listener, client(authority))
        peer.writer.write(request(7))
        assert await peer.answers(1) == [7]
        peer.close()
    assert [type(each) for each in complaints] == [ZeroDivisionError] * 3


@on_uvloop
async def test_a_crowd_shakes_hands_a_few_at_a_time_and_all_of_it_gets_in(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listening, "_READY", 8)
    context, told, recorder = server(authority), Told(), Recorder()
    loop = asyncio.get_running_loop()
    turns = in_turn = most = 0

    def asked() -> ssl.SSLContext:
        nonlocal in_turn, most
        in_turn += 1
        most = max(most, in_turn)
        return context

    def count() -> None:
        nonlocal turns, in_turn
        turns += 1
        in_turn = 0
        if told.done < 100:
            loop.call_soon(count)

    async with listening(recorder, asked, told) as listener:
        count()
        others = client(authority)
        peers = await asyncio.gather(*(connect(listener, others) for _ in range(100)))
        async with asyncio.timeout(5):
            await told.hundred.wait()
        for peer in peers:
            peer.close()
    assert turns >= 100 / PER_TURN
    assert 0 < most <= PER_TURN
    assert told.failed == []


@on_uvloop
async def test_what_is_read_behind_a_held_request_takes_bounded_memory(authority: Authority) -> None:
    """docs/operate/limits.md names the bound: one read, and with TLS what was decrypted beside it."""
    context, told, recorder = server(authority), Told(), Recorder()
    recorder.act = lambda connection, request, exchange: connection.hold()
    async with listening(recorder, lambda: context, told) as listener:
        peer = await connect(listener, client(authority))
        peer.writer.write(b"".join(request(number) for number in range(200_000)))
        await wait_for_async(lambda: _is(lambda: bool(recorder.received)), "the first request")
        for _ in range(50):
            await asyncio.sleep(0.005)
        (connection,) = recorder.connections
        kept = connection.held_bytes - len(request(0))
        assert recorder.received == [0]
        assert 0 < kept <= 2 * RECEIVE_BYTES
        peer.writer.transport.abort()


@on_uvloop
async def test_an_end_closes_who_has_not_begun_and_leaves_the_others(authority: Authority) -> None:
    context, told, recorder = server(authority), Told(), Recorder()
    recorder.act = lambda connection, request, exchange: exchange.answer(answer(request.correlation_id))
    async with listening(recorder, lambda: context, told) as listener:
        peer = await connect(listener, client(authority))
        silent, begun = await connect(listener), await connect(listener)
        begun.writer.write(b"\x16\x03\x01")
        await asyncio.sleep(0.05)
        address = LOOPBACK, listener.port
        await listener.close()
        await listener.close()
        for each in (silent, begun):
            assert await each.ended()
            each.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        peer.writer.write(request(1))
        assert await peer.answers(1) == [1]
        peer.close()


async def test_an_address_in_use_is_an_error(authority: Authority) -> None:
    make = partial(server, authority)
    with socket.create_server((LOOPBACK, 0)) as taken:
        listener = TlsListener(asyncio.Protocol, make, Told())
        with pytest.raises(OSError, match="in use"):
            await listener.bind(LOOPBACK, taken.getsockname()[1])
