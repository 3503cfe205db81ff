"""Examples in the OpenAPI document: one of each shape, put to every operation that takes or answers it. Pure.

A test holds each against its schema.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.admin.fields import Schema
from sidecar.admin.shadow_shapes import SOURCE_PROPERTY

_SINCE: Final = "2026-01-31T12:00:00.000Z"
_CHECKS: Final = [{"name": "kafka", "ok": True, "required": True, "detail": ""}]
_PEERS: Final = [{"id": 1, "host": "kafka-1", "port": 9092}]
_POLICY: Final = {"access_mode": "exclusive", "deduplication": True}
_OWNER: Final = {
    "name": "billing",
    "session": "pid:4711",
    "mode": "exclusive",
    "since": _SINCE,
    "client": "10.0.0.7 confluent-kafka-python 2.6",
}
_PRODUCER: Final = {"name": "billing", "last_sequence_id": 41, "last_sequence_ids": {"0": 41, "1": 42}}
_TOPIC: Final = {
    "topic": "orders",
    "policy": _POLICY,
    "generation": 7,
    "owner": _OWNER,
    "waiting": [{"name": "billing-2", "session": "pid:4712", "since": _SINCE, "partition": None}],
    "producers": [_PRODUCER],
    "shadows": ["orders-audit"],
    "serving_node": 1,
    "partitions": 2,
    "deduplication_state": "ready",
    "deduplication_detail": None,
}
_STATS: Final = {
    "readers": 2,
    "bytes": 104857,
    "last_read": _SINCE,
    "cursor_resets": 0,
    "groups": 1,
    "total_lag": 3,
    "max_lag": 3,
}
_SHADOW: Final = {
    "name": "orders-audit",
    "source": "orders",
    "allow": ["User:audit"],
    "created": _SINCE,
    "is_made": True,
    "auto_reset_backlog_entries": 0,
    "state": "open",
    "reason": None,
    "warning": None,
}
_CURSOR: Final = {
    "group": "audit",
    "state": "Empty",
    "members": 0,
    "lag": 3,
    "partitions": {"0": {"offset": 39, "end": 42, "lag": 3}},
}

_RECORD: Final = {
    "partition": 0,
    "offset": 41,
    "timestamp": _SINCE,
    "key": {"text": "order-7", "size": 7, "cut": False},
    "value": {"hex": "08011207", "size": 4, "cut": False},
    "headers": [{"name": "sidecar-sequence-id", "value": {"text": "41", "size": 2, "cut": False}}],
    "sequence_id": 41,
    "producer_name": "billing",
    "producer_id": 4000,
    "producer_epoch": 7,
    "generation": 7,
}


def _page(*items: object, last: str | None = None) -> Schema:
    return {"items": list(items), "next_page_token": last}


_EXAMPLES: Final[dict[str, Any]] = {
    "Alive": {"status": "alive"},
    "Ready": {"status": "ready", "checks": _CHECKS},
    "NotReady": {
        "error_code": 503,
        "message": "redis: not connected",
        "status": "not ready",
        "checks": [{"name": "redis", "ok": False, "required": True, "detail": "not connected"}],
    },
    "Status": {
        "version": "0.1.0",
        "node_id": 1,
        "cluster": "default",
        "state": "serving",
        "ready": True,
        "started": _SINCE,
        "advertise": "sidecar-1:19092",
        "listeners": [
            {
                "name": "PLAINTEXT",
                "listen": "0.0.0.0:19092",
                "advertise": "sidecar-1:19092",
                "security_protocol": "PLAINTEXT",
            }
        ],
        "kafka_cluster_id": "5L6g3nShT-eMCtK--X86sw",
        "nodes": [{"id": 1, "host": "sidecar-1", "port": 19092}],
        "brokers": _PEERS,
        "client_connections": 12,
        "governed_topics": 1,
        "deduplication": {"ready": 1, "reading": 0, "lost": 0},
        "checks": _CHECKS,
    },
    "Clients": _page(
        {
            "node_id": 1,
            "client_id": "billing;mode=wait_for_exclusive",
            "name": "billing",
            "mode": "wait_for_exclusive",
            "software_name": "librdkafka",
            "software_version": "2.6.0",
            "principal": "User:alice",
            "listener": "OUTSIDE",
            "address": "10.0.0.7:52114",
            "since": _SINCE,
            "requests": 1024,
            "bytes_in": 104857,
            "bytes_out": 2048,
            "in_flight": 1,
        },
        last="57",
    ),
    "Refusals": _page(
        {
            "client_id": "rival",
            "address": "10.0.0.8",
            "topic": "orders",
            "error_code": 44,
            "error": "POLICY_VIOLATION",
            "reason": "Topic has an existing exclusive producer: billing (generation 7)",
            "count": 3,
            "first": _SINCE,
            "last": "2026-01-31T12:00:05.000Z",
        }
    ),
    "Settings": _page(
        {
            "setting": "SIDECAR_LEASE_MS",
            "value": "3000",
            "origin": "default",
            "reloadable": False,
        }
    ),
    "Event": {
        "id": "5f1c0a9e3b7d4e2188c6f0d2a4b91e37",
        "at": _SINCE,
        "kind": "claimed",
        "topic": "orders",
        "partition": None,
        "generation": 7,
        "session": "pid:4711",
        "name": "billing",
        "mode": "exclusive",
        "client": "10.0.0.7",
        "node": 1,
        "detail": "deposed billing-2",
        "details": {"deposed": "billing-2"},
    },
    "Partitions": _page({"partition": 0, "leader": 1, "start": 0, "end": 42, "bytes": 104857}),
    "Groups": _page(_CURSOR),
    "Records": _page(_RECORD),
    "Policy": _POLICY,
    "Topic": _TOPIC,
    "Topics": _page(_TOPIC, last="orders"),
    "NewTopic": {
        "topic": "orders",
        "partitions": 6,
        "replication_factor": 3,
        "configs": {"retention.ms": "604800000"},
        "policy": _POLICY,
    },
    "Producers": _page(_PRODUCER),
    "ProducerIds": {
        **_PRODUCER,
        "offsets": {"0": 107, "1": None},
        "last_seen": {"0": _SINCE, "1": _SINCE},
        "in_use": True,
    },
    "Shadow": {**_SHADOW, "stats": _STATS},
    "Shadows": _page(_SHADOW),
    "NewShadow": {"name": "orders-audit", "allow": ["User:audit"]},
    "ShadowChange": {"allow": ["User:audit", "User:reports"], "auto_reset_backlog_entries": 1_000_000},
    "ShadowNames": ["persistent://public/default/orders-audit"],
    "WantedShadows": ["persistent://public/default/orders-audit"],
    "PulsarProperties": {SOURCE_PROPERTY: "persistent://public/default/orders"},
    "Cursor": _CURSOR,
    "Cursors": _page(_CURSOR),
    "CursorReset": {"to": {"timestamp": "2026-01-31T12:00:00Z"}, "partitions": [0]},
}
"""By the name of the shape."""
_BODIES: Final = {
    ("getTopic", "200"): {**_TOPIC, "shadowReplication": {"orders-audit": _STATS}},
    ("putPolicy", "200"): {**_TOPIC, "owner": None, "waiting": []},
    ("fence", "200"): {**_TOPIC, "owner": None, "waiting": []},
    ("release", "200"): {**_TOPIC, "owner": None, "waiting": []},
    ("createTopic", "201"): {**_TOPIC, "generation": 0, "owner": None, "waiting": [], "producers": [], "shadows": []},
    ("createShadow", "201"): _SHADOW,
    ("changeShadow", "200"): {**_SHADOW, "allow": ["User:audit", "User:reports"]},
    ("openapi", "200"): {"openapi": "3.1.0"},
}
"""Where the shape's own would be wrong, or there is none."""
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
"""By name. Without one: `page_token`, which the page before said, and `partition`, which `orders` does not take."""


def add_examples(paths: Schema) -> Schema:
    """The paths of the document with examples."""
    return {path: _item(item) for path, item in paths.items()}


def _item(item: Schema) -> Schema:
    return {
        name: [_parameter(each) for each in found] if name == "parameters" else _operation(found)
        for name, found in item.items()
    }


def _operation(told: Schema) -> Schema:
    found = {**told, "responses": {}}
    for status, response in told["responses"].items():
        found["responses"][status] = _with_content(response, told["operationId"], status)
    if "parameters" in told:
        found["parameters"] = [_parameter(each) for each in told["parameters"]]
    if "requestBody" in told:
        found["requestBody"] = _with_content(told["requestBody"], "", "")
    return found


def _parameter(told: Schema) -> Schema:
    known = told["name"] in _PARAMETERS
    return {**told, "example": _PARAMETERS[told["name"]]} if known else told


def _with_content(told: Schema, operation: str, status: str) -> Schema:
    if "content" not in told:
        return told
    content = {
        kind: {**media, "example": _example(kind, media["schema"], operation, status)}
        for kind, media in told["content"].items()
    }
    return {**told, "content": content}


def _example(kind: str, schema: Schema, operation: str, status: str) -> Any:
    name = schema.get("$ref", "").rpartition("/")[2]
    if (operation, status) in _BODIES:
        return _BODIES[operation, status]
    if name == "Error":
        code = 503 if status == "default" else int(status)
        return {"error_code": code, "message": _ERRORS[status]}
    return _EXAMPLES[name] if name else _TEXTS[kind]
