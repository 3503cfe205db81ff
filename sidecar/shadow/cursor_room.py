"""Cursors and readers of shadows: composes the parts, and is their interface to the node.

The cursor of a group without members is moved as `kafka-consumer-groups --reset-offsets` does (KIP-122). The target
offset is looked up in the source's log, which the shadow's readers read. A group that Kafka does not know gets a
cursor. Members would overwrite it, and Kafka accepts no commit from outside while a group has members.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sidecar.changelog import FAILURES
from sidecar.cluster.logs import LogReader
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import CoordinatorKind, DisconnectedError
from sidecar.protocol.calls.groups import CommitOffsets
from sidecar.protocol.errors import STALE_COORDINATOR, ErrorCode, KafkaError
from sidecar.shadow.auto_reset import AutoReset, Moved, detail, reset_of
from sidecar.shadow.catalog import Shadow, ShadowCatalog
from sidecar.shadow.cursors import CHANNEL, Cursor, Cursors, Log, TopicCursors, position
from sidecar.shadow.records import ShadowRecords
from sidecar.shadow.statistics import Readers, Statistics
from sidecar.v1 import state_pb2 as state

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
    """There is no such offset, or no such partition; the message names what there is."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """Where the log begins."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Where it ends (high watermark)."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older (Unix ms), the end where there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """One offset, from the start of the log to its end."""

    offset: int


Target = Earliest | Latest | AtTime | AtOffset


class CursorReset:
    """Moves cursors of shadows."""

    def __init__(self, upstream: KafkaUpstream, cursors: Cursors) -> None:
        self._upstream = upstream
        self._cursors = cursors

    async def move(self, shadow: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        """Commit `to` for a group in some partitions of a shadow, all (None) at best; its cursor there afterwards.

        Raises `InUseError`, `OutOfLogError`, `ClosedError`, `KafkaError`, `UpstreamError`.
        """
        if not group or len(group.encode()) > _LONGEST_GROUP:
            raise OutOfLogError(f"a group's name has 1 to {_LONGEST_GROUP} bytes")
        log = await self._cursors.log(shadow)
        chosen = sorted(set(log.ends if partitions is None else partitions))
        if unknown := [index for index in chosen if index not in log.ends]:
            raise OutOfLogError(f"{shadow} has the partitions 0 to {len(log.ends) - 1}, not {unknown[0]}")
        offsets = await self._offsets(log, to, chosen)
        await self._coordinated(group, lambda broker: self._commit(broker, shadow, group, offsets))
        self._cursors.forget(shadow)
        positions = {index: position(offset, log.starts[index], log.ends[index]) for index, offset in offsets.items()}
        return Cursor(group, "Empty", 0, positions)

    async def _offsets(self, log: Log, to: Target, partitions: Collection[int]) -> dict[int, int]:
        match to:
            case Earliest():
                return {index: log.starts[index] for index in partitions}
            case Latest():
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
                found = await LogReader(self._upstream).listed(log.topic, partitions, timestamp_ms, channel=CHANNEL)
                return {index: log.ends[index] if at.offset < 0 else at.offset for index, at in found.items()}

    async def _coordinated(self, group: str, act: Callable[[int], Awaitable[None]]) -> None:
        """Ask a group's coordinator, which may move or have to load first. Repeating is harmless."""
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


class CursorHooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def cursors_failed(self, shadow: str, error: BaseException) -> None:
        """The cursors of a shadow could not be looked at, or their reset not be reported."""

    def cursors_reset(self, shadow: str, group: str, detail: str) -> None: ...


class CursorRoom:
    """Follows the catalog from when it is made: make it before the catalog starts."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        resolver: NameResolver,
        nodes: NodeDirectory,
        catalog: ShadowCatalog,
        records: ShadowRecords,
        tasks: Tasks,
        hooks: CursorHooks,
    ) -> None:
        self._records = records
        self._tasks = tasks
        self._hooks = hooks
        self.readers = Readers(resolver)
        self.cursors = Cursors(upstream, resolver)
        self.of_topics = TopicCursors(upstream, resolver)
        self.reset = CursorReset(upstream, self.cursors)
        self.auto_reset = AutoReset(upstream, resolver, hooks.cursors_failed, self._was_reset)
        self.statistics = Statistics(self.readers, self.cursors, nodes)
        catalog.changed = self._changed

    def _changed(self, shadows: Sequence[Shadow]) -> None:
        self.auto_reset.limits = {
            shadow.name: shadow.auto_reset_backlog_entries for shadow in shadows if shadow.auto_reset_backlog_entries
        }
        self.statistics.known(shadows)

    async def keep(self) -> None:
        """Keep the numbers for the metrics. Until cancelled."""
        await self.statistics.keep(self._hooks.cursors_failed)

    async def close(self) -> None:
        """Look and count no more."""
        await self.cursors.close()
        await self.of_topics.close()
        await self.auto_reset.close()

    def _was_reset(self, shadow: str, group: str, limit: int, moved: Collection[Moved]) -> None:
        text = detail(group, limit, moved)
        self._hooks.cursors_reset(shadow, group, text)
        self.statistics.reset(shadow, len(moved))
        self._tasks.start(self._add_event(shadow, text, reset_of(group, limit, moved)))

    async def _add_event(self, shadow: str, text: str, reset: state.CursorReset) -> None:
        try:
            await self._records.add_event(shadow, text, state.EventDetails(reset=reset))
        except FAILURES as error:
            self._hooks.cursors_failed(shadow, error)
