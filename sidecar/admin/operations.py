"""The operations of REST. `reads` or `writes` on a handler describes its operation once, for its route, the audit log
and the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.admin.asked import PAGE_SIZE, TAGS_PATTERN
from sidecar.admin.faults import GOVERNABLE_PATTERN, LAST_PARTITION, NAME_OR_NOTHING_PATTERN, TOPIC_PATTERN, ShapeError
from sidecar.admin.fields import FLAG, TEXT, Component, Schema, Shape, ref
from sidecar.admin.shapes import ERROR

HandlerT = TypeVar("HandlerT")

OF_NUMBERS: Final = "^[0-9]{1,10}$"
_PAGE: Final = "`next_page_token` of the page before."


def in_path(name: str, description: str, **schema: object) -> Schema:
    """A parameter in the path: a string, with what `schema` adds."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {**TEXT.schema, **schema},
        "description": description,
    }


def in_query(name: str, schema: Schema, description: str) -> Schema:
    """A query parameter."""
    return {"name": name, "in": "query", "schema": schema, "description": description}


def in_header(name: str, schema: Schema, description: str) -> Schema:
    """A header of a request."""
    return {"name": name, "in": "header", "schema": schema, "description": description}


def flag(name: str, description: str) -> Schema:
    """A boolean query parameter, false by default."""
    return in_query(name, {**FLAG.schema, "default": False}, description)


def paged(
    size: int = PAGE_SIZE, description: str = _PAGE, pattern: str | None = NAME_OR_NOTHING_PATTERN
) -> list[Schema]:
    """The parameters of a paged list. `size`: the default size of a page. `pattern`: of a token, by default that of
    lists by topic name; None for any text.
    """
    token = {} if pattern is None else {"pattern": pattern}
    number = {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE, "default": size}
    return [
        {"name": "page_size", "in": "query", "schema": number},
        in_query("page_token", {**TEXT.schema, **token}, description),
    ]


def _json(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}


def answer(shape: Shape | Component) -> Schema:
    """A JSON answer with this shape."""
    return {"description": shape.name, **_json(ref(shape.name))}


def text(description: str, *kinds: str) -> Schema:
    """An answer other than JSON. `kinds`: its content types."""
    return {"description": description, "content": {kind: {"schema": TEXT.schema} for kind in kinds}}


def nothing(description: str) -> Schema:
    """The answer 204, without a body."""
    return {"204": {"description": description}}


FAILED: Final = answer(ERROR)
SECURITY: Final[Schema] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "SIDECAR_ADMIN_TOKEN of the node: to operate, and to read. Without one on the node, only"
        " programs on its own machine may write.",
    },
    "readToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "SIDECAR_ADMIN_READ_TOKEN of the node: to read. Without one on the node, reads need none.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "Where the node has SIDECAR_ADMIN_SSL_CA, everything but /livez and /readyz needs a client"
        " certificate besides the token.",
    },
}
"""The rules of `access` as security requirements of the document."""
TO_OPERATE: Final[list[Schema]] = [{"token": []}, {"token": [], "certificate": []}, {}, {"certificate": []}]
TO_READ: Final[list[Schema]] = [
    {"readToken": []},
    {"token": []},
    {"readToken": [], "certificate": []},
    {"token": [], "certificate": []},
    {},
    {"certificate": []},
]
FOR_ANYBODY: Final[list[Schema]] = [{}]
EVENTS: Final = "/v1/events"
"""The path of the stream of events."""

PARTITION_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}
GOVERNABLE: Final = in_path(
    "topic", "A topic's name, or a prefix with * behind it: `payments.*`.", pattern=GOVERNABLE_PATTERN
)
IF_MATCH: Final = in_header(
    "If-Match",
    {**TEXT.schema, "pattern": TAGS_PATTERN, "examples": ['"7"']},
    "Only where the generation is this one, as ETag names it; `*`: where it is there.",
)
_IN_PATHS: Final = {
    each["name"]: each
    for each in (
        in_path("topic", "A topic's name.", pattern=TOPIC_PATTERN),
        in_path("shadow", "Its own name."),
        in_path("group", "The group's name; a slash in it is written %2F."),
        in_path("name", "A producer name: UTF-8, percent-encoded, a slash as %2F.", minLength=1),
        in_path("file", "As the page names it."),
        in_path("tenant", "Ignored."),
        in_path("namespace", "Ignored."),
        in_path(
            "path", "A path of Confluent's schema registry API, slashes and all: `subjects/orders-value/versions`."
        ),
    )
}
"""The parameters in paths by name, unless an operation describes its own."""
_BRACES: Final = re.compile(r"\{(\w+)(?::[^}]*)?\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of `method` at `path` (in aiohttp's syntax); `act`: its name in the audit log, if it is an act."""

    method: str
    path: str
    described: Schema
    parameters: tuple[Schema, ...]
    act: str = ""

    @property
    def canonical(self) -> str:
        """The path without patterns, as in the document."""
        return _BRACES.sub(r"{\1}", self.path)

    @property
    def in_path(self) -> list[Schema]:
        """The parameters in the path."""
        own = {each["name"]: each for each in self.parameters if each["in"] == "path"}
        return [own.get(name, _IN_PATHS[name]) for name in _BRACES.findall(self.path)]


def serves(operation: Operation) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler with an operation."""

    def mark(handler: HandlerT) -> HandlerT:
        handler.operations = {**operations_of(handler), operation.method: operation}  # pyright: ignore[reportAttributeAccessIssue]
        return handler

    return mark


def reads(
    path: str,
    found: Schema,
    *parameters: Schema,
    failing: Iterable[int] = (),
    security: list[Schema] = TO_READ,
    act: str = "",
    **more: Schema,
) -> Callable[[HandlerT], HandlerT]:
    """Marks a handler that changes nothing. The document uses its name and the first sentence of its docstring.
    `found`: its answer; `failing`: statuses of expected errors; `more`: other answers, by `status_…`.
    """
    others = {status.removeprefix("status_"): each for status, each in more.items()}
    answers = {"200": found, **others, "default": FAILED, **{str(status): FAILED for status in failing}}
    return _described("GET", path, act, parameters, {"security": security, "responses": answers})


def writes(
    route: str,
    act: str,
    answers: Schema,
    *parameters: Schema,
    failing: Iterable[int] = (),
    body: str = "",
    optional: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Marks a handler that may change something; named and described likewise. `route`: method and path; `answers`: by
    status; `body`: the name of its shape.
    """
    method, _, path = route.partition(" ")
    refused = dict.fromkeys(("400", "401", "403", "404", "default", *map(str, failing)), FAILED)
    more = {"requestBody": {"required": not optional, **_json(ref(body))}} if body else {}
    return _described(
        method, path, act, parameters, {"security": TO_OPERATE, "responses": {**answers, **refused}, **more}
    )


def _described(
    method: str, path: str, act: str, parameters: tuple[Schema, ...], more: Schema
) -> Callable[[HandlerT], HandlerT]:
    def mark(handler: HandlerT) -> HandlerT:
        first, *others = getattr(handler, "__name__", "").split("_")
        name = first + "".join(map(str.capitalize, others))
        summary = " ".join((handler.__doc__ or "").split()).partition(". ")[0].removesuffix(".")
        described = {"operationId": name, "summary": summary, **more}
        return serves(Operation(method, path, described, parameters, act))(handler)

    return mark


def operations_of(handler: object) -> dict[str, Operation]:
    """The operations of a handler, by method."""
    return getattr(handler, "operations", {})


def query_of(handler: object) -> list[str]:
    """The query parameters of a handler's operations."""
    found = [each for operation in operations_of(handler).values() for each in operation.parameters]
    return [each["name"] for each in found if each["in"] == "query"]


@web.middleware
async def known_parameters_alone(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses unknown and repeated query parameters: a condition with a typing error must not be ignored."""
    if request.query and request.path.startswith("/v1/") and request.match_info.http_exception is None:
        known = query_of(request.match_info.handler)
        for name in request.query:
            if name not in known:
                possible = f"possible: {', '.join(known)}" if known else "there are none here"
                raise ShapeError(f"there is no parameter {name[:100]!r}; {possible}")
            if len(request.query.getall(name)) > 1:
                raise ShapeError(f"{name} is given more than once")
    return await handler(request)


def handled_by(handlers: object) -> Iterator[tuple[str, Operation]]:
    """The operations of a class of handlers, or of an instance, with the names of its methods."""
    for name, handler in vars(handlers if isinstance(handlers, type) else type(handlers)).items():
        for operation in operations_of(handler).values():
            yield name, operation


def routes_of(handlers: object) -> list[web.RouteDef]:
    """The routes of an object's handlers. GET routes also answer HEAD, except endless streams."""
    found = [(operation, getattr(handlers, name)) for name, operation in handled_by(handlers)]
    return [
        web.get(each.path, handler, allow_head=each.path != EVENTS)
        if each.method == "GET"
        else web.route(each.method, each.path, handler)
        for each, handler in found
    ]
