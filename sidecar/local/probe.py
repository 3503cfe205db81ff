"""Two questions over a socket that tell a server that is ready from one that merely listens.

Kafka is asked for its metadata, not with a client library: those retry, cache and log, and a probe must do none of it.
"""

import socket
import struct
from dataclasses import dataclass

_METADATA = 3
_METADATA_VERSION = 1  # the first with a controller id; still served by Kafka 4.3
_MAX_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Who is in the cluster as one broker tells it: ports by node id; controller -1 while there is none."""

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


def ask_redis(host: str, port: int, timeout: float = 2.0) -> bool:
    """True where a Redis-compatible server answers PING and is not still loading its data."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(b"PING\r\n")
            return _read(connection, 5) == b"+PONG"
    except OSError:
        return False


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed in the middle of an answer")
        data += piece
    return bytes(data)


def _parse(answer: bytes) -> ClusterView:
    """Metadata response v1: correlation id, brokers (id, host, port, rack), controller id, topics."""
    at = 4
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, at)
        at += 6
        host = answer[at : at + length].decode()
        at += length
        port, rack = struct.unpack_from(">ih", answer, at)
        at += 6 + max(rack, 0)
        brokers[node] = (host, port)
    (controller,) = struct.unpack_from(">i", answer, at)
    return ClusterView(brokers, controller)
