"""The sidecar's own requests as clients send them, each around its message of `proto/sidecar/v1/control.proto`, and
what their errors are in Kafka's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from sidecar.protocol import api
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer
from sidecar.v1 import control_pb2 as control

MessageT = TypeVar("MessageT", bound=Message)
AskedT = TypeVar("AskedT", bound=Message)

AS_KAFKAS: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {
        control.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
        control.NOT_SERVING: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        control.UNAVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
        control.HELD: ErrorCode.POLICY_VIOLATION,
        control.LOWER_GENERATION: ErrorCode.POLICY_VIOLATION,
        control.DEPOSED: ErrorCode.PRODUCER_FENCED,
        control.UNKNOWN_RESOURCE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        control.NOT_AUTHORIZED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        control.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
        control.QUEUE_FULL: ErrorCode.POLICY_VIOLATION,
    }
)
"""What a batch would be answered where a claim is answered this."""


class _OwnRequest(FixedRequest, Generic[AskedT]):
    """A body that is one message, as far as the frame goes."""

    __slots__ = ()

    api_version: ClassVar[int] = 0

    asked: AskedT

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())


@dataclass(frozen=True, slots=True)
class Own(_OwnRequest[control.OwnRequest]):
    """Claims resources, all or nothing; again with the same token: the same claims, kept or waited for."""

    api_key: ClassVar[int] = api.OWN

    asked: control.OwnRequest

    def decode(self, reader: Reader) -> control.OwnResponse:
        return _message(control.OwnResponse, reader)


@dataclass(frozen=True, slots=True)
class Release(_OwnRequest[control.ReleaseRequest]):
    """Lets go of what a token owns or waits for; without resources of all of it."""

    api_key: ClassVar[int] = api.RELEASE

    asked: control.ReleaseRequest

    def decode(self, reader: Reader) -> control.ReleaseResponse:
        return _message(control.ReleaseResponse, reader)


@dataclass(frozen=True, slots=True)
class DescribeOwners(_OwnRequest[control.DescribeOwnersRequest]):
    """The owners of resources, of a topic also its partitions where each has its own owner; and the queues."""

    api_key: ClassVar[int] = api.DESCRIBE_OWNERS

    asked: control.DescribeOwnersRequest

    def decode(self, reader: Reader) -> control.DescribeOwnersResponse:
        return _message(control.DescribeOwnersResponse, reader)


@dataclass(frozen=True, slots=True)
class LastSequence(_OwnRequest[control.LastSequenceRequest]):
    """The highest sequence ids of a producer name that are in the log."""

    api_key: ClassVar[int] = api.LAST_SEQUENCE

    asked: control.LastSequenceRequest

    def decode(self, reader: Reader) -> control.LastSequenceResponse:
        return _message(control.LastSequenceResponse, reader)


@dataclass(frozen=True, slots=True)
class Watch(_OwnRequest[control.WatchRequest]):
    """What becomes of a token's claims: answered at the first news, or without any after `wait_ms`."""

    api_key: ClassVar[int] = api.WATCH

    asked: control.WatchRequest

    def decode(self, reader: Reader) -> control.WatchResponse:
        return _message(control.WatchResponse, reader)


def _message(kind: type[MessageT], reader: Reader) -> MessageT:
    try:
        return kind.FromString(reader.raw(reader.remaining))
    except DecodeError as error:
        raise MalformedFrameError(str(error)) from None
