"""The seam between rooms that call Kafka and the room that holds the connections: `Request`, `Upstream`, their errors.

Fencing and changelog are written against `Upstream` alone; `sidecar.cluster` implements it. Nothing here opens a
socket.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, Generic, NewType, Protocol, TypeVar, dataclass_transform
from uuid import UUID

from sidecar.protocol.api import API_VERSIONS
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
    """One request of the node's own, in one fixed version. `AnswerT_co` is what `decode` makes of the answer's body.
    Whatever derives from it is a frozen dataclass.
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
        """As `decode`, in slices where the request knows how."""
        yield from ()
        return self.decode(reader)


class CoordinatorKind(IntEnum):
    """What FindCoordinator calls the key type."""

    GROUP = 0
    TRANSACTION = 1


class UpstreamError(Exception):
    """A call to Kafka had no answer. `sent` is False only where the request surely never reached a broker."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class DisconnectedError(UpstreamError):
    """No connection could be opened, or it ended before the answer came."""


class CallTimeoutError(UpstreamError):
    """No answer within the timeout; the implementation drops the connection, as later answers would be out of step."""


class BadAnswerError(UpstreamError):
    """The answer's bytes make no sense: truncated, too long, or not in the version that was asked for."""


class UnknownTopicError(KafkaError):
    """No live broker knows the topic (it may have been created a moment ago)."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_topic(topic))
        self.topic = topic


class FencedError(KafkaError):
    """Kafka refused a (producer id, epoch) for good: somebody newer holds the slot (47, 90), or its id was given anew
    (49).
    """

    def __init__(self, code: int, writer: Stamp, what: str) -> None:
        super().__init__(code, f"{what}: {writer} is fenced")
        self.writer = writer


FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Codes that mean `FencedError` in answer to anything that a slot's writer sends."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """What Metadata says of one topic: its id (KIP-516) and each partition's leader (broker id, -1 for none)."""

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

        Calls to one broker on one channel leave in the order in which they were made. Cancelling the caller leaves the
        request under way: its answer is read and thrown away.
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
        """Send two requests in one write, so that nothing this node suffers can leave the first without the second."""
        ...

    async def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        """The broker id of the coordinator, from a cache. Raises `KafkaError` (14, 15 while there is none)."""
        ...

    def forget_coordinator(self, key: str, kind: CoordinatorKind) -> None:
        """Drop a cached coordinator that answered 15 or 16, or did not answer."""
        ...

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        """Topic id and leaders, from Metadata v10 or later (topic ids). `refresh` asks a broker anew.

        Never creates a topic. Raises `UnknownTopicError`, `KafkaError` for other codes of the topic (29).
        """
        ...

    async def whole_layout(self, topic: str) -> TopicLayout:
        """As `layout` with `refresh`, with every partition that any broker knows of that answers within a moment.

        The metadata of one broker may lag behind: partitions that were added are missing there. In KRaft no broker's
        word is the controller's, which clients cannot ask, so all are asked. One that is silent is not waited for:
        a caller that must miss no partition that was ever written compares with what is written down of those. Raises
        `KafkaError` 5 while brokers have different topics under the name, and as `layout`.
        """
        ...

    async def absent(self, topics: Collection[str]) -> Collection[str]:
        """Those of some topics that every live broker says it does not know. None of them where one is silent: it may
        be the one that knows. Raises `UpstreamError` where no broker says which ones live.
        """
        ...

    async def brokers(self) -> Collection[int]:
        """Ids of the live brokers, from the newest Metadata."""
        ...

    def has_partition(self, topic: bytes, partition: int) -> bool | None:
        """Whether a topic has a partition, by the newest Metadata; None where nothing is known of the topic."""
        ...

    def refresh_soon(self, topics: Iterable[bytes]) -> None:
        """Ask for these topics again, a few times a second at most, however many ask."""
        ...

    async def learn(self, topic: bytes) -> bool:
        """Wait until a broker was asked for a topic; False where none could be asked. Any number that wait for any
        number of topics cost a few questions a second.
        """
        ...


def encode_frame(request: Request[object], correlation_id: int, client_id: str) -> bytes:
    """A whole request frame with its length prefix."""
    key, version, name = request.api_key, request.api_version, client_id.encode()
    writer = request_frame(key, version, correlation_id, name, request.flexible)
    request.encode(writer)
    return writer.frame()


def decode_frame(request: Request[AnswerT], correlation_id: int, buffer: Octets, start: int, end: int) -> AnswerT:
    """Decode an answer from its correlation id (after the length prefix) to `end`.

    Raises `BadAnswerError` for bytes that are truncated, left over, or belong to another request.
    """
    return at_once(frame_steps(request, correlation_id, buffer, start, end))


def frame_steps(
    request: Request[AnswerT], correlation_id: int, buffer: Octets, start: int, end: int
) -> Generator[None, None, AnswerT]:
    """As `decode_frame`, in slices."""
    reader = Reader(buffer, start, end)
    try:
        found = reader.i32()
        reader.tags(request.flexible and request.api_key != API_VERSIONS)  # KIP-511: a header that everybody can read
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
