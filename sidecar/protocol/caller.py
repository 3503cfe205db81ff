"""The interface between rooms that call Kafka and the room that has the connections: `Request`, `Upstream`, errors.

Fencing and changelog depend on `Upstream` alone; `sidecar.cluster` implements it. Nothing here opens a socket.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, Generic, NewType, Protocol, TypeVar, dataclass_transform
from uuid import UUID

from sidecar.protocol.api import ApiKey
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic
from sidecar.protocol.ids import Stamp
from sidecar.protocol.primitives import MalformedFrameError, Octets, Reader, Writer, at_once, request_frame

Channel = NewType("Channel", str)
"""The name of one connection to each broker. A broker answers the requests of one connection one after the other, so a
request that may wait (a long poll, an append with acks=all) has a separate channel."""

SHARED_CHANNEL: Final = Channel("")

AnswerT_co = TypeVar("AnswerT_co", covariant=True)
AnswerT = TypeVar("AnswerT")
SecondT = TypeVar("SecondT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Request(ABC, Generic[AnswerT_co]):
    """One request of the node's own, in one fixed version. `AnswerT_co` is the type that `decode` returns.
    Every subclass is a frozen dataclass.
    """

    api_key: ClassVar[int]
    api_version: ClassVar[int]
    flexible: ClassVar[bool] = False
    """Whether the version has compact lengths and tagged fields (KIP-482)."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)

    @abstractmethod
    def encode(self, writer: Writer) -> None:
        """Write the body, without any header."""

    @abstractmethod
    def decode(self, reader: Reader) -> AnswerT_co:
        """Read an answer's body. Raises `MalformedFrameError`."""

    def decode_steps(self, reader: Reader) -> Generator[None, None, AnswerT_co]:
        """As `decode`, in slices if the request implements them."""
        yield from ()
        return self.decode(reader)


class CoordinatorKind(IntEnum):
    """The key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class UpstreamError(Exception):
    """A call to Kafka had no answer. `sent` is False only if the request surely never reached a broker."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class DisconnectedError(UpstreamError):
    """No connection could be opened, or it ended before the answer came."""


class CallTimeoutError(UpstreamError):
    """No answer within the timeout; the implementation drops the connection, as later answers would be out of step."""


class BadAnswerError(UpstreamError):
    """The answer does not parse: it is truncated, too long, or not in the version of the request."""


class UnknownTopicError(KafkaError):
    """No live broker knows the topic (it may have been created a moment ago)."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_topic(topic))
        self.topic = topic


class FencedError(KafkaError):
    """Kafka refuses a (producer id, epoch) for ever: its slot has a newer epoch (47, 90) or another id (49)."""

    def __init__(self, code: int, writer: Stamp, what: str) -> None:
        super().__init__(code, f"{what}: {writer} is fenced")
        self.writer = writer


FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Codes that mean `FencedError` in answer to anything that a slot's writer sends."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """One topic in Metadata: its id (KIP-516) and each partition's leader (broker id, -1 for none)."""

    topic_id: UUID
    leaders: Mapping[int, int]


class Upstream(Protocol):
    """The Kafka cluster behind this node, for the node's own short calls.

    Nothing is retried here: callers know which of their requests may be sent twice. All methods raise `UpstreamError`.
    """

    async def call(
        self,
        broker_id: int | None,
        request: Request[AnswerT],
        *,
        timeout: float | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> AnswerT:
        """Send to one broker (None: any live one) and wait `timeout` seconds at most for its answer (None: the
        setting).

        Calls to one broker on one channel leave in the order in which they were made. If the caller is cancelled,
        the request goes on: its answer is read and discarded.
        """
        ...

    async def call_pair(
        self,
        broker_id: int,
        first: Request[AnswerT],
        second: Request[SecondT],
        *,
        timeout: float | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> tuple[AnswerT, SecondT]:
        """Send two requests in one write, so that no failure of this node can send the first without the second."""
        ...

    async def call_on(
        self,
        broker_id: int,
        request: Request[AnswerT],
        topic: str,
        topic_id: UUID,
        partition: int,
        *,
        channel: Channel = SHARED_CHANNEL,
    ) -> AnswerT:
        """Send a request that names a topic by name to the leader of one of its partitions. The answer is about the
        topic with this id: raises `KafkaError` 5 LEADER_NOT_AVAILABLE if the broker has another one by then, or none.
        """
        ...

    async def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        """Return the broker id of the coordinator, from a cache. Raises `KafkaError` (14, 15 while there is none)."""
        ...

    def forget_coordinator(self, key: str, kind: CoordinatorKind) -> None:
        """Remove a coordinator from the cache after it answered 15 or 16, or did not answer."""
        ...

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        """Return topic id and leaders, from Metadata v10 or later (topic ids). `refresh` requests it from a broker
        again.

        Never creates a topic. Raises `UnknownTopicError`, `KafkaError` for other codes of the topic (29).
        """
        ...

    async def whole_layout(self, topic: str) -> TopicLayout:
        """As `layout` with `refresh`, with every partition that any broker knows that answers in time.

        The metadata of one broker may lag: new partitions are missing there. In KRaft only the controller is sure to
        have the newest metadata, and clients cannot ask it, so all brokers are asked. A broker that does not answer is
        not waited for: a caller that must not miss a written partition also compares with its stored list of those.
        Raises `KafkaError` 5 while brokers have different topics under the name, and what `layout` raises.
        """
        ...

    async def absent(self, topics: Collection[str]) -> Collection[str]:
        """Return the topics that no live broker knows. Empty if one broker does not answer, as it may know them.
        Raises `UpstreamError` if no broker returns the list of live brokers.
        """
        ...

    async def brokers(self) -> Collection[int]:
        """Ids of the live brokers, from the newest Metadata."""
        ...

    def has_partition(self, topic: bytes, partition: int) -> bool | None:
        """Whether a topic has a partition, by the newest Metadata; None if the topic is not known."""
        ...

    def refresh_soon(self, topics: Iterable[bytes]) -> None:
        """Request the metadata of these topics again; for all callers together a few times a second at most."""
        ...

    async def learn(self, topic: bytes) -> bool:
        """Wait until a broker was asked for a topic; False if none could be asked. All waiters for all topics together
        cost a few requests a second.
        """
        ...


def encode_frame(request: Request[object], correlation_id: int, client_id: str) -> bytes:
    """Return a whole request frame with its length prefix."""
    key, version, name = request.api_key, request.api_version, client_id.encode()
    writer = request_frame(key, version, correlation_id, name, request.flexible)
    request.encode(writer)
    return writer.frame()


def decode_frame(request: Request[AnswerT], correlation_id: int, buffer: Octets, start: int, end: int) -> AnswerT:
    """Decode an answer from its correlation id (after the length prefix) to `end`.

    Raises `BadAnswerError` if the frame is truncated, has bytes left over, or belongs to another request.
    """
    return at_once(frame_steps(request, correlation_id, buffer, start, end))


def frame_steps(
    request: Request[AnswerT], correlation_id: int, buffer: Octets, start: int, end: int
) -> Generator[None, None, AnswerT]:
    """As `decode_frame`, in slices."""
    reader = Reader(buffer, start, end)
    try:
        found = reader.i32()
        reader.tags(request.flexible and request.api_key != ApiKey.API_VERSIONS)  # KIP-511: a header that all can read
        answer = yield from request.decode_steps(reader)
    except MalformedFrameError as error:
        raise BadAnswerError(f"{_answer_to(request)}: {error}") from None
    if found != correlation_id:
        raise BadAnswerError(f"{_answer_to(request)}: correlation id {found} instead of {correlation_id}")
    if reader.remaining:
        raise BadAnswerError(f"{_answer_to(request)}: {reader.remaining} bytes left over")
    return answer


def _answer_to(request: Request[object]) -> str:
    return f"answer to api key {request.api_key} v{request.api_version}"
