"""A client's connection: order, silence, back-pressure, and what ends it."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sidecar.network import client as client_module
from sidecar.network.client import FIRST_FRAME_LIMIT, FRAMES_A_TURN
from sidecar.network.framing import Frame
from sidecar.network.keepalive import LOOK_S
from sidecar.network.turn import TURN
from sidecar.protocol import limits
from sidecar.protocol.primitives import I32
from tests.unit.network.peers import Recorder, answer, answer_frame, feed, frame_of, listening, on_uvloop, request
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.network.client import ClientConnection
    from sidecar.network.request import Exchange, Request


SILENT_S = 23.0


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for_async(holds, what, timeout=5)


async def settled() -> None:
    """Let everything that is ready in the loop run: enough turns for a write, a read and what follows."""
    for _ in range(20):
        await asyncio.sleep(0.001)


@on_uvloop
async def test_answers_leave_in_the_order_of_requests() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number) for number in range(5)))
        await until(lambda: len(recorder.received) == 5, "the requests")
        for number in (4, 2, 3, 0, 1):
            recorder.exchanges[number].answer(answer(number))
        assert await peer.answers(5) == [0, 1, 2, 3, 4]
        assert recorder.done == [0, 1, 2, 3, 4]


@on_uvloop
async def test_a_request_without_an_answer_takes_no_place() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0, key=99) + request(1) + request(2, key=99))
        await until(lambda: len(recorder.received) == 3, "the requests")
        recorder.exchanges[1].answer(answer(1))
        assert await peer.answers(1) == [1]


@on_uvloop
async def test_what_comes_behind_a_held_request_waits_and_keeps_its_order() -> None:
    def hold(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        if request.correlation_id in {1, 3}:
            connection.hold()

    recorder = Recorder(act=hold)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, body=bytes(100)) for number in range(5)))
        await until(lambda: recorder.received == [0, 1], "the held request")
        await settled()
        assert recorder.received == [0, 1]
        recorder.connections[0].release()
        assert recorder.received == [0, 1, 2, 3]
        peer.writer.write(request(5))
        await settled()
        recorder.connections[0].release()
        await until(lambda: recorder.received == [0, 1, 2, 3, 4, 5], "the rest")


@on_uvloop
async def test_a_flood_takes_turns_with_others_and_keeps_its_order() -> None:
    order: list[tuple[int, int]] = []

    def note(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        order.append((connection.id, request.correlation_id))
        exchange.answer(answer(request.correlation_id))

    recorder, count = Recorder(act=note), 1_000
    async with listening(recorder) as connect, connect() as flood, connect() as other:
        await until(lambda: len(recorder.connections) == 2, "both connections")
        flood.writer.write(b"".join(request(number) for number in range(count)))
        other.writer.write(request(0))
        assert await other.answers(1) == [0]
        assert await flood.answers(count) == [*range(count)]
    assert [number for connection, number in order if connection == 1] == [*range(count)]
    assert order.index((2, 0)) <= 2 * len(FRAMES_A_TURN)


@on_uvloop
async def test_a_turn_ends_behind_the_request_that_has_many_elements() -> None:
    recorder = Recorder(act=lambda *_: setattr(TURN, "elements", limits.BOUNDS.turn + 1))
    feed(recorder.factory(), request(0) + request(1))
    assert recorder.received == [0]
    await asyncio.sleep(0)
    assert recorder.received == [0, 1]


@on_uvloop
@pytest.mark.parametrize("number", [5, 500])
async def test_a_request_that_fails_as_nobody_expects_closes_in_a_later_turn_too(number: int) -> None:
    def fail(_connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        if request.correlation_id == number:
            raise ZeroDivisionError
        exchange.answer(answer(request.correlation_id))

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context.get("exception")))
    recorder = Recorder(act=fail)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(each) for each in range(1_000)))
        assert await peer.ended()
        await until(lambda: recorder.closed == 1, "its end")
        assert recorder.received == list(range(number + 1))
    assert [type(each) for each in failures] == [ZeroDivisionError]


@on_uvloop
async def test_a_client_is_known_to_be_gone_though_what_it_sent_last_fails() -> None:
    def fail(_connection: ClientConnection, request: Request, _exchange: Exchange) -> None:
        if request.correlation_id == 50:
            raise ZeroDivisionError

    recorder = Recorder(act=fail)
    async with listening(recorder) as connect, connect():
        await until(lambda: recorder.connections, "the connection")
        [connection] = recorder.connections
        sent = b"".join(request(number) for number in range(100))
        feed(connection, sent)
        with pytest.raises(ZeroDivisionError):
            connection.connection_lost(None)
        assert recorder.received == list(range(51))
        assert recorder.closed == 1


@on_uvloop
async def test_a_flood_that_is_held_goes_on_where_it_was_when_it_is_released() -> None:
    def hold(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        exchange.answer(answer(request.correlation_id))
        if request.correlation_id % 50 == 10:
            connection.hold()
            asyncio.get_running_loop().call_later(0.001, connection.release)

    recorder, count = Recorder(act=hold), 1_000
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number) for number in range(count)))
        assert await peer.answers(count) == [*range(count)]
        peer.writer.write(request(count))
        assert await peer.answers(1) == [count]


@on_uvloop
async def test_the_end_of_a_stream_is_seen_behind_all_that_was_sent_before_it() -> None:
    recorder, count = Recorder(), 1_000
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, key=99) for number in range(count)))
        peer.writer.close()
        await until(lambda: recorder.closed, "the end")
        assert recorder.received == [*range(count)]


@on_uvloop
async def test_an_end_that_is_told_while_frames_are_left_is_no_cut_in_the_middle() -> None:
    """As TLS does, which tells of the end of a stream whether its reader reads or not."""

    def end(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        if request.correlation_id == 1:
            asyncio.get_running_loop().call_soon(connection.eof_received)

    recorder, count = Recorder(act=end), 200
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0, key=99))
        await until(lambda: recorder.received, "the first one, behind which more is read at once")
        peer.writer.write(b"".join(request(number, key=99) for number in range(1, count)))
        await until(lambda: len(recorder.received) == count, "all of it")
        assert recorder.received == [*range(count)]
        assert recorder.rejected == []


@on_uvloop
async def test_little_is_read_of_a_client_that_has_not_shown_who_it_is() -> None:
    """Behind a request that waits, too, as thousands of logins of strangers may."""
    sizes: list[int] = []

    class Strangers(Recorder):
        def request_received(self, connection: ClientConnection, request: Request) -> None:
            connection.hold()
            connection.park()
            sizes.append(connection.held_bytes)

    recorder = Strangers()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, body=bytes(200)) for number in range(2_000)))
        await until(lambda: sizes, "the first request")
        [connection] = recorder.connections
        await until(lambda: connection.held_bytes > 2_000, "what is read behind it")
        await asyncio.sleep(0.05)
        assert connection.held_bytes < 5_000
        peer.close()


@on_uvloop
async def test_nothing_behind_a_rejected_request_is_taken_up_and_it_is_told_once() -> None:
    recorder = Recorder(act=lambda connection, *_: connection.hold())
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0) + request(1, key=98) + request(2) + request(3, key=98))
        await until(lambda: recorder.received == [0], "the first request")
        await settled()
        recorder.connections[0].release()
        assert await peer.ended()
        assert recorder.rejected == [("nonsense", "request 1", True)]
        assert recorder.received == [0]


@on_uvloop
async def test_what_was_answered_before_a_rejection_still_arrives() -> None:
    recorder = Recorder(act=lambda connection, request, exchange: exchange.answer(answer(request.correlation_id)))
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0) + request(1) + request(2, key=98) + request(3))
        assert await peer.answers(2) == [0, 1]
        assert await peer.ended()
        assert recorder.received == [0, 1]


@on_uvloop
async def test_a_closed_connection_takes_up_nothing_more() -> None:
    recorder = Recorder(act=lambda connection, *_: connection.close())
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, key=99) for number in range(3)))
        assert await peer.ended()
        assert recorder.received == [0]


@on_uvloop
async def test_input_that_is_answered_with_an_error_is_told_once_and_closes_nothing() -> None:
    def report(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        connection.report("crc", "does not match")
        exchange.answer(answer(request.correlation_id))

    recorder = Recorder(act=report)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0) + request(1))
        assert await peer.answers(2) == [0, 1]
        assert recorder.rejected == [("crc", "does not match", False)]


@on_uvloop
async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    def answer_much(connection: ClientConnection, request: Request, exchange: Exchange) -> None:
        exchange.answer(answer(request.correlation_id, bytes(64 * 1024)))

    recorder = Recorder(act=answer_much)
    async with listening(recorder) as connect, connect() as peer:
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(2_000):
            peer.writer.write(request(number, body=bytes(1000)))
        await until(lambda: recorder.full, "the client's socket to be full")
        await settled()
        taken_up = len(recorder.received)
        await settled()
        assert len(recorder.received) == taken_up < 1_500
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert await peer.answers(2_000) == list(range(2_000))
        assert recorder.full[-1] is False


@on_uvloop
async def test_many_unanswered_requests_pause_the_client_until_half_are_answered() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number) for number in range(2_000)))
        await until(lambda: len(recorder.received) == 512, "the first requests")
        await settled()
        assert len(recorder.received) == 512
        for number in range(300):
            recorder.exchanges[number].answer(answer(number))
        await until(lambda: len(recorder.received) == 812, "more requests")


@on_uvloop
async def test_answers_that_may_be_large_are_not_gathered_behind_one_that_is_late() -> None:
    recorder = Recorder(weight=40 * 1024 * 1024)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number) for number in range(10)))
        await until(lambda: len(recorder.received) == 3, "as many as the budget allows")
        await settled()
        assert recorder.received == [0, 1, 2]
        recorder.exchanges[1].answer(answer(1))
        recorder.exchanges[2].answer(answer(2))
        recorder.exchanges[0].answer(answer(0))
        await until(lambda: recorder.received == [0, 1, 2, 3, 4, 5], "more when it is answered")
        assert await peer.answers(3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http"),
        (b"POST /v1 HTTP/1.1\r\n\r\n", "http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "tls"),
        (I32.pack(-1), "malformed"),
        (I32.pack(-(2**31)), "malformed"),
        (I32.pack(FIRST_FRAME_LIMIT + 1), "too_large"),
        (frame_of(b""), "truncated"),
        (frame_of(bytes(9)), "truncated"),
        (frame_of(bytes(8) + b"\x00\x05ab"), "truncated"),
        (frame_of(bytes(8) + b"\xff\xfe"), "malformed"),
        (b"\xff" * 200, "malformed"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:12]),
)
@on_uvloop
async def test_what_is_no_frame_closes_the_connection_with_its_reason(data: bytes, reason: str) -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(data)
        assert await peer.ended()
        assert [(found, closed) for found, _, closed in recorder.rejected] == [(reason, True)]
        assert recorder.received == []
        await until(lambda: recorder.closed == 1, "the end")


@on_uvloop
async def test_large_frames_are_allowed_once_a_request_was_valid() -> None:
    recorder = Recorder(limit=2 * FIRST_FRAME_LIMIT)
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0) + request(1, body=bytes(FIRST_FRAME_LIMIT + 1)))
        await until(lambda: recorder.received == [0, 1], "both requests")
        peer.writer.write(I32.pack(2 * FIRST_FRAME_LIMIT + 1))
        assert await peer.ended()
        assert [reason for reason, _, _ in recorder.rejected] == ["too_large"]


@pytest.mark.parametrize(("key", "limit"), [(3, limits.FRAME_BYTES), (18, limits.SMALL_FRAME_BYTES)])
@pytest.mark.parametrize("cut", [4, 5, 6])
@on_uvloop
async def test_only_produce_may_have_frames_of_any_size(key: int, limit: int, cut: int) -> None:
    """The key decides before anything is received: also where it comes apart from the length."""
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0))
        await until(lambda: recorder.received == [0], "the request")
        whole = request(1, key=key, body=bytes(limit - 11))
        peer.writer.write(whole[:cut])
        await settled()
        peer.writer.write(whole[cut:])
        await until(lambda: recorder.received == [0, 1], "one of just that size")
        peer.writer.write(request(2, key=0, body=bytes(limit)))
        await until(lambda: recorder.received == [0, 1, 2], "a larger Produce")
        peer.writer.write(request(3, key=key, body=bytes(limit - 10))[:6])
        assert await peer.ended()
        assert [(reason, str(limit) in detail) for reason, detail, _ in recorder.rejected] == [("too_large", True)]


@on_uvloop
async def test_a_client_without_a_name_has_an_empty_one() -> None:
    names: list[bytes] = []
    recorder = Recorder(act=lambda connection, request, exchange: names.append(request.client_id))
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(
            request(0, client_id=None) + request(1, client_id="") + request(2, client_id="x") + request(3)
        )
        await until(lambda: len(names) == 4, "the requests")
        assert names == [b"", b"", b"x", b"c"]


@on_uvloop
async def test_a_silent_client_is_looked_for_by_the_kernel() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect():
        await until(lambda: recorder.connections, "the connection")
        transport = recorder.connections[0]._transport
        assert transport is not None
        sock: socket.socket = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 25
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "a client may stop to read"
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@on_uvloop
async def test_an_answer_to_a_client_that_has_gone_is_dropped() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect:
        async with connect() as peer:
            peer.writer.write(request(0) + request(1))
            await until(lambda: len(recorder.received) == 2, "the requests")
        await until(lambda: recorder.closed == 1, "the end")
        recorder.exchanges[1].answer(answer(1))
        recorder.exchanges[0].answer(answer(0))
        assert recorder.done == []


@on_uvloop
async def test_a_connection_knows_its_requests_and_bytes_those_without_an_answer_too() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        sent = [request(0), request(1, key=99, body=bytes(300_000)), request(2, body=b"x")]
        peer.writer.write(b"".join(sent))
        await until(lambda: len(recorder.received) == 3, "the requests")
        connection = recorder.connections[0]
        assert (connection.requests, connection.bytes_in, connection.bytes_out) == (3, sum(map(len, sent)), 0)
        recorder.exchanges[2].answer(answer(2, b"late"))
        assert (connection.unanswered, connection.bytes_out) == (2, 0)
        recorder.exchanges[0].answer(answer(0))
        assert await peer.answers(2) == [0, 2]
        both = len(answer_frame(0)) + len(answer_frame(2, b"late"))
        assert (connection.unanswered, connection.bytes_out) == (0, both)


@on_uvloop
async def test_what_a_broker_answers_is_counted_too() -> None:
    recorder = Recorder()
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0) + request(1))
        await until(lambda: len(recorder.received) == 2, "the requests")
        whole = bytearray(answer_frame(0, b"abc"))
        recorder.exchanges[0].answer_frame(Frame(whole, 0, len(whole), True))
        recorder.exchanges[1].answer_behind(answer_frame(1, b"d")[:8], Frame(whole, 0, len(whole), True), 8)
        assert recorder.connections[0].bytes_out == len(whole) + 8 + 3


async def test_an_address_of_ipv6_stands_in_brackets() -> None:
    recorder = Recorder()
    server = await asyncio.get_running_loop().create_server(recorder.factory, "::1", 0)
    async with server:
        _, writer = await asyncio.open_connection("::1", server.sockets[0].getsockname()[1])
        await until(lambda: recorder.connections and recorder.connections[0].peer != "?", "the connection")
        assert recorder.connections[0].peer == f"[::1]:{writer.get_extra_info('sockname')[1]}"
        writer.close()
        await until(lambda: recorder.closed == 1, "the end")


def test_the_kernel_is_not_asked_about_a_client_that_sent_a_request_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, asked = Recorder().factory(), list[bool]()
    connection._transport = cast("Any", SimpleNamespace())

    def silent(_transport: object, _limit_s: float) -> bool:
        asked.append(True)
        return True

    monkeypatch.setattr(client_module, "has_silent_peer", silent)
    assert connection.is_silent(SILENT_S), "one that never asked for anything"
    connection.requests += 1
    found = [connection.is_silent(SILENT_S) for _ in range(int(SILENT_S / LOOK_S))]
    assert found[0] is False
    assert True in found, "it is found before the limit has passed twice"
    assert found == sorted(found)
    assert len(asked) == 1 + sum(found)


def test_with_a_short_limit_every_connection_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Recorder().factory()
    connection._transport = cast("Any", SimpleNamespace())
    monkeypatch.setattr(client_module, "has_silent_peer", lambda *_: True)
    connection.requests += 1
    assert connection.is_silent(LOOK_S)
