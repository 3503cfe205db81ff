"""How rows say what the audit log shows of a request: the names in it, and the error codes of its answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, PatternType, Permission, ResourceType
from sidecar.v1 import control_pb2 as control


class Audited(NamedTuple):
    """One of Kafka's APIs. `names`: better names for some of those in the request, from the answer."""

    on: Callable[[Values], Iterable[str]]
    codes: Callable[[Values], Iterable[int]]
    names: Callable[[Values], Mapping[str, str | None]] = lambda _answer: {}


class OwnAudited(NamedTuple):
    """One of the sidecar's own APIs, from the bodies of request and answer. `code`: None if there is no result yet."""

    on: Callable[[bytes], Iterable[control.Resource]]
    code: Callable[[bytes], int | None]


def codes(*lists: str) -> Callable[[Values], Iterable[int]]:
    """The error codes of an answer: its own, and those of each element of its nested lists."""

    def read(values: Values, inner: tuple[str, ...] = lists) -> Iterator[int]:
        if (code := values.get("error_code")) is not None:
            yield code
        if inner:
            for element in values[inner[0]] or ():
                yield from read(element, inner[1:])

    return read


def named(elements: str, by: str = "name") -> Callable[[Values], Iterable[str]]:
    """The names of a list's elements, which may be names themselves."""

    def read(values: Values) -> Iterable[str]:
        every: Iterable[Any] = values[elements] or ()
        return (element if isinstance(element, str) else str(element[by]) for element in every)

    return read


def _word(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return "ANY"


def rule(acl: Values, end: str = "") -> str:
    """For example `ALLOW User:alice from * WRITE on TOPIC orders LITERAL`; `*` for open fields of a filter."""

    def text(name: str) -> str:
        return str(acl[name + end] or "*")

    pattern = acl.get("resource_pattern_type", acl.get("pattern_type_filter", 1))
    return (
        f"{_word(Permission, acl['permission_type'])} {text('principal')} from {text('host')}"
        f" {_word(Operation, acl['operation'])} on {_word(ResourceType, acl[f'resource_type{end}'])}"
        f" {text('resource_name')} {_word(PatternType, pattern)}"
    )


def settings(values: Values) -> Iterator[str]:
    """The resources of AlterConfigs and IncrementalAlterConfigs with the names of their settings, without values."""
    for resource in values["resources"]:
        kind = {2: "topic", 4: "cluster"}.get(resource["resource_type"], str(resource["resource_type"]))
        yield f"{kind} {resource['resource_name']}: {', '.join(config['name'] for config in resource['configs'])}"
