"""A blocking Kafka client of a few lines, so that what is timed is the server: one socket, one request at a time."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.local.ports import HOST
from sidecar.protocol import batch as record_batch
from sidecar.protocol.caller import FixedRequest, Request, decode_frame, encode_frame
from sidecar.protocol.calls import ListOffsets, OffsetAt, ProduceBatch
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

    from sidecar.protocol.primitives import Reader, Writer

AnswerT = TypeVar("AnswerT")

_CLIENT_ID: Final = "bench"
_TIMEOUT_S: Final = 10.0
_RECEIVE_BYTES: Final = 65_536
_TIMES_AT: Final = 27
_TIMES: Final = struct.Struct(">qq")
"""Base and newest timestamp in the header of a batch of one record."""


PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes of Produce that ask to be tried again."""


class RefusedError(RuntimeError):
    """A request got an error code; `code` is Kafka's."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class Connection:
    """One connection to a port of this machine, as the client `client_id`."""

    def __init__(self, port: int, client_id: str = _CLIENT_ID) -> None:
        self.client_id = client_id
        self._socket = socket.create_connection((HOST, port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, frame: bytes | bytearray) -> bytearray:
        """Send a whole frame and return the whole answer, length prefix included. Raises OSError."""
        sock = self._socket
        sock.sendall(frame)
        answer = bytearray(sock.recv(_RECEIVE_BYTES))
        while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
            piece = sock.recv(_RECEIVE_BYTES)
            if not piece:
                raise ConnectionError("closed in the middle of an answer")
            answer += piece
        return answer

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Send one request and decode its answer."""
        answer = self.exchange(encode_frame(request, 0, self.client_id))
        return decode_frame(request, 0, answer, 4, len(answer))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class NewProducer(FixedRequest):
    """InitProducerId of an idempotent client: no transactional id. Answers error code and stamp."""

    api_key: ClassVar[int] = 22
    api_version: ClassVar[int] = 1

    def encode(self, writer: Writer) -> None:
        writer.string(None)
        writer.i32(0)

    @classmethod
    def decode(cls, reader: Reader) -> tuple[int, Stamp]:
        reader.i32()
        return reader.i16(), Stamp(ProducerId(reader.i64()), ProducerEpoch(reader.i16()))


@dataclass(frozen=True, slots=True)
class DeleteTopic(FixedRequest):
    """Delete one topic; answers the error code."""

    api_key: ClassVar[int] = 20
    api_version: ClassVar[int] = 1

    topic: str

    def encode(self, writer: Writer) -> None:
        writer.array(1)
        writer.string(self.topic)
        writer.i32(30_000)

    @classmethod
    def decode(cls, reader: Reader) -> int:
        reader.i32()
        reader.array()
        reader.string()
        return reader.i16()


class IdempotentProducer:
    """Appends batches of one record to partition 0 of a topic as an idempotent client does: producer id, sequences.

    `prepare` makes the next frame, outside of what is timed; `check` reads its answer. A record's time is that of its
    first `prepare`, as nodes look at the age of records. Which connection carries it is the caller's: a session may go
    on at another node.
    """

    def __init__(self, stamp: Stamp, topic: str, value_bytes: int, client_id: str = _CLIENT_ID) -> None:
        self._stamp = stamp
        self._batch = build_batch([RawRecord(b"", bytes(value_bytes))], self._stamp)
        self._request = ProduceBatch(TopicPartition(topic, 0), self._batch, 10_000)
        frame = encode_frame(self._request, 0, client_id)
        self._frame = bytearray(frame)
        self._batch_at = len(frame) - len(self._batch)
        self._sequence = 0
        self._is_next = True

    def prepare(self) -> bytearray:
        """The frame of the next append; the same one again until an answer was checked."""
        by, frame = self._stamp, self._frame
        if self._is_next:
            now = int(time.time() * 1000)
            _TIMES.pack_into(frame, self._batch_at + _TIMES_AT, now, now)
            self._is_next = False
        record_batch.stamp(frame, self._batch_at, len(self._batch), by.producer_id, by.epoch, self._sequence)
        return frame

    def check(self, answer: bytearray) -> None:
        """Count on if the batch was appended. Raises RefusedError."""
        appended = decode_frame(self._request, 0, answer, 4, len(answer))
        if appended.error:
            raise RefusedError(f"Produce to {self._request.partition} ({appended.message})", appended.error)
        self._sequence += 1
        self._is_next = True


def new_producer(connection: Connection) -> Stamp:
    """A producer id; a broker that has just started may still be asking for its first block of them."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        code, stamp = connection.ask(NewProducer())
        if not code:
            return stamp
        if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
            raise RefusedError("InitProducerId", code)
        time.sleep(0.05)


def list_offsets_frame(topic: str) -> bytes:
    """A request for the end of partition 0."""
    return encode_frame(ListOffsets({TopicPartition(topic, 0): OffsetAt.LATEST}), 0, _CLIENT_ID)
