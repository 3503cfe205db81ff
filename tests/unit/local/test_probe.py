"""The probes against servers that answer anything but what was asked."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sidecar.local.ports import HOST, free_ports
from sidecar.local.probe import ask_kafka, ask_redis, gives_producer_ids
from sidecar.protocol.calls.admin import ClusterDescription, DescribeTopics
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.messages.transactions import INIT_PRODUCER_ID
from sidecar.protocol.schema import Values


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


def broker(node: int, host: str, port: int, rack: str | None = None) -> Values:
    return {"node_id": node, "host": host, "port": port, "rack": rack}


def metadata(*brokers: Values, controller: int, cluster: str = "c1") -> bytes:
    values = {"brokers": brokers, "cluster_id": cluster, "controller_id": controller}
    return METADATA.encode_answer(DescribeTopics.api_version, 1, values)


def test_a_broker_tells_who_is_in_its_cluster() -> None:
    answer = metadata(broker(1, "a", 9092), broker(2, "b.example", 9093, rack="r1"), controller=2)

    def reply(connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", connection.recv(4))
        request = connection.recv(size)
        assert struct.unpack_from(">hhi", request) == (3, 10, 1), "Metadata v10"
        for byte in answer:  # in as many pieces as a network may make of it
            connection.sendall(bytes([byte]))

    with server(reply) as port:
        assert ask_kafka(HOST, port) == ClusterDescription({1: ("a", 9092), 2: ("b.example", 9093)}, "c1", 2, ())


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
    values = {"error_code": error, "producer_id": 4711 if error == 0 else -1}
    return INIT_PRODUCER_ID.encode_answer(InitProducerId.api_version, 1, values)


@pytest.mark.parametrize(
    ("answer", "given"), [(producer_id(0), True), (producer_id(14), False), (producer_id(0)[:-12], False), (b"", False)]
)
def test_a_broker_is_ready_only_once_it_gives_producer_ids(answer: bytes, given: bool) -> None:
    def reply(connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", connection.recv(4))
        assert struct.unpack_from(">hhi", connection.recv(size)) == (22, 4, 1), "InitProducerId v4"
        connection.sendall(answer)

    with server(reply) as port:
        assert gives_producer_ids(HOST, port) is given


def test_nobody_listening_is_not_ready() -> None:
    (port,) = free_ports(1)
    assert ask_kafka(HOST, port) is None
    assert not gives_producer_ids(HOST, port)
    assert not ask_redis(HOST, port)
