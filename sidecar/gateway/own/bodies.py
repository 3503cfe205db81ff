"""Bodies of the sidecar's own APIs: read, written, and what is wrong with them (`proto/sidecar/v1/control.proto`).

Errors are in the body, of a request that does not parse too: a connection never ends by one.
"""

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
"""The longest body that is read."""
RESOURCES: Final = 1_000
"""As many may be named in one request."""
NAME_BYTES: Final = 255
STRING_BYTES: Final = 1_024
"""Of a free string or a group, in UTF-8."""
AT_ONCE: Final = 100
"""Resources that are listed, or claims that are given up, before others have a turn."""


class RefusedError(ValueError):
    """A request is answered with an error alone. The message is for people."""

    def __init__(self, message: str, error: control.Error = control.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = error


class BadRequestError(RefusedError):
    """The message says what is wrong with the body."""


def decode(kind: type[RequestT], head: Request) -> RequestT:
    """A request's body. Raises `BadRequestError`."""
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
    """Whether a producer can have this name. Raises `BadRequestError`."""
    if not name:
        raise BadRequestError("producer_name is empty: sequence ids belong to a name")
    if len(name.encode()) > NAME_BYTES:
        raise BadRequestError(f"producer_name has more than {NAME_BYTES} bytes of UTF-8")


def fault_of(resource: control.Resource) -> str:
    """What is wrong with a resource; "" where nothing is."""
    if bool(resource.topic) == bool(resource.name):
        return "give a resource either a topic or a name"
    if resource.HasField("partition") and (resource.name or resource.partition < 0):
        return "partition is a number from 0 on, of a topic"
    if len(resource.name.encode()) > STRING_BYTES:
        return f"a name has more than {STRING_BYTES} bytes of UTF-8"
    return ""


async def serve(
    kind: type[RequestT],
    refusal: Callable[..., Any],
    handle: Callable[[Client, RequestT], Awaitable[Any]],
    client: Client,
    exchange: Exchange,
    head: Request,
) -> None:
    """Read a request and give the answer that `handle` makes of it, or `refusal` of a `RefusedError`."""
    try:
        body = await handle(client, decode(kind, head))
    except RefusedError as error:
        body = refusal(error=error.error, message=str(error))
    if body.error != control.NONE:
        exchange.note_error(AS_KAFKAS.get(body.error, ErrorCode.INVALID_REQUEST))
    exchange.answer([encode_answer(head.correlation_id, body)])
