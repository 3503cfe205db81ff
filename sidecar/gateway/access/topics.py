"""Rights on topics and configurations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, Final

from sidecar.cluster.resolver import is_legal
from sidecar.gateway.access.asked import (
    CODES,
    NO_ID,
    TOPIC,
    Asked,
    Asking,
    Divided,
    error_fields,
    ids_in,
    refused_topic,
    shown_by,
    some,
    some_steps,
    with_cluster_operations,
)
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import PORTION
from sidecar.protocol.messages import admin, cluster, transactions
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import TAGS, Message, Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from sidecar.security.acls import CLUSTER_NAME, Operation, ResourceType

_NO_TOPIC: Final = "."
"""No topic can have this name. In version 0, Metadata without names requests all topics."""
_FIRST_DELETED_BY_ID: Final = 6
_CONFIGS_HIDDEN: Final = b"\x01\x00\x02\x00\x1d"
"""The tagged field `topicConfigErrorCode` of CreateTopics: 29 (KIP-525)."""
_RESOURCES: Final = {
    2: ResourceType.TOPIC,
    4: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}
"""The values of `ConfigResource.Type` that have rights: topic, broker, broker logger, client metrics, group."""
_TWICE: Final[Values] = {
    "error_code": ErrorCode.INVALID_REQUEST,
    "error_message": "Each resource must appear at most once.",
}


def _names_all(asking: Asking) -> bool:
    topics = asking.fields["topics"]
    return topics is None or (asking.version == 0 and not topics)


def _uncreatable(asking: Asking) -> list[str]:
    """The topics that Metadata would create if missing, and that the client may not create."""
    fields, rights = asking.fields, asking.rights
    if _names_all(asking) or not asking.creates or not fields.get("allow_auto_topic_creation", True):
        return []
    if ids_in(fields["topics"]):
        return []
    if rights.cluster(Operation.CREATE):
        return []
    names: list[str] = [topic["name"] for topic in fields["topics"] if topic["name"] is not None]
    return [
        name for name in names if rights.topic(Operation.DESCRIBE, name) and not rights.topic(Operation.CREATE, name)
    ]


def _metadata(asking: Asking) -> Divided | None:
    """An id is not secret: like a name, it is refused with TOPIC_AUTHORIZATION_FAILED if there is such a topic
    (`KafkaApis.handleTopicMetadataRequest`). Names beside ids are ignored.
    """
    fields, rights = asking.fields, asking.rights
    of_topics = bool(fields.get("include_topic_authorized_operations"))
    of_cluster = bool(fields.get("include_cluster_authorized_operations"))
    refused: list[Values] = []
    going_on, ids = fields, ids_in(fields["topics"])
    if ids:
        names = {topic_id: asking.name_of(topic_id) for topic_id in ids}
        hidden = [
            each for each, name in names.items() if name is not None and not rights.topic(Operation.DESCRIBE, name)
        ]
        refused = [{"name": None, "topic_id": topic_id} for topic_id in hidden]
        going_on = fields | {"topics": [{"topic_id": each, "name": None} for each in names.keys() - hidden]}
    elif not _names_all(asking):
        uncreatable = {name for name in _uncreatable(asking) if not asking.has(name, None)}
        asked: list[str] = [topic["name"] for topic in fields["topics"] if topic["name"] is not None]
        unseen = dict.fromkeys(
            name for name in asked if name in uncreatable or not rights.topic(Operation.DESCRIBE, name)
        )
        if not unseen and not of_topics and not of_cluster:
            return None
        refused = [{"name": name} for name in unseen]
        if refused:
            kept = [topic for topic in fields["topics"] if topic["name"] not in unseen]
            going_on = fields | {"topics": kept or ([{"name": _NO_TOPIC}] if asking.version == 0 else [])}

    def amend(answer: Values) -> Values:
        topics, hidden = [], [*refused]
        for topic in answer["topics"]:
            bits = rights.allowed(ResourceType.TOPIC, topic["name"]) if topic["name"] else -1
            if bits >> Operation.DESCRIBE & 1 and topic["name"] != _NO_TOPIC:
                name = "topic_authorized_operations"
                topics.append(topic | {name: topic[name] & bits} if of_topics and topic["name"] else topic)
            elif ids:  # its id was unknown before
                hidden.append({"name": None, "topic_id": topic["topic_id"]})
        error = {"error_code": TOPIC, "topic_authorized_operations": NO_OPERATIONS}
        answer = answer | {"topics": [*topics, *(error | each for each in hidden)]}
        return with_cluster_operations(rights, answer) if of_cluster else answer

    return Divided(going_on, amend, TOPIC if refused else 0)


def _once(names: Iterable[str]) -> frozenset[str]:
    """The names that occur once in a request."""
    return frozenset(name for name, count in Counter(names).items() if count == 1)


def refused_anyway(message: Message, version: int, fields: Values) -> Callable[[Any], bool]:
    """Whether the controller refuses an element with INVALID_REQUEST before it checks rights and looks for a topic: its
    name or id occurs twice, or it has both of them, or neither. It is forwarded as it is, because the node's own answer
    would show to a client without rights what stands under the name.
    """
    if message is admin.DELETE_TOPICS and version >= _FIRST_DELETED_BY_ID:
        return _not_one_of(fields["topics"])
    if message in (admin.CREATE_TOPICS, admin.CREATE_PARTITIONS):
        once = _once(topic["name"] for topic in fields["topics"])
        return lambda topic: topic["name"] not in once
    if message is admin.DELETE_TOPICS:
        once = _once(fields["topic_names"])
        return lambda name: name not in once
    return lambda _: False


def _not_one_of(topics: list[Values]) -> Callable[[Values], bool]:
    """See `refused_anyway`, for topics that are named by name or id. The controller does not count an element with both
    as a duplicate (`ControllerApis.deleteTopics`).
    """
    once = _once(each["name"] for each in topics if each["name"] is not None and each["topic_id"] == NO_TOPIC_ID)
    ids = Counter(ids_in(each for each in topics if each["name"] is None))

    def is_refused(topic: Values) -> bool:
        name, topic_id = topic["name"], topic["topic_id"]
        if topic_id == NO_TOPIC_ID:
            return name not in once  # None is not in it either
        return name is not None or ids[topic_id] > 1

    return is_refused


def _create_topics(asking: Asking) -> Divided | None:
    rights, topics = asking.rights, asking.fields["topics"]
    anywhere = rights.cluster(Operation.CREATE)
    anyway = refused_anyway(admin.CREATE_TOPICS, asking.version, asking.fields)

    def refused(topic: Values) -> Values | None:
        name: str = topic["name"]
        if anywhere or anyway(topic) or rights.topic(Operation.CREATE, name):
            return None
        layout: Values = {"num_partitions": NO_ID, "replication_factor": NO_ID}
        return {"name": name, "error_code": TOPIC, "error_message": "Authorization failed."} | layout

    divided = some(asking.fields, ("topics", "topics"), refused, TOPIC)
    seen = (topic["name"] for topic in topics if not anyway(topic))
    hidden = {name for name in seen if not rights.topic(Operation.DESCRIBE_CONFIGS, name)}
    if not hidden:
        return divided

    def hide(topic: Values) -> Values:
        if topic["error_code"] or topic["name"] not in hidden:
            return topic
        return topic | {"num_partitions": NO_ID, "replication_factor": NO_ID, "configs": [], TAGS: _CONFIGS_HIDDEN}

    return shown_by(asking, divided, lambda answer: answer | {"topics": [*map(hide, answer["topics"])]})


def _deletable(asking: Asking, name: str) -> bool:
    return asking.rights.cluster(Operation.DELETE) or asking.rights.topic(Operation.DELETE, name)


def _undeletable(asking: Asking) -> Generator[None, None, list[str]]:
    """The topics of DeleteTopics that the client may describe but not delete: 29 if they exist, else 3."""
    found: list[str] = []
    for number, name in enumerate(_named_for_deletion(asking), 1):
        if not _deletable(asking, name) and asking.rights.topic(Operation.DESCRIBE, name):
            found.append(name)
        if not number % PORTION:
            yield
    return found


def _named_for_deletion(asking: Asking) -> list[str]:
    if asking.version < _FIRST_DELETED_BY_ID:
        return asking.fields["topic_names"]
    topics = asking.fields["topics"]
    return [each["name"] for each in topics if each["name"] is not None and each["topic_id"] == NO_TOPIC_ID]


def _delete_topics(asking: Asking) -> Generator[None, None, Divided | None]:
    """A topic with an unknown id is not forwarded, because the controller might know it."""
    by_id = asking.version >= _FIRST_DELETED_BY_ID
    anyway = refused_anyway(admin.DELETE_TOPICS, asking.version, asking.fields)

    def refused(topic: Any) -> Values | None:
        if anyway(topic):
            return None
        name, topic_id = (topic["name"], topic["topic_id"]) if by_id else (topic, NO_TOPIC_ID)
        if topic_id == NO_TOPIC_ID:
            may = _deletable(asking, name) or _is_not_there(asking, name)
            return None if may else {"name": name} | error_fields(TOPIC)
        name = asking.name_of(topic_id)
        if name is None:
            message = "This server does not host this topic ID."
            return {"topic_id": topic_id, "error_code": ErrorCode.UNKNOWN_TOPIC_ID, "error_message": message}
        if _deletable(asking, name):
            return None
        shown = name if asking.rights.topic(Operation.DESCRIBE, name) else None
        return {"name": shown, "topic_id": topic_id} | error_fields(TOPIC)

    return some_steps(asking.fields, ("topics" if by_id else "topic_names", "responses"), refused, TOPIC)


def _is_not_there(asking: Asking, name: str) -> bool:
    """Whether the controller answers that a topic does not exist, to a client that may not delete it."""
    return asking.rights.topic(Operation.DESCRIBE, name) and not asking.has(name, None)


def _create_partitions(asking: Asking) -> Divided | None:
    anyway = refused_anyway(admin.CREATE_PARTITIONS, asking.version, asking.fields)

    def refused(topic: Values) -> Values | None:
        may = anyway(topic) or asking.rights.topic(Operation.ALTER, topic["name"])
        return None if may else {"name": topic["name"], "error_code": TOPIC}

    return some(asking.fields, ("topics", "results"), refused, TOPIC)


def _configs(operation: Operation, answered: str, *, twice_refused: bool = False) -> Callable[[Asking], Divided | None]:
    """`twice_refused`: brokers refuse a resource that occurs twice before they check rights (`ConfigAdminManager`)."""

    def check(asking: Asking) -> Divided | None:
        codes: list[ErrorCode] = []
        counts = Counter(map(_resource, asking.fields["resources"])) if twice_refused else Counter[tuple[int, str]]()

        def refused(resource: Values) -> Values | None:
            if counts[_resource(resource)] > 1:
                codes.append(ErrorCode.INVALID_REQUEST)
                return _TWICE | {field: resource[field] for field in ("resource_type", "resource_name")}
            kind = _RESOURCES.get(resource["resource_type"])
            name = CLUSTER_NAME if kind == ResourceType.CLUSTER else resource["resource_name"]
            if kind is None or asking.rights.may(operation, kind, name):  # brokers know no other kinds either
                return None
            codes.append(CODES[kind])
            return error_fields(CODES[kind]) | {field: resource[field] for field in ("resource_type", "resource_name")}

        divided = some(asking.fields, ("resources", answered), refused)
        return divided and replace(divided, code=codes[0])

    return check


def _resource(element: Values) -> tuple[int, str]:
    return element["resource_type"], element["resource_name"]


def _describe_producers(asking: Asking) -> Divided | None:
    def refused(topic: Values) -> Values | None:
        may = not is_legal(topic["name"].encode()) or asking.rights.topic(Operation.READ, topic["name"])
        return None if may else refused_topic(topic, error_fields(TOPIC))

    return some(asking.fields, ("topics", "topics"), refused, TOPIC)


ROWS: Final = (
    Asked(cluster.METADATA, _metadata, _uncreatable, lambda fields: ids_in(fields["topics"])),
    Asked(admin.CREATE_TOPICS, _create_topics),
    Asked(admin.DELETE_TOPICS, _delete_topics, _undeletable, lambda fields: ids_in(fields.get("topics"))),
    Asked(admin.DESCRIBE_CONFIGS, _configs(Operation.DESCRIBE_CONFIGS, "results")),
    Asked(admin.ALTER_CONFIGS, _configs(Operation.ALTER_CONFIGS, "responses")),
    Asked(admin.CREATE_PARTITIONS, _create_partitions),
    Asked(admin.INCREMENTAL_ALTER_CONFIGS, _configs(Operation.ALTER_CONFIGS, "responses", twice_refused=True)),
    Asked(transactions.DESCRIBE_PRODUCERS, _describe_producers),
)
