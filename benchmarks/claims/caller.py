"""A client of a few lines on an event loop: one connection, one request at a time, thousands of them in a process."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar, cast

from sidecar.local.ports import HOST
from sidecar.protocol.caller import Request, decode_frame, encode_frame

if TYPE_CHECKING:
    from typing import Self

AnswerT = TypeVar("AnswerT")

_SIZE: Final = Struct(">i")
_CLIENT_ID: Final = "bench"


class Caller(asyncio.Protocol):
    """One connection. Answers come in the order of the requests; there is one at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._kept = b""
        self._answered: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, port: int) -> Self:
        """To a port of this machine. Raises OSError."""
        _, caller = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports derive from nothing

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionResetError("closed before the answer"))
        self._transport = None

    def data_received(self, data: bytes) -> None:
        data = self._kept + data if self._kept else data
        if len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
            self._kept = data
            return
        self._kept = b""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(data)

    async def exchange(self, frame: bytes) -> bytes:
        """A whole request and its whole answer. Raises ConnectionResetError."""
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answered

    async def ask(self, request: Request[AnswerT]) -> AnswerT:
        """The same of a request that is not encoded yet."""
        answer = await self.exchange(encode_frame(request, 0, _CLIENT_ID))
        return decode_frame(request, 0, answer, 4, len(answer))

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()
