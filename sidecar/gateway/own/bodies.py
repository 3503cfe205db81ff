"""Decodes, checks and encodes bodies of the sidecar's own APIs (`proto/sidecar/v1/control.proto`).

Errors are in the body, also if a request cannot be decoded: no error closes a connection.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.own import AS_KAFKAS
from sidecar.protocol.primitives import I32
from sidecar.v1 import control_pb2 as control

RequestT = TypeVar("RequestT", bound=Message)

NOBODY: Final = -1
"""In `serving_node`: no node serves the topic. Node ids begin at 0."""
BODY_BYTES: Final = 1024 * 1024
"""The longest body that is decoded."""
RESOURCES: Final = 1_000
"""The most resources in one request."""
NAME_BYTES: Final = 255
STRING_BYTES: Final = 1_024
"""The longest free string or group, in UTF-8."""
_GROUP: Final = re.compile(r"[^\x00-\x1f\x7f]*")
AT_ONCE: Final = 100
"""Resources listed, or claims released, per slice."""


class RefusedError(ValueError):
    """A request is answered only with an error. The message is for display."""

    def __init__(self, message: str, error: control.Error = control.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = error


class BadRequestError(RefusedError):
    """The message says what is wrong with the body."""


def decode(kind: type[RequestT], head: Request) -> RequestT:
    """Decode a request's body. Raises `BadRequestError`."""
    frame = head.frame
    size = frame.end - head.body
    name = kind.DESCRIPTOR.name
    if size > BODY_BYTES:
        raise BadRequestError(f"{name} has {BODY_BYTES} bytes at most, this one {size}")
    try:
        return kind.FromString(bytes(frame.view(head.body, frame.end)))
    except DecodeError:
        raise BadRequestError(f"the body is no sidecar.v1.{name}, see control.proto") from None


def encode_answer(correlation_id: int, body: Message) -> bytes:
    """A whole answer frame."""
    data = body.SerializeToString()
    return I32.pack(4 + len(data)) + I32.pack(correlation_id) + data


def check_name(name: str) -> None:
    """Check that a producer can have this name. Raises `BadRequestError`."""
    if not name:
        raise BadRequestError("producer_name is empty: sequence ids belong to a name")
    if len(name.encode()) > NAME_BYTES:
        raise BadRequestError(f"producer_name has more than {NAME_BYTES} bytes of UTF-8")


def check_group(group: str) -> None:
    """Raises `BadRequestError` for an invalid group name."""
    if len(group.encode()) > STRING_BYTES or not _GROUP.fullmatch(group):
        raise BadRequestError(f"a group has {STRING_BYTES} bytes of UTF-8 at most, and no control characters")


def fault_of(resource: control.Resource) -> str:
    """The fault of a resource; "" if it is valid."""
    if bool(resource.topic) == bool(resource.name):
        return "give a resource either a topic or a name"
    if resource.HasField("partition") and (resource.name or resource.partition < 0):
        return "partition is a number from 0 on, of a topic"
    if len(resource.name.encode()) > STRING_BYTES:
        return f"a name has more than {STRING_BYTES} bytes of UTF-8"
    return ""


def check_resource(resource: control.Resource) -> None:
    """Raises `BadRequestError` for a resource that is not valid."""
    if fault := fault_of(resource):
        raise BadRequestError(fault)


async def serve(
    kind: type[RequestT],
    refusal: Callable[..., Any],
    handle: Callable[[Client, RequestT], Awaitable[Any]],
    client: Client,
    exchange: Exchange,
    head: Request,
) -> None:
    """Decode a request, and send the answer that `handle` returns, or that `refusal` makes of a `RefusedError`."""
    try:
        body = await handle(client, decode(kind, head))
    except RefusedError as error:
        body = refusal(error=error.error, message=str(error))
    if body.error != control.NONE:
        exchange.note_error(AS_KAFKAS.get(body.error, ErrorCode.INVALID_REQUEST))
    exchange.answer([encode_answer(head.correlation_id, body)])
