"""JSON of a node as the dataclasses of `facts`: pure. What is wrong is named by its path, what is new passed over."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from sidecar.client.errors import SidecarError
from sidecar.client.facts import Event
from sidecar.protocol.errors import ErrorCode

FactT = TypeVar("FactT")

_SHOWN: Final = 60


class ShapeError(ValueError):
    """An answer is not what it should be; the message says where."""


def read(kind: type[FactT], found: object, where: str) -> FactT:
    """`found`, which `json.loads` made, as a `kind`. Fields that `kind` does not have are passed over. Raises
    `ShapeError` for one that is missing, or of another type; `where` is what the whole is called there.
    """
    if not isinstance(found, dict):
        raise _wrong(where, found, "object")
    values: dict[str, Any] = {}
    for name, label, hint, needed in _fields(kind):
        if label in found:
            values[name] = _value(hint, found[label], f"{where}.{label}")
        elif needed:
            raise ShapeError(f"{where} has no {label}")
    return kind(**values)


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, str, Any, bool], ...]:
    """Of each: its name here and in JSON, its type, and whether it has to be there."""
    hints = get_type_hints(kind)
    return tuple(
        (each.name, each.metadata.get("name", each.name), hints[each.name], each.default is dataclasses.MISSING)
        for each in dataclasses.fields(kind)
    )


def _value(kind: Any, found: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (kind,) = (each for each in inner if each is not NoneType)  # X | None is all that facts have
        return None if found is None else _value(kind, found, where)
    if origin is tuple:
        if not isinstance(found, list):
            raise _wrong(where, found, "list")
        return tuple(_value(inner[0], each, f"{where}[{index}]") for index, each in enumerate(found))
    if origin is Mapping:
        if not isinstance(found, dict):
            raise _wrong(where, found, "object")
        return {_key(inner[0], key, where): _value(inner[1], each, f"{where}.{key}") for key, each in found.items()}
    if dataclasses.is_dataclass(kind):
        return read(kind, found, where)  # pyright: ignore[reportArgumentType]
    if kind is datetime:
        return _time(found, where)
    if type(found) is not kind:  # a bool is no int
        raise _wrong(where, found, kind.__name__)
    return found


def _key(kind: type[Any], text: str, where: str) -> Any:
    if kind is str:
        return text
    if not (text.isascii() and text.isdigit()):
        raise ShapeError(f"{where} has the key {text[:_SHOWN]!r}, which is no number of a partition")
    return int(text)


def _time(found: Any, where: str) -> datetime:
    try:
        at = datetime.fromisoformat(found)
    except (TypeError, ValueError):
        raise _wrong(where, found, "time") from None
    if at.tzinfo is None:
        raise _wrong(where, found, "time with its zone")
    return at.astimezone(UTC)


def _wrong(where: str, found: object, kind: str) -> ShapeError:
    return ShapeError(f"{where} is {repr(found)[:_SHOWN]}, no {kind}")


def fact(kind: type[FactT], found: Any, where: str) -> FactT:
    """As `read`, of what `where` answered. Raises `SidecarError` for what no node answers; the next two as well."""
    try:
        return read(kind, found, "answer")
    except ShapeError as error:
        message = f"{where}: {error}; is it the admin port of a node?"
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def page_of(kind: type[FactT], found: Any, where: str) -> tuple[tuple[FactT, ...], str | None]:
    """One page of a list, and the token of the next one."""
    items, token = (found.get("items"), found.get("next_page_token")) if isinstance(found, dict) else (None, None)
    if not isinstance(items, list) or not isinstance(token, str | None):
        message = f"GET {where}: the answer is no list; is it the admin port of a node?"
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return tuple(fact(kind, each, f"GET {where}") for each in items), token


def event_of(position: str, data: Any) -> Event:
    """A server-sent event by its id and its data."""
    if not position.isascii() or not position.isdigit():
        raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, f"an event has the position {position[:50]!r}")
    found: Any = {**data, "position": int(position)} if isinstance(data, dict) else data
    return fact(Event, found, "GET /v1/events")
