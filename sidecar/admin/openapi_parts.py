"""The pieces of the OpenAPI document: parameters, answers, operations."""

from __future__ import annotations

from typing import Final

from sidecar.admin.asked import PAGE_SIZE
from sidecar.admin.fields import FLAG, TEXT, Component, Schema, Shape, ref
from sidecar.admin.names import NAME_OR_NOTHING_PATTERN
from sidecar.admin.shapes import ERROR

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
    """The parameters of a paged list. `size`: of a page by default. `pattern`: of a token, by default that of lists
    by topic name; None for any text.
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
    """A JSON answer of this shape."""
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
"""The rules of `access`, in the form of the document."""
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


_HEALTH: Final = frozenset({"livez", "readyz"})


def read(name: str, summary: str, found: Schema, parameters: list[Schema] | None = None, **more: Schema) -> Schema:
    """An operation that changes nothing. `found`: its answer; `more`: others, by `status_…`."""
    others = {status.removeprefix("status_"): each for status, each in more.items()}
    operation = {
        "operationId": name,
        "summary": summary,
        "security": FOR_ANYBODY if name in _HEALTH else TO_READ,
        "responses": {"200": found, **others, "default": FAILED},
    }
    return operation if parameters is None else {**operation, "parameters": parameters}


def write(name: str, summary: str, answers: Schema, body: str = "", *, optional: bool = False) -> Schema:
    """An operation that may change something. `answers`: by status; `body`: the name of its shape."""
    refused = dict.fromkeys(("400", "401", "403", "404", "default"), FAILED)
    operation = {
        "operationId": name,
        "summary": summary,
        "security": TO_OPERATE,
        "responses": {**answers, **refused},
    }
    return {**operation, "requestBody": {"required": not optional, **_json(ref(body))}} if body else operation


def also(operation: Schema, **answers: Schema) -> Schema:
    """An operation with more answers, by `status_…`."""
    more = {status.removeprefix("status_"): each for status, each in answers.items()}
    return {**operation, "responses": {**operation["responses"], **more}}
