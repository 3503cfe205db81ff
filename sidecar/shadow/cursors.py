"""The cursors of a shadow (PIP-180): the offsets that groups have committed under its name, and their lag in the log of
its source.

Kafka stores them like those of any topic. Each broker is asked for its groups, then for their committed offsets. There
may be thousands of groups: one request names many, brokers are asked in parallel, and the result is cached for a few
seconds. Concurrent callers share one answer.

The cursor of a group without members is moved as `kafka-consumer-groups --reset-offsets` does (KIP-122). The target
offset is looked up in the source's log, which the shadow's readers read. A group that Kafka does not know gets a
cursor. Members would overwrite it, and Kafka accepts no commit from outside while a group has members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from sidecar.cluster.hedging import Shared
from sidecar.cluster.logs import LogReader
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import (
    Channel,
    CoordinatorKind,
    DisconnectedError,
    TopicLayout,
    UnknownTopicError,
    UpstreamError,
)  # fmt: skip
from sidecar.protocol.calls.groups import (
    CommitOffsets,
    DescribedGroup,
    DescribeGroups,
    GroupOffsets,
    ListedGroup,
    ListGroups,
    OffsetFetch,
)
from sidecar.protocol.calls.logs import OffsetAt
from sidecar.protocol.errors import STALE_COORDINATOR, ErrorCode, KafkaError

AnswerT = TypeVar("AnswerT")
_MOST: Final = 1_000


class Recent(Shared[AnswerT]):
    """Caches answers by key, for `seconds` seconds. Failures are not cached."""

    def __init__(self, seconds: float, *expected: type[Exception]) -> None:
        super().__init__(*expected)
        self._seconds = seconds
        self._kept: dict[Hashable, tuple[float, AnswerT]] = {}

    async def answer(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Return the cached answer, else call `ask`. Raises the errors of `ask`."""
        kept = self._kept.get(key)
        if kept is not None and asyncio.get_running_loop().time() - kept[0] < self._seconds:
            return kept[1]
        return await super().answer(key, ask)

    def _ended(self, key: Hashable, task: asyncio.Task[AnswerT]) -> None:
        is_asked = self.tasks.get(key) is task  # else `forget` was called: the answer may be older than the change
        super()._ended(key, task)
        if is_asked and not task.cancelled() and task.exception() is None:
            now = asyncio.get_running_loop().time()
            if len(self._kept) >= _MOST:
                self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < self._seconds}
            if len(self._kept) < _MOST:
                self._kept[key] = now, task.result()

    def forget(self, key: Hashable) -> None:
        """Forget the answer for `key`, because what it describes has changed."""
        self._kept.pop(key, None)
        self.tasks.pop(key, None)


CHANNEL: Final = Channel("cursors")
"""A separate connection per broker for this module, so that long lists delay no other request."""

FRESH_S: Final = 5.0
_LIMIT_S: Final = 30.0
_BROKERS_AT_ONCE: Final = 8
_OFFSETS_AT_ONCE: Final = 1_000
_GROUPS_AT_ONCE: Final = 200
_MEMBERS_OF: Final = 50
"""Groups that are described in one request: each may have hundreds of members."""
_WITHOUT_OFFSETS: Final = frozenset({"connect", "share"})
"""Protocol types whose groups commit nothing for topics."""


class ClosedError(Exception):
    """The shadow's source was deleted or created again: its cursors belong to no log."""


class Log(NamedTuple):
    """A shadow's source, its topic id, and the start and end (high watermark) of each partition."""

    topic: str
    topic_id: UUID
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class Position(NamedTuple):
    """A cursor in one partition. `lag` is in offsets: control batches and compacted records count, records that
    retention deleted do not.
    """

    offset: int
    end: int
    lag: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """The cursor of one group, in the partitions where it has committed."""

    group: str
    state: str
    members: int
    partitions: Mapping[int, Position]

    @property
    def lag(self) -> int:
        """The sum over its partitions, in offsets."""
        return sum(position.lag for position in self.partitions.values())


class Lag(NamedTuple):
    """The number of groups with cursors, their total lag, and the longest lag, in offsets."""

    groups: int
    total: int
    longest: int


_Listed = dict[int, list["ListedGroup"]]
_Found = dict[str, tuple[int, Cursor]]


CURSOR_FAILURES: Final = (ClosedError, KafkaError, UpstreamError, TimeoutError)


_TRIES: Final = 20
_PAUSE_S: Final = 0.25
_LONGEST_GROUP: Final = 2**15 - 1
_AGAIN: Final = STALE_COORDINATOR | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class InUseError(Exception):
    """The group has members: they have to be stopped first."""


class OutOfLogError(ValueError):
    """The offset or the partition does not exist; the message names those that do."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time (Unix ms); the end of the log if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """One offset, from the start of the log to its end."""

    offset: int


Target = OffsetAt | AtTime | AtOffset


class Cursors:
    """The cursors of all shadows. Its methods raise `ClosedError`, `KafkaError`, `UpstreamError`, TimeoutError."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._resolver = resolver
        self._logs = LogReader(upstream)
        self._groups: Recent[_Listed] = Recent(FRESH_S, *CURSOR_FAILURES)
        self._found: Recent[_Found] = Recent(FRESH_S, *CURSOR_FAILURES)
        self._described: Recent[list[Cursor]] = Recent(FRESH_S, *CURSOR_FAILURES)

    async def of(self, shadow: str) -> Sequence[Cursor]:
        """Return the cursors of a shadow by group, with the number of members; at most five seconds old."""
        return await self._described.answer(shadow, lambda: _within(self._describe(shadow)))

    async def lag(self, shadow: str) -> Lag:
        """Return the lag of a shadow's cursors; at most five seconds old."""
        found = await self._look(shadow)
        lags = [cursor.lag for _, cursor in found.values()]
        return Lag(len(lags), sum(lags), max(lags, default=0))

    async def log(self, shadow: str) -> Log:
        """Return the present log that is read under a shadow's name. Raises `ClosedError`."""
        source = self._resolver.source(shadow.encode())
        if source is None:
            raise ClosedError(f"{shadow} is not created yet")
        topic = source.topic.decode()
        try:
            layout = await self._upstream.whole_layout(topic)
        except UnknownTopicError:
            raise ClosedError(f"{shadow} is closed: its source {topic} is gone") from None
        if layout.topic_id != source.topic_id:
            raise ClosedError(f"{shadow} is closed: its source {topic} was created again")
        return await self._log(topic, layout)

    async def _log(self, topic: str, layout: TopicLayout) -> Log:
        indexes, logs = sorted(layout.leaders), self._logs.bound(layout.topic_id)
        starts, ends = await asyncio.gather(logs.starts(topic, indexes), logs.ends(topic, indexes))
        return Log(topic, layout.topic_id, starts, ends)

    def forget(self, shadow: str) -> None:
        """Forget cached answers, because this node changed the shadow's cursors."""
        for kept in (self._found, self._described):
            kept.forget(shadow)
        self._groups.forget(None)

    async def close(self) -> None:
        """Cancel the requests."""
        for kept in (self._described, self._found, self._groups):
            await kept.close()

    # Looking ----------------------------------------------------------------------------------------------------------

    async def _look(self, shadow: str) -> _Found:
        return await self._found.answer(shadow, lambda: _within(self._read(shadow)))

    async def _read(self, shadow: str) -> _Found:
        log, listed = await asyncio.gather(self.log(shadow), self._groups.answer(None, self._list))
        slots = asyncio.Semaphore(_BROKERS_AT_ONCE)
        try:
            by_broker = await asyncio.gather(
                *(self._committed(slots, broker, groups, shadow, log) for broker, groups in listed.items())
            )
        except KafkaError as error:
            if error.code in STALE_COORDINATOR:
                self._groups.forget(None)
            raise
        return {group: found for some in by_broker for group, found in some.items()}

    async def _list(self) -> _Listed:
        """Return the groups of every broker, except those that commit no offsets."""

        async def of(broker: int) -> list[ListedGroup]:
            answer = await self._upstream.call(broker, ListGroups(), channel=CHANNEL)
            if answer.error:
                raise KafkaError(answer.error, f"the groups of broker {broker}")
            return [group for group in answer.groups if group.protocol_type not in _WITHOUT_OFFSETS]

        brokers = list(await self._upstream.brokers())
        answers = await asyncio.gather(*map(of, brokers))
        return dict(zip(brokers, answers, strict=True))

    async def _committed(
        self, slots: asyncio.Semaphore, broker: int, groups: list[ListedGroup], shadow: str, log: Log
    ) -> _Found:
        """Return the cursors of one broker's groups, without members."""
        found: _Found = {}
        partitions = sorted(log.ends)
        step = min(_GROUPS_AT_ONCE, max(1, _OFFSETS_AT_ONCE // max(1, len(partitions))))
        async with slots:
            for first in range(0, len(groups), step):
                some = groups[first : first + step]
                asked = OffsetFetch([group.name for group in some], shadow, partitions)
                answer = await self._upstream.call(broker, asked, channel=CHANNEL)
                for group in some:
                    positions = _positions(group.name, answer.get(group.name), log)
                    if positions:
                        found[group.name] = broker, Cursor(group.name, group.state, 0, positions)
        return found

    async def _describe(self, shadow: str) -> list[Cursor]:
        found = await self._look(shadow)
        by_broker: dict[int, list[str]] = {}
        for group, (broker, _) in found.items():
            by_broker.setdefault(broker, []).append(group)
        slots = asyncio.Semaphore(_BROKERS_AT_ONCE)
        answers = await asyncio.gather(*(self._members(slots, broker, groups) for broker, groups in by_broker.items()))
        described = {group: seen for answer in answers for group, seen in answer.items()}
        cursors = [_with_members(cursor, described.get(group)) for group, (_, cursor) in found.items()]
        return sorted(cursors, key=lambda cursor: cursor.group)

    async def _members(self, slots: asyncio.Semaphore, broker: int, groups: list[str]) -> dict[str, DescribedGroup]:
        found: dict[str, DescribedGroup] = {}
        async with slots:
            for first in range(0, len(groups), _MEMBERS_OF):
                some = groups[first : first + _MEMBERS_OF]
                found |= await self._upstream.call(broker, DescribeGroups(some), channel=CHANNEL)
        return found

    # Moving -----------------------------------------------------------------------------------------------------------

    async def move(self, shadow: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        """Commit the offset `to` for a group in some partitions of a shadow (None: all). Returns the new cursor.

        Raises `InUseError`, `OutOfLogError`, `ClosedError`, `KafkaError`, `UpstreamError`.
        """
        if not group or len(group.encode()) > _LONGEST_GROUP:
            raise OutOfLogError(f"a group's name has 1 to {_LONGEST_GROUP} bytes")
        log = await self.log(shadow)
        chosen = sorted(set(log.ends if partitions is None else partitions))
        if unknown := [index for index in chosen if index not in log.ends]:
            raise OutOfLogError(f"{shadow} has the partitions 0 to {len(log.ends) - 1}, not {unknown[0]}")
        offsets = await self._offsets(log, to, chosen)
        await self._coordinated(group, lambda broker: self._commit(broker, shadow, group, offsets))
        self.forget(shadow)
        positions = {index: position(offset, log.starts[index], log.ends[index]) for index, offset in offsets.items()}
        return Cursor(group, "Empty", 0, positions)

    async def _offsets(self, log: Log, to: Target, partitions: Collection[int]) -> dict[int, int]:
        match to:
            case OffsetAt.EARLIEST:
                return {index: log.starts[index] for index in partitions}
            case OffsetAt.LATEST:
                return {index: log.ends[index] for index in partitions}
            case AtOffset(offset):
                for index in partitions:
                    if not log.starts[index] <= offset <= log.ends[index]:
                        raise OutOfLogError(
                            f"offset {offset} is not in partition {index}, which goes from {log.starts[index]} to "
                            f"{log.ends[index]}: choose one there, or other partitions"
                        )
                return dict.fromkeys(partitions, offset)
            case AtTime(timestamp_ms):
                logs = self._logs.bound(log.topic_id)
                found = await logs.listed(log.topic, partitions, timestamp_ms, channel=CHANNEL)
                return {index: log.ends[index] if at.offset < 0 else at.offset for index, at in found.items()}

    async def _coordinated(self, group: str, act: Callable[[int], Awaitable[None]]) -> None:
        """Call `act` with a group's coordinator, which may move or still be loading. `act` may be repeated."""
        for attempt in range(_TRIES):
            try:
                return await act(await self._upstream.coordinator(group, CoordinatorKind.GROUP))
            except (KafkaError, DisconnectedError) as error:
                if (isinstance(error, KafkaError) and error.code not in _AGAIN) or attempt == _TRIES - 1:
                    raise
            self._upstream.forget_coordinator(group, CoordinatorKind.GROUP)
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _commit(self, broker: int, shadow: str, group: str, offsets: Mapping[int, int]) -> None:
        errors = await self._upstream.call(broker, CommitOffsets(group, shadow, offsets), channel=CHANNEL)
        for index in offsets:
            error = errors.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if error in _HAS_MEMBERS:
                raise InUseError(f"group {group} has members: stop them first, they would overwrite it")
            if error:
                raise KafkaError(error, f"the cursor of {group} in partition {index} of {shadow}")


class TopicCursors(Cursors):
    """The same for topics that are no shadows."""

    async def log(self, shadow: str) -> Log:
        """The topic's own log. Raises `UnknownTopicError`."""
        return await self._log(shadow, await self._upstream.whole_layout(shadow))


async def _within(work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
    async with asyncio.timeout(_LIMIT_S):
        return await work


def _positions(group: str, answer: GroupOffsets | None, log: Log) -> dict[int, Position]:
    if answer is None or answer.error == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}  # the group was deleted meanwhile
    if answer.error:
        raise KafkaError(answer.error, f"what group {group} has committed")
    return {
        partition: position(offset, log.starts[partition], log.ends[partition])
        for partition, offset in sorted(answer.offsets.items())
        if partition in log.ends
    }


def position(offset: int, start: int, end: int) -> Position:
    """Return the position of a cursor at `offset` in a log from `start` to `end`; deleted records are no lag."""
    return Position(offset, end, max(0, end - max(offset, start)))


def _with_members(cursor: Cursor, seen: DescribedGroup | None) -> Cursor:
    """The state in a description is newer; groups of the new protocol (KIP-848) are described as dead."""
    if seen is None or seen.error or seen.state == "Dead":
        return cursor
    return Cursor(cursor.group, seen.state, seen.members, cursor.partitions)
