"""Requests of kio's from what a test cares about: the rest is empty, and what a version does not have is left out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from typing import Any

from tests.unit.protocol import kio_entities as kio

_EMPTY: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "timedelta_i32": dt.timedelta(seconds=20),
    "timedelta_i64": dt.timedelta(0),
    "float64": 0.0,
}


def request(key: int, version: int, /, **values: Any) -> Any:
    """A request of one API and version. Lists of records are given as lists of dicts; durations as milliseconds."""
    return _fill(kio.entity(key, version, "request"), values)


def _fill(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**{field.name: _value(field, values) for field in dataclasses.fields(cls) if not _left(field, values)})


def _left(field: dataclasses.Field[Any], values: dict[str, Any]) -> bool:
    return _name(field) not in values and field.default is not dataclasses.MISSING


def _name(field: dataclasses.Field[Any]) -> str:
    return field.name.removeprefix("v3_and_below_")


def _value(field: dataclasses.Field[Any], values: dict[str, Any]) -> Any:
    kind, nullable = field.type, False
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
        nullable = True
    if _name(field) not in values:
        if nullable:
            return None
        if typing.get_origin(kind) is tuple:
            return ()
        return _EMPTY.get(field.metadata["kafka_type"], 0)
    value = values[_name(field)]
    if typing.get_origin(kind) is tuple and value is not None:
        element = typing.get_args(kind)[0]
        return tuple(_fill(element, found) if isinstance(found, dict) else found for found in value)
    if isinstance(value, dict):
        return _fill(kind, value)
    if field.metadata.get("kafka_type", "").startswith("timedelta") and isinstance(value, int):
        return dt.timedelta(milliseconds=value)
    return value
