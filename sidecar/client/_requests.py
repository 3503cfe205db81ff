"""What the SDK itself asks a node: the sidecar's own APIs, and the few of Kafka's that aiokafka does not show.

Each in one fixed version; see `sidecar.protocol.caller.Request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from sidecar.protocol import api
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer
from sidecar.v1 import control_pb2 as control

MessageT = TypeVar("MessageT", bound=Message)

_NO_TRANSACTION_MS: Final = 60_000
SEQUENCES: Final = 2**31
"""As many sequences there are; behind the last one comes 0."""


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


NOBODY: Final = Producer(-1, -1)


# The sidecar's own ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeOwners(FixedRequest):
    """Who owns a topic, and its partitions where each has an owner of its own."""

    api_key: ClassVar[int] = api.DESCRIBE_OWNERS
    api_version: ClassVar[int] = 0

    topic: str

    def encode(self, writer: Writer) -> None:
        asked = control.DescribeOwnersRequest(resources=[control.Resource(topic=self.topic)])
        writer.raw(asked.SerializeToString())

    def decode(self, reader: Reader) -> control.DescribeOwnersResponse:
        return _message(control.DescribeOwnersResponse, reader)


@dataclass(frozen=True, slots=True)
class LastSequence(FixedRequest):
    """The highest sequence ids of a producer name that are in the log."""

    api_key: ClassVar[int] = api.LAST_SEQUENCE
    api_version: ClassVar[int] = 0

    topic: str
    name: str

    def encode(self, writer: Writer) -> None:
        writer.raw(control.LastSequenceRequest(topic=self.topic, producer_name=self.name).SerializeToString())

    def decode(self, reader: Reader) -> control.LastSequenceResponse:
        return _message(control.LastSequenceResponse, reader)


@dataclass(frozen=True, slots=True)
class Own(FixedRequest):
    """Claims resources, all or nothing; again with the same token: the same claims, kept or waited for."""

    api_key: ClassVar[int] = api.OWN
    api_version: ClassVar[int] = 0

    asked: control.OwnRequest

    def encode(self, writer: Writer) -> None:
        writer.raw(self.asked.SerializeToString())

    def decode(self, reader: Reader) -> control.OwnResponse:
        return _message(control.OwnResponse, reader)


@dataclass(frozen=True, slots=True)
class Release(FixedRequest):
    """Lets go of everything that a token owns or waits for."""

    api_key: ClassVar[int] = api.RELEASE
    api_version: ClassVar[int] = 0

    group: str
    token: bytes

    def encode(self, writer: Writer) -> None:
        writer.raw(control.ReleaseRequest(group=self.group, token=self.token).SerializeToString())

    def decode(self, reader: Reader) -> control.ReleaseResponse:
        return _message(control.ReleaseResponse, reader)


@dataclass(frozen=True, slots=True)
class Watch(FixedRequest):
    """What becomes of a token's claims: answered at the first news, or without any after `wait_ms`."""

    api_key: ClassVar[int] = api.WATCH
    api_version: ClassVar[int] = 0

    token: bytes
    wait_ms: int

    def encode(self, writer: Writer) -> None:
        writer.raw(control.WatchRequest(token=self.token, wait_ms=self.wait_ms).SerializeToString())

    def decode(self, reader: Reader) -> control.WatchResponse:
        return _message(control.WatchResponse, reader)


def _message(kind: type[MessageT], reader: Reader) -> MessageT:
    try:
        return kind.FromString(reader.raw(reader.remaining))
    except DecodeError as error:
        raise MalformedFrameError(str(error)) from None


# Kafka's --------------------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """A topic as Metadata tells it: its error, the leader of each partition, and where the nodes are."""

    error: int
    leaders: dict[int, int]
    nodes: dict[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class DescribeTopic(FixedRequest):
    """Metadata of one topic, which is not created; of None: the nodes alone."""

    api_key: ClassVar[int] = api.METADATA
    api_version: ClassVar[int] = 5

    topic: str | None

    def encode(self, writer: Writer) -> None:
        writer.array(0 if self.topic is None else 1)
        if self.topic is not None:
            writer.string(self.topic)
        writer.boolean(False)

    def decode(self, reader: Reader) -> Layout:
        reader.i32()
        nodes: dict[int, tuple[str, int]] = {}
        for _ in range(reader.array(element_bytes=12)):
            node = reader.i32()
            nodes[node] = reader.string(), reader.i32()
            reader.nullable_string()
        reader.nullable_string()
        reader.i32()
        error, leaders = 0, dict[int, int]()
        for _ in range(reader.array(element_bytes=9)):
            error = reader.i16()
            reader.string()
            reader.boolean()
            for _ in range(reader.array(element_bytes=22)):
                reader.i16()
                partition = reader.i32()
                leaders[partition] = reader.i32()
                for _ in range(3):  # replicas, those in sync, those offline
                    reader.skip(4 * reader.array(element_bytes=4))
        return Layout(error, leaders, nodes)


class Initialised(NamedTuple):
    """The answer to InitProducerId."""

    error: int
    producer: Producer


@dataclass(frozen=True, slots=True)
class NewProducer(FixedRequest):
    """InitProducerId for an idempotent producer; `after` names the session that the new one follows."""

    api_key: ClassVar[int] = api.INIT_PRODUCER_ID
    api_version: ClassVar[int] = 4
    flexible: ClassVar[bool] = True

    after: Producer = NOBODY

    def encode(self, writer: Writer) -> None:
        writer.compact_string(None)
        writer.i32(_NO_TRANSACTION_MS)
        writer.i64(self.after.id)
        writer.i16(self.after.epoch)
        writer.tags(True)

    def decode(self, reader: Reader) -> Initialised:
        reader.i32()
        answer = Initialised(reader.i16(), Producer(reader.i64(), reader.i16()))
        reader.skip_tags()
        return answer
