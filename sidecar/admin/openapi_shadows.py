"""Shadow topics in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from sidecar.admin.openapi_cursors import BACKLOG
from sidecar.admin.openapi_parts import FLAG, TEXT, TIME, Schema, answer, fields, list_of, read, ref, write
from sidecar.admin.pulsar_rest import NAMES, SOURCE_PROPERTY
from sidecar.node.shadow_port import ShadowState
from sidecar.shadow.principals import ENTRIES, PRINCIPAL_BYTES

_SHADOW: Final[Schema] = {
    "name": "shadow",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "Its own name.",
}
_BACKLOG: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "description": "A cursor that is more records behind is reset; 0: never.",
}
_WARNING: Final[Schema] = {
    "type": ["string", "null"],
    "description": "Why none of the clients that can connect may read it.",
}
_ALLOW: Final[Schema] = {**list_of({**TEXT, "maxLength": PRINCIPAL_BYTES}), "maxItems": ENTRIES}
_CHANGED: Final[Schema] = {"200": answer("Shadow"), "409": answer("Error")}


def shadow_paths(topic: Schema, page: list[Schema]) -> Schema:
    """By path. `topic`: the parameter of that name; `page`: those of a list in pages."""
    return {
        "/v1/topics/{topic}/shadows": {
            "parameters": [topic],
            "get": {
                **read("listShadows", "The shadows of a topic, by name", answer("Shadows")),
                "parameters": page,
            },
            "post": {
                **write("createShadow", "Make a shadow", {"201": answer("Shadow"), "409": answer("Error")}),
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("NewShadow")}}},
            },
        },
        "/v1/topics/{topic}/shadows/{shadow}": {
            "parameters": [topic, _SHADOW],
            "delete": write("deleteShadow", "Delete a shadow and its cursors", {"204": {"description": "Deleted"}}),
        },
        "/v1/shadows": {
            "get": {**read("listEveryShadow", "All shadows, by name", answer("Shadows")), "parameters": page}
        },
        "/v1/shadows/{shadow}": {
            "parameters": [_SHADOW],
            "get": read("getShadow", "One shadow", answer("Shadow")),
            "patch": {
                **write("changeShadow", "Change who may read it, and when cursors are reset", _CHANGED),
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("ShadowChange")}}},
            },
        },
    }


def pulsar_paths(topic: Schema) -> Schema:
    """Pulsar's own."""
    ignored = [
        {"name": name, "in": "path", "required": True, "schema": TEXT, "description": "Ignored."}
        for name in ("tenant", "namespace")
    ]
    body = {"content": {"application/json": {"schema": ref("ShadowNames")}}}
    done = {"204": {"description": "Done"}, "409": answer("Error")}
    base = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
    return {
        f"{base}/shadowTopics": {
            "parameters": [*ignored, topic],
            "get": read("listShadowsOfPulsar", "The shadows of a topic", answer("ShadowNames")),
            "put": {
                **write("replaceShadows", "Make those that are named, delete all others", done),
                "requestBody": {"required": True, **body},
            },
            "post": {
                **write("addShadows", "Make those that are named", done),
                "requestBody": {"required": True, **body},
            },
            "delete": {
                **write("removeShadows", "Delete those that are named, or all without a body", done),
                "requestBody": {"required": False, **body},
            },
        },
        f"{base}/properties": {
            "parameters": [*ignored, topic],
            "get": read("getProperties", "The source of a shadow, as Pulsar keeps it", answer("PulsarProperties")),
        },
    }


def deletion() -> Schema:
    """Of a topic that may have shadows."""
    force = {
        "name": "force",
        "in": "query",
        "schema": {**FLAG, "default": False},
        "description": "Its shadows and their cursors too; else a topic with shadows is 409.",
    }
    answers = {"204": {"description": "Deleted"}, "409": answer("Error")}
    return {**write("deleteTopic", "Delete a topic with its records", answers), "parameters": [force]}


def shadow_schemas() -> Schema:
    """By name."""
    return {
        "Shadow": {
            **fields(
                {
                    "name": TEXT,
                    "source": TEXT,
                    "allow": _ALLOW,
                    "created": TIME,
                    "is_made": FLAG,
                    "auto_reset_backlog_entries": BACKLOG,
                    "state": {"type": "string", "enum": [each.value for each in ShadowState]},
                    "reason": {"type": ["string", "null"], "description": "Why it is closed, and what to do."},
                    "warning": _WARNING,
                },
                {"stats": ref("ShadowStats")},
            ),
            "description": "`stats` only of one shadow that is asked for.",
        },
        "ShadowNames": {
            **list_of({**TEXT, "description": "`orders-audit`, or `persistent://tenant/namespace/orders-audit`."}),
            "maxItems": NAMES,
        },
        "PulsarProperties": fields({}, {SOURCE_PROPERTY: TEXT}),
        "ShadowChange": fields({}, {"allow": _ALLOW, "auto_reset_backlog_entries": BACKLOG}),
        "Shadows": fields({"items": list_of(ref("Shadow")), "next_page_token": {"type": ["string", "null"]}}),
        "NewShadow": fields({"name": TEXT}, {"allow": _ALLOW, "auto_reset_backlog_entries": BACKLOG}),
    }
