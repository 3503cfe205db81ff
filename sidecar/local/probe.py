"""Questions over a socket that distinguish a server that is ready from one that merely listens.

Kafka is asked directly, not with a client library: those retry, cache and log, and a probe must do none of it.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

_METADATA = 3
_METADATA_VERSION = 2  # the first with a cluster id; still served by Kafka 4.3
_INIT_PRODUCER_ID = 22
_COORDINATOR_LOAD_IN_PROGRESS = 14
_MAX_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as one broker describes it: its id, host and port by node id, the controller, -1 while there is
    none.
    """

    cluster_id: str | None
    brokers: dict[int, tuple[str, int]]
    controller: int


def ask_kafka(host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None) -> ClusterView | None:
    """The broker's view, or None where nobody answers in Kafka's protocol within `timeout` seconds; by TLS with a
    `context`.
    """
    try:
        body = struct.pack(">i", 0)  # no topics
        answer = _ask((host, port), timeout, context, _METADATA, _METADATA_VERSION, body)
        return None if answer is None else _parse(answer)
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def gives_producer_ids(host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None) -> bool:
    """Whether the broker answers InitProducerId with a producer id; takes one.

    A broker fetches its block of ids from the controller at the first request for one, and until it has that block it
    answers 14 COORDINATOR_LOAD_IN_PROGRESS (`RPCProducerIdManager`, KIP-730): clients retry, and librdkafka logs a
    warning for it.
    """
    body = struct.pack(">hi", -1, 0)  # no transactional id, no timeout
    try:
        answer = _ask((host, port), timeout, context, _INIT_PRODUCER_ID, 0, body)
        return answer is not None and struct.unpack_from(">h", answer, 8)[0] != _COORDINATOR_LOAD_IN_PROGRESS
    except (OSError, struct.error):
        return False


def ask_redis(host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None) -> int | None:
    """The process id of the Redis-compatible server there, or None where none answers or it still loads its data; by
    TLS with a `context`.
    """
    try:
        with _connection((host, port), timeout, context) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            if _read(connection, 8) != b"+PONG\r\n$":
                return None
            answer = b""
            while b"process_id:" not in answer or b"\n" not in answer.partition(b"process_id:")[2]:
                if len(answer) > _MAX_ANSWER:
                    return None
                answer += _read(connection, 1, at_most=4096)
            return int(answer.partition(b"process_id:")[2].split()[0])
    except (OSError, ValueError):
        return None


@contextmanager
def _connection(address: tuple[str, int], timeout: float, context: ssl.SSLContext | None) -> Iterator[socket.socket]:
    with (
        socket.create_connection(address, timeout) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) if context else nullcontext(plain) as connection,
    ):
        yield connection


def _ask(
    address: tuple[str, int], timeout: float, context: ssl.SSLContext | None, key: int, version: int, body: bytes
) -> bytes | None:
    """The answer from its correlation id on; None where it is too large to be one."""
    client = b"probe"
    request = struct.pack(">hhih", key, version, 1, len(client)) + client + body
    with _connection(address, timeout, context) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, size) if 0 < size <= _MAX_ANSWER else None


def _read(connection: socket.socket, size: int, at_most: int | None = None) -> bytes:
    """At least `size` bytes and no more than `at_most` (`size` where it is not given)."""
    limit = at_most or size
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(limit - len(data))
        if not piece:
            raise ConnectionError("closed in the middle of an answer")
        data += piece
    return bytes(data)


def _parse(answer: bytes) -> ClusterView:
    """Metadata response v2: correlation id, brokers (id, host, port, rack), cluster id, controller id, topics."""
    at = 4

    def text() -> str | None:
        nonlocal at
        (length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(length, 0)
        return None if length < 0 else answer[at - length : at].decode()

    def number() -> int:
        nonlocal at
        at += 4
        return struct.unpack_from(">i", answer, at - 4)[0]

    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(number()):
        node, host, port = number(), text() or "", number()
        text()  # the rack
        brokers[node] = (host, port)
    return ClusterView(text(), brokers, number())
