"""The types and helpers for rows of the table of rights: a request with its principal, and its allowed part."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from sidecar.gateway.rights import Rights
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import PORTION
from sidecar.protocol.primitives import at_once
from sidecar.protocol.schema import Values
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
        """The topic of an element in the request or answer; None for an unknown id."""
        topic_id: bytes | None = topic.get("topic_id")
        return topic["name"] if topic_id is None else self.name_of(topic_id)


@dataclass(frozen=True, slots=True)
class Divided:
    """A request that is refused in part. `fields`: the part that is forwarded, None for nothing. `amend`: makes the
    client's answer from the broker's, which is {} if nothing was forwarded. `code`: the error of elements refused by
    rights; 0 if none is refused, and the answer only hides something.
    """

    fields: Values | None
    amend: Callable[[Values], Values]
    code: int = 0


Check: TypeAlias = Callable[[Asking], Divided | Generator[None, None, Divided | None] | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """An API whose requests are checked before its module runs. `check` returns None if request and answer pass
    unchanged; `in_doubt` returns the topics that have to be looked up before, `ids` those that a request names by id
    (KIP-516). If a request may name thousands, it is checked in slices: then these two are generators.
    """

    check: Check
    in_doubt: Callable[[Asking], Iterable[str] | Generator[None, None, Iterable[str]]] | None = None
    ids: Callable[[Values], Iterable[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class PerTopic:
    """An API whose module checks topics itself: the operation on each. `instead`: an alternative one on the cluster."""

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
    """The answer for a topic with the same error in all its partitions. `partitions`, `index`: the answer's names of
    the list and of a partition's number in it.
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
    """The check of a request that needs one right, on its group, its transactional id or the cluster; else it is
    refused as a whole. `refusal` makes the answer's other fields. `then`: the next check, if the client has that right.
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
    """The check of a request that needs a right on each named resource, as `some`. `name`: the field of its name in the
    answer, and in the request if its elements are records; `refusal` makes a refused element's other fields.
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
    """The request without its refused elements; None if none is. `lists`: their names in request and answer. `refused`
    returns the answer for a refused element, None for an allowed one.
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
        if answer.get("error_code"):  # the forwarded part was refused as a whole, so is the rest
            return answer
        return answer | {answered: [*answer.get(answered, ()), *answers]}

    return Divided(fields | {asked: kept} if kept or empty_goes_on else None, amend, code)


def shown_by(asking: Asking, divided: Divided | None, amend: Callable[[Values], Values]) -> Divided:
    """`divided` (None: the whole request), with `amend` applied to its answer as well."""
    if divided is None:
        return Divided(asking.fields, amend)
    return Divided(divided.fields, lambda answer: amend(divided.amend(answer)), divided.code)


def with_cluster_operations(rights: Rights, answer: Values) -> Values:
    """The answer with only those of the node's cluster operations that the client may do, too."""
    name = "cluster_authorized_operations"
    return answer | {name: rights.cluster_operations(answer[name])}
