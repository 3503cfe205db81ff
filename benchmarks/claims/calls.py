"""The sidecar's own requests as the raw clients of the benchmarks send them (`proto/sidecar/v1/control.proto`)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from sidecar.protocol import api
from sidecar.protocol.caller import FixedRequest
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sidecar.protocol.primitives import Reader, Writer

MessageT = TypeVar("MessageT", bound="Message")


@dataclass(frozen=True, slots=True)
class Own(FixedRequest):
    """Claim a set of resources."""

    api_key: ClassVar[int] = api.OWN
    api_version: ClassVar[int] = 0

    asked: control.OwnRequest

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())

    @classmethod
    def decode(cls, reader: Reader) -> control.OwnResponse:
        return _body(control.OwnResponse, reader)


@dataclass(frozen=True, slots=True)
class Release(FixedRequest):
    """Let go of what a token owns, or of some of it."""

    api_key: ClassVar[int] = api.RELEASE
    api_version: ClassVar[int] = 0

    asked: control.ReleaseRequest

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())

    @classmethod
    def decode(cls, reader: Reader) -> control.ReleaseResponse:
        return _body(control.ReleaseResponse, reader)


@dataclass(frozen=True, slots=True)
class DescribeOwners(FixedRequest):
    """Who owns these."""

    api_key: ClassVar[int] = api.DESCRIBE_OWNERS
    api_version: ClassVar[int] = 0

    asked: control.DescribeOwnersRequest

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())

    @classmethod
    def decode(cls, reader: Reader) -> control.DescribeOwnersResponse:
        return _body(control.DescribeOwnersResponse, reader)


def _body(kind: type[MessageT], reader: Reader) -> MessageT:
    return kind.FromString(reader.raw(reader.remaining))


class NotAnsweredError(RuntimeError):
    """An answer is not the one that the measurement is about."""


def expect(what: str, found: int, message: str, wanted: control.Error = control.NONE) -> None:
    """Raises NotAnsweredError where the error is another one."""
    if found != wanted:
        name = control.Error.Name(wanted)
        raise NotAnsweredError(f"{what} was answered {control.Error.Name(found)} ({message}), not {name}")


def new_token() -> bytes:
    """16 random bytes."""
    return secrets.token_bytes(16)


def strings(*names: str) -> list[control.Resource]:
    """Free strings."""
    return [control.Resource(name=name) for name in names]


def own(
    resources: list[control.Resource],
    token: bytes,
    mode: control.AccessMode = control.EXCLUSIVE,
    *,
    wait_ms: int = 0,
    session: int = -1,
) -> Own:
    """Claim all of these for a session: a producer id, or -1 for the connection."""
    claims = [control.Claim(resource=resource) for resource in resources]
    return Own(control.OwnRequest(claims=claims, mode=mode, token=token, wait_ms=wait_ms, producer_id=session))


def release(token: bytes, resources: list[control.Resource] | None = None) -> Release:
    """Let go of these, or of all that the token owns."""
    return Release(control.ReleaseRequest(token=token, resources=resources))
