"""Connections to brokers or nodes, the leaders of partitions, and retries within a time.

A leader that moved, a broker that is unreachable, a topic that was just created: each request is tried again for a
limited time. This module knows no records; `sidecar.pipeline.kafka` defines the requests.

A connection sends a request and awaits its answer, each within a time. Answers come in the order of requests, so giving
up on one closes the connection. A connection never reconnects by itself and knows no topics.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from sidecar.pipeline.errors import PipelineError, UnknownTopicError, UnreachableError
from sidecar.pipeline.security import Security
from sidecar.protocol.addresses import addresses as parse_addresses
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import BadAnswerError, Request, decode_frame, encode_frame
from sidecar.protocol.calls.admin import ApiVersions, ClusterDescription, DescribeTopics
from sidecar.protocol.calls.logs import ListOffsets
from sidecar.protocol.calls.tails import FetchTails
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, error_name
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.primitives import I32

AnswerT = TypeVar("AnswerT")

CLIENT_ID: Final = "sidecar-pipeline"
_LONGEST_ANSWER: Final = 256 * 1024 * 1024


class Pending(NamedTuple, Generic[AnswerT]):
    """A request whose answer was not received yet."""

    request: Request[AnswerT]
    correlation_id: int


class Connection:
    """A connection to `address`, opened within `timeout` seconds. All methods raise `UnreachableError`, or
    `PipelineError` for invalid answers.
    """

    def __init__(self, address: tuple[str, int], timeout: float, security: Security) -> None:
        self.address = address
        self.is_closed = False
        self._correlation_id = 0
        self._early: dict[int, bytearray] = {}
        try:
            self._socket: socket.socket = socket.create_connection(address, timeout)
        except OSError as error:
            raise UnreachableError(f"{self} cannot be reached: {error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, address[0])
            security.log_in(lambda request: self._round_trip(request, timeout), count(), CLIENT_ID)
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, BadAnswerError)):
                raise UnreachableError(f"{self} lets nobody in: {error}") from None
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _round_trip(self, request: bytes, timeout: float) -> bytes:
        """Send a whole frame and receive one."""
        deadline = time.monotonic() + timeout
        self._socket.sendall(request)
        size = self._size(deadline)
        return I32.pack(size) + self._read(size, deadline)

    def call(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and wait for its answer, at most `timeout` seconds."""
        return self.receive(self.send(request), timeout)

    def send(self, request: Request[AnswerT]) -> Pending[AnswerT]:
        """Send a request without waiting: its answer comes after those of earlier requests."""
        self._correlation_id += 1
        try:
            self._socket.sendall(encode_frame(request, self._correlation_id, CLIENT_ID))
        except OSError as error:
            raise self._ended(error) from None
        return Pending(request, self._correlation_id)

    def receive(self, pending: Pending[AnswerT], timeout: float) -> AnswerT:
        """The answer to a request. Answers to earlier requests that were not received yet are kept for them."""
        deadline = time.monotonic() + timeout
        wanted = pending.correlation_id
        try:
            while (answer := self._early.pop(wanted, None)) is None:
                frame = self._read(self._size(deadline), deadline)
                self._early[I32.unpack_from(frame)[0]] = frame
            return decode_frame(pending.request, wanted, answer, 0, len(answer))
        except TimeoutError:
            raise self._ended(f"no answer to api key {pending.request.api_key} within {timeout:g} s") from None
        except OSError as error:
            raise self._ended(error) from None
        except BadAnswerError as error:
            self.close()
            raise PipelineError(f"{self} is no Kafka broker and no node, or a damaged one: {error}") from None

    def _size(self, deadline: float) -> int:
        size: int = I32.unpack(self._read(4, deadline))[0]
        if not 4 <= size <= _LONGEST_ANSWER:
            raise BadAnswerError(f"an answer of {size} bytes")
        return size

    def _read(self, size: int, deadline: float) -> bytearray:
        found = bytearray(size)
        left = memoryview(found)
        while left:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            count = self._socket.recv_into(left)
            if not count:
                raise ConnectionResetError("the other side closed the connection")
            left = left[count:]
        return found

    def _ended(self, why: object) -> UnreachableError:
        self.close()
        return UnreachableError(f"{self}: {why}")

    def close(self) -> None:
        """Close it; may be called again."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.close()


T = TypeVar("T")

_PAUSE_S: Final = 0.1
_UNKNOWN_FOR_S: Final = 2.0
"""For how long a topic may be unknown: not every broker knows a new topic at once."""

_CONNECT_S: Final = 10.0

_OFFSET_NOT_AVAILABLE: Final = 78  # KIP-207: a new leader's high watermark may lag behind
_PASSING: Final = STALE_ROUTE | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    _OFFSET_NOT_AVAILABLE,
}
_NEEDED: Final = {ApiKey.METADATA: (DescribeTopics, "Metadata"), ApiKey.LIST_OFFSETS: (ListOffsets, "ListOffsets"),
                  ApiKey.FETCH: (FetchTails, "Fetch")}  # fmt: skip


class PassingError(PipelineError):
    """An error that another try may resolve."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})")


class Routes:
    """Connections to a cluster. `timeout`, in seconds, limits each request, and all tries of it together."""

    def __init__(self, bootstrap: str, timeout: float, security: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.timeout = timeout
        self._seeds = addresses(bootstrap)
        self._security = Security.of(security)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, int]] = {}

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def retried(self, ask: Callable[[], T], topic: str | None = None) -> T:
        """What `ask` returns. Calls it again, with leaders looked up anew, while it fails with a passing error."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return ask()
            except (PassingError, UnreachableError) as error:
                if time.monotonic() >= deadline:
                    raise _final(error, self.timeout) from None
                time.sleep(_PAUSE_S)
                with contextlib.suppress(PassingError, UnreachableError):
                    if topic is not None:
                        self.leaders(topic, refresh=True)

    def judge(self, what: str, topic: str, code: int) -> None:
        """Raise the error for the error code of a partition: `PassingError`, or `PipelineError` if
        a retry cannot help.
        """
        if not code:
            return
        if code in _PASSING:
            raise PassingError(what, code)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise PipelineError(f"{topic} may not be read here: READ and DESCRIBE on the topic are needed")
        raise PipelineError(f"{what}: {error_name(code)} ({code})")

    def leaders(self, topic: str, *, refresh: bool = False) -> dict[int, int]:
        """The leader of each partition, -1 if it has none. Raises `UnknownTopicError`."""
        if refresh or topic not in self._leaders:
            self._leaders.pop(topic, None)
            deadline = time.monotonic() + min(_UNKNOWN_FOR_S, self.timeout)
            while (found := self._described(topic)) is None:
                if time.monotonic() >= deadline:
                    raise self._unknown(topic)
                time.sleep(_PAUSE_S)
            self._leaders[topic] = found
        return self._leaders[topic]

    def _unknown(self, topic: str) -> UnknownTopicError:
        more = f"check its name, and who may read it; `sidecar topic create {topic}` makes it"
        return UnknownTopicError(f"there is no topic {topic} at {self.bootstrap}: {more}")

    def _described(self, topic: str) -> dict[int, int] | None:
        """The leader of each partition; None if the topic is unknown."""
        described = self.describe((topic,)).topic(topic)
        if described.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if described.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise self._unknown(topic)
        if described.error != ErrorCode.LEADER_NOT_AVAILABLE:  # some partitions have a leader nevertheless
            self.judge(f"topic {topic}", topic, described.error)
        return described.leaders

    def describe(self, topics: tuple[str, ...] | None) -> ClusterDescription:
        """Metadata of these topics; None: of all topics."""
        layout = self.ask(DescribeTopics(topics))
        self._brokers = layout.brokers or self._brokers
        return layout

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Send a request to the known addresses in turn, and return the first answer."""
        failures: list[str] = []
        for address in dict.fromkeys([*self._connections, *self._brokers.values(), *self._seeds]):
            try:
                return self._at(address).call(request, self.timeout)
            except UnreachableError as error:
                failures.append(str(error))
        raise UnreachableError("; ".join(failures))

    def leader(self, where: TopicPartition) -> Connection:
        """The connection to a partition's leader. Raises `PassingError` if it has none at present."""
        leaders = self.leaders(where.topic)
        if where.partition not in leaders:
            raise PipelineError(
                f"topic {where.topic} has no partition {where.partition}: it has 0 to {len(leaders) - 1}"
            )
        return self.to(leaders[where.partition], str(where))

    def to(self, broker: int, led: str) -> Connection:
        """The connection to a broker; `led` names what it leads. Raises `PassingError` if there is no such broker."""
        if broker not in self._brokers:
            raise PassingError(f"{led} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._at(self._brokers[broker])

    def _at(self, address: tuple[str, int]) -> Connection:
        """The connection to an address. The first time it is opened and its API versions are requested."""
        found = self._connections.get(address)
        if found is None or found.is_closed:
            self._connections.pop(address, None)
            found = Connection(address, min(self.timeout, _CONNECT_S), self._security)
            _check_versions(found, self.timeout)
            self._connections[address] = found
        return found


def _final(error: PipelineError, timeout: float) -> PipelineError:
    text = f"{error} (tried for {timeout:g} s)"
    if isinstance(error, UnreachableError):
        return UnreachableError(f"{text}. Is it up, and is its address right (SIDECAR_BOOTSTRAP_SERVERS, --bootstrap)?")
    return PipelineError(text)


def _check_versions(connection: Connection, timeout: float) -> None:
    served = connection.call(ApiVersions(), timeout)
    for key, (request, name) in _NEEDED.items():
        lowest, highest = served.get(key, (0, -1))
        if not lowest <= request.api_version <= highest:
            raise PipelineError(
                f"{connection} serves {name} {lowest} to {highest}, and {request.api_version} is needed:"
                " Kafka from 2.8 on and nodes serve it"
            )


def addresses(bootstrap: str) -> tuple[tuple[str, int], ...]:
    """`host:port,…` as pairs; the default port is 9092. Raises `PipelineError`."""
    try:
        return parse_addresses(bootstrap)
    except ValueError as error:
        raise PipelineError(f"bootstrap servers: {error}") from None
