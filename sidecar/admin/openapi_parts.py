"""What every part of the OpenAPI document is put together from."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC"}


def read(name: str, summary: str, found: Schema) -> Schema:
    """An operation that changes nothing. `found`: its answer."""
    return {"operationId": name, "summary": summary, "responses": {"200": found, "default": answer("Error")}}


def write(name: str, summary: str, answers: Schema) -> Schema:
    """An operation that may change something. `answers`: by status."""
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"token": []}, {}],
        "responses": {
            **answers,
            "400": answer("Error"),
            "401": answer("Error"),
            "403": answer("Error"),
            "404": answer("Error"),
            "default": answer("Error"),
        },
    }


def answer(name: str) -> Schema:
    """A JSON answer of the shape of this name."""
    return {"description": name, "content": {"application/json": {"schema": ref(name)}}}


def tagged(name: str) -> Schema:
    """The same, with the generation of a topic as its entity tag."""
    tag = {"schema": TEXT, "description": "The generation in quotes; with `partition` that of the partition."}
    return {**answer(name), "headers": {"ETag": tag}}


def any_object(text: str) -> Schema:
    """A JSON object that is described elsewhere."""
    return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}


def ref(name: str) -> Schema:
    """The shape of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def fields(properties: Schema, optional: Schema | None = None) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }
