"""`/schemas`: a proxy in front of a schema registry with Confluent's API. Under the names of shadows it reads what is
the source's (PIP-180: GetSchema of a shadow returns the source's schema), and writes nothing. All else passes.

What a path means is in `schema_paths`, whose a subject is in `shadow.subjects`, how answers change in `schema_answers`.
A closed shadow has no schemas. Nothing is kept between two requests.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from contextlib import asynccontextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from sidecar.admin import schema_answers as answers
from sidecar.admin import schema_paths as paths
from sidecar.admin.schema_errors import RegistryError, away, closed, not_found, read_only, without_registry
from sidecar.admin.schema_paths import BadPathError, Kind, Query, Target
from sidecar.shadow.subjects import Claim, Related, Standing, Subject, claim, topics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from aiohttp import ClientResponse

    from sidecar.node_port import NodePort

ROOT: Final = "/schemas"
PLACES: Final = 64
"""Requests that are with the registry at one time; more wait for their turn."""
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of a request's body. A registry keeps a schema in one record of Kafka, of 1 MiB unless told otherwise."""
OBJECT_LIMIT: Final = 4 * 1024 * 1024
LIST_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of answers in which names change; others are passed on piece by piece, however long."""
_TIMEOUT: Final = ClientTimeout(total=45, sock_connect=5, sock_read=30)
_LOOK_S: Final = 0.25
_TURN: Final = 200
"""Items of a list until others have their turn."""
_PASSED_ON: Final = "X-Sidecar-Passed-On"
_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
"""Headers that speak of one connection (RFC 9110, 7.6.1), and those that each side writes by itself."""
_OF_THE_BODY: Final = frozenset({"etag", "content-md5", "digest", "content-digest", "accept-ranges", "last-modified"})
_PAGE: Final = {"offset": None, "limit": None}


class SchemaProxy:
    """The handler, its connections to the registry and the bound on them."""

    def __init__(self, port: NodePort, url: str | None, token: str | None) -> None:
        self._port = port
        self._token = token
        self._url, self._credentials = (None, None) if url is None else _taken_apart(url)
        self._session: ClientSession | None = None
        self._places = asyncio.Semaphore(PLACES)

    async def close(self, _application: object = None) -> None:
        """End what is open to the registry."""
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request, by whatever method."""
        try:
            if self._url is None:
                raise without_registry()
            if _PASSED_ON in request.headers:
                raise RegistryError(
                    508, "SIDECAR_SCHEMA_REGISTRY_URL leads to a sidecar: set it to the registry itself"
                )
            return await _while_connected(request, self._handle(request))
        except RegistryError as error:
            return error.reply()
        except BadPathError as error:
            return RegistryError(400, f"{error}: {request.path}").reply()
        except answers.BadAnswerError as error:
            return RegistryError(502, f"the answer of the schema registry is {error}; see its log").reply()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        if not path.startswith(ROOT):
            raise BadPathError(f"the path has to begin with {ROOT}, written so")
        path = path.removeprefix(ROOT)
        target = paths.read(request.method, path)
        async with self._places:
            if target.kind is Kind.LISTS:
                return await self._list(request, target, await self._readable_query(Query(query)))
            if target.subject is not None:
                return await self._of_subject(request, target, Query(query))
            by_query = await self._claim_of(Query(query).get("subject"))
            if by_query is None:
                return await self._pass(request, target.path(), query)
            if not paths.is_get(request.method):
                raise read_only(by_query[0])
            found = _readable(*by_query)
            asked = Query(query).replaced(subject=str(found.read))
            return await self._renamed(request, target, target.path(), asked.text, found)

    async def _of_subject(self, request: web.Request, target: Target, query: Query) -> web.StreamResponse:
        found = await self._claim_of(target.subject)
        if found is None:
            return await self._pass(request, target.path(), query.text)
        if target.kind is not Kind.READS:
            raise read_only(found[0])
        readable = _readable(*found)
        return await self._renamed(request, target, target.path(str(readable.read)), query.text, readable)

    # Whose subject it is --------------------------------------------------------------------------------------------

    async def _claim_of(self, text: str | None) -> tuple[Claim, Standing] | None:
        """The shadow that a subject belongs to; None for every other subject."""
        if text is None:
            return None
        subject = Subject.parse(text)
        found = claim(subject, await self._port.shadows.sources(topics(subject.name)))
        if found is None:
            return None
        standing = found.standing(await self._port.shadows.readable(found.questions))
        return None if standing is Standing.ORDINARY else (found, standing)

    async def _readable_query(self, query: Query) -> Query:
        """With the source's subject where a parameter names a shadow's."""
        found = await self._claim_of(query.get("subject"))
        return query if found is None else query.replaced(subject=str(_readable(*found).read))

    # Lists ----------------------------------------------------------------------------------------------------------

    async def _list(self, request: web.Request, target: Target, query: Query) -> web.StreamResponse:
        sources = {shadow.name: shadow.source for shadow in await self._port.shadows.known()}
        if not sources:
            return await self._pass(request, target.path(), query.text)
        prefix = Subject.parse(query.get("subjectPrefix") or "")
        if not any(prefix.name.startswith(name) or name.startswith(prefix.name) for name in sources):
            return await self._pass(request, target.path(), query.text)
        offset, most = _number(query, "offset"), _number(query, "limit")
        asked = query.replaced(**_PAGE) if offset or most else query
        if prefix.name:
            asked = asked.replaced(subjectPrefix=prefix.context)
        async with self._asked(request, target.path(), asked.text, identity=True) as answer:
            if answer.status != web.HTTPOk.status_code:
                return await self._passed_on(request, answer)
            body = await _whole(answer, LIST_LIMIT)
            context = prefix.context or (target.context if prefix.name else "")
            wanted = _begins_with(prefix.name, context) if prefix.name else _any
            listing = answers.Listing(LIST_LIMIT, offset, most)
            await self._fill(listing, body, sources, wanted)
            return web.Response(body=listing.body(), status=answer.status, headers=_kept(answer.headers, _OF_THE_BODY))

    async def _fill(
        self, listing: answers.Listing, body: bytes, sources: Mapping[str, str], wanted: Callable[[Subject], bool]
    ) -> None:
        related = Related(sources)
        names = await self._port.topic_names(governed=False)
        readable = await self._port.shadows.readable(
            [*related.names, *(name for name in names if related.may_hide(name))]
        )
        for index, item in enumerate(answers.items(body)):
            subject = Subject.parse(answers.subject_of(item) or "")
            for shown in related.shown(subject, readable):
                if wanted(shown):
                    listing.add(item if shown == subject else answers.under(item, str(shown)))
            if index % _TURN == 0:
                await asyncio.sleep(0)

    # To the registry and back ---------------------------------------------------------------------------------------

    async def _pass(self, request: web.Request, path: str, query: str) -> web.StreamResponse:
        async with self._asked(request, path, query) as answer:
            return await self._passed_on(request, answer)

    async def _renamed(
        self, request: web.Request, target: Target, path: str, query: str, found: Claim
    ) -> web.StreamResponse:
        async with self._asked(request, path, query, identity=not target.is_raw) as answer:
            if answer.status != web.HTTPOk.status_code or target.is_raw or request.method == "HEAD":
                return await self._passed_on(request, answer)
            body = await _whole(answer, OBJECT_LIMIT)
            changed = answers.renamed(body, found)
            return web.Response(body=changed, status=answer.status, headers=_kept(answer.headers, _OF_THE_BODY))

    @asynccontextmanager
    async def _asked(
        self, request: web.Request, path: str, query: str, *, identity: bool = False
    ) -> AsyncIterator[ClientResponse]:
        """The registry's answer. `identity`: not compressed, as it has to be read."""
        assert self._url is not None
        headers = self._headers(request, identity=identity)
        body = await _body(request)
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
        """A connection per request: one that the registry has closed meanwhile would cost somebody a registration."""
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=PLACES, force_close=True),
                timeout=_TIMEOUT,
                auto_decompress=False,
                cookie_jar=DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    def _headers(self, request: web.Request, *, identity: bool) -> CIMultiDict[str]:
        headers = _kept(request.headers)
        headers[_PASSED_ON] = "1"
        if identity:
            headers["Accept-Encoding"] = "identity"
            for name in ("If-None-Match", "If-Modified-Since", "Range"):
                headers.popall(name, None)
        shown = headers.get("Authorization", "").partition(" ")[2].strip()
        if self._token is not None and hmac.compare_digest(shown.encode(errors="replace"), self._token.encode()):
            del headers["Authorization"]  # the node's own token is nobody else's
        if self._credentials is not None:
            headers.setdefault("Authorization", self._credentials)
        return headers

    async def _passed_on(self, request: web.Request, answer: ClientResponse) -> web.StreamResponse:
        """An answer as it comes, piece by piece. Where it breaks off, so does the client's."""
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


def _readable(found: Claim, standing: Standing) -> Claim:
    """Raises RegistryError for what cannot be read."""
    if standing is Standing.CLOSED:
        raise closed(found)
    if standing is Standing.FOREIGN:
        raise not_found(found)
    return found


def _taken_apart(url: str) -> tuple[str, str | None]:
    """The URL without the name and password in it, and the header they make."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    bare = urlunsplit(parts._replace(netloc=host)).rstrip("/")
    return bare, f"Basic {base64.b64encode(unquote(credentials).encode()).decode()}" if at else None


def _kept(headers: Mapping[str, str], less: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """Headers that go on, whichever way."""
    dropped = _HOP_BY_HOP | less
    dropped |= {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


async def _body(request: web.Request) -> bytes:
    """Raises RegistryError (413) for more than `REQUEST_LIMIT`."""
    found = bytearray()
    if (request.content_length or 0) <= REQUEST_LIMIT:
        async for piece in request.content.iter_any():
            found += piece
            if len(found) > REQUEST_LIMIT:
                break
        else:
            return bytes(found)
    raise RegistryError(413, f"the body is longer than {REQUEST_LIMIT} bytes: send it to the registry itself")


async def _whole(answer: ClientResponse, limit: int) -> bytes:
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise answers.BadAnswerError("compressed, though nobody asked for it")
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > limit:
            raise answers.BadAnswerError(f"longer than {limit} bytes: ask with subjectPrefix, or the registry itself")
    return bytes(found)


def _number(query: Query, name: str) -> int:
    """A number of a page; 0 where there is none, or one that stands for none, as -1 does."""
    text = query.get(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _any(_subject: Subject) -> bool:
    return True


def _begins_with(prefix: str, context: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.is_in(context) and subject.name.startswith(prefix)


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, web.StreamResponse]) -> web.StreamResponse:
    """What `work` comes to; it is cancelled when the client has gone."""
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
