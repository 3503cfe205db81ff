"""The REST interface as an OpenAPI 3.1 document, made from the handlers' operations and the shapes of answers, with an
example of each. Tests compare it with the routes and the answers, and each example with its schema.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sidecar.admin import shadow_shapes, shapes
from sidecar.admin.fields import Component, Schema, Shape
from sidecar.admin.health import Health
from sidecar.admin.log_rest import LogRest, ProducerRest
from sidecar.admin.operations import FAILED, SECURITY, TO_READ, handled_by
from sidecar.admin.page_files import Page
from sidecar.admin.pulsar_rest import PulsarRest
from sidecar.admin.rest import Rest
from sidecar.admin.schemas import SchemaProxy
from sidecar.admin.shadow_rest import ShadowRest
from sidecar.admin.shadow_shapes import SOURCE_PROPERTY

HANDLERS: Final = (Page, Health, Rest, LogRest, ShadowRest, SchemaProxy, PulsarRest, ProducerRest)
"""All classes of handlers, except the document itself."""
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
    """Every shape with a public name; those with a private name are inside others."""
    found = {
        each.name: each.schema
        for module in (shapes, shadow_shapes)
        for name, each in vars(module).items()
        if isinstance(each, Shape | Component) and not name.startswith("_")
    }
    del found[shapes.POLICY.name]["required"]  # a field that is left out of a change keeps its value
    found[shadow_shapes.CHANGE.name]["minProperties"] = 1
    return found


def _paths() -> Schema:
    """The parameters of a path are those of its first operation; another operation's own are listed with it."""
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


_POLICY: Final = {"access_mode": "exclusive", "deduplication": True}
_VALUES: Final[dict[str, Any]] = {
    "since": "2026-01-31T12:00:00.000Z",
    "name": "billing",
    "address": "10.0.0.7:52114",
    "advertise": "sidecar-1:19092",
    "allow": ["User:audit"],
    "auto_reset_backlog_entries": 0,
    "client": "10.0.0.7 confluent-kafka-python 2.6",
    "client_id": "billing;mode=wait_for_exclusive",
    "cluster": "default",
    "configs": {"retention.ms": "604800000"},
    "cut": False,
    "deduplication_detail": None,
    "deduplication_state": "ready",
    "detail": "",
    "details": {"deposed": "billing-2"},
    "end": 42,
    "Refusal.error_code": 44,
    "error": "POLICY_VIOLATION",
    "generation": 7,
    "group": "audit",
    "host": "sidecar-1",
    "Event.id": "5f1c0a9e3b7d4e2188c6f0d2a4b91e37",
    "kafka_cluster_id": "5L6g3nShT-eMCtK--X86sw",
    "key": {"text": "order-7", "size": 7, "cut": False},
    "last_sequence_id": 41,
    "last_sequence_ids": {"0": 41, "1": 42},
    "listen": "0.0.0.0:19092",
    "listener": "OUTSIDE",
    "lost": 0,
    "message": "redis: not connected",
    "members": 0,
    "mode": "exclusive",
    "next_page_token": None,
    "offset": 41,
    "origin": "default",
    "partition": 0,
    "Event.partition": None,
    "Topic.partition": None,
    "Topic.partitions": 2,
    "CursorReset.partitions": [0],
    "policy": _POLICY,
    "Policy": _POLICY,
    "port": 19092,
    "principal": "User:alice",
    "producer_id": 4000,
    "producer_name": "billing",
    "reading": 0,
    "reason": "Topic has an existing exclusive producer: billing (generation 7)",
    "Shadow.reason": None,
    "security_protocol": "PLAINTEXT",
    "sequence_id": 41,
    "session": "pid:4711",
    "setting": "SIDECAR_LEASE_MS",
    "shadows": ["orders-audit"],
    "software_name": "librdkafka",
    "software_version": "2.6.0",
    "source": "orders",
    "start": 0,
    "state": "serving",
    "Cursor.state": "Empty",
    "Shadow.state": "open",
    "text": "41",
    "to": {"timestamp": "2026-01-31T12:00:00Z"},
    "topic": "orders",
    "value": "3000",
    "Record.value": {"hex": "08011207", "size": 4, "cut": False},
    "version": "0.1.0",
    "warning": None,
    "Check.name": "kafka",
    "NewShadow.name": "orders-audit",
    "Record.name": "sidecar-sequence-id",
    "Shadow.name": "orders-audit",
    "Status.name": "PLAINTEXT",
    "ShadowNames": ["persistent://public/default/orders-audit"],
    "WantedShadows": ["persistent://public/default/orders-audit"],
    "PulsarProperties": {SOURCE_PROPERTY: "persistent://public/default/orders"},
}
"""Examples by shape and field name, or by field name. Numbers, booleans and times need none."""
_WHOLE: Final = frozenset({"NewTopic", "ShadowChange", "NewShadow", "CursorReset"})
"""Shapes of requests whose examples include optional fields."""
_ENDED: Final = {"owner": None, "waiting": []}
_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "fence": _ENDED,
    "release": _ENDED,
    "createTopic": {**_ENDED, "generation": 0, "producers": [], "shadows": []},
}
"""By operation, if the fields of its answer differ."""
_ERRORS: Final = {
    "400": 'access_mode has to be one of shared, exclusive, wait_for_exclusive, exclusive_with_fencing, not "mine"',
    "401": "this needs the node's token: Authorization: Bearer SIDECAR_ADMIN_TOKEN",
    "403": "without SIDECAR_ADMIN_TOKEN set on the node, it accepts writes only from its own machine or container",
    "404": "there is no topic orders: make it with `sidecar topic create orders`",
    "409": "orders has no owner",
    "412": "the generation of orders is 8",
    "503": "Redis does not answer",
    "default": "Redis does not answer",
}
_TEXTS: Final = {
    "text/html": "<!doctype html>…",
    "text/javascript": "export const …",
    "text/css": "body { … }",
    "image/svg+xml": "<svg …></svg>",
    "text/plain": "# TYPE sidecar_governed_topics gauge\nsidecar_governed_topics 1\n",
}
_PARAMETERS: Final[dict[str, Any]] = {
    "topic": "orders",
    "shadow": "orders-audit",
    "group": "audit",
    "prefix": "payments.",
    "name": "billing",
    "tenant": "public",
    "namespace": "default",
    "file": "dom.js",
    "path": "subjects/orders-value/versions",
    "If-Match": '"7"',
    "Last-Event-ID": 42,
    "page_size": 100,
    "limit": 20,
    "from": 0,
    "last": 10,
    "contains": "order",
    "governed": True,
    "force": True,
}
"""By name. Without an example: `page_token`, which the page before returns, and `partition`, which `orders` does not
take.
"""


def add_examples(paths: Schema, shapes: Schema) -> Schema:
    """The paths of the document with examples. `shapes`: its schemas by name."""
    found = json.loads(json.dumps(paths))  # a deep copy
    for item in found.values():
        for name, operation in item.items():
            if name == "parameters":
                _show_parameters(operation)
                continue
            _show_parameters(operation.get("parameters", []))
            for status, answer in operation["responses"].items():
                _show_media(answer, shapes, operation["operationId"], status)
            _show_media(operation.get("requestBody", {}), shapes)
    return found


def _show_parameters(parameters: list[Schema]) -> None:
    for each in parameters:
        if each["name"] in _PARAMETERS:
            each["example"] = _PARAMETERS[each["name"]]


def _show_media(holder: Schema, shapes: Schema, operation: str = "", status: str = "") -> None:
    """Add examples to the content types of an answer or a body."""
    for kind, media in holder.get("content", {}).items():
        name = media["schema"].get("$ref", "").rpartition("/")[2]
        if name == "Error":
            code = 503 if status == "default" else int(status)
            media["example"] = {"error_code": code, "message": _ERRORS[status]}
        elif not name:
            media["example"] = _TEXTS.get(kind, {"openapi": "3.1.0"})
        else:
            found = _value(media["schema"], name, name, shapes)
            media["example"] = {**found, **_ANSWERS[operation]} if operation in _ANSWERS else found


def _value(schema: Schema, label: str, shape: str, shapes: Schema) -> Any:
    """The example of a field, or of a whole shape; `shape`: the one that contains it."""
    for key in (f"{shape}.{label}", label):
        if key in _VALUES:
            return _VALUES[key]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _value(shapes[name], name, name, shapes)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "oneOf" in schema:
        return _value(schema["oneOf"][0], "", shape, shapes)
    if "properties" in schema:
        shown = schema["properties"] if shape in _WHOLE else schema["required"]
        return {each: _value(schema["properties"][each], each, shape, shapes) for each in shown}
    kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    if kind == "array":
        return [_value(schema["items"], "", shape, shapes)]
    if kind == "object":
        return {"0": _value(schema["additionalProperties"], "", shape, shapes)}
    return {"integer": 1, "boolean": True, "string": _VALUES["since"]}[kind]
