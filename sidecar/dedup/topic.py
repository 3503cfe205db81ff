"""The sequence ids of one governed topic on the node that serves it: marks by partition, which are read when the topic
is taken over and saved as snapshots while it is served.

A takeover fences first; then the log up to its end contains all batches of earlier epochs (`begin`). The batches of a
partition wait until it is read. A takeover of one slot beside others reads only the partitions where that slot had
batches in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from sidecar.changelog import FAILURES
from sidecar.cluster.logs import LogReader
from sidecar.dedup import recovery
from sidecar.dedup.cleaning import Cleaning
from sidecar.dedup.names import NameHolders, WriterNames
from sidecar.dedup.partition import IdsServices, PartitionIds
from sidecar.dedup.recovery import Extent, IdsLostError, Reading, SnapshotLog
from sidecar.dedup.snapshots import Saved
from sidecar.forwarder.outcome import Outcome
from sidecar.network.slices import in_slices
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp, TopicPartition

_READERS: Final = 4
_AGAIN_S: Final = 0.5
_POLL_S: Final = 0.01
_COVER_S: Final = 0.05
_SAVE_ALL_S: Final = 3.0
_FORGET_S: Final = 5.0


Fenced: TypeAlias = Mapping[int, frozenset[int] | None]
"""By partition, the producer ids whose slots were fenced; None: all slots."""


class Progress(NamedTuple):
    """The progress of a recovery: records read, offsets read, and offsets to read in total."""

    records: int
    done: int
    total: int


@dataclass(eq=False)
class TopicIds:
    """The ids of all partitions of a topic. `_is_live`: whether a session has a connection. `fence_wanted` requests a
    fence of the whole topic. `by_partition`: partitions have their own owners, so names are assigned by partition too.
    `since`: the offset of the ownership topic after which the topic has sequence ids; -1 if their beginning was never
    seen.
    """

    topic: str
    services: IdsServices
    _is_live: Callable[[str], bool]
    fence_wanted: Callable[[], None]
    _: KW_ONLY
    by_partition: bool = False
    since: int = -1

    def __post_init__(self) -> None:
        self.pace = Cleaning().pace(0)
        """How often snapshots are due, by the topic's settings."""
        self.unprotected: str | None = None
        """Why compaction may take ids before a snapshot has them; None if it may not."""
        self.protected_ms = 0
        """The min.compaction.lag.ms that was seen to since the topic is served here."""
        self.is_urged = False
        """Whether a snapshot of every changed partition is wanted now."""
        self.partitions: dict[int, PartitionIds] = {}
        self.progress = Progress(0, 0, 0)
        self.is_begun = False
        """Whether the topic is served here: its ids are known, or being read."""
        self._names = NameHolders(self._is_live)
        self._snapshots = SnapshotLog(self.topic, self.services, self.fence_wanted)
        self._writers = WriterNames()
        self._turn = 0
        self._settling = False
        self._ids_from: Mapping[int, int] = {}

    # Taking over ------------------------------------------------------------------------------------------------------

    def of(self, partition: int) -> PartitionIds:
        """Return the state of one partition."""
        if (found := self.partitions.get(partition)) is None:
            names = NameHolders(self._is_live) if self.by_partition else self._names
            found = PartitionIds(self.topic, partition, self.services, names, self.fence_wanted)
            self.partitions[partition] = found
        return found

    def begin(
        self, topic_id: UUID, stamp: Stamp, partitions: Collection[int], ids_from: Mapping[int, int], names: WriterNames
    ) -> None:
        """Read the batches of all earlier epochs. The whole topic was fenced for this epoch of its master slot."""
        if not self._snapshots.is_of(topic_id):
            self.partitions.clear()
        self.renewed(stamp)
        self.protected_ms = 0
        self._turn += 1
        self._writers = names
        self.is_begun = True
        for index in partitions:
            state = self.of(index)
            state.is_ready, state.problem = False, None
            state.fenced.clear()
        self._ids_from = ids_from
        self.services.tasks.start(self._recover(self._turn, dict.fromkeys(partitions)))

    def begin_slot(self, producer_id: int, partitions: Collection[int], names: WriterNames) -> None:
        """Read the partitions where this slot has batches in flight or in doubt. The slot, one beside others, was
        fenced.
        """
        self._writers = names
        for index in partitions:
            state = self.of(index)
            if (state.is_ready or state.fenced) and not state.marks.is_quiet(producer_id):
                state.is_ready = False
                state.fenced.add(producer_id)
        if not self._settling and any(state.fenced for state in self.partitions.values()):
            self._settling = True
            self.services.tasks.start(self._settle_slots(self._turn))

    async def _settle_slots(self, turn: int) -> None:
        """Read until every batch of the fenced slots is settled, or the whole topic is fenced again."""
        try:
            while turn == self._turn:
                fenced = {
                    index: frozenset(state.fenced)
                    for index, state in self.partitions.items()
                    if state.fenced and state.problem is None
                }
                if not fenced:
                    return
                await self._recover(turn, fenced)
        finally:
            self._settling = False

    def renewed(self, stamp: Stamp) -> None:
        """Stamp snapshots with the newer epoch of the master slot."""
        self._snapshots.renewed(stamp)

    def end(self) -> None:
        """Stop: the topic is not served here any more."""
        self._turn += 1
        self.is_begun = False
        self._snapshots.end()
        for state in self.partitions.values():
            state.is_ready = state.is_known = False

    async def _recover(self, turn: int, fenced: Fenced) -> None:
        """Read until it succeeds, or the topic is fenced again."""
        began = time.monotonic()
        self.progress = Progress(0, 0, 0)
        while turn == self._turn:
            try:
                await self._read(turn, fenced)
            except FAILURES as error:
                self.services.hooks.operation_failed(self.topic, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                if turn == self._turn:
                    self.services.hooks.ids_recovered(self.topic, self.progress.records, time.monotonic() - began)
                return

    @property
    def _logs(self) -> LogReader:
        """Reads the topic that is served here, not a later one of its name."""
        return self.services.logs.bound(UUID(bytes=self._snapshots.topic_id))

    async def _read(self, turn: int, fenced: Fenced) -> None:
        if (await self.services.logs.topic_id(self.topic)).bytes != self._snapshots.topic_id:
            self.fence_wanted()
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.topic} was created anew")
        logs = self._logs
        starts = await logs.starts(self.topic, fenced)
        ends = await logs.ends(self.topic, fenced)
        extents = {index: Extent(starts[index], ends[index], self._ids_from.get(index, 0)) for index in fenced}
        saved = await self._newest(extents)
        gate = asyncio.Semaphore(_READERS)

        async def one(index: int) -> None:
            async with gate:
                await self._read_partition(turn, index, extents[index], saved.get(index), fenced[index])

        await asyncio.gather(*map(one, fenced))

    async def _read_partition(
        self, turn: int, index: int, extent: Extent, saved: Saved | None, fenced: frozenset[int] | None
    ) -> None:
        state, partition = self.of(index), TopicPartition(self.topic, index)
        if turn != self._turn or state.is_ready or (fenced is None and state.turn == turn):
            return
        if fenced is None and not state.is_known:
            state.marks.clear()  # another node may have forgotten names since
        elif fenced is not None and state.marks.covered > extent.end:
            extent = replace(extent, end=state.marks.covered)  # other slots wrote after the end was requested
        services = self.services
        reading = Reading(self._writers, services.headers, extent.ids_from)
        try:
            offset = await in_slices(recovery.begin(state.marks, extent, saved, partition))
            if state.saved_up_to > extent.end:
                state.saved_up_to = -1  # the log has lost what the newest snapshot covers
            if saved is not None and not saved.rebuilt:  # after a rebuilt one this node soon writes its own
                state.saved_up_to = max(state.saved_up_to, saved.covered)
            self.progress = self.progress._replace(total=self.progress.total + extent.end - offset)
            await recovery.read_on(
                self._logs, partition, state.marks, offset, extent.end, reading, self._progressed, services.now
            )
        except IdsLostError as error:
            self._lose(turn, state, error)
            return
        if turn == self._turn:
            if fenced is None:
                state.inherited, state.turn = extent.end, turn
            state.marks.read_up_to(extent.end, lambda its: fenced is None or its in fenced)
            state.fenced -= state.fenced if fenced is None else fenced
            state.is_known, state.is_ready = True, not state.fenced
            state.wake()

    def _progressed(self, offsets: int, records: int) -> None:
        known = self.progress
        self.services.hooks.ids_read(self.topic, records)
        self.progress = Progress(known.records + records, known.done + offsets, known.total)

    def _lose(self, turn: int, state: PartitionIds, error: IdsLostError) -> None:
        if turn != self._turn:
            return
        message = (
            f"partition {state.partition}: {error}; it accepts no batch until an operator decides. `sidecar topic set"
            f" {self.topic} --no-dedup` and then `--dedup` goes on with the newest snapshot and what the log still has:"
            " records that are in neither count as new if they are sent again"
        )
        state.problem = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=message)
        self.services.hooks.ids_lost(self.topic, message)
        state.wake()

    # Snapshots --------------------------------------------------------------------------------------------------------

    async def _newest(self, extents: Mapping[int, Extent]) -> dict[int, Saved]:
        """Return the newest snapshot of each partition whose ids this node has not yet read since it began to serve the
        topic. For the others no other node has written a snapshot.
        """
        wanted: dict[int, Extent] = {}
        for index, extent in extents.items():
            state = self.of(index)
            if not (state.is_known and extent.reads_on_from(state.marks.covered)):
                wanted[index] = extent
        if not wanted:
            return {}
        found, numbers = await self._snapshots.newest(wanted)
        for index, number in numbers.items():
            state = self.of(index)
            state.last_number = max(state.last_number, number)
        return found

    async def _advance(self, states: list[PartitionIds]) -> None:
        """Advance the marks of partitions without batches in flight to the end of the log. There can only be markers:
        they remain when retention has deleted everything that these marks cover.
        """
        quiet = {state.partition: state.marks.covered for state in states if state.marks.is_at_rest}
        if not quiet:
            return
        with suppress(*FAILURES):  # requested again with the next due snapshot
            ends = await self._logs.ends(self.topic, list(quiet))
            for state in states:
                covered = quiet.get(state.partition)
                if state.is_ready and state.marks.is_at_rest and covered == state.marks.covered:
                    state.marks.read_up_to(ends[state.partition], lambda _: False)

    @property
    def is_due(self) -> bool:
        """Whether `save_due` has something to do."""
        states, pace = self.partitions.values(), self.pace
        return self.is_urged or any(each.may_go_on(pace) or each.is_due(pace, is_urged=False) for each in states)

    async def save_due(self) -> None:
        """Write the snapshots that are due."""
        states = list(self.partitions.values())
        await self._advance([state for state in states if state.goes_on(self.pace)])
        due = [state for state in states if state.is_due(self.pace, is_urged=self.is_urged)]
        for state in due:
            await self._snapshots.write(state)
        if self.is_urged and all(state.is_ready for state in self.partitions.values()):
            self.is_urged = False

    async def save_all(self, timeout: float = _SAVE_ALL_S) -> None:
        """Write a snapshot of each changed partition; stops after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._advance([state for state in self.partitions.values() if state.is_ready])
                for state in list(self.partitions.values()):
                    if state.is_ready and state.marks.covered > state.saved_up_to:
                        await self._snapshots.write(state)

    async def cover(self, wanted: Mapping[int, int], timeout: float) -> dict[int, int]:
        """Write snapshots until they cover these offsets by partition (-1: the end of the log), which then may be
        deleted; partitions without ids are covered. Returns the offsets, -1 for one that the log does not have. Left
        out is what took more than `timeout` seconds. Raises the errors of `LogReader.ends`.
        """
        deadline = time.monotonic() + timeout
        ends = await self.services.logs.ends(self.topic, wanted)
        found = {index: ends[index] if offset < 0 else offset for index, offset in wanted.items()}
        left = [self.partitions[index] for index in found if index in self.partitions]
        while True:
            left = [state for state in left if state.saved_up_to < found[state.partition] <= ends[state.partition]]
            if not left:
                break
            await self._advance(left)
            is_written = False
            for state in left:  # one that has to wait keeps no other one waiting
                if state.is_ready and state.marks.covered >= found[state.partition]:
                    is_written |= await self._snapshots.write(state)
            if is_written:
                continue
            if time.monotonic() > deadline or not self.is_begun:
                break
            await asyncio.sleep(_COVER_S)
        late = {state.partition for state in left}
        return {index: offset if offset <= ends[index] else -1 for index, offset in found.items() if index not in late}

    def is_covered(self, producer_id: int, last_epoch: int) -> bool:
        """Whether snapshots cover everything that was written under a producer id. Epochs are not distinguished."""
        return bool(self.partitions) and all(state.is_covered(producer_id) for state in self.partitions.values())

    def distrust(self) -> None:
        """Read the snapshots again and forget what another node forgot: it served the topic in the meantime."""
        for state in self.partitions.values():
            state.is_known = False

    def urge(self) -> None:
        """Request a snapshot of every changed partition at the next `save_due`."""
        self.is_urged = True

    # People and upkeep ------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the ids of all partitions are known."""
        return bool(self.partitions) and all(state.is_ready for state in self.partitions.values())

    async def known(self, timeout: float) -> None:
        """Wait until the ids of all partitions are known. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE if that takes more
        than `timeout` seconds, or is not possible.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self.is_ready:
            if self.problem is not None or not self.is_begun or loop.time() > deadline:
                message = self.problem or f"the sequence ids of {self.topic} are being read; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await asyncio.sleep(_POLL_S)

    @property
    def problem(self) -> str | None:
        """Why a partition accepts no batches; None if all do."""
        return next((state.problem.message for state in self.partitions.values() if state.problem is not None), None)

    def is_in_use(self, name: bytes) -> bool:
        """Whether a connected session writes under a name, or ids of it are in flight."""
        return any(state.names.is_live(name) or state.marks.is_busy(name) for state in self.partitions.values())

    async def forget(self, name: bytes) -> bool:
        """Forget a name in all partitions, for good: snapshots without it are in Kafka and Redis before this returns.
        Returns False if the name is not known. Raises `TimeoutError` if that cannot be done now, `MetadataUnavailable`
        if Redis is not available.
        """
        known = [state for state in self.partitions.values() if state.marks.knows(name)]
        for state in known:
            await self._forget(state, name)
        return bool(known)

    async def _forget(self, state: PartitionIds, name: bytes) -> None:
        message = f"the snapshot of {self.topic}-{state.partition} cannot be written now; try again"
        deadline = time.monotonic() + _FORGET_S
        while (mark := state.marks.mark(name)) is not None and state.marks.covered <= mark.offset:
            if time.monotonic() > deadline:  # a later read of the log from there would find the name again
                raise TimeoutError(message)
            await asyncio.sleep(_POLL_S)
        if not await self._snapshots.write(state, without=frozenset((name,))):
            raise TimeoutError(message)
        if state.marks.mark(name) != mark or state.marks.is_busy(name):
            raise TimeoutError(f"a session is writing under this name to {self.topic}-{state.partition}; try again")
        state.marks.forget(name)

    @property
    def crowded(self) -> PartitionIds | None:
        """A partition that remembers nearly as many names as it may, if there is one."""
        return next((state for state in self.partitions.values() if state.marks.is_crowded), None)

    async def forget_gone(self) -> None:
        """Forget disconnected sessions; their names stay. Names of connected sessions count as used now."""
        now = self.services.now() if self.services.changelog.clock.is_confirmed else None  # else perhaps a day ahead
        for state in list(self.partitions.values()):
            if now is not None:
                await in_slices(state.marks.note_live(now, state.names.is_live))
            await asyncio.sleep(0)  # there may be hundreds of partitions with few names
        for names in {id(state.names): state.names for state in self.partitions.values()}.values():
            names.forget_gone()
