"""One connection to a node for the SDK's own requests: one at a time, each with a timeout.

Answers come in the order of requests, so a cancelled or timed-out call closes the connection. If a login expires
(KIP-368), the next call after that logs in again first. It knows which APIs Kafka lacks, only for its error messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, Final, TypeVar

from sidecar.client.access import PLAIN_TCP, NodeAccess
from sidecar.client.errors import SidecarError, SidecarUnavailableError, away
from sidecar.protocol.api import OWN_KEYS, api_name
from sidecar.protocol.caller import BadAnswerError, Request, decode_frame, encode_frame
from sidecar.protocol.errors import ErrorCode
from sidecar.security import exchange
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.words import in_words

Address = tuple[str, int]

AnswerT = TypeVar("AnswerT")

_LONGEST_ANSWER: Final = 64 * 1024 * 1024


class Connection:
    """A connection that `connect` opened. Each call raises `SidecarUnavailableError` if there is no answer, and
    `SidecarError` if a login is refused.
    """

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        access: NodeAccess,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._access = access
        self._renew_at: float | None = None
        self._correlation_ids = count(1)
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the connection is not known to be closed."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    async def call(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and return its answer. `timeout` (seconds) includes the wait for earlier calls."""
        try:
            async with asyncio.timeout(timeout), self._turn:
                if self._renew_at is not None and asyncio.get_running_loop().time() >= self._renew_at:
                    await self._log_in()
                return await self._exchange(request)
        except TimeoutError:
            raise self._gone(f"no answer within {timeout:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            what = api_name(request.api_key)
            raise self._gone(f"the connection ended while {what} was asked{self._hint(request)}") from error
        except BadAnswerError as error:
            raise self._gone(str(error)) from error

    def _hint(self, request: Request[Any]) -> str:
        """Why a connection may have ended."""
        if request.api_key in OWN_KEYS:
            return ": only a node of the sidecar answers that, Kafka itself hangs up"
        if self._access.credentials is None and self._access.tls is None:
            return ": a listener with TLS or logins hangs up on who has none, set security_protocol"
        return ""

    async def log_in(self) -> None:
        """Log in; called once, before all calls. Raises `SidecarError`, BadAnswerError, OSError."""
        if self._access.credentials is not None:
            async with self._turn:
                await self._log_in()

    async def _log_in(self) -> None:
        assert self._access.credentials is not None
        host, port = self.address
        began = asyncio.get_running_loop().time()
        connection = exchange.Connection(self._round_trip, self._correlation_ids, self._client_id)
        try:
            session = await exchange.login(connection, self._access.credentials)
        except LoginError as error:
            self._writer.close()  # a renewal that was refused
            raise SidecarError(error.code, f"{host}:{port}: {error.message}") from None
        except TokenError as error:
            self._writer.close()
            raise away(f"{host}:{port}: there is nothing to log in with: {error}") from None
        self._renew_at = None if session.renew_after_s is None else began + session.renew_after_s

    async def _exchange(self, request: Request[AnswerT]) -> AnswerT:
        correlation_id = next(self._correlation_ids)
        answer = await self._round_trip(encode_frame(request, correlation_id, self._client_id))
        try:
            return decode_frame(request, correlation_id, answer, 4, len(answer))
        except BaseException:
            self._writer.close()
            raise

    async def _round_trip(self, request: bytes) -> bytes:
        """Send a frame and return its answer; both include the length prefix."""
        if not self.is_open:
            raise ConnectionResetError
        try:
            self._writer.write(request)
            await self._writer.drain()
            prefix = await self._reader.readexactly(4)
            size = int.from_bytes(prefix, "big", signed=True)
            if not 4 <= size <= _LONGEST_ANSWER:
                raise BadAnswerError(f"an answer of {size} bytes")
            return prefix + await self._reader.readexactly(size)
        except BaseException:
            self._writer.close()  # otherwise the rest of this answer would be read as the next one
            raise

    def _gone(self, why: str) -> SidecarUnavailableError:
        host, port = self.address
        return away(f"{host}:{port}: {why}")

    async def ended(self) -> None:
        """Return when the node closes the connection, or sends something unrequested, which closes it too. Calls wait
        meanwhile: cancel this first.
        """
        async with self._turn:
            with contextlib.suppress(OSError):
                await self._reader.read(1)
            self._writer.close()

    def drop(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()

    async def close(self) -> None:
        """Close the connection; a call under way fails."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def connect(
    address: tuple[str, int], client_id: str, timeout: float, access: NodeAccess = PLAIN_TCP
) -> Connection:
    """Open a connection, and log in, within `timeout` seconds. Raises `SidecarUnavailableError`; `SidecarError` if the
    login is refused or the node's certificate is not trusted: another try would not help.
    """
    host, port = address
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, ssl=access.tls)
            connection = Connection(address, client_id, reader, writer, access)
            try:
                await connection.log_in()
            except BaseException:
                writer.close()
                raise
            return connection
    except ssl.SSLCertVerificationError as error:
        raise SidecarError(ErrorCode.NETWORK_EXCEPTION, f"{host}:{port}: {in_words(error)}") from error
    except (OSError, TimeoutError, asyncio.IncompleteReadError, BadAnswerError) as error:
        reason = in_words(error) if access.tls is not None else str(error)
        raise away(f"{host}:{port} cannot be reached: {reason or 'no answer'}") from error


async def first(addresses: Iterable[Address], ask: Callable[[Address], Awaitable[AnswerT]]) -> AnswerT:
    """Return the result of `ask` for the first address where it does not raise `SidecarUnavailableError`. If it raises
    for all of them, raise the last error.
    """
    failure = away("no node is known")
    for address in addresses:
        try:
            return await ask(address)
        except SidecarUnavailableError as error:
            failure = error
    raise failure
