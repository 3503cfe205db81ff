"""What a row of the table of rights is made of: a request with its principal, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from sidecar.security.acls import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.gateway.rights import Rights
    from sidecar.protocol.schema import Message, Values

TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
MESSAGES: Final = {
    TOPIC: "Topic authorization failed.",
    GROUP: "Group authorization failed.",
    CLUSTER: "Cluster authorization failed.",
    TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
"""`Errors.message()` of Kafka."""
NO_ID: Final = -1


class Asking(NamedTuple):
    """A request with its principal. `has`: whether there is a topic, or a partition of it; `creates`: whether brokers
    make topics that Metadata asks for (`auto.create.topics.enable`); `name_of`: which topic has an id, None for none.
    """

    rights: Rights
    fields: Values
    version: int
    has: Callable[[str, int | None], bool] = lambda _topic, _partition: True
    creates: bool = True
    name_of: Callable[[bytes], str | None] = lambda _id: None

    def named(self, topic: Values) -> str | None:
        """Which topic an element of the request or its answer is about; None for an id that is not known."""
        topic_id: bytes | None = topic.get("topic_id")
        return topic["name"] if topic_id is None else self.name_of(topic_id)


@dataclass(frozen=True, slots=True)
class Divided:
    """What goes on of a request (None: nothing), what the client is answered (given the answer, {} where nothing went
    on), and the code of what was refused (0: nothing was, there is only something to hide in the answer).
    """

    fields: Values | None
    amend: Callable[[Values], Values]
    code: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """An API whose requests are taken apart before its module runs. `check` gives None where the request goes on as it
    is, and its answer goes back as it is; `in_doubt` names the topics that have to be looked up before, `ids` those
    that a request names by id (KIP-516).
    """

    message: Message
    check: Callable[[Asking], Divided | None]
    in_doubt: Callable[[Asking], Iterable[str]] | None = None
    ids: Callable[[Values], Iterable[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class PerTopic:
    """An API whose module refuses topics by itself: what it takes on each. `instead`: on the cluster it does, too."""

    operation: Operation
    instead: Operation | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """An API that takes no right, and why."""

    reason: str


def ids_in(topics: Iterable[Values] | None) -> list[bytes]:
    """The ids by which topics are named in a list of a request."""
    ids: Iterable[bytes] = (topic.get("topic_id", NO_TOPIC_ID) for topic in topics or ())
    return [topic_id for topic_id in ids if topic_id != NO_TOPIC_ID]


def called(topic: Values) -> Values:
    """How an element of a request calls its topic: by its name, or by its id."""
    return {field: topic[field] for field in ("name", "topic_id") if field in topic}


def whole(values: Values, code: int) -> Divided:
    """Nothing of the request goes on."""
    return Divided(None, lambda _: values, code)


def error_fields(code: ErrorCode) -> Values:
    """An error with Kafka's message."""
    return {"error_code": code, "error_message": MESSAGES[code]}


def some(
    asking: Asking,
    elements: tuple[str, str],
    may: Callable[[Any], bool],
    refusal: Callable[[Any], Values],
    code: int,
    *,
    empty_goes_on: bool = False,
) -> Divided | None:
    """A request without the elements that are refused. `elements`: the lists in request and answer."""
    asked, answered = elements
    kept: list[Any] = []
    refused: list[Values] = []
    for each in asking.fields[asked] or ():
        if may(each):
            kept.append(each)
        else:
            refused.append(refusal(each))
    if not refused:
        return None

    def amend(answer: Values) -> Values:
        if answer.get("error_code"):  # what went on was refused as a whole, and so is the rest
            return answer
        return answer | {answered: [*answer.get(answered, ()), *refused]}

    return Divided(asking.fields | {asked: kept} if kept or empty_goes_on else None, amend, code)


def shown_by(asking: Asking, divided: Divided | None, amend: Callable[[Values], Values]) -> Divided:
    """What is left of a request, and the answer as `amend` makes it of the one with what was refused."""
    if divided is None:
        return Divided(asking.fields, amend)
    return Divided(divided.fields, lambda answer: amend(divided.amend(answer)), divided.code)


def with_cluster_operations(rights: Rights, answer: Values) -> Values:
    """What the client may do on the cluster, of what the node may."""
    name = "cluster_authorized_operations"
    return answer | {name: rights.cluster_operations(answer[name])}
