"""Shadow topics and their cursors in the OpenAPI document, under `/v1` and under Pulsar's own path."""

from __future__ import annotations

from typing import Final

from sidecar.admin.fields import Schema
from sidecar.admin.openapi_parts import FAILED, answer, in_path, nothing, paged, read, write
from sidecar.admin.shadow_shapes import (
    CURSOR,
    CURSORS,
    PULSAR_PROPERTIES,
    SHADOW,
    SHADOW_NAMES,
    SHADOWS,
    WANTED_SHADOWS,
)

_SHADOW: Final = in_path("shadow", "Its own name.")
_GROUP: Final = in_path("group", "The group's name; a slash in it is written %2F.")


def shadow_paths(topic: Schema) -> Schema:
    """By path. `topic`: the parameter of that name."""
    made, changed = ({status: answer(SHADOW), "409": FAILED} for status in ("201", "200"))
    return {
        "/v1/topics/{topic}/shadows": {
            "parameters": [topic],
            "get": read("listShadows", "The shadows of a topic, by name", answer(SHADOWS), paged()),
            "post": write("createShadow", "Make a shadow", made, "NewShadow"),
        },
        "/v1/topics/{topic}/shadows/{shadow}": {
            "parameters": [topic, _SHADOW],
            "delete": write("deleteShadow", "Delete a shadow and its cursors", nothing("Deleted")),
        },
        "/v1/shadows": {"get": read("listEveryShadow", "All shadows, by name", answer(SHADOWS), paged())},
        "/v1/shadows/{shadow}": {
            "parameters": [_SHADOW],
            "get": read("getShadow", "One shadow", answer(SHADOW)),
            "patch": write(
                "changeShadow", "Change who may read it, and when cursors are reset", changed, "ShadowChange"
            ),
        },
    }


def cursor_paths() -> Schema:
    """By path."""
    return {
        "/v1/shadows/{shadow}/cursors": {
            "parameters": [_SHADOW],
            "get": read(
                "listCursors",
                "What groups have committed for a shadow, and how far behind",
                answer(CURSORS),
                paged(pattern=None),
            ),
        },
        "/v1/shadows/{shadow}/cursors/{group}/reset": {
            "parameters": [_SHADOW, _GROUP],
            "post": write(
                "resetCursor",
                "Move the cursor of a group without members; one is made where there is none",
                {"200": answer(CURSOR), "409": FAILED},
                "CursorReset",
            ),
        },
    }


def pulsar_paths(topic: Schema) -> Schema:
    """By path. `topic`: the parameter of that name."""
    base, names = "/admin/v2/persistent/{tenant}/{namespace}/{topic}", WANTED_SHADOWS.name
    parameters = [*(in_path(name, "Ignored.") for name in ("tenant", "namespace")), topic]
    done = {**nothing("Done"), "409": FAILED}
    removed = "Delete those that are named, or all without a body"
    return {
        f"{base}/shadowTopics": {
            "parameters": parameters,
            "get": read("listShadowsOfPulsar", "The shadows of a topic", answer(SHADOW_NAMES)),
            "put": write("replaceShadows", "Make those that are named, delete all others", done, names),
            "post": write("addShadows", "Make those that are named", done, names),
            "delete": write("removeShadows", removed, done, names, optional=True),
        },
        f"{base}/properties": {
            "parameters": parameters,
            "get": read("getProperties", "The source of a shadow, as Pulsar keeps it", answer(PULSAR_PROPERTIES)),
        },
    }
