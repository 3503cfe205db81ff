"""Where requests go: connections to brokers or nodes, which of them leads a partition, and how long is tried.

A leader that moved, a broker that is away, a topic that was just created: each is asked about again, within a time. It
knows no records; `sidecar.pipeline.kafka` says what is asked.

A connection sends a request and awaits its answer, each within a time. Answers come in the order of requests, so giving
one up ends the connection; it never connects again by itself and knows no topics.
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
from sidecar.protocol.api import FETCH, LIST_OFFSETS, METADATA
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
    """A request whose answer is still to be received."""

    request: Request[AnswerT]
    correlation_id: int


class Connection:
    """A connection to `address`, opened within `timeout` seconds. All methods raise `UnreachableError`, or
    `PipelineError` for answers that make no sense.
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
        """Of whole frames."""
        deadline = time.monotonic() + timeout
        self._socket.sendall(request)
        size = self._size(deadline)
        return I32.pack(size) + self._read(size, deadline)

    def call(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and wait `timeout` seconds at most for its answer."""
        return self.receive(self.send(request), timeout)

    def send(self, request: Request[AnswerT]) -> Pending[AnswerT]:
        """Send a request without waiting: the answer comes after those of the requests sent before."""
        self._correlation_id += 1
        try:
            self._socket.sendall(encode_frame(request, self._correlation_id, CLIENT_ID))
        except OSError as error:
            raise self._ended(error) from None
        return Pending(request, self._correlation_id)

    def receive(self, pending: Pending[AnswerT], timeout: float) -> AnswerT:
        """The answer to a request. Those to earlier ones that nobody has received yet are kept for them."""
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
        """End it; once is enough."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.close()


T = TypeVar("T")

_PAUSE_S: Final = 0.1
_UNKNOWN_FOR_S: Final = 2.0
"""A topic that was just created is not known to every broker at once."""

_CONNECT_S: Final = 10.0

_OFFSET_NOT_AVAILABLE: Final = 78  # KIP-207: a new leader's high watermark may lag behind
_PASSING: Final = STALE_ROUTE | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    _OFFSET_NOT_AVAILABLE,
}
_NEEDED: Final = {METADATA: (DescribeTopics, "Metadata"), LIST_OFFSETS: (ListOffsets, "ListOffsets"),
                  FETCH: (FetchTails, "Fetch")}  # fmt: skip


class PassingError(PipelineError):
    """An answer that another try may change."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})")


class Routes:
    """Connections to a cluster. `timeout`, in seconds, is that of a request and that of all tries together."""

    def __init__(self, bootstrap: str, timeout: float, security: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.timeout = timeout
        self._seeds = addresses(bootstrap)
        self._security = Security.of(security)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, int]] = {}

    def close(self) -> None:
        """End all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def retried(self, ask: Callable[[], T], topic: str | None = None) -> T:
        """What `ask` returns, tried again while it cannot be answered, with leaders looked up anew."""
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
        """Raise what an error code of a partition means: `PassingError`, or `PipelineError` for good."""
        if not code:
            return
        if code in _PASSING:
            raise PassingError(what, code)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise PipelineError(f"{topic} may not be read here: READ and DESCRIBE on the topic are needed")
        raise PipelineError(f"{what}: {error_name(code)} ({code})")

    def leaders(self, topic: str, *, refresh: bool = False) -> dict[int, int]:
        """The leader of each partition, -1 where there is none. Raises `UnknownTopicError`."""
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
        """None for a topic that is not known."""
        described = self.describe((topic,)).topic(topic)
        if described.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if described.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise self._unknown(topic)
        if described.error != ErrorCode.LEADER_NOT_AVAILABLE:  # some partitions have one nevertheless
            self.judge(f"topic {topic}", topic, described.error)
        return described.leaders

    def describe(self, topics: tuple[str, ...] | None) -> ClusterDescription:
        """Metadata of these topics, of None of all."""
        layout = self.ask(DescribeTopics(topics))
        self._brokers = layout.brokers or self._brokers
        return layout

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """The answer of the first of all known addresses that answers."""
        failures: list[str] = []
        for address in dict.fromkeys([*self._connections, *self._brokers.values(), *self._seeds]):
            try:
                return self._at(address).call(request, self.timeout)
            except UnreachableError as error:
                failures.append(str(error))
        raise UnreachableError("; ".join(failures))

    def leader(self, where: TopicPartition) -> Connection:
        """The connection to a partition's leader. Raises `PassingError` while there is none."""
        leaders = self.leaders(where.topic)
        if where.partition not in leaders:
            raise PipelineError(
                f"topic {where.topic} has no partition {where.partition}: it has 0 to {len(leaders) - 1}"
            )
        return self.to(leaders[where.partition], str(where))

    def to(self, broker: int, led: str) -> Connection:
        """The connection to a broker, which leads what `led` names. Raises `PassingError` where nobody does."""
        if broker not in self._brokers:
            raise PassingError(f"{led} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._at(self._brokers[broker])

    def _at(self, address: tuple[str, int]) -> Connection:
        """The connection to an address, opened and asked for its versions the first time."""
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
    """`host:port,…` as pairs; 9092 where no port is named. Raises `PipelineError`."""
    try:
        return parse_addresses(bootstrap)
    except ValueError as error:
        raise PipelineError(f"bootstrap servers: {error}") from None
