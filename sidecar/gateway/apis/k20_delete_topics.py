"""DeleteTopics (1-6): to the controller (KIP-4).

- A topic that has shadows: 44 POLICY_VIOLATION.
- A topic by its id (version 6): the id is resolved here. An unknown id is refused with 100 UNKNOWN_TOPIC_ID.
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.gateway.access.asked import TOPIC, Asked, Asking, Divided, Operation, error_fields, ids_in, some_steps
from sidecar.gateway.access.topics import named_twice, names_once
from sidecar.gateway.apis.audited import Audited, codes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Change, Route
from sidecar.gateway.client import Client
from sidecar.gateway.rights import may_see
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import PORTION
from sidecar.protocol.schema import Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID

_FIRST_BY_ID: Final = 6


def _refused_anyway(version: int, fields: Values) -> Callable[[Any], bool]:
    """See `named_twice`: also an element with both name and id, or with neither."""
    if version < _FIRST_BY_ID:
        return named_twice("topic_names")(version, fields)
    return _not_one_of(fields["topics"])


def _not_one_of(topics: list[Values]) -> Callable[[Values], bool]:
    """See `named_twice`, for topics that are named by name or id. The controller does not count an element with both
    as a duplicate (`ControllerApis.deleteTopics`).
    """
    once = names_once(each["name"] for each in topics if each["name"] is not None and each["topic_id"] == NO_TOPIC_ID)
    ids = Counter(ids_in(each for each in topics if each["name"] is None))

    def is_refused(topic: Values) -> bool:
        name, topic_id = topic["name"], topic["topic_id"]
        if topic_id == NO_TOPIC_ID:
            return name not in once  # None is not in it either
        return name is not None or ids[topic_id] > 1

    return is_refused


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
    if asking.version < _FIRST_BY_ID:
        return asking.fields["topic_names"]
    topics = asking.fields["topics"]
    return [each["name"] for each in topics if each["name"] is not None and each["topic_id"] == NO_TOPIC_ID]


def _delete_topics(asking: Asking) -> Generator[None, None, Divided | None]:
    """A topic with an unknown id is not forwarded, because the controller might know it."""
    by_id = asking.version >= _FIRST_BY_ID
    anyway = _refused_anyway(asking.version, asking.fields)

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


def _refusal(resolver: NameResolver, client: Client, name: str, _topic: object) -> KafkaError | None:
    shadows = [shadow.decode() for shadow in resolver.shadows_of(name.encode())]
    if not shadows:
        return None
    seen = [shadow for shadow in shadows if may_see(client, resolver, shadow)]
    others = [] if len(seen) == len(shadows) else ["others that you may not see"]
    names = ", ".join((*seen, *others))
    return KafkaError(ErrorCode.POLICY_VIOLATION, f"this topic has shadows, delete those first: {names}")


def _deleted(values: Values) -> Iterable[str]:
    """The topics' names; a topic that is named only by id, by the id as Kafka writes it."""
    if (names := values.get("topic_names")) is not None:
        return names
    return (topic["name"] or _by_id(topic["topic_id"]) for topic in values["topics"])


def _by_id(topic_id: bytes) -> str:
    """See `Uuid.toString`."""
    return f"id {urlsafe_b64encode(topic_id).decode().rstrip('=')}"


def _names(answer: Values) -> dict[str, str | None]:
    return {_by_id(row["topic_id"]): row["name"] for row in answer["responses"] if row.get("topic_id")}


SPEC = ApiSpec(
    ApiKey.DELETE_TOPICS, (1, 6), Route.CONTROLLER,
    Asked(_delete_topics, _undeletable, lambda fields: ids_in(fields.get("topics"))),
    form=Change("topic_names", "responses", _refusal, _refused_anyway, ("topics", _FIRST_BY_ID), reroutes=True),
    audit=Audited(_deleted, codes("responses"), _names), for_super_users=True,
)  # fmt: skip
