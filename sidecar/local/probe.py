"""Probes over a socket, which distinguish a server that is ready from one that merely listens.

Kafka is probed directly, not with a client library: those retry, cache and log, which a probe must not do.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from sidecar.protocol.caller import AnswerT, BadAnswerError, Request, decode_frame, encode_frame
from sidecar.protocol.calls.admin import ClusterDescription, DescribeTopics
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.errors import ErrorCode

_MAX_ANSWER = 1024 * 1024


def ask_kafka(
    host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None
) -> ClusterDescription | None:
    """The cluster as the broker describes it, or None without an answer in Kafka's protocol within `timeout` seconds;
    over TLS with a `context`.
    """
    return _ask((host, port), timeout, context, DescribeTopics(()))


def gives_producer_ids(host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None) -> bool:
    """Whether the broker answers InitProducerId with a producer id; uses one up.

    A broker fetches its block of ids from the controller at the first request for one. Until it has that block it
    answers 14 COORDINATOR_LOAD_IN_PROGRESS (`RPCProducerIdManager`, KIP-730): clients retry, and librdkafka logs a
    warning for it.
    """
    answer = _ask((host, port), timeout, context, InitProducerId(None, 0))
    return answer is not None and answer.error != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def ask_redis(host: str, port: int, timeout: float = 2.0, context: ssl.SSLContext | None = None) -> int | None:
    """The process id of the Redis-compatible server there, or None if none answers or it still loads its data; over TLS
    with a `context`.
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
    address: tuple[str, int], timeout: float, context: ssl.SSLContext | None, request: Request[AnswerT]
) -> AnswerT | None:
    try:
        with _connection(address, timeout, context) as connection:
            connection.sendall(encode_frame(request, 1, "probe"))
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 0 < size <= _MAX_ANSWER:
                return None
            return decode_frame(request, 1, _read(connection, size), 0, size)
    except (OSError, BadAnswerError):
        return None


def _read(connection: socket.socket, size: int, at_most: int | None = None) -> bytes:
    """Read at least `size` bytes and at most `at_most` (default: `size`)."""
    limit = at_most or size
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(limit - len(data))
        if not piece:
            raise ConnectionError("closed in the middle of an answer")
        data += piece
    return bytes(data)
