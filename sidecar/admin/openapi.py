"""The REST interface as an OpenAPI 3.1 document: what handlers say of their operations, and the shapes that answers are
made by. Tests hold it against the routes and the answers.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.admin import event_shapes, log_shapes, shadow_shapes, shapes
from sidecar.admin.fields import Component, Schema, Shape
from sidecar.admin.health import Health
from sidecar.admin.log_rest import LogRest
from sidecar.admin.openapi_examples import add_examples
from sidecar.admin.operations import FAILED, SECURITY, TO_READ, handled_by
from sidecar.admin.page_files import Page
from sidecar.admin.producer_rest import ProducerRest
from sidecar.admin.pulsar_rest import PulsarRest
from sidecar.admin.rest import Rest
from sidecar.admin.schemas import SchemaProxy
from sidecar.admin.shadow_rest import ShadowRest

HANDLERS: Final = (Page, Health, Rest, LogRest, ShadowRest, SchemaProxy, PulsarRest, ProducerRest)
"""Whatever answers over HTTP, but for the document."""
_ITSELF: Final = {
    "operationId": "openapi",
    "summary": "This document",
    "security": TO_READ,
    "responses": {
        "200": {"description": "OpenAPI 3.1", "content": {"application/json": {"schema": {"type": "object"}}}},
        "default": FAILED,
    },
}


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    schemas = _schemas()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka sidecar",
            "version": version,
            "description": "Health, metrics and topics of one node. Topics and owners are those of the whole cluster.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": add_examples(_paths(), schemas),
        "components": {
            "schemas": schemas,
            "securitySchemes": SECURITY,
        },
    }


def _schemas() -> Schema:
    """Every shape that bears a public name; those with a private one lie within others."""
    found = {
        each.name: each.schema
        for module in (shapes, event_shapes, shadow_shapes, log_shapes)
        for name, each in vars(module).items()
        if isinstance(each, Shape | Component) and not name.startswith("_")
    }
    del found[shapes.POLICY.name]["required"]  # what is left out of a change stays as it is
    found[shadow_shapes.CHANGE.name]["minProperties"] = 1
    return found


def _paths() -> Schema:
    """A path's own parameters are those of its first operation; what is another's own stands there."""
    paths: Schema = {"/openapi.json": {"get": _ITSELF}}
    for handlers in HANDLERS:
        for _, operation in handled_by(handlers):
            item, in_path = paths.setdefault(operation.canonical, {}), operation.in_path
            if in_path:
                item.setdefault("parameters", in_path)
            own = [each for each in in_path if each not in item["parameters"]]
            own += [each for each in operation.parameters if each["in"] != "path"]
            item[operation.method.lower()] = {**operation.described, **({"parameters": own} if own else {})}
    return paths
