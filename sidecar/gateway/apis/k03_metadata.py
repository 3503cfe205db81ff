"""Metadata (0-13): asked of upstream each time, and shown with nodes instead of brokers (`metadata`)."""

from typing import Final

from sidecar.gateway.access.asked import (
    TOPIC,
    Asked,
    Asking,
    Divided,
    Operation,
    ResourceType,
    ids_in,
    with_cluster_operations,
)
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import Values

_NO_TOPIC: Final = "."
"""No topic can have this name. In version 0, Metadata without names requests all topics."""


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


SPEC = ApiSpec(
    ApiKey.METADATA, (0, 13), Route.LOCAL, Asked(_metadata, _uncreatable, lambda fields: ids_in(fields["topics"])),
    ShadowRule.SHOWN, cold=lambda _, of: of.cluster.handle_metadata,
)  # fmt: skip
