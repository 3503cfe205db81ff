"""Two questions over a socket that distinguish a server that is ready from one that merely listens.

Kafka is asked for its metadata, not with a client library: those retry, cache and log, and a probe must do none of it.
"""

import socket
import struct
from dataclasses import dataclass

_METADATA = 3
_METADATA_VERSION = 2  # the first with a cluster id; still served by Kafka 4.3
_MAX_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as one broker describes it: its id, host and port by node id, the controller, -1 while there is
    none.
    """

    cluster_id: str | None
    brokers: dict[int, tuple[str, int]]
    controller: int


def ask_kafka(host: str, port: int, timeout: float = 2.0) -> ClusterView | None:
    """The broker's view, or None where nobody answers in Kafka's protocol within `timeout` seconds."""
    client = b"probe"
    header = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(client)) + client
    body = header + struct.pack(">i", 0)  # no topics
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 0 < size <= _MAX_ANSWER:
                return None
            return _parse(_read(connection, size))
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def ask_redis(host: str, port: int, timeout: float = 2.0) -> int | None:
    """The process id of the Redis-compatible server there, or None where none answers or it still loads its data."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            if _read(connection, 8) != b"+PONG\r\n$":
                return None
            told = b""
            while b"process_id:" not in told or b"\n" not in told.partition(b"process_id:")[2]:
                if len(told) > _MAX_ANSWER:
                    return None
                told += _read(connection, 1, at_most=4096)
            return int(told.partition(b"process_id:")[2].split()[0])
    except (OSError, ValueError):
        return None


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
