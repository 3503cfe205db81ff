"""A Kafka client for jobs: blocking, over plain sockets, to brokers and nodes alike; for the driver and for executors.

It finds leaders, follows them when they move, and reads topics, offsets and the record sets between two offsets. It
never writes, joins no group and commits nothing. Of a batch it reads only what is needed to find its last offset.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, Self

from sidecar.pipeline.errors import (
    CorruptLogError,
    OffsetRangeError,
    PipelineError,
    PointError,
    UnreachableError,
)
from sidecar.pipeline.routes import CLIENT_ID, Connection, PassingError, Pending, Routes
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls.admin import DescribeTopics
from sidecar.protocol.calls.logs import IsolationLevel, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.calls.tails import Fetched, FetchTails, Position
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition

FETCH_BYTES: Final = 8 * 1024 * 1024
"""The limit for the records in one answer; a first batch that is larger is returned whole (KIP-74)."""

_FIRST_BYTES: Final = 1024 * 1024
_SPARE_BYTES: Final = 64 * 1024

_MAX_WAIT_MS: Final = 500


class _Ahead(NamedTuple):
    """A Fetch whose answer is awaited."""

    connection: Connection
    pending: Pending[dict[tuple[bytes, int], Fetched]]


class Kafka:
    """A cluster, through `bootstrap` (`host:port,…` of brokers or nodes). Close it, or use it in a `with`.

    `timeout`, in seconds, limits the wait for an answer, for a leader, and for the next record of a log that does not
    advance. `security` holds the settings of `sidecar.pipeline.security`. Every method raises `UnreachableError` if
    nobody answers, `UnknownTopicError`, or `PipelineError` for what Kafka refuses.
    """

    def __init__(self, bootstrap: str, *, timeout: float = 30.0, security: Mapping[str, str] = {}) -> None:
        self._timeout = timeout
        self._routes = Routes(bootstrap, timeout, security)
        try:
            self.cluster_id: str = self._routes.retried(lambda: self._routes.describe(())).cluster_id or ""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._routes.close()

    # What there is ----------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """All topics that may be seen, internal ones too, in alphabetical order."""
        layout = self._routes.retried(lambda: self._routes.describe(None))
        return sorted(topic.name for topic in layout.topics if not topic.error)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, in order, always read anew."""
        return sorted(self._led(topic))

    def topic_id(self, topic: str) -> bytes:
        """The topic id, which distinguishes it from an earlier topic of its name."""

        def ask() -> bytes:
            (found,) = self._routes.ask(DescribeTopics((topic,))).topics
            self._routes.judge(f"topic {topic}", topic, found.error)
            return found.topic_id.bytes

        return self._routes.retried(ask, topic)

    def starts(self, topic: str) -> dict[int, int]:
        """The log start offset of each partition."""
        return {partition: listed.offset for partition, listed in self._listed(topic, OffsetAt.EARLIEST).items()}

    def ends(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition: the offset after the last record, committed or not."""
        return {partition: listed.offset for partition, listed in self._listed(topic, OffsetAt.LATEST).items()}

    def stable_ends(self, topic: str) -> dict[int, int]:
        """The last stable offset of each partition: where readers of committed records end (KIP-98)."""
        listed = self._listed(topic, OffsetAt.LATEST, IsolationLevel.READ_COMMITTED)
        return {partition: each.offset for partition, each in listed.items()}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """The first offset of each partition whose timestamp (Unix ms) is not lower; its end if there is none."""
        if timestamp_ms < 0:
            raise PointError(f"a timestamp of {timestamp_ms} ms: it is counted from 1970 on")
        ends = self.ends(topic)
        found = self._listed(topic, timestamp_ms)
        return {index: listed.offset if listed.offset >= 0 else ends[index] for index, listed in found.items()}

    def _listed(
        self, topic: str, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, ListedOffset]:
        missing = set(self._led(topic))
        found: dict[int, ListedOffset] = {}

        def ask() -> None:
            led = self._by_leader(topic, missing)
            for leader, partitions in led.items():
                asked = {TopicPartition(topic, partition): timestamp for partition in partitions}
                connection = self._routes.to(leader, f"{topic}-{partitions[0]}")
                for (_, partition), listed in connection.call(ListOffsets(asked, isolation), self._timeout).items():
                    self._routes.judge(f"offsets of {topic}-{partition}", topic, listed.error)
                    found[partition] = listed
                    missing.discard(partition)

        self._routes.retried(ask, topic)
        return dict(sorted(found.items()))

    def _led(self, topic: str) -> dict[int, int]:
        return self._routes.retried(lambda: self._routes.leaders(topic, refresh=True))

    def _by_leader(self, topic: str, partitions: Collection[int]) -> dict[int, list[int]]:
        leaders = self._routes.leaders(topic)
        found: dict[int, list[int]] = {}
        for partition in sorted(partitions):
            found.setdefault(leaders.get(partition, -1), []).append(partition)
        return found

    # What a log holds -------------------------------------------------------------------------------------------------

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[memoryview]:
        """Record sets of whole batches from offset `start` to `end`, in order, none twice, as they are in the log.

        The first batch may begin before `start`, and the last end after `end`: a reader cuts them. Offsets may be
        missing where compaction deleted records; nothing else is ever left out. An empty answer is not the end: a
        broker whose remote storage is slow sends one (KIP-405), and so does a new leader whose high watermark lags. The
        next set is requested while the caller uses this one.

        Raises `OffsetRangeError` if the log begins after the next offset (retention deleted records meanwhile) or ends
        before it. Raises `CorruptLogError` for a batch older than v2 or with damaged bounds, and `PipelineError` if
        nothing is received in time.
        """
        where, offset, moved = TopicPartition(topic, partition), start, time.monotonic()
        ahead, most = None, _FIRST_BYTES
        try:
            while offset < end:
                fetched, ahead = self._fetched(where, offset, most, ahead), None
                if fetched and fetched.record_bytes:
                    records = memoryview(fetched.element)[len(fetched.element) - fetched.record_bytes :]
                    behind, size = bounds(records, where, offset)
                    most = portion(end - behind, behind - offset, size)
                    offset = behind
                    ahead = self._ask_ahead(where, offset, most) if offset < end else None
                    yield records[:size]
                    moved = time.monotonic()
                elif time.monotonic() - moved > self._timeout:
                    raise self._stuck(where, offset, end, is_throttled=fetched is None)
        finally:
            if ahead:
                ahead.connection.close()  # its answer would otherwise be kept for a receiver

    def _ask_ahead(self, where: TopicPartition, offset: int, most: int) -> _Ahead | None:
        with contextlib.suppress(PassingError, UnreachableError):  # the next request is repeated if it fails
            connection = self._routes.leader(where)
            return _Ahead(connection, connection.send(_fetch(where, offset, most)))
        return None

    def _fetched(self, where: TopicPartition, offset: int, most: int, ahead: _Ahead | None) -> Fetched | None:
        """A leader's answer; None if the leader throttles (it delays the next request, KIP-219)."""
        waiting = [ahead] if ahead else []

        def ask() -> Fetched | None:
            if waiting:
                connection, pending = waiting.pop()
                answers = connection.receive(pending, self._timeout)
            else:
                answers = self._routes.leader(where).call(_fetch(where, offset, most), self._timeout)
            fetched = answers.get((where.topic.encode(), where.partition))
            if fetched and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(where, offset)
            if fetched:
                self._routes.judge(f"records of {where} from offset {offset} on", where.topic, fetched.error)
            return fetched

        return self._routes.retried(ask, where.topic)

    def _out_of_range(self, where: TopicPartition, offset: int) -> None:
        start, end = self.starts(where.topic).get(where.partition, 0), self.ends(where.topic).get(where.partition, 0)
        if offset < start:
            raise OffsetRangeError(
                f"offset {offset} of {where} is lost: retention has moved the start of its log to {start}."
                " Begin there or behind it, and keep records longer (retention.ms, retention.bytes) than a job takes"
            )
        if offset > end:
            raise OffsetRangeError(f"offset {offset} of {where} is behind its end, {end}")
        raise PassingError(f"records of {where} from offset {offset} on", ErrorCode.OFFSET_OUT_OF_RANGE)

    def _stuck(self, where: TopicPartition, offset: int, end: int, *, is_throttled: bool) -> PipelineError:
        if is_throttled:
            return PipelineError(
                f"no records of {where} from offset {offset} on came for {self._timeout:g} s: the broker throttles this"
                f" client (KIP-13). Raise consumer_byte_rate for the client id {CLIENT_ID} above its largest batches"
            )
        found = self.ends(where.topic).get(where.partition, 0)
        if found >= end:
            return PipelineError(
                f"no records of {where} from offset {offset} on came for {self._timeout:g} s: try again"
            )
        return OffsetRangeError(
            f"{where} ends at offset {found}, and {offset} to {end} were to be read: did a leader lose records, or"
            " was the topic created anew? Begin again, up to its end of now"
        )


def _fetch(where: TopicPartition, offset: int, most: int) -> FetchTails:
    position = Position(where.topic.encode(), where.partition, -1, offset)
    return FetchTails((position,), IsolationLevel.READ_UNCOMMITTED, _MAX_WAIT_MS, most, most)


def portion(left: int, offsets: int, size: int) -> int:
    """How many bytes to request if `left` offsets are left, where the last `offsets` offsets took `size` bytes."""
    return min(FETCH_BYTES, left * size * 11 // (10 * offsets) + _SPARE_BYTES)


def bounds(records: memoryview, where: TopicPartition, offset: int) -> tuple[int, int]:
    """The offset after the last whole batch of a record set that was requested at `offset`, and the size of its whole
    batches.

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
