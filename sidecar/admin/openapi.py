"""The REST interface as an OpenAPI 3.1 document, written by hand; tests hold it against the routes and the answers."""

from __future__ import annotations

from typing import Any, Final

from sidecar.admin.rest import PAGE_SIZE, PRODUCERS
from sidecar.node_port import AccessMode, EventKind, IdsState, NodeState, Scope

_Schema = dict[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_NUMBER: Final[_Schema] = {"type": "integer"}
_FLAG: Final[_Schema] = {"type": "boolean"}
_TIME: Final[_Schema] = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC"}
_PAGE_SIZE: Final[_Schema] = {
    "name": "page_size",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE, "default": PAGE_SIZE},
}
_MODE: Final[_Schema] = {"type": "string", "enum": [each.value for each in AccessMode]}


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka sidecar",
            "version": version,
            "description": "Health, metrics and topics of one node. Topics and owners are those of the whole cluster.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "SIDECAR_ADMIN_TOKEN of the node. Without it only loopback may write.",
                }
            },
        },
    }


def _paths() -> _Schema:
    topic = {
        "name": "topic",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,249}\*?|\*)$"},
        "description": "A topic's name, or a prefix with * behind it: `payments.*`.",
    }
    shadow = {"name": "shadow", "in": "path", "required": True, "schema": _TEXT, "description": "Its own name."}
    partition = {
        "name": "partition",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Of a topic whose scope is partition.",
    }
    producer = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "A producer name: UTF-8, percent-encoded, a slash as %2F.",
    }
    return {
        "/livez": {"get": _read("livez", "Whether the node runs", _json("Alive"))},
        "/readyz": {
            "get": {
                **_read("readyz", "Whether the node can serve", _json("Ready")),
                "responses": {"200": _json("Ready"), "503": _json("NotReady"), "default": _json("Error")},
            }
        },
        "/metrics": {
            "get": _read(
                "metrics",
                "Metrics for Prometheus",
                {"description": "Text format 0.0.4", "content": {"text/plain": {"schema": _TEXT}}},
            )
        },
        "/openapi.json": {"get": _read("openapi", "This document", _object("OpenAPI 3.1"))},
        "/v1/status": {"get": _read("status", "The node and what it sees", _json("Status"))},
        "/v1/events": {
            "get": {
                **_read(
                    "events",
                    "What happens, as server-sent events",
                    {
                        "description": "One event each: its id a position, its name the kind, its data an `Event`.",
                        "content": {"text/event-stream": {"schema": _ref("Event")}},
                    },
                ),
                "parameters": [
                    {"name": "topic", "in": "query", "schema": _TEXT, "description": "Of this topic only."},
                    {
                        "name": "after",
                        "in": "query",
                        "schema": _NUMBER,
                        "description": "From behind this position; -1: all.",
                    },
                    {
                        "name": "Last-Event-ID",
                        "in": "header",
                        "schema": _NUMBER,
                        "description": "Behind this position.",
                    },
                ],
            }
        },
        "/v1/topics": {
            "get": {
                **_read("listTopics", "Topics and prefixes by name", _json("Topics")),
                "parameters": _page_parameters(),
            }
        },
        "/v1/topics/{topic}": {
            "parameters": [topic],
            "get": _read("getTopic", "One topic or prefix", _json("Topic")),
        },
        "/v1/topics/{topic}/policy": {
            "parameters": [topic],
            "put": {
                **_write("putPolicy", "Set some fields of the policy, or create it", {"200": _json("Topic")}),
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("Policy")}}},
            },
            "delete": _write("deletePolicy", "Forget the policy", {"204": {"description": "Forgotten"}}),
        },
        "/v1/topics/{topic}/fence": {
            "parameters": [topic, partition],
            "post": _write("fence", "Depose the owner for ever", {"200": _json("Topic"), "409": _json("Error")}),
        },
        "/v1/topics/{topic}/release": {
            "parameters": [topic, partition],
            "post": _write(
                "release", "Clear the owner, who may claim again", {"200": _json("Topic"), "409": _json("Error")}
            ),
        },
        "/v1/topics/{topic}/shadows": {
            "parameters": [topic],
            "get": _read("listShadows", "The shadows of a topic", _json("Shadows")),
            "post": {
                **_write("createShadow", "Make a shadow", {"201": _json("Shadow"), "409": _json("Error")}),
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("NewShadow")}}},
            },
        },
        "/v1/topics/{topic}/shadows/{shadow}": {
            "parameters": [topic, shadow],
            "delete": _write("deleteShadow", "Delete a shadow and its cursors", {"204": {"description": "Deleted"}}),
        },
        "/v1/shadows/{shadow}": {"parameters": [shadow], "get": _read("getShadow", "One shadow", _json("Shadow"))},
        "/v1/topics/{topic}/dedup": {
            "parameters": [topic],
            "get": {
                **_of_ids(_read("listProducers", "Producer names with sequence ids, newest first", _json("Producers"))),
                "parameters": [{**_PAGE_SIZE, "schema": {**_PAGE_SIZE["schema"], "default": PRODUCERS}}],
            },
        },
        "/v1/topics/{topic}/dedup/{name}": {
            "parameters": [topic, producer],
            "get": _of_ids(_read("getProducer", "The sequence ids of a producer name", _json("ProducerIds"))),
            "delete": _of_ids(
                _write("forgetProducer", "Forget a name that nobody uses", {"204": {"description": "Forgotten"}})
            ),
        },
    }


def _page_parameters() -> list[_Schema]:
    governed = {**_FLAG, "default": False}
    return [
        _PAGE_SIZE,
        {"name": "page_token", "in": "query", "schema": _TEXT, "description": "`next_page_token` of the page before."},
        {"name": "governed", "in": "query", "schema": governed, "description": "Only topics that have a policy."},
    ]


def _schemas() -> _Schema:
    owner = {"name": _TEXT, "session": _TEXT, "mode": _MODE, "since": _TIME, "client": _TEXT}
    peer = _fields({"id": _NUMBER, "host": _TEXT, "port": _NUMBER})
    check = {"name": _TEXT, "ok": _FLAG, "required": _FLAG, "detail": _TEXT}
    checks = _list(_ref("Check"))
    last_ids = {
        "last_sequence_id": {
            "type": "integer",
            "description": "The minimum over all partitions, -1 where one has none: where to resume.",
        },
        "last_sequence_ids": {
            "type": "object",
            "additionalProperties": _NUMBER,
            "description": "By partition; what is in the log, nothing that is under way.",
        },
    }
    event = {
        "id": _TEXT,
        "at": _TIME,
        "kind": {"type": "string", "enum": [each.value for each in EventKind]},
        "topic": _TEXT,
        "partition": {"type": ["integer", "null"]},
        "generation": _NUMBER,
        "session": _TEXT,
        "name": _TEXT,
        "mode": {"oneOf": [_MODE, {"type": "null"}]},
        "client": _TEXT,
        "node": _NUMBER,
        "detail": _TEXT,
    }
    topic = {
        "topic": _TEXT,
        "policy": {"oneOf": [_ref("Policy"), {"type": "null"}]},
        "generation": {
            "type": "integer",
            "minimum": 0,
            "description": "Rises with each change of owner; 0: never owned.",
        },
        "owner": {"oneOf": [_ref("Owner"), {"type": "null"}]},
        "waiting": _list(_fields({"name": _TEXT, "session": _TEXT, "since": _TIME})),
        "producers": {
            **_list(_ref("Producer")),
            "description": f"Of one topic, where this node serves it and knows its ids: the newest {PRODUCERS}.",
        },
        "shadows": _list(_TEXT),
        "serving_node": {"type": ["integer", "null"]},
        "partitions": _NUMBER,
        "deduplication_state": {
            "enum": [*[each.value for each in IdsState], None],
            "description": "What this node knows of the sequence ids; idle: nobody serves the topic. Null: a prefix.",
        },
        "deduplication_detail": {
            "type": ["string", "null"],
            "description": "How far the reading has come, or what is lost.",
        },
    }
    return {
        "Error": _fields({"error_code": {"type": "integer", "description": "The HTTP status."}, "message": _TEXT}),
        "Alive": _fields({"status": {"const": "alive"}}),
        "Ready": _fields({"status": {"const": "ready"}, "checks": checks}),
        "NotReady": _fields(
            {"error_code": {"const": 503}, "message": _TEXT, "status": {"const": "not ready"}, "checks": checks}
        ),
        "Check": _fields(check),
        "Event": _fields(event),
        "Status": _fields(
            {
                "version": _TEXT,
                "node_id": _NUMBER,
                "cluster": _TEXT,
                "state": {"type": "string", "enum": [each.value for each in NodeState]},
                "ready": _FLAG,
                "started": _TIME,
                "advertise": _TEXT,
                "kafka_cluster_id": {"type": ["string", "null"]},
                "nodes": _list(peer),
                "brokers": _list(peer),
                "client_connections": _NUMBER,
                "governed_topics": _NUMBER,
                "deduplication": _fields({"ready": _NUMBER, "reading": _NUMBER, "lost": _NUMBER}),
                "checks": checks,
            }
        ),
        "Policy": {
            "type": "object",
            "description": "Only the fields that are decided; in a request those that are to change.",
            "properties": {
                "access_mode": _MODE,
                "deduplication": _FLAG,
                "exclusive_reader": _FLAG,
                "scope": {"type": "string", "enum": [each.value for each in Scope]},
                "log_append_time": {**_FLAG, "description": "The topic's message.timestamp.type is LogAppendTime."},
            },
            "additionalProperties": False,
        },
        "Owner": _fields(owner),
        "PartitionOwner": _fields({**owner, "generation": _NUMBER}),
        "Producer": _fields({"name": _TEXT, **last_ids}),
        "ProducerIds": _fields(
            {
                "name": _TEXT,
                **last_ids,
                "offsets": {
                    "type": "object",
                    "additionalProperties": {"type": ["integer", "null"]},
                    "description": "Of the records with these ids, by partition; null: not known.",
                },
                "last_seen": {"type": "object", "additionalProperties": _TIME},
                "in_use": {**_FLAG, "description": "A connected session writes under the name."},
            }
        ),
        "Producers": _fields({"items": _list(_ref("Producer")), "next_page_token": {"type": "null"}}),
        "Topic": {
            **_fields(topic, {"owners": {"type": "object", "additionalProperties": _ref("PartitionOwner")}}),
            "description": "`owners` (by partition) only where the scope is partition; `owner` is null then.",
        },
        "Shadow": _fields({"name": _TEXT, "source": _TEXT, "allow": _list(_TEXT), "created": _TIME, "is_made": _FLAG}),
        "Shadows": _fields({"items": _list(_ref("Shadow")), "next_page_token": {"type": ["string", "null"]}}),
        "NewShadow": _fields({"name": _TEXT}, {"allow": _list(_TEXT)}),
        "Topics": _fields({"items": _list(_ref("Topic")), "next_page_token": {"type": ["string", "null"]}}),
    }


def _read(name: str, summary: str, answer: _Schema) -> _Schema:
    return {"operationId": name, "summary": summary, "responses": {"200": answer, "default": _json("Error")}}


def _of_ids(operation: _Schema) -> _Schema:
    """As the node that serves the topic answers; whichever is asked."""
    errors = {status: _json("Error") for status in ("404", "409", "503")}
    return {**operation, "responses": {**operation["responses"], **errors}}


def _write(name: str, summary: str, answers: _Schema) -> _Schema:
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"token": []}, {}],
        "responses": {
            **answers,
            "400": _json("Error"),
            "401": _json("Error"),
            "403": _json("Error"),
            "404": _json("Error"),
            "default": _json("Error"),
        },
    }


def _json(name: str) -> _Schema:
    return {"description": name, "content": {"application/json": {"schema": _ref(name)}}}


def _object(text: str) -> _Schema:
    return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _fields(properties: _Schema, optional: _Schema | None = None) -> _Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }
