"""The page for people in the OpenAPI document."""

from __future__ import annotations

from sidecar.admin.openapi_parts import TEXT, Schema, read


def page_paths() -> Schema:
    """By path."""
    file = {"name": "file", "in": "path", "required": True, "schema": TEXT, "description": "As the page names it."}
    return {
        "/": {"get": _cached(read("page", "The page for people", _text("text/html")))},
        "/page/{file}": {
            "parameters": [file],
            "get": _cached(
                read(
                    "pageFile", "A file of the page", _text("text/html", "text/javascript", "text/css", "image/svg+xml")
                )
            ),
        },
    }


def _cached(operation: Schema) -> Schema:
    unchanged = {"304": {"description": "As `If-None-Match` has it"}}
    return {**operation, "responses": {**operation["responses"], **unchanged}}


def _text(*kinds: str) -> Schema:
    """With an ETag and a strict Content-Security-Policy."""
    return {
        "description": "With an ETag and a Content-Security-Policy that allows nothing from elsewhere",
        "content": {kind: {"schema": TEXT} for kind in kinds},
    }
