"""A few connections to one Redis server: a call is sent once, answered within a bound or failed with a typed error.

Never retries: a lost answer does not tell whether a script ran, and the usual client library's own retries ran an INCR
twice (test_one_lost_reply.py). The one second try is EVAL after NOSCRIPT, when the server says that it did not run the
script. Knows no key and no script.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .errors import MetadataProtocolError, MetadataUnavailable, Reason
from .link import Link, ServerError
from .target import parse_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .link import Argument, Reply
    from .scripts import Script

_REASONS: Final = {
    "LOADING": Reason.LOADING,
    "BUSY": Reason.LOADING,
    "MASTERDOWN": Reason.LOADING,
    "READONLY": Reason.READ_ONLY,
    "MISCONF": Reason.READ_ONLY,
    "NOREPLICAS": Reason.READ_ONLY,
    "OOM": Reason.OUT_OF_MEMORY,
    "NOAUTH": Reason.DENIED,
    "WRONGPASS": Reason.DENIED,
    "NOPERM": Reason.DENIED,
    "DENIED": Reason.DENIED,
    "MOVED": Reason.CLUSTER,
    "ASK": Reason.CLUSTER,
    "TRYAGAIN": Reason.CLUSTER,
    "CLUSTERDOWN": Reason.CLUSTER,
    "CROSSSLOT": Reason.CLUSTER,
}


class Server:
    """One Redis or Valkey server, by URL (target.py).

    `command_timeout_ms` bounds a whole call as the caller sees it, waiting for one of the `connections` and connecting
    (at most `connect_timeout_ms`) included. Connections are opened when first needed. Raises ValueError for a URL that
    is not understood; the message never holds the password.
    """

    def __init__(self, url: str, *, connect_timeout_ms: int, command_timeout_ms: int, connections: int) -> None:
        if min(connect_timeout_ms, command_timeout_ms, connections) < 1:
            raise ValueError("timeouts and the number of connections must be positive")
        self.target = parse_url(url)
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._command_timeout_s = command_timeout_ms / 1000
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[Link] = []
        self._closed = False

    async def call(self, *command: Argument) -> Reply:
        """One command, once. Raises MetadataUnavailable or MetadataProtocolError."""
        return await self._exchange(command, None)

    async def run(self, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Reply:
        """One script, once, by its SHA-1, and by its text where the server has forgotten it."""
        rest = (len(keys), *keys, *args)
        return await self._exchange(("EVALSHA", script.sha, *rest), ("EVAL", script.text, *rest))

    async def aclose(self) -> None:
        """Close every connection; calls in progress finish, later ones raise MetadataUnavailable (CLOSED)."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _exchange(self, command: Sequence[Argument], on_noscript: Sequence[Argument] | None) -> Reply:
        if self._closed:
            raise MetadataUnavailable(Reason.CLOSED, "the connection to Redis was closed by this process")
        sent = False
        try:
            async with asyncio.timeout(self._command_timeout_s), self._slots:
                link = await self._connected()
                sent = True
                try:
                    return await _ask(link, command, on_noscript)
                except BaseException:
                    # Cancelled or broken in between: its answer, if one comes, must not go to the next command. After a
                    # refusal (a replica, no room for clients) the address may lead to a better server by now.
                    link.abort()
                    raise
                finally:
                    # Nothing may be awaited here: a second cancellation would lose the connection for good.
                    if self._closed:
                        link.abort()
                    elif link.usable:
                        self._idle.append(link)
        except TimeoutError:
            bound = f"{self._command_timeout_s * 1000:.0f} ms"
            if not sent:
                bound = f"{bound}, of which {self._connect_timeout_s * 1000:.0f} ms to connect"
            message = f"Redis at {self.target} did not answer in time ({bound})"
            raise MetadataUnavailable(Reason.TIMEOUT, message, maybe_applied=sent) from None
        except OSError as error:
            message = f"Redis at {self.target}: {error.strerror or error}"
            raise MetadataUnavailable(Reason.AWAY, message, maybe_applied=sent) from error
        except ServerError as error:
            raise self._refused(error, sent) from error

    async def _connected(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
        async with asyncio.timeout(self._connect_timeout_s):
            return await Link.open(self.target)

    def _refused(self, error: ServerError, sent: bool) -> MetadataUnavailable | MetadataProtocolError:
        reason = _REASONS.get(error.code)
        if reason is None and "max number of clients" in str(error):
            reason = Reason.AWAY
        elif reason is None and not sent:
            reason = Reason.DENIED  # The login or the database was refused.
        if reason is None:
            return MetadataProtocolError(f"Redis at {self.target} refused a command: {error}")
        return MetadataUnavailable(reason, f"Redis at {self.target}: {error}")


async def _ask(link: Link, command: Sequence[Argument], on_noscript: Sequence[Argument] | None) -> Reply:
    try:
        return await link.roundtrip(command)
    except ServerError as error:
        if on_noscript is None or error.code != "NOSCRIPT":
            raise
    return await link.roundtrip(on_noscript)
