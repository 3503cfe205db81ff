"""The probes against servers that answer anything but what was asked."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sidecar.local.ports import HOST, free_ports
from sidecar.local.probe import ClusterView, ask_kafka, ask_redis, gives_producer_ids


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    (port,) = free_ports(1)
    with socket.create_server((HOST, port)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield port
        thread.join(10)


def broker(node: int, host: str, port: int, rack: str | None = None) -> bytes:
    name = host.encode()
    place = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
    return struct.pack(">ih", node, len(name)) + name + struct.pack(">i", port) + place


def metadata(*brokers: bytes, controller: int, cluster: bytes = b"c1") -> bytes:
    end = struct.pack(">h", len(cluster)) + cluster + struct.pack(">ii", controller, 0)
    body = struct.pack(">ii", 1, len(brokers)) + b"".join(brokers) + end
    return struct.pack(">i", len(body)) + body


def test_a_broker_tells_who_is_in_its_cluster() -> None:
    answer = metadata(broker(1, "a", 9092), broker(2, "b.example", 9093, rack="r1"), controller=2)

    def reply(connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", connection.recv(4))
        request = connection.recv(size)
        assert struct.unpack_from(">hhi", request) == (3, 2, 1), "Metadata v2"
        for byte in answer:  # in as many pieces as a network may make of it
            connection.sendall(bytes([byte]))

    with server(reply) as port:
        assert ask_kafka(HOST, port) == ClusterView("c1", {1: ("a", 9092), 2: ("b.example", 9093)}, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 12) + bytes(4) + struct.pack(">i", 1_000_000) + bytes(4),
        struct.pack(">i", 100) + bytes(10),
        metadata(broker(1, "a", 9092), controller=1)[:-6],
    ],
)
def test_what_is_not_an_answer_of_a_broker_is_none(answer: bytes) -> None:
    with server(lambda connection: connection.sendall(answer)) as port:
        assert ask_kafka(HOST, port) is None


def test_a_silent_server_is_given_up() -> None:
    done = threading.Event()

    def say_nothing(_connection: socket.socket) -> None:
        done.wait(10)

    with server(say_nothing) as port:
        assert ask_kafka(HOST, port, timeout=0.1) is None
        done.set()


INFO = b"$40\r\n# Server\r\nredis_mode:standalone\r\nprocess_id:"


@pytest.mark.parametrize(
    ("answer", "process_id"),
    [
        (b"+PONG\r\n" + INFO + b"4711\r\nhz:10\r\n", 4711),
        (b"+PONG\r\n" + INFO + b"4711", None),
        (b"+PONG\r\n" + INFO + b"none\r\n", None),
        (b"-LOADING x\r\n" + INFO + b"4711\r\n", None),
        (b"+PONG\r\n-NOAUTH x\r\n", None),
        (b"+PONG\r\n", None),
        (b"", None),
    ],
)
def test_redis_is_ready_when_it_says_pong_and_who_it_is(answer: bytes, process_id: int | None) -> None:
    with server(lambda connection: connection.sendall(answer)) as port:
        assert ask_redis(HOST, port) == process_id


def producer_id(error: int) -> bytes:
    return struct.pack(">iiihqh", 20, 1, 0, error, 4711 if error == 0 else -1, 0)


@pytest.mark.parametrize(
    ("answer", "given"), [(producer_id(0), True), (producer_id(14), False), (producer_id(0)[:-12], False), (b"", False)]
)
def test_a_broker_is_ready_only_once_it_gives_producer_ids(answer: bytes, given: bool) -> None:
    def reply(connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", connection.recv(4))
        assert struct.unpack_from(">hhi", connection.recv(size)) == (22, 0, 1), "InitProducerId v0"
        connection.sendall(answer)

    with server(reply) as port:
        assert gives_producer_ids(HOST, port) is given


def test_nobody_listening_is_not_ready() -> None:
    (port,) = free_ports(1)
    assert ask_kafka(HOST, port) is None
    assert not gives_producer_ids(HOST, port)
    assert not ask_redis(HOST, port)
