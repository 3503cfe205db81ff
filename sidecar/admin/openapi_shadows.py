"""Shadow topics in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from sidecar.admin.openapi_cursors import BACKLOG
from sidecar.admin.openapi_parts import FLAG, TEXT, TIME, Schema, answer, fields, list_of, read, ref, write

_SHADOW: Final[Schema] = {
    "name": "shadow",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "Its own name.",
}


def shadow_paths(topic: Schema) -> Schema:
    """By path. `topic`: the parameter of that name."""
    return {
        "/v1/topics/{topic}/shadows": {
            "parameters": [topic],
            "get": read("listShadows", "The shadows of a topic", answer("Shadows")),
            "post": {
                **write("createShadow", "Make a shadow", {"201": answer("Shadow"), "409": answer("Error")}),
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("NewShadow")}}},
            },
        },
        "/v1/topics/{topic}/shadows/{shadow}": {
            "parameters": [topic, _SHADOW],
            "delete": write("deleteShadow", "Delete a shadow and its cursors", {"204": {"description": "Deleted"}}),
        },
        "/v1/shadows/{shadow}": {"parameters": [_SHADOW], "get": read("getShadow", "One shadow", answer("Shadow"))},
    }


def shadow_schemas() -> Schema:
    """By name."""
    return {
        "Shadow": {
            **fields(
                {
                    "name": TEXT,
                    "source": TEXT,
                    "allow": list_of(TEXT),
                    "created": TIME,
                    "is_made": FLAG,
                    "auto_reset_backlog_entries": BACKLOG,
                },
                {"stats": ref("ShadowStats")},
            ),
            "description": "`stats` only of one shadow that is asked for.",
        },
        "Shadows": fields({"items": list_of(ref("Shadow")), "next_page_token": {"type": ["string", "null"]}}),
        "NewShadow": fields({"name": TEXT}, {"allow": list_of(TEXT), "auto_reset_backlog_entries": BACKLOG}),
    }
