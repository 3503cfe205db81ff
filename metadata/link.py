"""One connection to Redis: RESP2 over TCP, TLS or a Unix socket, one command at a time. No timeouts, no retries.

On hiredis' codec alone. The `redis` package cannot be imported without its sync, cluster and sentinel clients: 7 MB of
a node's memory (26.0 instead of 32.9 MB RSS with a store connected) and 22 instead of 16 µs of processor time per call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .target import Target

Reply: TypeAlias = "bytes | int | list[Reply] | None"
Argument: TypeAlias = "bytes | str | int"

_INCOMPLETE: Final = object()
# hiredis' annotations name a tuple of one part and no result.
_pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class ServerError(Exception):
    """An error that the server answered: the command was refused, or a script failed. `code` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class Link(asyncio.Protocol):
    """To be used while `usable`. Whoever stops waiting for an answer must `abort`, or the next one gets that answer."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._ended = asyncio.Event()
        self._error: Exception = ConnectionResetError("the server closed the connection")
        self.usable = False

    @classmethod
    async def open(cls, target: Target) -> Link:
        """Connect and log in. Raises OSError, or ServerError where the server refuses the login or the database."""
        loop = asyncio.get_running_loop()
        if target.path is not None:
            _, link = await loop.create_unix_connection(cls, target.path)
        else:
            _, link = await loop.create_connection(cls, target.host, target.port, ssl=target.tls)
        try:
            if target.password is not None:
                await link.roundtrip(("AUTH", *((target.user,) if target.user else ()), target.password))
            if target.database:
                await link.roundtrip(("SELECT", target.database))
        except BaseException:
            link.abort()
            raise
        return link

    async def roundtrip(self, command: Sequence[Argument]) -> Reply:
        """Send one command, wait for its answer. Raises ServerError, or ConnectionError where the connection ended."""
        if self._transport is None or not self.usable:
            raise self._error
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_pack(tuple(command)))
        try:
            return await self._answer
        finally:
            self._answer = None

    def abort(self) -> None:
        """End the connection at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the connection and wait until it has ended."""
        self.abort()
        await self._ended.wait()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            reply = self._reader.gets()
        except hiredis.ProtocolError as error:
            self._end(ConnectionAbortedError(f"the server does not speak RESP: {error}"))
            return
        if reply is _INCOMPLETE:
            return
        answer = self._answer
        if answer is None or answer.done() or self._reader.has_data():
            # A refusal before the first command, or more answers than commands: the next would get the wrong one.
            unasked = ConnectionAbortedError("the server answered more than it was asked")
            self._end(reply if isinstance(reply, ServerError) else unasked)
        elif isinstance(reply, ServerError):
            answer.set_exception(reply)
        else:
            answer.set_result(cast(Reply, reply))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or self._error)
        self._ended.set()

    def _end(self, error: Exception) -> None:
        self._error = error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()
