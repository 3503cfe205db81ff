"""`/schemas`: a proxy in front of a schema registry with Confluent's API. Under the names of shadows it reads the
source's subjects (PIP-180: GetSchema of a shadow returns the source's schema), and refuses writes. Other requests pass
unchanged.

`schema_paths` interprets paths, `shadow.subjects` finds the topic of a subject, `schema_answers` changes answers, and
`schema_upstream` sends requests to the registry. A closed shadow has no schemas. Nothing is cached between requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from aiohttp import web

from sidecar.admin import schema_answers as answers
from sidecar.admin import schema_paths as paths
from sidecar.admin.operations import TO_OPERATE, TO_READ, Operation, serves
from sidecar.admin.schema_answers import RegistryError, closed, not_found, read_only, without_registry
from sidecar.admin.schema_paths import BadPathError, Kind, Query, Target
from sidecar.admin.schema_upstream import (
    PASSED_ON,
    PLACES,
    UPLOADS,
    SchemaRegistry,
    changed,
    passed_on,
    read_body,
    while_connected,
    whole,
)
from sidecar.network.places import Places
from sidecar.node.view import NodeView
from sidecar.shadow.subjects import Claim, Related, Standing, Subject, claim, topics

HandlerT = TypeVar("HandlerT")

ROOT: Final = "/schemas"
OBJECT_LIMIT: Final = 4 * 1024 * 1024
LIST_LIMIT: Final = 16 * 1024 * 1024
"""The size limit, in bytes, of answers whose names are changed; others are passed on piece by piece, of any length."""
_TURN: Final = 200
"""Items of a list that are handled before other tasks run."""
_PAGE: Final = {"offset": None, "limit": None}


_ANSWER: Final = {
    "description": "As the registry answers; a shadow's subject stands for its source's. Errors: 403 (40301) for"
    " a write to a shadow's, 404 (40401) under a closed one, 501 without a registry, 502 and 504 where it is away.",
}
_METHODS: Final = {
    "GET": ("Read schemas", ""),
    "POST": ("Look up or register a schema", "schema.register"),
    "PUT": ("Change", "schema.change"),
    "DELETE": ("Delete", "schema.delete"),
}
"""Kinds of requests in words, and their names in the audit log."""


def _passes_on(handler: HandlerT) -> HandlerT:
    """Marks a handler of the registry's own interface, which is documented by the registry."""
    for method, (summary, act) in _METHODS.items():
        described = {
            "operationId": f"{method.lower()}Schemas",
            "summary": summary,
            "security": TO_OPERATE if act else TO_READ,
            "responses": {"default": _ANSWER},
        }
        handler = serves(Operation(method, ROOT + "/{path:.*}", described, (), act))(handler)
    return handler


class SchemaProxy:
    """The handler, and the limit for requests at the registry at one time."""

    def __init__(self, port: NodeView, url: str | None, secrets: Sequence[str]) -> None:
        self._port = port
        self._registry = None if url is None else SchemaRegistry(url, secrets)
        self._places = asyncio.Semaphore(PLACES)
        self._uploads = Places(UPLOADS)

    def keep_secret(self, secrets: Sequence[str]) -> None:
        """Set the node's own tokens, which are never sent to the registry."""
        if self._registry is not None:
            self._registry.secrets = secrets

    async def close(self, _application: object = None) -> None:
        """Close the connections to the registry."""
        if self._registry is not None:
            await self._registry.close()

    @_passes_on
    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle one request of any method."""
        try:
            if self._registry is None:
                raise without_registry()
            if PASSED_ON in request.headers:
                raise RegistryError(
                    508, "SIDECAR_SCHEMA_REGISTRY_URL leads to a sidecar: set it to the registry itself"
                )
            return await while_connected(request, self._handle(self._registry, request))
        except RegistryError as error:
            return error.reply()
        except BadPathError as error:
            return RegistryError(400, f"{error}: {request.path}").reply()
        except answers.BadAnswerError as error:
            return RegistryError(502, f"the answer of the schema registry is {error}; see its log").reply()

    async def _handle(self, registry: SchemaRegistry, request: web.Request) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        if not path.startswith(ROOT) or "#" in query or not query.isascii():
            raise BadPathError(f"the path has to begin with {ROOT}; percent-encode # and characters outside of ASCII")
        path = path.removeprefix(ROOT)
        target = paths.read(request.method, path)
        if not request.body_exists:
            return await self._answer(registry, request, target, query)
        host = request.remote or ""
        await self._uploads.take(host)
        try:
            await read_body(request)  # first: a slow client must not take a place at the registry
            return await self._answer(registry, request, target, query)
        finally:
            self._uploads.give_back(host)

    async def _answer(
        self, registry: SchemaRegistry, request: web.Request, target: Target, query: str
    ) -> web.StreamResponse:
        async with self._places:
            if target.kind is Kind.LISTS:
                return await self._list(registry, request, target, await self._readable_query(Query(query)))
            if target.subject is not None:
                return await self._of_subject(registry, request, target, Query(query))
            by_query = await self._claim_of(Query(query).get("subject"))
            if by_query is None:
                return await _pass(registry, request, target.path(), query)
            if not paths.is_get(request.method):
                raise read_only(by_query[0])
            found = _readable(*by_query)
            asked = Query(query).replaced(subject=str(found.read))
            return await _renamed(registry, request, target, target.path(), asked.text, found)

    async def _of_subject(
        self, registry: SchemaRegistry, request: web.Request, target: Target, query: Query
    ) -> web.StreamResponse:
        found = await self._claim_of(target.subject)
        if found is None:
            return await _pass(registry, request, target.path(), query.text)
        if target.kind is not Kind.READS:
            raise read_only(found[0])
        readable = _readable(*found)
        return await _renamed(registry, request, target, target.path(str(readable.read)), query.text, readable)

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
        """The query, with a shadow's subject replaced by the source's."""
        found = await self._claim_of(query.get("subject"))
        return query if found is None else query.replaced(subject=str(_readable(*found).read))

    # Lists ----------------------------------------------------------------------------------------------------------

    async def _list(
        self, registry: SchemaRegistry, request: web.Request, target: Target, query: Query
    ) -> web.StreamResponse:
        sources = {shadow.name: shadow.source for shadow in await self._port.shadows.known()}
        if not sources:
            return await _pass(registry, request, target.path(), query.text)
        prefix = Subject.parse(query.get("subjectPrefix") or "")
        if not any(prefix.name.startswith(name) or name.startswith(prefix.name) for name in sources):
            return await _pass(registry, request, target.path(), query.text)
        offset, most = _number(query, "offset"), _number(query, "limit")
        asked = query.replaced(**_PAGE) if offset or most else query
        if prefix.name:
            asked = asked.replaced(subjectPrefix=prefix.context)
        related = Related(sources)
        names = await self._port.topic_names(governed=False)
        hiding = [name for name in names if not name.endswith("*") and related.may_hide(name)]
        readable = await self._port.shadows.readable([*related.names, *hiding])
        async with registry.asked(request, target.path(), asked.text, read_here=True) as answer:
            if answer.status != web.HTTPOk.status_code:
                return await passed_on(request, answer)
            body = await whole(answer, LIST_LIMIT)
            listing = answers.Listing(LIST_LIMIT, offset, most)
            wanted = _begins_with(prefix.name, prefix.context or target.context) if prefix.name else _any
            await _fill(listing, body, lambda subject: filter(wanted, related.shown(subject, readable)))
            return changed(answer, listing.body())


async def _pass(registry: SchemaRegistry, request: web.Request, path: str, query: str) -> web.StreamResponse:
    async with registry.asked(request, path, query) as answer:
        return await passed_on(request, answer)


async def _renamed(
    registry: SchemaRegistry, request: web.Request, target: Target, path: str, query: str, found: Claim
) -> web.StreamResponse:
    async with registry.asked(request, path, query, read_here=not target.is_raw) as answer:
        if answer.status != web.HTTPOk.status_code or target.is_raw or request.method == "HEAD":
            return await passed_on(request, answer)
        return changed(answer, answers.renamed(await whole(answer, OBJECT_LIMIT), found))


def _readable(found: Claim, standing: Standing) -> Claim:
    """The claim, if it can be read; raises RegistryError otherwise."""
    if standing is Standing.CLOSED:
        raise closed(found)
    if standing is Standing.FOREIGN:
        raise not_found(found)
    return found


async def _fill(listing: answers.Listing, body: bytes, shown: Callable[[Subject], Iterable[Subject]]) -> None:
    """Add each item under every name that its subject has."""
    for index, item in enumerate(answers.items(body)):
        subject = Subject.parse(answers.subject_of(item) or "")
        for name in shown(subject):
            listing.add(item if name == subject else answers.under(item, str(name)))
        if index % _TURN == 0:
            await asyncio.sleep(0)


def _number(query: Query, name: str) -> int:
    """A number in the query; 0 if it is missing or not a whole number from 0 on."""
    text = query.get(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _any(_subject: Subject) -> bool:
    return True


def _begins_with(prefix: str, context: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.is_in(context) and subject.name.startswith(prefix)
