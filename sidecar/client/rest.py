"""HTTP to a node's admin port: sends JSON, returns the dataclasses of `facts` and server-sent events, raises a
`SidecarError` for each failure. The error names the path of a wrong field; unknown fields are ignored.

`code` is the HTTP status where a node answered, and Kafka's code where none did (13: not reached, 7: not in time). No
redirect is followed: the token is for this address only. aiohttp is imported with the first session: a program that
only writes or leads does not wait for the import.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from sidecar.client.errors import SidecarError, SidecarUnavailableError, of_http
from sidecar.protocol.errors import ErrorCode
from sidecar.security.words import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession
import dataclasses
import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

from sidecar.client.facts import Event

_SILENT_S: Final = 30.0
"""How long a stream may send nothing: a node sends an event or a comment every few seconds."""
_LONGEST: Final = 64 * 1024 * 1024


class Sent(NamedTuple):
    """A server-sent event: its id and its data, decoded."""

    id: str
    data: Any


class Rest:
    """Requests to one address. `timeout` (seconds) limits each. Without `tls` the system's authorities are trusted."""

    def __init__(self, url: str, token: str | None, timeout: float, tls: SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"url {url!r} is not of the form http://host:port or https://host:port")
        self.url: str = url.rstrip("/")
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._timeout = timeout
        if tls is not None and parts.scheme == "http":
            raise ValueError(f"ssl_context is of no use: url {url!r} is not of the form https://host:port")
        self._tls = tls
        self._session: ClientSession | None = None

    def open(self) -> None:
        """Open the session; needs a running event loop."""
        from aiohttp import ClientSession, ClientTimeout, TCPConnector  # noqa: PLC0415

        self._session = ClientSession(
            headers=self._headers,
            timeout=ClientTimeout(total=self._timeout),
            connector=None if self._tls is None else TCPConnector(ssl=self._tls),
        )

    async def close(self) -> None:
        """Close every connection; requests under way fail. Repeating it is harmless."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer, None if that is empty. Raises `SidecarError`."""
        async with self._asked(method, path, query, json=body, headers=headers) as answer:
            text = await _text(answer)
        return _decoded(text, f"{method} {path}") if text else None

    async def stream(self, path: str, query: Mapping[str, str], last_id: str | None) -> AsyncGenerator[Sent | None]:
        """Yield server-sent events after `last_id`, and None for each keep-alive comment. Ends with the connection.

        Raises `SidecarError`; an answer that breaks off is a `SidecarUnavailableError`.
        """
        from aiohttp import ClientTimeout  # noqa: PLC0415

        headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
        timeout = ClientTimeout(sock_connect=self._timeout, sock_read=_SILENT_S)
        async with self._asked("GET", path, query, headers=headers, timeout=timeout) as answer:
            fields: dict[str, str] = {}
            async for line in answer.content:
                name, colon, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
                if name or colon:
                    fields[name] = value.removeprefix(" ")
                elif "data" in fields:
                    yield Sent(fields.get("id", ""), _decoded(fields["data"], path))
                    fields = {}
                else:
                    yield None
                    fields = {}

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, query: Mapping[str, str] | None, **more: Any
    ) -> AsyncIterator[ClientResponse]:
        """The answer, once its headers are here. Raises `SidecarError` for an error status."""
        from aiohttp import ClientConnectorCertificateError, ClientError  # noqa: PLC0415
        from yarl import URL  # noqa: PLC0415

        if self._session is None:
            raise RuntimeError("the client is not open: use `async with`")
        target = self.url + path + (f"?{urlencode(query)}" if query else "")
        try:
            async with self._session.request(
                method, URL(target, encoded=True), allow_redirects=False, **more
            ) as answer:
                if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                    raise of_http(answer.status, f"{method} {path}: {_message(await _text(answer), self.url)}")
                yield answer
        except ClientConnectorCertificateError as error:  # which is a ValueError, too
            message = f"{self.url}: {in_words(error.certificate_error)} (ssl_context)"
            raise SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, message, retryable=False) from error
        except ValueError as error:  # aiohttp's, of a line that does not end
            raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{method} {path}: {error}") from error
        except TimeoutError as error:
            message = f"{self.url} did not answer {method} {path} in time"
            raise SidecarUnavailableError(ErrorCode.REQUEST_TIMED_OUT, message, retryable=True) from error
        except (ClientError, OSError) as error:
            message = f"no node answers at {self.url} ({error or type(error).__name__})"
            raise SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, message, retryable=True) from error


def path_of(*parts: str) -> str:
    """A path of these parts, percent-encoded."""
    return "".join("/" + quote(each, safe="*") for each in parts)


def given(**fields: object) -> dict[str, object]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def of_partition(partition: int | None) -> dict[str, str]:
    """The query of a request about one partition."""
    return {} if partition is None else {"partition": str(partition)}


def under(generation: int | None) -> dict[str, str] | None:
    """The headers of a request that shall be done only under this generation."""
    return None if generation is None else {"If-Match": f'"{generation}"'}


async def _text(answer: ClientResponse) -> str:
    found = await answer.content.read(_LONGEST)
    while found and (more := await answer.content.read(_LONGEST)):
        found += more
        if len(found) > _LONGEST:
            raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, f"an answer of more than {_LONGEST} bytes")
    return found.decode(errors="replace")


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        message = f"{where}: the answer is no JSON; is it the admin port of a node?"
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def _message(text: str, url: str) -> str:
    try:
        found = json.loads(text)["message"]
    except (ValueError, TypeError, KeyError):
        found = None
    return found if isinstance(found, str) else f"{url} gives no reason; is it the admin port of a node?"


FactT = TypeVar("FactT")

_SHOWN: Final = 60


class ShapeError(ValueError):
    """An answer has the wrong form; the message says where."""


def read(kind: type[FactT], found: object, where: str) -> FactT:
    """Convert `found`, a result of `json.loads`, to a `kind`. Unknown fields are ignored. Raises `ShapeError` for a
    field that is missing or has another type; `where` is the name of the whole in its message.
    """
    if not isinstance(found, dict):
        raise _wrong(where, found, "object")
    values: dict[str, Any] = {}
    for name, label, hint, needed in _fields(kind):
        if label in found:
            values[name] = _value(hint, found[label], f"{where}.{label}")
        elif needed:
            raise ShapeError(f"{where} has no {label}")
    return kind(**values)


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, str, Any, bool], ...]:
    """For each field: its name here and in JSON, its type, and whether it is required."""
    hints = get_type_hints(kind)
    return tuple(
        (each.name, each.metadata.get("name", each.name), hints[each.name], each.default is dataclasses.MISSING)
        for each in dataclasses.fields(kind)
    )


def _value(kind: Any, found: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (kind,) = (each for each in inner if each is not NoneType)  # X | None is all that facts have
        return None if found is None else _value(kind, found, where)
    if origin is tuple:
        if not isinstance(found, list):
            raise _wrong(where, found, "list")
        return tuple(_value(inner[0], each, f"{where}[{index}]") for index, each in enumerate(found))
    if origin is Mapping:
        if not isinstance(found, dict):
            raise _wrong(where, found, "object")
        return {_key(inner[0], key, where): _value(inner[1], each, f"{where}.{key}") for key, each in found.items()}
    if dataclasses.is_dataclass(kind):
        return read(kind, found, where)  # pyright: ignore[reportArgumentType]
    if kind is datetime:
        return _time(found, where)
    if type(found) is not kind:  # a bool is no int
        raise _wrong(where, found, kind.__name__)
    return found


def _key(kind: type[Any], text: str, where: str) -> Any:
    if kind is str:
        return text
    if not (text.isascii() and text.isdigit()):
        raise ShapeError(f"{where} has the key {text[:_SHOWN]!r}, which is no number of a partition")
    return int(text)


def _time(found: Any, where: str) -> datetime:
    try:
        at = datetime.fromisoformat(found)
    except (TypeError, ValueError):
        raise _wrong(where, found, "time") from None
    if at.tzinfo is None:
        raise _wrong(where, found, "time with its zone")
    return at.astimezone(UTC)


def _wrong(where: str, found: object, kind: str) -> ShapeError:
    return ShapeError(f"{where} is {repr(found)[:_SHOWN]}, no {kind}")


def fact(kind: type[FactT], found: Any, where: str) -> FactT:
    """As `read`, for the answer of `where`. Raises `SidecarError` for a wrong form; so do the next two functions."""
    try:
        return read(kind, found, "answer")
    except ShapeError as error:
        message = f"{where}: {error}; is it the admin port of a node?"
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def page_of(kind: type[FactT], found: Any, where: str) -> tuple[tuple[FactT, ...], str | None]:
    """One page of a list, and the token of the next one."""
    items, token = (found.get("items"), found.get("next_page_token")) if isinstance(found, dict) else (None, None)
    if not isinstance(items, list) or not isinstance(token, str | None):
        message = f"GET {where}: the answer is no list; is it the admin port of a node?"
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return tuple(fact(kind, each, f"GET {where}") for each in items), token


def event_of(position: str, data: Any) -> Event:
    """A server-sent event by its id and its data."""
    if not position.isascii() or not position.isdigit():
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, f"an event has the position {position[:50]!r}")
    found: Any = {**data, "position": int(position)} if isinstance(data, dict) else data
    return fact(Event, found, "GET /v1/events")
