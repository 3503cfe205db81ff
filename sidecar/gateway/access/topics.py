"""Rights on topics and configurations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from sidecar.gateway.access.asked import CODES, Asking, Divided, error_fields, some
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.schema import Values
from sidecar.security.acls import CLUSTER_NAME, Operation, ResourceType

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


def names_once(names: Iterable[str]) -> frozenset[str]:
    """The names that occur once in a request."""
    return frozenset(name for name, count in Counter(names).items() if count == 1)


def named_twice(elements: str) -> Callable[[int, Values], Callable[[Any], bool]]:
    """Whether the controller refuses an element with INVALID_REQUEST before it checks rights and looks for a topic: its
    name occurs twice (`asking.change`). It is forwarded as it is, because the node's own answer would show to a client
    without rights what stands under the name.
    """

    def refused_anyway(_version: int, fields: Values) -> Callable[[Any], bool]:
        once = names_once(_name_of(topic) for topic in fields[elements])
        return lambda topic: _name_of(topic) not in once

    return refused_anyway


def _name_of(topic: Any) -> str:
    """The name of an element that is named by it alone."""
    return topic if isinstance(topic, str) else topic["name"]


def configs(operation: Operation, answered: str, *, twice_refused: bool = False) -> Callable[[Asking], Divided | None]:
    """The check of an operation on resources. `twice_refused`: brokers refuse a resource that occurs twice before they
    check rights (`ConfigAdminManager`).
    """

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
