"""The sidecar's own requests as clients send them, each with its message of `proto/sidecar/v1/control.proto`, and the
Kafka codes for their errors.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer
from sidecar.v1 import control_pb2 as control

AskedT = TypeVar("AskedT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)

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
"""The Kafka code for each claim error."""


class _OwnRequest(Request[AnswerT], Generic[AskedT, AnswerT]):
    """Request and answer bodies are one protobuf message each, up to the end of the frame."""

    api_version: ClassVar[int] = 0
    answer: ClassVar[type[Message]]

    asked: AskedT

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())

    def decode(self, reader: Reader) -> AnswerT:
        try:
            return cast(AnswerT, self.answer.FromString(reader.raw(reader.remaining)))
        except DecodeError as error:
            raise MalformedFrameError(str(error)) from None


class Own(_OwnRequest[control.OwnRequest, control.OwnResponse]):
    """Claims resources, all or nothing. A repetition with the same token is the same request."""

    api_key: ClassVar[int] = ApiKey.OWN
    answer = control.OwnResponse


class Release(_OwnRequest[control.ReleaseRequest, control.ReleaseResponse]):
    """Releases what a token owns or waits for: the named resources, or all, if no resources are named."""

    api_key: ClassVar[int] = ApiKey.RELEASE
    answer = control.ReleaseResponse


class DescribeOwners(_OwnRequest[control.DescribeOwnersRequest, control.DescribeOwnersResponse]):
    """The owners and queues of resources; for a topic also of its partitions, if these have their own owners."""

    api_key: ClassVar[int] = ApiKey.DESCRIBE_OWNERS
    answer = control.DescribeOwnersResponse


class LastSequence(_OwnRequest[control.LastSequenceRequest, control.LastSequenceResponse]):
    """The highest sequence ids of a producer name that are in the log."""

    api_key: ClassVar[int] = ApiKey.LAST_SEQUENCE
    answer = control.LastSequenceResponse


class Watch(_OwnRequest[control.WatchRequest, control.WatchResponse]):
    """Waits for a change of a token's claims: answered at the first change, or without one after `wait_ms`."""

    api_key: ClassVar[int] = ApiKey.WATCH
    answer = control.WatchResponse
