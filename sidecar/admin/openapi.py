"""The REST interface as an OpenAPI 3.1 document: its paths, written by hand, and the shapes that answers are made by.
Tests hold it against the routes and the answers.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.admin import event_shapes, log_shapes, shadow_shapes, shapes
from sidecar.admin.asked import TAGS_PATTERN
from sidecar.admin.fields import COUNT, TEXT, Component, Schema, Shape, ref
from sidecar.admin.names import GOVERNABLE_PATTERN, LAST_PARTITION, TOPIC_PATTERN
from sidecar.admin.openapi_examples import add_examples
from sidecar.admin.openapi_logs import log_paths
from sidecar.admin.openapi_parts import (
    FAILED,
    SECURITY,
    TO_OPERATE,
    TO_READ,
    also,
    answer,
    flag,
    in_header,
    in_path,
    in_query,
    nothing,
    paged,
    read,
    text,
    write,
)
from sidecar.admin.openapi_shadows import cursor_paths, pulsar_paths, shadow_paths
from sidecar.admin.rest import CLIENTS_SHOWN, NEWEST_EVENTS, PLACE_PATTERN, REFUSALS_SHOWN

_TOPIC: Final = in_path(
    "topic", "A topic's name, or a prefix with * behind it: `payments.*`.", pattern=GOVERNABLE_PATTERN
)
_ONE: Final = in_path("topic", "A topic's name.", pattern=TOPIC_PATTERN)
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}
_PARTITION: Final = in_query("partition", _NUMBER, "Of a topic whose scope is partition.")
_WHOSE: Final = in_query(
    "partition",
    _NUMBER,
    "Whose generation If-Match means, of a topic whose scope is partition; 400 without If-Match. "
    "The policy is the whole topic's.",
)
_IF_MATCH: Final = in_header(
    "If-Match",
    {**TEXT.schema, "pattern": TAGS_PATTERN, "examples": ['"7"']},
    "Only where the generation is this one, as ETag names it; `*`: where it is there.",
)


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    schemas = _schemas()
    paths = {
        **_page_paths(),
        **_node_paths(),
        **_topic_paths(),
        **log_paths(_ONE),
        **shadow_paths(_ONE),
        "/schemas/{path}": _registry(),
        **pulsar_paths(_ONE),
        **cursor_paths(),
        **_producer_paths(),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka sidecar",
            "version": version,
            "description": "Health, metrics and topics of one node. Topics and owners are those of the whole cluster.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": add_examples(paths, schemas),
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


def _page_paths() -> Schema:
    description = "With an ETag and a Content-Security-Policy that allows nothing from elsewhere"
    kinds = ("text/html", "text/javascript", "text/css", "image/svg+xml")
    unchanged = {"description": "As `If-None-Match` has it"}
    page = read("page", "The page for people", text(description, *kinds[:1]))
    file = read("pageFile", "A file of the page", text(description, *kinds))
    return {
        "/": {"get": also(page, status_304=unchanged)},
        "/page/{file}": {
            "parameters": [in_path("file", "As the page names it.")],
            "get": also(file, status_304=unchanged),
        },
    }


def _node_paths() -> Schema:
    itself = {"description": "OpenAPI 3.1", "content": {"application/json": {"schema": {"type": "object"}}}}
    events = {
        "description": "One event each: its id a position, its name the kind, its data an `Event`.",
        "content": {"text/event-stream": {"schema": ref("Event")}},
    }
    newest = {"type": "integer", "minimum": 0, "maximum": NEWEST_EVENTS, "default": 0}
    of_events = [
        in_query("topic", TEXT.schema, "Of this topic only."),
        in_query("from", COUNT.schema, "From this position on; 0: all that are kept."),
        in_query("last", newest, "From now on, with at most so many (of `topic`) of before; `from` goes first."),
        in_header("Last-Event-ID", COUNT.schema, "Behind this position."),
    ]
    of_refusals = [
        *paged(REFUSALS_SHOWN, pattern="^[0-9]{1,10}$"),
        in_query("topic", TEXT.schema, "Of this topic only."),
    ]
    of_clients = paged(CLIENTS_SHOWN, pattern="^[0-9]{1,10}$")
    operations = {
        "/livez": read("livez", "Whether the node runs", answer(shapes.ALIVE)),
        "/readyz": read(
            "readyz", "Whether the node can serve", answer(shapes.READY), status_503=answer(shapes.NOT_READY)
        ),
        "/metrics": read("metrics", "Metrics for Prometheus", text("Text format 0.0.4", "text/plain")),
        "/openapi.json": read("openapi", "This document", itself),
        "/v1/status": read("status", "The node and what it sees", answer(shapes.STATUS)),
        "/v1/clients": read(
            "listClients", "Clients connected to this node, the oldest first", answer(shapes.CLIENTS), of_clients
        ),
        "/v1/refusals": read(
            "listRefusals", "What this node refused its clients lately", answer(shapes.REFUSALS), of_refusals
        ),
        "/v1/settings": read("listSettings", "This node's settings, secrets masked", answer(shapes.SETTINGS)),
        "/v1/events": read("events", "What happens, as server-sent events", events, of_events),
    }
    return {path: {"get": operation} for path, operation in operations.items()}


def _topic_paths() -> Schema:
    tagged = {
        **answer(shapes.TOPIC),
        "headers": {
            "ETag": {
                "schema": TEXT.schema,
                "description": "The generation in quotes; with `partition` that of the partition.",
            }
        },
    }
    another = {"412": {**FAILED, "description": "The generation is another; nothing was done."}}
    ended = {"200": tagged, "409": FAILED, **another}
    of_topics = [
        *paged(),
        flag("governed", "Only topics that have a policy."),
        in_query("contains", TEXT.schema, "Only names with this in them, whatever the case."),
        in_query("prefix", TEXT.schema, "Only names that begin with this: what a policy of `PREFIX*` covers."),
    ]
    deleted = write("deleteTopic", "Delete a topic with its records", {**nothing("Deleted"), "409": FAILED})
    force = flag("force", "Its shadows and their cursors too; else a topic with shadows is 409.")
    of_owners = [_ONE, _PARTITION, _IF_MATCH]
    return {
        "/v1/topics": {
            "get": read("listTopics", "Topics and prefixes by name", answer(shapes.TOPICS), of_topics),
            "post": write("createTopic", "Create a topic", {"201": answer(shapes.TOPIC), "409": FAILED}, "NewTopic"),
        },
        "/v1/topics/{topic}": {
            "parameters": [_TOPIC],
            "get": read("getTopic", "One topic or prefix", tagged, [_PARTITION]),
            "delete": {**deleted, "parameters": [_ONE, force]},
        },
        "/v1/topics/{topic}/policy": {
            "parameters": [_TOPIC, _WHOSE, _IF_MATCH],
            "put": write(
                "putPolicy", "Set some fields of the policy, or create it", {"200": tagged, **another}, "Policy"
            ),
            "delete": write("deletePolicy", "Forget the policy", {**nothing("Forgotten"), **another}),
        },
        "/v1/topics/{topic}/fence": {
            "parameters": of_owners,
            "post": write("fence", "Depose the owner for ever", ended),
        },
        "/v1/topics/{topic}/release": {
            "parameters": of_owners,
            "post": write("release", "Clear the owner, which may claim again", ended),
        },
    }


def _producer_paths() -> Schema:
    """As the node that serves the topic answers; whichever is asked."""
    errors = {f"status_{status}": FAILED for status in (404, 409, 503)}
    moved = "`next_page_token` of the page before. A producer that writes meanwhile moves to the front."
    listed = read("listProducers", "Producer names with sequence ids, newest first", answer(shapes.PRODUCERS_PAGE))
    one = read("getProducer", "The sequence ids of a producer name", answer(shapes.PRODUCER_IDS))
    forgotten = write("forgetProducer", "Forget a name that nobody uses", nothing("Forgotten"))
    name = in_path("name", "A producer name: UTF-8, percent-encoded, a slash as %2F.", minLength=1)
    return {
        "/v1/topics/{topic}/dedup": {
            "parameters": [_ONE],
            "get": {**also(listed, **errors), "parameters": paged(shapes.PRODUCERS, moved, PLACE_PATTERN)},
        },
        "/v1/topics/{topic}/dedup/{name}": {
            "parameters": [_ONE, name],
            "get": also(one, **errors),
            "delete": also(forgotten, **errors),
        },
    }


def _registry() -> Schema:
    """The schema registry's own interface, which others describe."""
    answer = {
        "description": "As the registry answers; a shadow's subject stands for its source's. Errors: 403 (40301) for"
        " a write to a shadow's, 404 (40401) under a closed one, 501 without a registry, 502 and 504 where it is away.",
    }
    what = {"get": "Read schemas", "post": "Look up or register a schema", "put": "Change", "delete": "Delete"}
    operations = {
        method: {"operationId": f"{method}Schemas", "summary": summary, "responses": {"default": answer}}
        for method, summary in what.items()
    }
    for method, operation in operations.items():
        operation["security"] = TO_READ if method == "get" else TO_OPERATE
    path = in_path(
        "path", "A path of Confluent's schema registry API, slashes and all: `subjects/orders-value/versions`."
    )
    return {"parameters": [path], **operations}
