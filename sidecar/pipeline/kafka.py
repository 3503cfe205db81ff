"""Kafka for jobs: blocking, over plain sockets, against brokers and nodes alike; for the driver and for executors.

It finds leaders, follows them where they move, and tells of topics, offsets and the record sets between two offsets.
It never writes, joins no group, commits nothing, and looks into a batch no further than to its last offset.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Self, TypeVar

from sidecar.pipeline.connection import Connection, Pending
from sidecar.pipeline.errors import (
    CorruptLogError,
    OffsetRangeError,
    PipelineError,
    UnknownTopicError,
    UnreachableError,
)
from sidecar.pipeline.requests import ClusterLayout, DescribeCluster
from sidecar.pipeline.security import Security
from sidecar.protocol import fetch
from sidecar.protocol.api import FETCH, LIST_OFFSETS, METADATA
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls import ApiVersions, IsolationLevel, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.calls.tails import Fetched, FetchTails, Position
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, KafkaError, error_name
from sidecar.protocol.ids import TopicPartition

T = TypeVar("T")

FETCH_BYTES: Final = 8 * 1024 * 1024
"""Of records in one answer; a first batch that is larger comes whole (KIP-74)."""

_MAX_WAIT_MS: Final = 500
_EMPTY_ANSWERS: Final = 3
"""That many in a row, with a high watermark behind the offsets in question, and there are none: compaction took them.
One alone proves nothing: so answers a broker whose remote storage was slow (KIP-405)."""

_PAUSE_S: Final = 0.1
_UNKNOWN_FOR_S: Final = 2.0
"""A topic that was just created is not known to every broker at once."""

_OFFSET_NOT_AVAILABLE: Final = 78  # KIP-207: a new leader's high watermark may lag behind
_PASSING: Final = STALE_ROUTE | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    _OFFSET_NOT_AVAILABLE,
}
_NEEDED: Final = {METADATA: (DescribeCluster, "Metadata"), LIST_OFFSETS: (ListOffsets, "ListOffsets"),
                  FETCH: (FetchTails, "Fetch")}  # fmt: skip


class _PassingError(PipelineError):
    """An answer that another try may change; `code` is Kafka's."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})")
        self.code = code


class _Ahead(NamedTuple):
    """A Fetch under way."""

    connection: Connection
    pending: Pending[dict[tuple[bytes, int], Fetched]]


class Kafka:
    """A cluster, through `bootstrap` (`host:port,…` of brokers or nodes). To be closed, or used in a `with`.

    `timeout` is in seconds: so long an answer is waited for, and a leader, and the next record of a log that does not
    move. `security` holds the settings of `sidecar.pipeline.security`. Every method raises `UnreachableError` where
    nobody answers, `UnknownTopicError`, or `PipelineError` for what Kafka refuses.
    """

    def __init__(self, bootstrap: str, *, timeout: float = 30.0, security: Mapping[str, str] = {}) -> None:
        self.bootstrap = bootstrap
        self._seeds = addresses(bootstrap)
        self._timeout = timeout
        self._security = Security.of(security)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self.cluster_id: str = self._retried(lambda: self._describe(())).cluster_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    # What there is ----------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """All topics that may be seen, internal ones too, in alphabetical order."""
        layout = self._retried(lambda: self._describe(None))
        return sorted(name for name, topic in layout.topics.items() if not topic.error)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, asked anew, in order."""
        return sorted(self._lead(topic, refresh=True))

    def starts(self, topic: str) -> dict[int, int]:
        """The offset of the first record that each partition still has, or will have."""
        return {partition: listed.offset for partition, listed in self._listed(topic, OffsetAt.EARLIEST).items()}

    def ends(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition: the offset behind the last record, committed or not."""
        return {partition: listed.offset for partition, listed in self._listed(topic, OffsetAt.LATEST).items()}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """The first offset of each partition whose timestamp (Unix ms) is not lower; its end where there is none."""
        if timestamp_ms < 0:
            raise PipelineError(f"a timestamp of {timestamp_ms} ms: it is counted from 1970 on")
        ends = self.ends(topic)
        found = self._listed(topic, timestamp_ms)
        return {index: listed.offset if listed.offset >= 0 else ends[index] for index, listed in found.items()}

    def _listed(self, topic: str, timestamp: int) -> dict[int, ListedOffset]:
        missing = set(self._lead(topic, refresh=True))
        found: dict[int, ListedOffset] = {}

        def ask() -> None:
            led = self._by_leader(topic, missing)
            for leader, partitions in led.items():
                request = ListOffsets({TopicPartition(topic, partition): timestamp for partition in partitions})
                connection = self._to(leader, f"{topic}-{partitions[0]}")
                for (_, partition), listed in connection.call(request, self._timeout).items():
                    self._judge(f"offsets of {topic}-{partition}", topic, listed.error)
                    found[partition] = listed
                    missing.discard(partition)

        self._retried(ask, topic)
        return dict(sorted(found.items()))

    def _by_leader(self, topic: str, partitions: Collection[int]) -> dict[int, list[int]]:
        leaders = self._lead(topic)
        found: dict[int, list[int]] = {}
        for partition in sorted(partitions):
            found.setdefault(leaders.get(partition, -1), []).append(partition)
        return found

    # What a log holds -------------------------------------------------------------------------------------------------

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[memoryview]:
        """Record sets of whole batches from offset `start` to `end`, in order, none twice, as they lie in the log.

        The first batch may begin in front of `start`, and the last end behind `end`: a reader cuts them. Offsets may be
        missing, where compaction took records; nothing else is ever left out. While a set is looked at, the next one is
        under way. Raises `OffsetRangeError` where the log begins behind the next offset (retention moved while it was
        read) or ends in front of it, `CorruptLogError` for a batch older than v2 or with damaged bounds.
        """
        where, offset, empty, moved = TopicPartition(topic, partition), start, 0, time.monotonic()
        ahead: _Ahead | None = None
        try:
            while offset < end:
                fetched, ahead = self._fetched(where, offset, ahead), None
                if fetched and fetched.record_bytes:
                    records = memoryview(fetched.element)[len(fetched.element) - fetched.record_bytes :]
                    (offset, size), empty, moved = bounds(records, where, offset), 0, time.monotonic()
                    ahead = self._ask_ahead(where, offset) if offset < end else None
                    yield records[:size]
                elif fetched and fetch.watermarks(fetched.element, 0).high_watermark >= end:
                    empty += 1
                    if empty == _EMPTY_ANSWERS:
                        return
                elif time.monotonic() - moved > self._timeout:
                    raise self._stuck(where, offset, end)
        finally:
            if ahead:
                ahead.connection.close()  # its answer would be taken for another's

    def _fetch(self, where: TopicPartition, offset: int) -> FetchTails:
        position = Position(where.topic.encode(), where.partition, -1, offset)
        return FetchTails((position,), IsolationLevel.READ_UNCOMMITTED, _MAX_WAIT_MS, FETCH_BYTES, FETCH_BYTES)

    def _ask_ahead(self, where: TopicPartition, offset: int) -> _Ahead | None:
        with contextlib.suppress(_PassingError, UnreachableError):  # it is asked again, with patience
            connection = self._leader(where)
            return _Ahead(connection, connection.send(self._fetch(where, offset)))
        return None

    def _fetched(self, where: TopicPartition, offset: int, ahead: _Ahead | None) -> Fetched | None:
        """A leader's answer; None from one that throttles (it holds the next request back, KIP-219)."""
        waiting = [ahead] if ahead else []

        def ask() -> Fetched | None:
            if waiting:
                connection, pending = waiting.pop()
                answers = connection.receive(pending, self._timeout)
            else:
                answers = self._leader(where).call(self._fetch(where, offset), self._timeout)
            fetched = answers.get((where.topic.encode(), where.partition))
            if fetched and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(where, offset)
            if fetched:
                self._judge(f"records of {where} from offset {offset} on", where.topic, fetched.error)
            return fetched

        return self._retried(ask, where.topic)

    def _out_of_range(self, where: TopicPartition, offset: int) -> None:
        start, end = self.starts(where.topic).get(where.partition, 0), self.ends(where.topic).get(where.partition, 0)
        if offset < start:
            raise OffsetRangeError(
                f"offset {offset} of {where} is lost: retention has moved the start of its log to {start}."
                " Begin there or behind it, and keep records longer (retention.ms, retention.bytes) than a job takes"
            )
        if offset > end:
            raise OffsetRangeError(f"offset {offset} of {where} is behind its end, {end}")
        raise _PassingError(f"records of {where} from offset {offset} on", ErrorCode.OFFSET_OUT_OF_RANGE)

    def _stuck(self, where: TopicPartition, offset: int, end: int) -> PipelineError:
        found = self.ends(where.topic).get(where.partition, 0)
        if found >= end:
            return PipelineError(
                f"no records of {where} from offset {offset} on came for {self._timeout:g} s: try again"
            )
        return OffsetRangeError(
            f"{where} ends at offset {found}, and {offset} to {end} were to be read: did a leader lose records, or"
            " was the topic created anew? Begin again, up to its end of now"
        )

    # How it is asked --------------------------------------------------------------------------------------------------

    def _retried(self, ask: Callable[[], T], topic: str | None = None) -> T:
        """What `ask` returns, tried again while it cannot be answered, with leaders looked up anew."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except (_PassingError, UnreachableError) as error:
                if time.monotonic() >= deadline:
                    raise _final(error, self._timeout) from None
                time.sleep(_PAUSE_S)
                with contextlib.suppress(_PassingError, UnreachableError):
                    if topic is not None:
                        self._lead(topic, refresh=True)

    def _judge(self, what: str, topic: str, code: int) -> None:
        if not code:
            return
        if code in _PASSING:
            raise _PassingError(what, code)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise PipelineError(f"{topic} may not be read here: READ and DESCRIBE on the topic are needed")
        raise PipelineError(f"{what}: {error_name(code)} ({code})")

    def _lead(self, topic: str, *, refresh: bool = False) -> dict[int, int]:
        """The leader of each partition, -1 where there is none."""
        if refresh or topic not in self._leaders:
            self._leaders.pop(topic, None)
            deadline = time.monotonic() + min(_UNKNOWN_FOR_S, self._timeout)
            while (found := self._described(topic)) is None:
                if time.monotonic() >= deadline:
                    raise self._unknown(topic)
                time.sleep(_PAUSE_S)
            self._leaders[topic] = found
        return self._leaders[topic]

    def _unknown(self, topic: str) -> UnknownTopicError:
        return UnknownTopicError(f"there is no topic {topic} at {self.bootstrap}: check its name, and who may read it")

    def _described(self, topic: str) -> dict[int, int] | None:
        """None for a topic that is not known."""
        described = self._describe((topic,)).topics.get(topic)
        if described is None or described.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if described.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise self._unknown(topic)
        if described.error != ErrorCode.LEADER_NOT_AVAILABLE:  # some partitions have one nevertheless
            self._judge(f"topic {topic}", topic, described.error)
        return described.leaders

    def _describe(self, topics: tuple[str, ...] | None) -> ClusterLayout:
        """Metadata from the first of all known addresses that answers."""
        told: list[str] = []
        for address in dict.fromkeys([*self._connections, *self._brokers.values(), *self._seeds]):
            try:
                layout = self._at(address).call(DescribeCluster(topics), self._timeout)
            except UnreachableError as error:
                told.append(str(error))
                continue
            self._brokers = layout.brokers or self._brokers
            return layout
        raise UnreachableError("; ".join(told))

    def _leader(self, where: TopicPartition) -> Connection:
        leaders = self._lead(where.topic)
        if where.partition not in leaders:
            raise PipelineError(
                f"topic {where.topic} has no partition {where.partition}: it has 0 to {len(leaders) - 1}"
            )
        return self._to(leaders[where.partition], str(where))

    def _to(self, broker: int, led: str) -> Connection:
        if broker not in self._brokers:
            raise _PassingError(f"{led} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._at(self._brokers[broker])

    def _at(self, address: tuple[str, int]) -> Connection:
        """The connection to an address, opened and asked for its versions the first time."""
        found = self._connections.get(address)
        if found is None or found.is_closed:
            self._connections.pop(address, None)
            found = Connection(address, self._timeout, self._security)
            _check_versions(found, self._timeout)
            self._connections[address] = found
        return found


def _final(error: PipelineError, timeout: float) -> PipelineError:
    text = f"{error} (tried for {timeout:g} s)"
    return UnreachableError(text) if isinstance(error, UnreachableError) else PipelineError(text)


def _check_versions(connection: Connection, timeout: float) -> None:
    served = connection.call(ApiVersions(), timeout)
    for key, (request, name) in _NEEDED.items():
        lowest, highest = served.get(key, (0, -1))
        if not lowest <= request.api_version <= highest:
            raise PipelineError(
                f"{connection} serves {name} {lowest} to {highest}, and {request.api_version} is needed:"
                " Kafka from 2.3 on and nodes serve it"
            )


def bounds(records: memoryview, where: TopicPartition, offset: int) -> tuple[int, int]:
    """The offset behind the last whole batch of a record set that was asked for at `offset`, and the size of those.

    Raises `CorruptLogError`.
    """
    sizes = batch_sizes(records, 0, len(records))
    try:
        if not sizes:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes that are no whole batch")
        start, size = sizes[-1]
        header = read_header(records, start, start + size)
        behind = header.base_offset + header.last_offset_delta + 1
        if behind <= offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch that ends in front of it, at {behind}")
    except KafkaError as error:
        raise CorruptLogError(f"{where} from offset {offset} on: {error.message}") from None
    return behind, start + size


def addresses(bootstrap: str) -> tuple[tuple[str, int], ...]:
    """`host:port,…` as pairs; 9092 where no port is named. Raises `PipelineError`."""
    found = tuple(_address(each.strip()) for each in bootstrap.split(",") if each.strip())
    if not found:
        raise PipelineError("no bootstrap servers: name one as host:port")
    return found


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), 9092
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise PipelineError(f"{text!r} among the bootstrap servers is no host:port")
    return host.strip("[]"), int(port)
