"""Cursors and numbers of shadow topics in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from sidecar.admin.openapi_parts import NUMBER, TEXT, TIME, Schema, answer, fields, list_of, read, ref, write

_SHADOW: Final[Schema] = {
    "name": "shadow",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "Its own name.",
}
_GROUP: Final[Schema] = {
    "name": "group",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "The group's name; a slash in it is written %2F.",
}
_MAYBE: Final[Schema] = {"type": ["integer", "null"]}
BACKLOG: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "description": "Cursors that more records lie behind are reset to the end; 0: never.",
}


def cursor_paths(page: list[Schema]) -> Schema:
    """By path. `page`: the parameters of a list in pages."""
    return {
        "/v1/shadows/{shadow}/cursors": {
            "parameters": [_SHADOW],
            "get": {
                **read("listCursors", "What groups have committed for a shadow, and how far behind", answer("Cursors")),
                "parameters": page,
            },
        },
        "/v1/shadows/{shadow}/cursors/{group}/reset": {
            "parameters": [_SHADOW, _GROUP],
            "post": {
                **write(
                    "resetCursor",
                    "Move the cursor of a group without members; one is made where there is none",
                    {"200": answer("Cursor"), "409": answer("Error")},
                ),
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CursorReset")}}},
            },
        },
    }


def cursor_schemas() -> Schema:
    """By name."""
    position = fields({"offset": NUMBER, "end": NUMBER, "lag": NUMBER})
    return {
        "Cursor": fields(
            {
                "group": TEXT,
                "state": TEXT,
                "members": NUMBER,
                "lag": NUMBER,
                "partitions": {"type": "object", "additionalProperties": position},
            }
        ),
        "Cursors": fields({"items": list_of(ref("Cursor")), "next_page_token": {"type": ["string", "null"]}}),
        "CursorReset": fields(
            {
                "to": {
                    "oneOf": [
                        {"type": "string", "enum": ["earliest", "latest"]},
                        fields({"timestamp": TIME}),
                        fields({"offset": {"type": "integer", "minimum": 0}}),
                    ]
                }
            },
            {"partitions": {"type": ["array", "null"], "items": NUMBER}},
        ),
        "ShadowStats": fields(
            {
                "readers": {**NUMBER, "description": "Connections to this node that read it in the last 30 s."},
                "bytes": {**NUMBER, "description": "Of records, given to readers by this node since it started."},
                "last_read": {**TIME, "type": ["string", "null"]},
                "cursor_resets": {**NUMBER, "description": "By this node, as cursors fell too far behind."},
                "groups": {**_MAYBE, "description": "With a cursor, in the whole cluster; null where it is not known."},
                "total_lag": _MAYBE,
                "max_lag": {**_MAYBE, "description": "Of the group that is furthest behind."},
            }
        ),
    }
