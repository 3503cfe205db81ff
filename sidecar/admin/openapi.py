"""The REST interface as an OpenAPI 3.1 document, written by hand; tests hold it against the routes and the answers."""

from __future__ import annotations

from typing import Any, Final

from sidecar.admin.asked import PAGE_SIZE
from sidecar.admin.openapi_cursors import cursor_paths, cursor_schemas
from sidecar.admin.openapi_page import page_paths
from sidecar.admin.openapi_parts import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Schema,
    answer,
    any_object,
    fields,
    list_of,
    read,
    ref,
    tagged,
    write,
)
from sidecar.admin.openapi_shadows import deletion, pulsar_paths, shadow_paths, shadow_schemas
from sidecar.admin.rest import CLIENTS, NEWEST_EVENTS, PRODUCERS
from sidecar.admin.shapes import LAST_PARTITION
from sidecar.node.port import AccessMode, EventKind, IdsState, NodeState, Scope

_PAGE_SIZE: Final[Schema] = {
    "name": "page_size",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE, "default": PAGE_SIZE},
}
_PAGE_TOKEN: Final[Schema] = {
    "name": "page_token",
    "in": "query",
    "schema": TEXT,
    "description": "`next_page_token` of the page before.",
}
_CONTAINS: Final[Schema] = {
    "name": "contains",
    "in": "query",
    "schema": TEXT,
    "description": "Only names with this in them, whatever the case.",
}
_MODE: Final[Schema] = {"type": "string", "enum": [each.value for each in AccessMode]}


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


def _paths() -> Schema:
    topic = {
        "name": "topic",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,249}\*?|\*)$"},
        "description": "A topic's name, or a prefix with * behind it: `payments.*`.",
    }
    partition = {
        "name": "partition",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION},
        "description": "Of a topic whose scope is partition.",
    }
    whose = partition | {
        "description": "Whose generation If-Match means, of a topic whose scope is partition; 400 without If-Match. "
        "The policy is the whole topic's."
    }
    if_match = {
        "name": "If-Match",
        "in": "header",
        "schema": {"type": "string", "examples": ['"7"']},
        "description": "Only where the generation is this one, as ETag tells it; `*`: where it is there.",
    }
    producer = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "A producer name: UTF-8, percent-encoded, a slash as %2F.",
    }
    return {
        **page_paths(),
        "/livez": {"get": read("livez", "Whether the node runs", answer("Alive"))},
        "/readyz": {
            "get": {
                **read("readyz", "Whether the node can serve", answer("Ready")),
                "responses": {"200": answer("Ready"), "503": answer("NotReady"), "default": answer("Error")},
            }
        },
        "/metrics": {
            "get": read(
                "metrics",
                "Metrics for Prometheus",
                {"description": "Text format 0.0.4", "content": {"text/plain": {"schema": TEXT}}},
            )
        },
        "/openapi.json": {"get": read("openapi", "This document", any_object("OpenAPI 3.1"))},
        "/v1/status": {"get": read("status", "The node and what it sees", answer("Status"))},
        "/v1/clients": {
            "get": {
                **read("listClients", "Clients connected to this node, the oldest first", answer("Clients")),
                "parameters": [
                    {**_PAGE_SIZE, "schema": {**_PAGE_SIZE["schema"], "default": CLIENTS}},
                    {**_page_parameters()[1], "schema": {**TEXT, "pattern": "^[0-9]{1,10}$"}},
                ],
            }
        },
        "/v1/settings": {"get": read("listSettings", "What this node was told, secrets masked", answer("Settings"))},
        "/v1/events": {
            "get": {
                **read(
                    "events",
                    "What happens, as server-sent events",
                    {
                        "description": "One event each: its id a position, its name the kind, its data an `Event`.",
                        "content": {"text/event-stream": {"schema": ref("Event")}},
                    },
                ),
                "parameters": [
                    {"name": "topic", "in": "query", "schema": TEXT, "description": "Of this topic only."},
                    {
                        "name": "from",
                        "in": "query",
                        "schema": COUNT,
                        "description": "From this position on; 0: all that are kept.",
                    },
                    {
                        "name": "last",
                        "in": "query",
                        "schema": {"type": "integer", "minimum": 0, "maximum": NEWEST_EVENTS, "default": 0},
                        "description": "From now on, with at most so many (of `topic`) of before; `from` goes first.",
                    },
                    {
                        "name": "Last-Event-ID",
                        "in": "header",
                        "schema": COUNT,
                        "description": "Behind this position.",
                    },
                ],
            }
        },
        "/v1/topics": {
            "get": {
                **read("listTopics", "Topics and prefixes by name", answer("Topics")),
                "parameters": [*_page_parameters(), _CONTAINS],
            }
        },
        "/v1/topics/{topic}": {
            "parameters": [topic],
            "get": {**read("getTopic", "One topic or prefix", tagged("Topic")), "parameters": [partition]},
            "delete": deletion(),
        },
        "/v1/topics/{topic}/policy": {
            "parameters": [topic, whose, if_match],
            "put": {
                **write("putPolicy", "Set some fields of the policy, or create it", _under({"200": tagged("Topic")})),
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("Policy")}}},
            },
            "delete": write("deletePolicy", "Forget the policy", _under({"204": {"description": "Forgotten"}})),
        },
        "/v1/topics/{topic}/fence": {
            "parameters": [topic, partition, if_match],
            "post": write(
                "fence", "Depose the owner for ever", _under({"200": tagged("Topic"), "409": answer("Error")})
            ),
        },
        "/v1/topics/{topic}/release": {
            "parameters": [topic, partition, if_match],
            "post": write(
                "release",
                "Clear the owner, who may claim again",
                _under({"200": tagged("Topic"), "409": answer("Error")}),
            ),
        },
        **shadow_paths(topic, _page_parameters()[:2]),
        "/schemas/{path}": _registry(),
        **pulsar_paths(topic),
        **cursor_paths(_page_parameters()[:2]),
        "/v1/topics/{topic}/dedup": {
            "parameters": [topic],
            "get": {
                **of_ids(read("listProducers", "Producer names with sequence ids, newest first", answer("Producers"))),
                "parameters": [
                    {**_PAGE_SIZE, "schema": {**_PAGE_SIZE["schema"], "default": PRODUCERS}},
                    {
                        **_PAGE_TOKEN,
                        "description": "`next_page_token` of the page before. Who writes meanwhile moves to the front.",
                    },
                ],
            },
        },
        "/v1/topics/{topic}/dedup/{name}": {
            "parameters": [topic, producer],
            "get": of_ids(read("getProducer", "The sequence ids of a producer name", answer("ProducerIds"))),
            "delete": of_ids(
                write("forgetProducer", "Forget a name that nobody uses", {"204": {"description": "Forgotten"}})
            ),
        },
    }


def _under(answers: Schema) -> Schema:
    """Answers of what may be done under a generation alone."""
    return {**answers, "412": {**answer("Error"), "description": "The generation is another; nothing was done."}}


def _registry() -> Schema:
    """The schema registry's own interface, which others describe."""
    path = {
        "name": "path",
        "in": "path",
        "required": True,
        "schema": TEXT,
        "description": "A path of Confluent's schema registry API, slashes and all: `subjects/orders-value/versions`.",
    }
    told = {
        "description": "As the registry answers; a shadow's subject stands for its source's. Errors: 403 (40301) for"
        " a write to a shadow's, 404 (40401) under a closed one, 501 without a registry, 502 and 504 where it is away.",
    }
    what = {"get": "Read schemas", "post": "Look up or register a schema", "put": "Change", "delete": "Delete"}
    operations = {
        method: {"operationId": f"{method}Schemas", "summary": summary, "responses": {"default": told}}
        for method, summary in what.items()
    }
    for method in ("post", "put", "delete"):
        operations[method]["security"] = [{"token": []}, {}]
    return {"parameters": [path], **operations}


def _page_parameters() -> list[Schema]:
    governed = {**FLAG, "default": False}
    return [
        _PAGE_SIZE,
        _PAGE_TOKEN,
        {"name": "governed", "in": "query", "schema": governed, "description": "Only topics that have a policy."},
    ]


def _schemas() -> Schema:
    owner = {"name": TEXT, "session": TEXT, "mode": _MODE, "since": TIME, "client": TEXT}
    peer = fields({"id": NUMBER, "host": TEXT, "port": NUMBER})
    check = {"name": TEXT, "ok": FLAG, "required": FLAG, "detail": TEXT}
    checks = list_of(ref("Check"))
    last_ids = {
        "last_sequence_id": {
            "type": "integer",
            "description": "The minimum over all partitions, -1 where one has none: where to resume.",
        },
        "last_sequence_ids": {
            "type": "object",
            "additionalProperties": NUMBER,
            "description": "By partition; what is in the log, nothing that is under way.",
        },
    }
    event = {
        "id": TEXT,
        "at": TIME,
        "kind": {"type": "string", "enum": [each.value for each in EventKind]},
        "topic": TEXT,
        "partition": {"type": ["integer", "null"]},
        "generation": NUMBER,
        "session": TEXT,
        "name": TEXT,
        "mode": {"oneOf": [_MODE, {"type": "null"}]},
        "client": TEXT,
        "node": NUMBER,
        "detail": TEXT,
    }
    waited_for = {"type": ["integer", "null"], "description": "Which one, of scope partition."}
    topic = {
        "topic": TEXT,
        "policy": {"oneOf": [ref("Policy"), {"type": "null"}]},
        "generation": {
            "type": "integer",
            "minimum": 0,
            "description": "Rises with each change of owner; 0: never owned.",
        },
        "owner": {"oneOf": [ref("Owner"), {"type": "null"}]},
        "waiting": list_of(fields({"name": TEXT, "session": TEXT, "since": TIME}, {"partition": waited_for})),
        "producers": {
            **list_of(ref("Producer")),
            "description": f"Of one topic whose ids are known: the newest {PRODUCERS}.",
        },
        "shadows": list_of(TEXT),
        "serving_node": {"type": ["integer", "null"]},
        "partitions": NUMBER,
        "deduplication_state": {
            "enum": [*[each.value for each in IdsState], None],
            "description": "What is known of the sequence ids; idle: nobody serves the topic; elsewhere: of a list,"
            " or the node that serves the topic does not answer. Null: a prefix.",
        },
        "deduplication_detail": {
            "type": ["string", "null"],
            "description": "How far the reading has come, or what is lost.",
        },
    }
    return {
        "Error": fields({"error_code": {"type": "integer", "description": "The HTTP status."}, "message": TEXT}),
        "Alive": fields({"status": {"const": "alive"}}),
        "Ready": fields({"status": {"const": "ready"}, "checks": checks}),
        "NotReady": fields(
            {"error_code": {"const": 503}, "message": TEXT, "status": {"const": "not ready"}, "checks": checks}
        ),
        "Check": fields(check),
        "Event": fields(event),
        "Status": fields(
            {
                "version": TEXT,
                "node_id": NUMBER,
                "cluster": TEXT,
                "state": {"type": "string", "enum": [each.value for each in NodeState]},
                "ready": FLAG,
                "started": TIME,
                "advertise": TEXT,
                "kafka_cluster_id": {"type": ["string", "null"]},
                "nodes": list_of(peer),
                "brokers": list_of(peer),
                "client_connections": NUMBER,
                "governed_topics": NUMBER,
                "deduplication": fields({"ready": NUMBER, "reading": NUMBER, "lost": NUMBER}),
                "checks": checks,
            }
        ),
        "Client": fields(
            {
                "node_id": NUMBER,
                "client_id": {**TEXT, "description": 'As it was sent, cut where it is very long; "" before a request.'},
                "name": {**TEXT, "description": "What stands in it before the first semicolon."},
                "mode": {"oneOf": [_MODE, {"type": "null"}], "description": "What the client.id asks for."},
                "software_name": {"type": ["string", "null"], "description": "As the client tells it (KIP-511)."},
                "software_version": {"type": ["string", "null"]},
                "address": {**TEXT, "description": "host:port, an IPv6 address in brackets."},
                "since": TIME,
                "requests": {**COUNT, "description": "Taken up since it connected."},
                "bytes_in": COUNT,
                "bytes_out": COUNT,
                "in_flight": {**COUNT, "description": "Requests that have no answer yet."},
            }
        ),
        "Clients": fields({"items": list_of(ref("Client")), "next_page_token": {"type": ["string", "null"]}}),
        "Setting": fields(
            {
                "setting": {**TEXT, "description": "The name of its variable."},
                "value": {**TEXT, "description": 'As people write it; "": none. Secrets are ***.'},
                "origin": {**TEXT, "description": "default, environment, flag, or the path of the file."},
                "reloadable": {**FLAG, "description": "A node takes another value from its file on SIGHUP."},
            }
        ),
        "Settings": fields({"items": list_of(ref("Setting")), "next_page_token": {"type": "null"}}),
        "Policy": {
            "type": "object",
            "description": "Only the fields that are decided; in a request those that are to change.",
            "properties": {
                "access_mode": _MODE,
                "deduplication": FLAG,
                "exclusive_reader": FLAG,
                "scope": {"type": "string", "enum": [each.value for each in Scope]},
                "log_append_time": {**FLAG, "description": "The topic's message.timestamp.type is LogAppendTime."},
            },
            "additionalProperties": False,
        },
        "Owner": fields(owner),
        "PartitionOwner": fields({**owner, "generation": NUMBER}),
        "Producer": fields({"name": TEXT, **last_ids}),
        "ProducerIds": fields(
            {
                "name": TEXT,
                **last_ids,
                "offsets": {
                    "type": "object",
                    "additionalProperties": {"type": ["integer", "null"]},
                    "description": "Of the records with these ids, by partition; null: not known.",
                },
                "last_seen": {"type": "object", "additionalProperties": TIME},
                "in_use": {**FLAG, "description": "A connected session writes under the name."},
            }
        ),
        "Producers": fields({"items": list_of(ref("Producer")), "next_page_token": {"type": ["string", "null"]}}),
        "Topic": {
            **fields(
                topic,
                {
                    "owners": {"type": "object", "additionalProperties": ref("PartitionOwner")},
                    "shadowReplication": {"type": "object", "additionalProperties": ref("ShadowStats")},
                },
            ),
            "description": "`owners` (by partition) only where the scope is partition; `owner` is null then. "
            "`shadowReplication` (by shadow) only of one topic that is asked for.",
        },
        **shadow_schemas(),
        **cursor_schemas(),
        "Topics": fields({"items": list_of(ref("Topic")), "next_page_token": {"type": ["string", "null"]}}),
    }


def of_ids(operation: Schema) -> Schema:
    """As the node that serves the topic answers; whichever is asked."""
    errors = {status: answer("Error") for status in ("404", "409", "503")}
    return {**operation, "responses": {**operation["responses"], **errors}}
