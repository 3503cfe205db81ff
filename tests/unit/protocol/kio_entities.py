"""Arbitrary messages of every API and version, as kio knows them from Kafka's own definitions."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import io
import types
import typing
import uuid
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from sidecar.protocol.metadata import PADDING
from tools import messages as generator
from tools.definitions import PACKAGES


def entity(key: int, version: int, side: str) -> Any:
    """The class of a request or a response."""
    return generator.entity(PACKAGES[key], version, side)


def has(key: int, version: int) -> bool:
    """Whether kio defines this version."""
    try:
        entity(key, version, "request")
    except ModuleNotFoundError:
        return False
    return True


_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _INTEGERS.items()},
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=100),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda value: dt.timedelta(milliseconds=value)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda value: dt.timedelta(milliseconds=value)),
    "datetime_i64": st.integers(0, 2**40).map(lambda value: dt.datetime.fromtimestamp(value // 1000, dt.UTC)),
}


@functools.cache
def messages(cls: Any, *, tagged: bool = True) -> st.SearchStrategy[Any]:
    """Instances of an entity; `tagged` False leaves tagged fields at their defaults."""
    return st.builds(
        cls,
        **{
            field.name: _field(field, tagged=tagged)
            for field in dataclasses.fields(cls)
            if tagged or "tag" not in field.metadata
        },
    )


def _field(field: dataclasses.Field[Any], *, tagged: bool) -> st.SearchStrategy[Any]:
    kind, nullable = field.type, False
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        (kind,) = (member for member in typing.get_args(kind) if member is not type(None))
        nullable = True
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        of_element = messages(element, tagged=tagged) if dataclasses.is_dataclass(element) else _scalar(field)
        found = st.lists(of_element, max_size=3).map(tuple)
    elif dataclasses.is_dataclass(kind):
        found = messages(kind, tagged=tagged)
    else:
        found = _scalar(field)
    if nullable and field.metadata.get("kafka_type") != "uuid":
        return st.none() | found
    return found


def _scalar(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    found = _BY_TYPE[field.metadata["kafka_type"]]
    if field.metadata["kafka_type"] == "uuid":
        return found.filter(lambda value: value != uuid.UUID(int=0))
    return found


def milliseconds(value: int) -> dt.timedelta:
    """A duration as kio has it."""
    return dt.timedelta(milliseconds=value)


def as_milliseconds(value: dt.timedelta) -> int:
    return round(value / dt.timedelta(milliseconds=1))


def body(message: Any) -> bytes:
    """The bytes of a message as kio writes them, without any header."""
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def read(cls: Any, data: bytes) -> Any:
    """The message in `data`, which must end with it. kio steps over no tagged field: Metadata's is taken out."""
    if cls.__name__ == "MetadataResponse":
        data = bytes(data).replace(PADDING, b"\0")
    message, end = entity_reader(cls)(data, 0)
    assert end == len(data)
    return message


def is_flexible(cls: Any) -> bool:
    return bool(cls.__flexible__)


def request_frame(message: Any, correlation_id: int = 7, client_id: str | None = "tests") -> bytes:
    """A whole request frame."""
    cls = type(message)
    name = b"\xff\xff" if client_id is None else len(client_id.encode()).to_bytes(2, "big") + client_id.encode()
    head = int(cls.__api_key__).to_bytes(2, "big") + int(cls.__version__).to_bytes(2, "big")
    rest = head + correlation_id.to_bytes(4, "big") + name + (b"\0" if is_flexible(cls) else b"") + body(message)
    return len(rest).to_bytes(4, "big") + rest


def body_at(client_id: str | None = "tests") -> int:
    """Where the body of a frame of `request_frame` begins: behind the client id, at the tags of a flexible header."""
    return 14 + len((client_id or "").encode())


def answer_frame(message: Any, correlation_id: int = 7) -> bytes:
    """A whole answer frame. ApiVersions never has tags in its header."""
    cls = type(message)
    tags = b"\0" if is_flexible(cls) and int(cls.__api_key__) != 18 else b""
    rest = correlation_id.to_bytes(4, "big") + tags + body(message)
    return len(rest).to_bytes(4, "big") + rest


def answer_of(cls: Any, frame: bytes) -> Any:
    """The message in an answer frame."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return read(cls, frame[9:] if is_flexible(cls) and int(cls.__api_key__) != 18 else frame[8:])
