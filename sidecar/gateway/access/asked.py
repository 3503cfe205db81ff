"""What a row of the table of rights is made of: a request with its principal, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from sidecar.gateway.rights import Rights
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import PORTION
from sidecar.protocol.primitives import at_once
from sidecar.protocol.schema import Message, Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from sidecar.security.acls import CLUSTER_NAME, Operation, ResourceType

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
CODES: Final = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER,
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_ID,
}
_NAMED_BY: Final = {ResourceType.GROUP: "group_id", ResourceType.TRANSACTIONAL_ID: "transactional_id"}
NO_ID: Final = -1


class Asking(NamedTuple):
    """A request with its principal. `has`: whether a topic, or a partition of it, exists; `creates`: whether brokers
    create topics that Metadata asks for (`auto.create.topics.enable`); `name_of`: the topic with an id, or None.
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
    """A request of which something is refused here. `fields`: the part that is passed on, None for nothing. `amend`:
    makes the client's answer from the broker's, which is {} if nothing was passed on. `code`: the error of what rights
    refuse; 0 if that is nothing, and the answer only hides something.
    """

    fields: Values | None
    amend: Callable[[Values], Values]
    code: int = 0


Check: TypeAlias = Callable[[Asking], Divided | Generator[None, None, Divided | None] | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """An API whose requests are checked before its module runs. `check` returns None if request and answer pass
    unchanged; `in_doubt` returns the topics that have to be looked up before, `ids` those that a request names by id
    (KIP-516). What may name thousands is checked in slices: then these two are generators.
    """

    message: Message
    check: Check
    in_doubt: Callable[[Asking], Iterable[str] | Generator[None, None, Iterable[str]]] | None = None
    ids: Callable[[Values], Iterable[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class PerTopic:
    """An API whose module refuses topics by itself: what it takes on each. `instead`: on the cluster it does, too."""

    operation: Operation
    instead: Operation | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """An API that requires no right, and why."""

    reason: str


def ids_in(topics: Iterable[Values] | None) -> list[bytes]:
    """The ids by which topics are named in a list of a request."""
    ids: Iterable[bytes] = (topic.get("topic_id", NO_TOPIC_ID) for topic in topics or ())
    return [topic_id for topic_id in ids if topic_id != NO_TOPIC_ID]


def called(topic: Values) -> Values:
    """The fields by which an element of a request names its topic: the name, the id, or both."""
    return {field: topic[field] for field in ("name", "topic", "topic_name", "topic_id") if field in topic}


def refused_topic(
    topic: Values, error: Values, partitions: str = "partitions", index: str = "partition_index"
) -> Values:
    """A topic of a request as it is answered where all its partitions get the same error. `partitions`, `index`: what
    the answer calls the list, and a partition's number in it.
    """
    asked: list[Any] = topic["partitions"] if "partitions" in topic else topic["partition_indexes"]
    numbers = (each if isinstance(each, int) else each["partition_index"] for each in asked)
    return called(topic) | {partitions: [{index: number} | error for number in numbers]}


def whole(values: Values, code: int) -> Divided:
    """The request is refused as a whole: `values` is the answer."""
    return Divided(None, lambda _: values, code)


def error_fields(code: ErrorCode) -> Values:
    """An error with Kafka's message."""
    return {"error_code": code, "error_message": MESSAGES[code]}


def takes(
    operation: Operation,
    kind: ResourceType,
    refusal: Callable[[Asking], Values] = lambda _: {},
    then: Callable[[Asking], Divided | None] = lambda _: None,
) -> Callable[[Asking], Divided | None]:
    """A request that takes one right, on its group, its transactional id or the cluster, or is refused as a whole:
    `refusal` makes what the answer has besides the error. `then`: what is checked where the client has that right.
    """
    code = CODES[kind]

    def check(asking: Asking) -> Divided | None:
        name = asking.fields[_NAMED_BY[kind]] if kind in _NAMED_BY else CLUSTER_NAME
        if asking.rights.may(operation, kind, name):
            return then(asking)
        return whole(error_fields(code) | refusal(asking), code)

    return check


def each_takes(
    operation: Operation,
    kind: ResourceType,
    lists: tuple[str, str],
    name: str,
    refusal: Callable[[Any], Values] = lambda _: {},
    *,
    empty_goes_on: bool = False,
) -> Callable[[Asking], Divided | None]:
    """A request that takes a right on each resource that it names, as `some`. `name`: the field that names one in the
    answer, and in the request where that has more than names; `refusal` makes what a refused one has besides the error.
    """
    code = CODES[kind]

    def check(asking: Asking) -> Divided | None:
        def refused(each: Any) -> Values | None:
            named: str = each if isinstance(each, str) else each[name]
            if asking.rights.may(operation, kind, named):
                return None
            return {name: named} | error_fields(code) | refusal(each)

        return some(asking.fields, lists, refused, code, empty_goes_on=empty_goes_on)

    return check


def some(
    fields: Values,
    lists: tuple[str, str],
    refused: Callable[[Any], Values | None],
    code: int = 0,
    *,
    empty_goes_on: bool = False,
) -> Divided | None:
    """The request without its refused elements; None if none is. `lists`: their names in request and answer. `refused`:
    how an element is answered, None where it goes on.
    """
    return at_once(some_steps(fields, lists, refused, code, empty_goes_on=empty_goes_on))


def some_steps(
    fields: Values,
    lists: tuple[str, str],
    refused: Callable[[Any], Values | None],
    code: int = 0,
    *,
    empty_goes_on: bool = False,
) -> Generator[None, None, Divided | None]:
    """As `some`, in slices."""
    asked, answered = lists
    kept: list[Any] = []
    answers: list[Values] = []
    for number, each in enumerate(fields[asked] or (), 1):
        if (answer := refused(each)) is None:
            kept.append(each)
        else:
            answers.append(answer)
        if not number % PORTION:
            yield
    if not answers:
        return None

    def amend(answer: Values) -> Values:
        if answer.get("error_code"):  # what went on was refused as a whole, and so is the rest
            return answer
        return answer | {answered: [*answer.get(answered, ()), *answers]}

    return Divided(fields | {asked: kept} if kept or empty_goes_on else None, amend, code)


def shown_by(asking: Asking, divided: Divided | None, amend: Callable[[Values], Values]) -> Divided:
    """`divided` (None: the whole request), with `amend` applied to its answer as well."""
    if divided is None:
        return Divided(asking.fields, amend)
    return Divided(divided.fields, lambda answer: amend(divided.amend(answer)), divided.code)


def with_cluster_operations(rights: Rights, answer: Values) -> Values:
    """The answer with the cluster operations that the client may do, out of those that the node may do."""
    name = "cluster_authorized_operations"
    return answer | {name: rights.cluster_operations(answer[name])}
