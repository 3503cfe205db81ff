"""One connection to a node for the SDK's own requests: one at a time, each with a timeout. Of APIs it knows
which ones Kafka itself has not.

Answers come in the order of requests, so a call that is given up takes the connection with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from sidecar.client.errors import SidecarUnavailableError, away
from sidecar.protocol.api import OWN_APIS
from sidecar.protocol.caller import BadAnswerError, Request, decode_frame, encode_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    Address = tuple[str, int]

AnswerT = TypeVar("AnswerT")

_LONGEST_ANSWER: Final = 64 * 1024 * 1024


class Connection:
    """A connection that `connect` opened. Each call raises `SidecarUnavailableError` where no answer comes."""

    def __init__(
        self, address: tuple[str, int], client_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._correlation = 0
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether it can be used, as far as is known here."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    async def call(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and wait `timeout` seconds at most for its answer, others' turns included."""
        try:
            async with asyncio.timeout(timeout), self._turn:
                return await self._exchange(request)
        except TimeoutError:
            raise self._gone(f"no answer within {timeout:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            hint = (
                ": only a node of the sidecar answers that, Kafka itself hangs up"
                if request.api_key in OWN_APIS
                else ""
            )
            raise self._gone(f"the connection ended while api key {request.api_key} was asked{hint}") from error
        except BadAnswerError as error:
            raise self._gone(str(error)) from error

    async def _exchange(self, request: Request[AnswerT]) -> AnswerT:
        if not self.is_open:
            raise ConnectionResetError
        self._correlation += 1
        try:
            self._writer.write(encode_frame(request, self._correlation, self._client_id))
            await self._writer.drain()
            size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
            if not 4 <= size <= _LONGEST_ANSWER:
                raise BadAnswerError(f"an answer of {size} bytes")
            answer = await self._reader.readexactly(size)
            return decode_frame(request, self._correlation, answer, 0, size)
        except BaseException:
            self._writer.close()  # what is left of this exchange would be taken for the next one's answer
            raise

    def _gone(self, why: str) -> SidecarUnavailableError:
        host, port = self.address
        return away(f"{host}:{port}: {why}")

    async def ended(self) -> None:
        """Return once the other side ends it. Others' calls wait meanwhile: cancel this first. Whatever the other side
        says unasked ends it too.
        """
        async with self._turn:
            with contextlib.suppress(OSError):
                await self._reader.read(1)
            self._writer.close()

    def drop(self) -> None:
        """End it without waiting for that."""
        self._writer.close()

    async def close(self) -> None:
        """End it; a call under way fails."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def connect(address: tuple[str, int], client_id: str, timeout: float) -> Connection:
    """Open a connection within `timeout` seconds. Raises `SidecarUnavailableError`."""
    host, port = address
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        if writer is not None:
            writer.close()
        raise away(f"{host}:{port} cannot be reached: {error or 'no answer'}") from error
    return Connection(address, client_id, reader, writer)


async def first(addresses: Iterable[Address], ask: Callable[[Address], Awaitable[AnswerT]]) -> AnswerT:
    """What `ask` returns at the first address where it does not raise `SidecarUnavailableError`, else the last of
    these.
    """
    failure = away("no node is known")
    for address in addresses:
        try:
            return await ask(address)
        except SidecarUnavailableError as error:
            failure = error
    raise failure
