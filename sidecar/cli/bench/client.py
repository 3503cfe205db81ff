"""A small blocking Kafka client for measurements: batches are built in advance, so only the server's time is measured.

It retries nothing by itself, knows no consumer groups, and supports only the API versions that it sends. Its login is
not renewed.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from itertools import count
from typing import Final, Self, TypeVar

from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.security import Security
from sidecar.protocol import batch as record_batch
from sidecar.protocol import produce_upstream
from sidecar.protocol.caller import Request, decode_frame, encode_frame
from sidecar.protocol.calls.logs import ProduceBatch
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Stamp, TopicPartition
from sidecar.protocol.messages.admin import DELETE_TOPICS
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View

AnswerT = TypeVar("AnswerT")

CLIENT_ID: Final = "bench"
_TIMEOUT_S: Final = 10.0
_RECEIVE_BYTES: Final = 65_536
_LENGTH: Final = struct.Struct(">i")
_ACKS: Final = struct.Struct(">h")
_ACKS_BEHIND_CLIENT_ID: Final = 4 + 10 + 2
"""Length prefix, request header without the client id's text, and null as transactional id."""
_TIMES_AT: Final = 27
_TIMES: Final = struct.Struct(">qq")
"""Base and newest timestamp in the header of a batch whose records all have the same time."""

OPEN: Final = Security()
"""Plain TCP, no login."""

PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Error codes of Produce after which the request is to be repeated."""


class RefusedError(RuntimeError):
    """A request was answered with an error; `code` is Kafka's."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class Connection:
    """One connection to a broker or a node, as the client `client_id`. All methods raise OSError."""

    def __init__(self, address: tuple[str, int], client_id: str = CLIENT_ID, security: Security = OPEN) -> None:
        self.client_id = client_id
        self._received = bytearray()
        self._socket: socket.socket = socket.create_connection(address, _TIMEOUT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, address[0])
            security.log_in(lambda request: bytes(self.exchange(request)), count(), client_id)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, PipelineError):
                raise ConnectionError(str(error)) from None
            raise

    def send(self, frame: bytes | bytearray) -> None:
        """Send a whole frame; afterwards the caller may reuse its memory."""
        self._socket.sendall(frame)

    def receive(self) -> bytearray:
        """Receive the next whole answer, length prefix included."""
        have = self._received
        while len(have) < _LENGTH.size or len(have) < _LENGTH.size + _LENGTH.unpack_from(have)[0]:
            piece = self._socket.recv(_RECEIVE_BYTES)
            if not piece:
                raise ConnectionError("closed in the middle of an answer")
            have += piece
        size = _LENGTH.size + _LENGTH.unpack_from(have)[0]
        self._received = have[size:]
        del have[size:]
        return have

    def exchange(self, frame: bytes | bytearray) -> bytearray:
        """Send a frame and return the whole answer."""
        self._socket.sendall(frame)
        return self.receive()

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Send one request and decode its answer."""
        answer = self.exchange(encode_frame(request, 0, self.client_id))
        return decode_frame(request, 0, answer, _LENGTH.size, len(answer))

    def close(self) -> None:
        """Close it; a thread that waits for an answer gets ConnectionError."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DeleteTopic(View[int], of=DELETE_TOPICS, version=1):
    """Delete one topic; returns the error code."""

    topic: str

    def asked(self) -> Values:
        return {"topic_names": [self.topic], "timeout_ms": 30_000}

    def answered(self, values: Values) -> int:
        return values["responses"][0]["error_code"]


def new_producer(connection: Connection) -> Stamp:
    """Get a producer id. Retries, because a broker that has just started may not have its first block of ids yet."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        found = connection.ask(InitProducerId(None, 60_000))
        if not found.error:
            return found.stamp
        if found.error != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
            raise RefusedError("InitProducerId", found.error)
        time.sleep(0.05)


class BatchFrame:
    """A Produce request with one batch for one partition, built once and stamped anew for each time it is sent."""

    def __init__(
        self, partition: TopicPartition, batch: bytearray, *, client_id: str = CLIENT_ID, acks: int = -1
    ) -> None:
        self._partition = partition
        self._frame = bytearray(encode_frame(ProduceBatch(partition, batch, 10_000), 0, client_id))
        _ACKS.pack_into(self._frame, _ACKS_BEHIND_CLIENT_ID + len(client_id.encode()), acks)
        self._size = len(batch)
        self._at = len(self._frame) - self._size

    def stamped(self, by: Stamp, sequence: int, now_ms: int) -> bytearray:
        """The frame with this producer, first sequence and time of all records; valid until the next call."""
        _TIMES.pack_into(self._frame, self._at + _TIMES_AT, now_ms, now_ms)
        record_batch.stamp(self._frame, self._at, self._size, by.producer_id, by.epoch, sequence)
        return self._frame

    def check(self, answer: bytearray) -> None:
        """Raise RefusedError if the batch was not appended."""
        (result,), _ = produce_upstream.decode_answer(answer, 0, len(answer), ProduceBatch.api_version)
        if result.error:
            raise RefusedError(f"Produce to {self._partition} ({result.message})", result.error)
