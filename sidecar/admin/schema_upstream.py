"""The connection to the schema registry behind `/schemas`: passes a client's request on, and the answer back.

Sends a request once, follows no redirect, keeps no cookie and no connection. It does not know what a request means.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from sidecar.admin.access import same
from sidecar.admin.schema_answers import BadAnswerError, RegistryError, away

REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""The size limit of a request's body, in bytes. A registry stores a schema in one Kafka record, of 1 MiB unless
configured otherwise.
"""
PLACES: Final = 64
"""The most requests at the registry at one time; further ones wait."""
UPLOADS: Final = 16
"""The most request bodies in memory at one time, a quarter of them from one address; further ones wait."""
_BODY: Final = web.RequestKey("body", bytes)
_TIMEOUT: Final = ClientTimeout(total=45, sock_connect=5, sock_read=30)
_LOOK_S: Final = 0.25
PASSED_ON: Final = "X-Sidecar-Passed-On"
_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
"""Headers of a single connection (RFC 9110, 7.6.1), and those that each side sets by itself."""
_OF_THE_BODY: Final = frozenset({"etag", "content-md5", "digest", "content-digest", "accept-ranges", "last-modified"})
_ON_CONDITION: Final = frozenset({"accept-encoding", "if-none-match", "if-modified-since", "range"})


class SchemaRegistry:
    """A registry at a URL, which may contain a name and a password. `secrets`: the node's own tokens, which are never
    sent.
    """

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        self._url, self._credentials = _taken_apart(url)
        self._trust = _trusted() if urlsplit(url).scheme == "https" else True
        self.secrets = secrets
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """End all running requests."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def asked(
        self, request: web.Request, path: str, query: str, *, read_here: bool = False
    ) -> AsyncIterator[ClientResponse]:
        """The answer to a client's request with this path and query, whose body was read. `read_here`: the answer is to
        be read as a whole, so it must not be compressed.

        Raises RegistryError: 502 and 504 if the registry is unreachable.
        """
        headers = self._headers(request, _ON_CONDITION if read_here else frozenset())
        if read_here:
            headers["Accept-Encoding"] = "identity"
        body = request.get(_BODY, b"")
        url = URL(self._url + path + (f"?{query}" if query else ""), encoded=True)
        try:
            async with self._opened().request(
                request.method, url, headers=headers, data=BytesIO(body) if body else None, allow_redirects=False
            ) as answer:
                if 300 <= answer.status < 400 and answer.status != web.HTTPNotModified.status_code:
                    where = answer.headers.get("Location", "nowhere")
                    raise RegistryError(
                        502, f"the schema registry redirects to {where}: set SIDECAR_SCHEMA_REGISTRY_URL"
                    )
                yield answer
        except (ClientError, TimeoutError) as error:
            raise away(self._url, error) from None

    def _opened(self) -> ClientSession:
        """A session with one connection per request: a kept connection that the registry has closed meanwhile could
        lose a registration.
        """
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=PLACES, force_close=True, ssl=self._trust),
                timeout=_TIMEOUT,
                auto_decompress=False,
                cookie_jar=DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    def _headers(self, request: web.Request, less: frozenset[str]) -> CIMultiDict[str]:
        headers = _kept(request.headers, less)
        headers[PASSED_ON] = "1"
        shown = headers.get("Authorization", "").partition(" ")[2].strip()
        matches = [same(shown, each) for each in self.secrets]
        if any(matches):
            headers.popall("Authorization")  # a token of the node must not be sent to others
        if self._credentials is not None:
            headers.setdefault("Authorization", self._credentials)
        return headers


async def passed_on(request: web.Request, answer: ClientResponse) -> web.StreamResponse:
    """Send an answer to the client piece by piece, as it is received. If it breaks off, so does the client's."""
    reply = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_kept(answer.headers))
    reply.content_length = answer.content_length
    await reply.prepare(request)
    try:
        async for piece in answer.content.iter_any():
            await reply.write(piece)
        await reply.write_eof()
    except (ClientError, TimeoutError, ConnectionError, asyncio.CancelledError) as error:
        if request.transport is not None:
            request.transport.abort()
        if isinstance(error, asyncio.CancelledError):
            raise
    return reply


async def whole(answer: ClientResponse, limit: int) -> bytes:
    """The body of an answer that was requested with `read_here`. Raises BadAnswerError beyond `limit` bytes."""
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BadAnswerError("compressed, although the node did not ask for that")
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > limit:
            raise BadAnswerError(f"longer than {limit} bytes: ask with subjectPrefix, or the registry itself")
    return bytes(found)


def changed(answer: ClientResponse, body: bytes) -> web.Response:
    """The answer with another body."""
    return web.Response(body=body, status=answer.status, headers=_kept(answer.headers, _OF_THE_BODY))


async def while_connected(request: web.Request, work: Coroutine[Any, Any, web.StreamResponse]) -> web.StreamResponse:
    """The result of `work`, which is cancelled if the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            if not task.done() and (request.transport is None or request.transport.is_closing()):
                return RegistryError(499, "the client has gone").reply()
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _trusted() -> ssl.SSLContext:
    """A TLS context with the system's certificates and one application protocol (RFC 7301)."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


def _taken_apart(url: str) -> tuple[str, str | None]:
    """The URL without its name and password, and the header made of these."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    bare = urlunsplit(parts._replace(netloc=host)).rstrip("/")
    return bare, f"Basic {base64.b64encode(unquote(credentials).encode()).decode()}" if at else None


def _kept(headers: Mapping[str, str], less: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """The headers that are passed on, in either direction."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    dropped = _HOP_BY_HOP | less | named
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


async def read_body(request: web.Request) -> None:
    """Read the body, for `SchemaRegistry.asked`. Raises RegistryError: 413 for more than `REQUEST_LIMIT`."""
    found = bytearray()
    if (request.content_length or 0) <= REQUEST_LIMIT:
        async for piece in request.content.iter_any():
            found += piece
            if len(found) > REQUEST_LIMIT:
                break
        else:
            request[_BODY] = bytes(found)
            return
    raise RegistryError(413, f"the body is longer than {REQUEST_LIMIT} bytes: send it to the registry itself")
