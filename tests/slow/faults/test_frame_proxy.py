"""The proxy does what a test names, to that frame alone: against a server that echoes, with Kafka's frames."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.slow.faults.frame_proxy import HOST, METADATA, PRODUCE, FrameProxy, Way, produce_to

pytestmark = pytest.mark.smoke


class Echo(threading.Thread):
    """Answers each request with its correlation id and the rest of its body; its own address where that is asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.got: list[int] = []
        self.partial = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while True:
                try:
                    frame = receive(connection)
                except OSError:
                    self.partial.set()
                    return
                api_key, _, correlation = struct.unpack_from(">hhi", frame, 4)
                self.got.append(correlation)
                body = frame[12:]
                if api_key == METADATA:
                    body = struct.pack(">h", len(HOST)) + HOST.encode() + struct.pack(">i", self.port)
                connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def receive(connection: socket.socket) -> bytes:
    data, size = b"", 4
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError(f"ended after {len(data)} bytes")
        data += part
        if len(data) == 4:
            size += int.from_bytes(data, "big")
    return data


def until_reset(connection: socket.socket) -> bytes:
    data = b""
    try:
        while part := connection.recv(100):
            data += part
    except ConnectionResetError:
        return data
    raise AssertionError("closed in good order")


def ask(correlation: int, api_key: int = PRODUCE, body: bytes = b"body") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 8, correlation) + body


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    server.start()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FrameProxy]:
    with FrameProxy(f"{HOST}:{echo.port}") as found:
        yield found


@pytest.fixture
def client(proxy: FrameProxy) -> Iterator[socket.socket]:
    with connect(proxy) as found:
        yield found


def connect(proxy: FrameProxy) -> socket.socket:
    host, port = proxy.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def test_without_a_fault_frames_pass_and_are_counted(proxy: FrameProxy, client: socket.socket) -> None:
    client.sendall(ask(1) + ask(2, api_key=18))
    assert [receive(client)[4:8] for _ in range(2)] == [struct.pack(">i", each) for each in (1, 2)]
    assert proxy.passed[Way.REQUEST, PRODUCE] == proxy.passed[Way.REPLY, PRODUCE] == 1
    assert proxy.passed[Way.REQUEST, 18] == 1


def test_it_puts_its_own_address_where_the_server_names_its_own(proxy: FrameProxy, client: socket.socket) -> None:
    client.sendall(ask(1, api_key=METADATA))
    assert receive(client)[-4:] == struct.pack(">i", int(proxy.address.rsplit(":", 1)[1]))


def test_the_reply_of_one_correlation_id_is_lost_and_its_connection_reset(
    proxy: FrameProxy, client: socket.socket, echo: Echo
) -> None:
    fault = proxy.drop_reply(7)
    client.sendall(ask(6))
    assert receive(client)[4:8] == struct.pack(">i", 6)
    client.sendall(ask(7))
    with pytest.raises(ConnectionResetError):
        receive(client)
    assert fault.wait().correlation == 7
    assert echo.got == [6, 7]
    assert proxy.resets == 1
    with connect(proxy) as again:
        again.sendall(ask(7))
        assert receive(again)[4:8] == struct.pack(">i", 7)


def test_a_request_is_cut_at_a_byte(proxy: FrameProxy, client: socket.socket, echo: Echo) -> None:
    fault = proxy.cut(Way.REQUEST, 9)
    client.sendall(ask(1))
    with pytest.raises(ConnectionResetError):
        receive(client)
    assert fault.happened
    assert echo.partial.wait(10)
    assert echo.got == []


def test_a_reply_is_cut_at_a_byte_and_what_was_in_front_arrives(proxy: FrameProxy, client: socket.socket) -> None:
    proxy.cut(Way.REPLY, 5)
    client.sendall(ask(1))
    assert len(until_reset(client)) == 5


@pytest.mark.parametrize("way", Way)
def test_a_frame_is_held_until_it_is_released(proxy: FrameProxy, client: socket.socket, echo: Echo, way: Way) -> None:
    fault = proxy.hold(way)
    client.sendall(ask(1))
    fault.wait()
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(10)
    fault.release()
    assert receive(client)[4:8] == struct.pack(">i", 1)
    assert echo.got == [1]


def test_a_held_frame_may_be_lost_after_all(proxy: FrameProxy, client: socket.socket, echo: Echo) -> None:
    fault = proxy.hold(Way.REQUEST)
    client.sendall(ask(1))
    fault.wait()
    fault.release(lost=True)
    with pytest.raises(ConnectionResetError):
        receive(client)
    assert echo.got == []


def by_name(topic: bytes) -> bytes:
    return struct.pack(">h", len(topic)) + topic


ORDERS = UUID(int=1 << 100)
AUDIT = UUID(int=2 << 100)


@pytest.mark.parametrize(
    ("audit", "orders"),
    [(by_name(b"audit"), by_name(b"orders")), (b"\x06audit", b"\x07orders"), (AUDIT.bytes, ORDERS.bytes)],
)
def test_other_connections_and_other_topics_go_on(
    proxy: FrameProxy, client: socket.socket, audit: bytes, orders: bytes
) -> None:
    fault = proxy.hold(Way.REQUEST, produce_to("orders", ORDERS))
    client.sendall(ask(1, body=audit))
    receive(client)
    client.sendall(ask(2, body=orders))
    fault.wait()
    with connect(proxy) as other:
        other.sendall(ask(3, body=orders))
        receive(other)
    fault.release()
    receive(client)


def test_a_client_that_leaves_leaves_its_server_too(proxy: FrameProxy, echo: Echo) -> None:
    with connect(proxy) as client:
        client.sendall(ask(1))
        receive(client)
    assert echo.partial.wait(10)
    assert proxy.resets == 0
