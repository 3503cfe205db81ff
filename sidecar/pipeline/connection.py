"""One blocking connection to a broker or a node: a request sent, its answer awaited, each within a time.

Answers come in the order of requests, so giving one up ends the connection. It never connects again by
itself and knows no topics: `sidecar.pipeline.kafka` does.
"""

from __future__ import annotations

import contextlib
import socket
import time
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from sidecar.pipeline.errors import PipelineError, UnreachableError
from sidecar.pipeline.security import Security
from sidecar.protocol.caller import BadAnswerError, Request, decode_frame, encode_frame
from sidecar.protocol.primitives import I32

AnswerT = TypeVar("AnswerT")

CLIENT_ID: Final = "sidecar-pipeline"
_LONGEST_ANSWER: Final = 256 * 1024 * 1024


class Pending(NamedTuple, Generic[AnswerT]):
    """A request whose answer is still to be received."""

    request: Request[AnswerT]
    correlation_id: int


class Connection:
    """A connection to `address`, opened within `timeout` seconds. All methods raise `UnreachableError`, or
    `PipelineError` for answers that make no sense.
    """

    def __init__(self, address: tuple[str, int], timeout: float, security: Security) -> None:
        self.address = address
        self.is_closed = False
        self._correlation_id = 0
        self._early: dict[int, bytearray] = {}
        try:
            self._socket: socket.socket = socket.create_connection(address, timeout)
        except OSError as error:
            raise UnreachableError(f"{self} cannot be reached: {error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, address[0])
            security.log_in(lambda request: self._round_trip(request, timeout), count(), CLIENT_ID)
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, BadAnswerError)):
                raise UnreachableError(f"{self} lets nobody in: {error}") from None
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _round_trip(self, request: bytes, timeout: float) -> bytes:
        """Of whole frames."""
        deadline = time.monotonic() + timeout
        self._socket.sendall(request)
        size = self._size(deadline)
        return I32.pack(size) + self._read(size, deadline)

    def call(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and wait `timeout` seconds at most for its answer."""
        return self.receive(self.send(request), timeout)

    def send(self, request: Request[AnswerT]) -> Pending[AnswerT]:
        """Send a request without waiting: the answer comes after those of the requests sent before."""
        self._correlation_id += 1
        try:
            self._socket.sendall(encode_frame(request, self._correlation_id, CLIENT_ID))
        except OSError as error:
            raise self._ended(error) from None
        return Pending(request, self._correlation_id)

    def receive(self, pending: Pending[AnswerT], timeout: float) -> AnswerT:
        """The answer to a request. Those to earlier ones that nobody has received yet are kept for them."""
        deadline = time.monotonic() + timeout
        wanted = pending.correlation_id
        try:
            while (answer := self._early.pop(wanted, None)) is None:
                frame = self._read(self._size(deadline), deadline)
                self._early[I32.unpack_from(frame)[0]] = frame
            return decode_frame(pending.request, wanted, answer, 0, len(answer))
        except TimeoutError:
            raise self._ended(f"no answer to api key {pending.request.api_key} within {timeout:g} s") from None
        except OSError as error:
            raise self._ended(error) from None
        except BadAnswerError as error:
            self.close()
            raise PipelineError(f"{self} is no Kafka broker and no node, or a damaged one: {error}") from None

    def _size(self, deadline: float) -> int:
        size: int = I32.unpack(self._read(4, deadline))[0]
        if not 4 <= size <= _LONGEST_ANSWER:
            raise BadAnswerError(f"an answer of {size} bytes")
        return size

    def _read(self, size: int, deadline: float) -> bytearray:
        found = bytearray(size)
        left = memoryview(found)
        while left:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            count = self._socket.recv_into(left)
            if not count:
                raise ConnectionResetError("the other side closed the connection")
            left = left[count:]
        return found

    def _ended(self, why: object) -> UnreachableError:
        self.close()
        return UnreachableError(f"{self}: {why}")

    def close(self) -> None:
        """End it; once is enough."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.close()
