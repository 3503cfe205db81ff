"""A few connections to one Redis server: a call is sent once, answered within a bound or failed with a typed error.

Never retries: a lost answer does not show whether a script ran, and the library's own retries ran an INCR twice
(test_one_lost_reply.py). The one second try is EVAL after NOSCRIPT, when the server says that it did not run the
script. Knows no key and no script.

Of the library only `Connection` is used (TCP, TLS, Unix socket, AUTH, SELECT, hiredis). Its client and its pools retry,
take timeouts from the URL, and await while they take a connection back: a call cancelled just then loses its place in
the pool for good.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import hiredis
from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from .errors import MetadataMisconfigured, MetadataProtocolError, MetadataUnavailable, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .scripts import Script

Reply: TypeAlias = "bytes | int | list[Reply] | None"
Argument: TypeAlias = "bytes | str | int"

# Its stub knows tuples of one element only.
_pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", getattr(hiredis, "pack_command"))  # noqa: B009
"""Encodes a command for sending."""

_URL_OPTIONS: Final = frozenset(
    {
        "connection_class",
        "host",
        "port",
        "path",
        "db",
        "username",
        "password",
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_password",
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_check_hostname",
        "ssl_min_version",
        "ssl_ciphers",
    }
)

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

# Instead of the server's own text, which recommends first of all to switch the protection off.
_TOO_LONG: Final = "Protocol error: unauthenticated "
"""Redis' error for a long command (for example a script) before a login, instead of NOAUTH."""

_NEEDS_LOGIN: Final = "it needs a password: put it into the URL (redis://:PASSWORD@…)"
_PROTECTED: Final = (
    "it is in protected mode and takes connections from its own machine alone: give it a password (requirepass, or an"
    " ACL user) and put that into the URL, or set protected-mode no where nobody else can reach it"
)


class Server:
    """One Redis or Valkey server, by URL: `redis://`, `rediss://` (options `ssl_*`) or `unix://`.

    `command_timeout_ms` bounds a whole call as the caller sees it, waiting for one of the `connections` and connecting
    (at most `connect_timeout_ms`) included. Connections are opened when first needed. Raises ValueError for a URL that
    is not understood; the message never holds the password.
    """

    def __init__(self, url: str, *, connect_timeout_ms: int, command_timeout_ms: int, connections: int) -> None:
        if min(connect_timeout_ms, command_timeout_ms, connections) < 1:
            raise ValueError("timeouts and the number of connections must be positive")
        options = _parse(url)
        self.address = _address(options)
        self._connection_class: type[AbstractConnection] = options.pop("connection_class", Connection)
        # Without a socket timeout the library neither starts a task per write nor ends a call before its deadline here.
        self._options: dict[str, Any] = options | {
            "socket_timeout": None,
            "socket_connect_timeout": connect_timeout_ms / 1000,
            "protocol": 2,
            "driver_info": None,
        }
        self._command_timeout_s = command_timeout_ms / 1000
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[AbstractConnection] = []
        self._closed = False
        self.on_script: Callable[[str, float], None] = lambda _name, _seconds: None
        """Called for every script that was answered, with its name and its duration in seconds."""

    async def call(self, *command: Argument) -> Reply:
        """Send one command once, and return its reply. Raises MetadataUnavailable or MetadataProtocolError."""
        return await self._exchange(command, None)

    async def info(self) -> bytes:
        """Return the reply to INFO. Raises what `call` raises; MetadataMisconfigured if this user may not read it."""
        try:
            reply = await self.call("INFO")
        except (MetadataUnavailable, MetadataProtocolError) as error:
            if not _is_withheld(error.__cause__):
                raise
            raise MetadataMisconfigured(
                f"Redis at {self.address} refuses INFO ({error.__cause__}), which says whether it may evict keys: give"
                " the user of the URL that right (ACL SETUSER NAME +info), or take INFO out of rename-command"
            ) from None
        if not isinstance(reply, bytes):
            raise MetadataProtocolError("the server does not answer INFO with text")
        return reply

    async def run(self, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Reply:
        """One script, once, by its SHA-1, and by its text where the server has forgotten it."""
        rest = (len(keys), *keys, *args)
        began = monotonic()
        reply = await self._exchange(("EVALSHA", script.sha, *rest), ("EVAL", script.text, *rest))
        self.on_script(script.name, monotonic() - began)
        return reply

    async def aclose(self) -> None:
        """Close every connection; calls in progress finish, later ones raise MetadataUnavailable (CLOSED)."""
        self._closed = True
        while self._idle:
            await _hang_up(self._idle.pop())

    async def _exchange(self, command: tuple[Argument, ...], on_noscript: tuple[Argument, ...] | None) -> Reply:
        if self._closed:
            raise MetadataUnavailable(Reason.CLOSED, "the connection to Redis was closed by this process")
        sent = False
        try:
            async with asyncio.timeout(self._command_timeout_s), self._slots:
                connection = self._idle.pop() if self._idle else self._connection_class(**self._options)
                try:
                    await _make_ready(connection)
                    sent = True
                    try:
                        return await _roundtrip(connection, command)
                    except NoScriptError:
                        if on_noscript is None:
                            raise
                        return await _roundtrip(connection, on_noscript)
                finally:
                    # The library ends a connection whose exchange did not complete, cancelled ones included.
                    if self._closed:
                        await _hang_up(connection)
                    else:
                        self._idle.append(connection)
        except TimeoutError:
            message = f"Redis at {self.address} did not answer within {self._command_timeout_s * 1000:.0f} ms"
            raise MetadataUnavailable(Reason.TIMEOUT, message, maybe_applied=sent) from None
        except (RedisError, OSError) as error:
            raise self._typed(error, sent) from error

    def _typed(self, error: Exception, sent: bool) -> MetadataUnavailable | MetadataProtocolError:
        text = str(error)
        code = getattr(error, "status_code", None) or text.partition(" ")[0]
        if isinstance(error, AuthenticationError):
            reason = Reason.DENIED
        elif _TOO_LONG in text:
            reason, text = Reason.DENIED, _NEEDS_LOGIN
        elif code in _REASONS:
            reason = _REASONS[code]
        elif isinstance(error, ResponseError):
            return MetadataProtocolError(f"Redis at {self.address} refused a command: {text}")
        else:
            reason = Reason.AWAY
        message = f"Redis at {self.address}: {_PROTECTED if code == 'DENIED' else text}"
        # An error that the server sent says that the command was not carried out.
        answered = isinstance(error, ResponseError) or code in _REASONS
        return MetadataUnavailable(reason, message, maybe_applied=sent and not answered)


def _is_withheld(error: BaseException | None) -> bool:
    """Whether the server refuses a command to this user (ACL) or to everybody (rename-command)."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and "unknown command" in str(error).lower()
    )


async def _make_ready(connection: AbstractConnection) -> None:
    """Connect, or check that the server has not hung up or said something unasked since the last call."""
    if connection.is_connected:
        try:
            if not await connection.can_read():
                return
        except (RedisConnectionError, OSError):
            pass
        await connection.disconnect(nowait=True)
    await connection.connect()


async def _roundtrip(connection: AbstractConnection, command: tuple[Argument, ...]) -> Reply:
    await connection.send_packed_command(_pack(command))
    return cast(Reply, await connection.read_response(disable_decoding=True))


async def _hang_up(connection: AbstractConnection) -> None:
    with suppress(RedisError, OSError):  # It is gone then, which is what was wanted.
        await connection.disconnect()


def _parse(url: str) -> dict[str, Any]:
    try:
        options = cast(dict[str, Any], dict(parse_url(url))) if "://" in url else None
    except ValueError:
        options = None  # The library's message can hold a piece of the password.
    if options is None:
        forms = "redis://[user:password@]host[:port][/db], rediss://… (TLS), unix://path"
        raise ValueError(f"the Redis URL is none of {forms}")
    if unknown := sorted(options.keys() - _URL_OPTIONS):
        raise ValueError(f"unknown option in the Redis URL: {', '.join(unknown)}")
    encrypted = options.get("connection_class") is SSLConnection
    if not encrypted and (stray := sorted(name for name in options if name.startswith("ssl_"))):
        raise ValueError(f"only rediss:// takes {', '.join(stray)} in the Redis URL")
    path = urlsplit(url).path.strip("/")
    if "path" not in options and path and not path.isdecimal():
        raise ValueError("the database in the Redis URL must be a number")
    return options


def _address(options: dict[str, Any]) -> str:
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
