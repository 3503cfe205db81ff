"""The sequence ids of one governed topic on the node that serves it: marks by partition, read when the topic is taken
over, saved as snapshots while it is served.

A takeover fences first; then the log up to its end says everything about earlier epochs (`begin`). Until a partition is
read, its batches wait. A takeover of one slot among others only asks what that one had under way.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from metadata import MetadataUnavailable
from sidecar.changelog import AppendUncertainError, ChangelogError, RetryTimeoutError, read_batches
from sidecar.dedup import recovery, snapshots
from sidecar.dedup.marks import NAMES_LIMIT, Mark, Marks
from sidecar.dedup.names import NameHolders
from sidecar.dedup.recovery import Extent, IdsLostError, Reading
from sidecar.dedup.snapshots import Collector, Saved
from sidecar.forwarder.lane import Outcome
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from metadata import MetadataStore
    from sidecar.changelog import Changelog, Journal
    from sidecar.cluster.logs import LogReader
    from sidecar.dedup.content import Headers
    from sidecar.dedup.gate import Gate
    from sidecar.dedup.marks import UnderWay
    from sidecar.dedup.names import WriterNames
    from sidecar.network.tasks import Tasks
    from sidecar.protocol.ids import Stamp

SNAPSHOT_BATCHES: Final = 1_000
SNAPSHOT_S: Final = 120.0
_SNAPSHOT_LEAST_S: Final = 1.0
_READERS: Final = 4
_AGAIN_S: Final = 0.5
_POLL_S: Final = 0.01
_SAVE_ALL_S: Final = 3.0
_FORGET_S: Final = 5.0
_SCAN_BYTES: Final = 4 * 1024 * 1024
_FAILURES: Final = (UpstreamError, KafkaError, ChangelogError, RetryTimeoutError, TimeoutError)


def _is_usable(extent: Extent, covered: int) -> bool:
    """Whether the log can be read on from what a snapshot covers."""
    return extent.reads_from(covered) is not None


class Hooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def duplicates_dropped(self, topic: str, records: int) -> None: ...
    def ids_recovered(self, topic: str, records: int, seconds: float) -> None: ...
    def ids_lost(self, topic: str, reason: str) -> None: ...
    def snapshot_written(self, topic: str, names: int, size: int) -> None: ...
    def operation_failed(self, topic: str, error: BaseException) -> None: ...


class Surroundings(NamedTuple):
    """What the ids of every topic of this node need."""

    logs: LogReader
    changelog: Changelog
    store: MetadataStore
    tasks: Tasks
    hooks: Hooks
    headers: Headers
    names_limit: int = NAMES_LIMIT


class Progress(NamedTuple):
    """A recovery under way: records read, offsets read and to be read."""

    records: int
    done: int
    total: int


class PartitionIds:
    """One partition. `problem` is the answer while its ids cannot be known."""

    def __init__(self, ids: TopicIds, partition: int, names: NameHolders, limit: int) -> None:
        self.partition = partition
        self.names = names
        self.marks = Marks(limit)
        self.is_ready = False
        self.is_known = False
        """This node has read it since it serves the topic."""
        self.problem: Outcome | None = None
        self.turn = -1
        """The last turn of the topic in which it was read behind a fence of everything."""
        self.batches = 0
        """That landed since the last snapshot."""
        self.saved = Saved(-1, 0, [])
        """The newest snapshot, without its marks."""
        self.saved_at = self.advanced_at = time.monotonic()
        self.attempts = 0
        """To write a snapshot, since one was written."""
        self.has_forgotten = False
        """Names went that the newest snapshot has."""
        self._ids = ids
        self.inherited = 0
        """Where the log ended when this node took the topic over."""
        self.ends: dict[int, int] = {}
        """Behind the last batch of each producer id that the newest snapshot does not cover."""
        self.fenced: set[int] = set()
        """Producer ids of slots that were fenced: what they had under way is being read."""
        self._waiting: set[Gate] = set()

    def wait(self, gate: Gate) -> bool:
        """A gate can decide nothing before something changes here: it is pumped then. False, for its convenience."""
        self._waiting.add(gate)
        return False

    def landed(self, batch: UnderWay, offset: int, records: int) -> None:
        """As `Marks.landed`."""
        self.marks.landed(batch, offset, records, int(time.time()))
        self.batches += 1
        if offset >= 0:
            self.ends[batch.producer_id] = offset + records
        self.wake()

    def failed(self, batch: UnderWay, *, in_doubt: bool) -> None:
        """As `Marks.failed`."""
        self.marks.failed(batch, in_doubt=in_doubt)
        self.wake()

    def dropped(self, records: int) -> None:
        """Duplicates were acknowledged."""
        self._ids.around.hooks.duplicates_dropped(self._ids.topic, records)

    def want_fence(self) -> None:
        """Only a fence can tell what became of a batch of a session that is gone."""
        self._ids.fence_wanted()

    def wake(self) -> None:
        """Let gates look again."""
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            loop = asyncio.get_running_loop()
            for gate in waiting:
                loop.call_soon(gate.pump)

    def is_covered(self, producer_id: int) -> bool:
        """Whether the newest snapshot has everything that was written under a producer id."""
        end = max(self.inherited, self.ends.get(producer_id, 0))
        return self.is_ready and self.marks.is_quiet(producer_id) and self.saved.covered >= end

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot."""
        age = time.monotonic() - self.saved_at
        if not self.is_ready or age < _SNAPSHOT_LEAST_S:
            return False
        if self.marks.covered <= self.saved.covered:
            return self.has_forgotten and age >= SNAPSHOT_S
        return self.batches >= SNAPSHOT_BATCHES or age >= SNAPSHOT_S or self._ids.is_urged


class TopicIds:
    """All partitions of a topic. `is_live`: whether a session has a connection; `fence_wanted` makes the topic be
    fenced as a whole. `by_partition`: partitions have owners of their own, so names are held by partition too.
    """

    def __init__(
        self,
        topic: str,
        around: Surroundings,
        is_live: Callable[[str], bool],
        fence_wanted: Callable[[], None],
        *,
        by_partition: bool = False,
        since: int = -1,
    ) -> None:
        """`since`: see `sidecar.exclusive.takeover.Covered`."""
        self.topic = topic
        self.since = since
        self.around = around
        self.fence_wanted = fence_wanted
        self.is_urged = False
        """A snapshot of everything is wanted now."""
        self.partitions: dict[int, PartitionIds] = {}
        self.progress = Progress(0, 0, 0)
        self.is_begun = False
        """The topic is served here: its ids are known, or being read."""
        self._is_live = is_live
        self._by_partition = by_partition
        self._names = NameHolders(is_live)
        self._topic_id: bytes = b""
        self._journal: Journal | None = None
        self._turn = 0
        self._settling = False
        self._ids_from: Mapping[int, int] = {}
        self._saving = asyncio.Lock()

    # Taking over ------------------------------------------------------------------------------------------------------

    def of(self, partition: int) -> PartitionIds:
        """The state of one partition."""
        found = self.partitions.get(partition)
        if found is None:
            names = NameHolders(self._is_live) if self._by_partition else self._names
            found = self.partitions[partition] = PartitionIds(self, partition, names, self.around.names_limit)
        return found

    def begin(
        self, topic_id: UUID, stamp: Stamp, partitions: Collection[int], ids_from: Mapping[int, int], names: WriterNames
    ) -> None:
        """The whole topic was fenced for this epoch of its master slot: read what came of all earlier ones."""
        if topic_id.bytes != self._topic_id:
            self._topic_id = topic_id.bytes
            self.partitions.clear()
        self.renewed(stamp)
        self._turn += 1
        self._writers = names
        self.is_begun = True
        for index in partitions:
            state = self.of(index)
            state.is_ready, state.problem = False, None
            state.fenced.clear()
        self._ids_from = ids_from
        self.around.tasks.start(self._recover(self._turn, list(partitions), names))

    def begin_slot(self, producer_id: int, partitions: Collection[int], names: WriterNames) -> None:
        """One slot among others was fenced: read where it had something under way, or outcomes that nobody knows."""
        self._writers = names
        for index in partitions:
            state = self.of(index)
            if (state.is_ready or state.fenced) and not state.marks.is_quiet(producer_id):
                state.is_ready = False
                state.fenced.add(producer_id)
        if not self._settling and any(state.fenced for state in self.partitions.values()):
            self._settling = True
            self.around.tasks.start(self._settle_slots(self._turn))

    async def _settle_slots(self, turn: int) -> None:
        """Until nothing that a fenced slot had under way is unknown, or the whole topic is fenced anew."""
        try:
            while turn == self._turn:
                fenced = {
                    index: frozenset(state.fenced)
                    for index, state in self.partitions.items()
                    if state.fenced and state.problem is None
                }
                if not fenced:
                    return
                await self._recover(turn, list(fenced), self._writers, fenced)
        finally:
            self._settling = False

    def renewed(self, stamp: Stamp) -> None:
        """The master slot has a newer epoch: snapshots are stamped with it."""
        self._journal = self.around.changelog.snapshot_journal(stamp, self.topic)

    def end(self) -> None:
        """The topic is not served here any more. What is known of its log stays true."""
        self._turn += 1
        self._journal, self.is_begun = None, False
        for state in self.partitions.values():
            state.is_ready = state.is_known = False

    async def _recover(
        self,
        turn: int,
        partitions: list[int],
        names: WriterNames,
        fenced: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """Until it is done, or the topic is fenced anew. `fenced`: the producer ids, by partition; None: all."""
        began = time.monotonic()
        self.progress = Progress(0, 0, 0)
        while turn == self._turn:
            try:
                await self._read(turn, partitions, names, fenced)
            except _FAILURES as error:
                self.around.hooks.operation_failed(self.topic, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                if turn == self._turn:
                    self.around.hooks.ids_recovered(self.topic, self.progress.records, time.monotonic() - began)
                return

    async def _read(
        self,
        turn: int,
        partitions: list[int],
        names: WriterNames,
        fenced: Mapping[int, frozenset[int]] | None,
    ) -> None:
        logs = self.around.logs
        starts = await logs.starts(self.topic, partitions)
        ends = await logs.ends(self.topic, partitions)
        extents = {index: Extent(starts[index], ends[index], self._ids_from.get(index, 0)) for index in partitions}
        saved = await self._saved(extents)
        gate = asyncio.Semaphore(_READERS)

        async def one(index: int) -> None:
            async with gate:
                producer_ids = None if fenced is None else fenced[index]
                await self._read_partition(turn, index, extents[index], saved.get(index), names, producer_ids)

        await asyncio.gather(*[one(index) for index in partitions])

    async def _read_partition(
        self,
        turn: int,
        index: int,
        extent: Extent,
        saved: Saved | None,
        names: WriterNames,
        fenced: frozenset[int] | None,
    ) -> None:
        state, partition = self.of(index), TopicPartition(self.topic, index)
        if turn != self._turn or state.is_ready or (fenced is None and state.turn == turn):
            return
        if fenced is None and not state.is_known:
            state.marks.clear()  # another node forgot names since
        elif fenced is not None and state.marks.covered > extent.end:
            extent = replace(extent, end=state.marks.covered)  # others landed since the end was asked for
        try:
            offset = recovery.begin(state.marks, extent, saved, partition)
        except IdsLostError as error:
            self._lose(turn, state, error)
            return
        if saved is not None and saved.covered > state.saved.covered:
            state.saved = Saved(saved.covered, state.saved.number, [])
        self.progress = self.progress._replace(total=self.progress.total + extent.end - offset)
        reading = Reading(names, self.around.headers, extent.ids_from)
        try:
            await recovery.read_on(
                self.around.logs, partition, state.marks, offset, extent.end, reading, self._progressed
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
        self.progress = Progress(known.records + records, known.done + offsets, known.total)

    def _lose(self, turn: int, state: PartitionIds, error: IdsLostError) -> None:
        if turn != self._turn:
            return
        message = (
            f"{error}: no batch is taken there before an operator decides. `sidecar topic set {self.topic} --no-dedup`"
            " and then `--dedup` begins anew with what is left"
        )
        state.problem = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=message)
        self.around.hooks.ids_lost(self.topic, message)
        state.wake()

    # Snapshots --------------------------------------------------------------------------------------------------------

    async def _saved(self, extents: Mapping[int, Extent]) -> dict[int, Saved]:
        """The newest snapshot of each partition that is not known from memory: from Redis, else from Kafka."""
        wanted = [index for index, extent in extents.items() if not self._knows(index, extent)]
        if not wanted:
            return {}
        found: dict[int, Saved] = {}
        try:
            values = await self.around.store.snapshots(self.topic, self._topic_id, wanted)
        except MetadataUnavailable:
            values = {}
        positions: dict[int, int] = {}
        for index, value in values.items():
            kept = snapshots.of_value(value, self._topic_id)
            if kept is not None:
                found[index], positions[index] = kept
        # Redis may have been set back: whatever came behind its copies is read.
        offset = min(positions[index] + 1 for index in wanted) if len(positions) == len(wanted) else None
        collector = await self._scan(offset)
        for index in wanted:
            copy = found.pop(index, None)
            candidates = [copy, collector.newest(index, partial(_is_usable, extents[index]))]
            self._note_number(index, max(collector.last_number(index), copy.number if copy is not None else 0))
            usable = [each for each in candidates if each is not None and _is_usable(extents[index], each.covered)]
            if usable:
                found[index] = max(usable, key=lambda saved: (saved.covered, saved.number))
        return found

    def _knows(self, index: int, extent: Extent) -> bool:
        """Whether this node has read the partition since it serves the topic: nobody else wrote a snapshot since."""
        state = self.of(index)
        return state.is_known and extent.reads_from(state.marks.covered) is not None

    def _note_number(self, index: int, number: int) -> None:
        state = self.of(index)
        if number > state.saved.number:
            state.saved = Saved(state.saved.covered, number, [])

    async def _scan(self, offset: int | None) -> Collector:
        """Read the snapshot topic's partition that this topic's are in, from an offset or its beginning on. Zombies are
        fenced there.
        """
        partition, logs = self.around.changelog.snapshots_of(self.topic), self.around.logs
        collector = Collector(self.topic, self._topic_id)
        start = (await logs.starts(partition.topic, [partition.partition]))[partition.partition]
        offset = start if offset is None else max(start, offset)
        end = (await logs.ends(partition.topic, [partition.partition]))[partition.partition]
        while offset < end:
            behind = offset
            for batch in read_batches(await logs.fetch(partition, offset, _SCAN_BYTES)):
                behind = batch.next_offset
                for _, record in batch.records:
                    collector.add(record)
            if behind <= offset:
                break
            offset = behind
            await asyncio.sleep(0)
        return collector

    async def _advance(self, states: list[PartitionIds]) -> None:
        """Where nothing is under way, nobody else can have written up to the end: markers alone, which retention
        leaves behind when it has taken all that these marks cover.
        """
        quiet = {state.partition: state.marks.covered for state in states if state.marks.is_at_rest}
        with suppress(*_FAILURES):
            ends = await self.around.logs.ends(self.topic, list(quiet))
            for state in states:
                covered = quiet.get(state.partition)
                if state.is_ready and state.marks.is_at_rest and covered == state.marks.covered:
                    state.marks.read_up_to(ends[state.partition], lambda _: False)

    async def save_due(self) -> None:
        """Write the snapshots that it is time for."""
        now = time.monotonic()
        idle = [state for state in self.partitions.values() if state.is_ready and now - state.advanced_at > SNAPSHOT_S]
        if idle:
            for state in idle:
                state.advanced_at = now
            await self._advance(idle)
        due = [state for state in self.partitions.values() if state.is_due]
        for state in due:
            await self._save(state)
        if self.is_urged and all(state.is_ready for state in self.partitions.values()):
            self.is_urged = False

    async def save_all(self, timeout: float = _SAVE_ALL_S) -> None:
        """Write a snapshot of each partition that has moved, as far as that is done within `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._advance([state for state in self.partitions.values() if state.is_ready])
                for state in list(self.partitions.values()):
                    if state.is_ready and state.marks.covered > state.saved.covered:
                        await self._save(state)

    async def _save(self, state: PartitionIds, *, without: frozenset[bytes] = frozenset()) -> bool:
        """Write one snapshot; whether it is in the log. `without` names that are to be forgotten: then Redis has to
        know too.
        """
        async with self._saving:
            journal = self._journal
            if journal is None:
                return False
            now_ms = int(time.time() * 1000)
            marks = [mark for mark in state.marks if mark.name not in without]
            # Another number with each try: chunks of two never fit. The same copy: the other one stays whole.
            saved = Saved(state.marks.covered, state.saved.number + 1 + 2 * state.attempts, marks)
            state.attempts += 1
            state.batches, state.saved_at = 0, time.monotonic()
            chunks = snapshots.encode(self._topic_id, saved, now_ms)
            try:
                position = 0
                for record in snapshots.to_records(self.topic, state.partition, chunks):
                    position = await journal.append([record])
            except FencedError:
                if self._journal is journal:
                    self._journal = None  # another node has the topic
                return False
            except AppendUncertainError as error:  # nothing can follow under this epoch
                self.around.hooks.operation_failed(self.topic, error)
                if self._journal is journal:
                    self._journal = None
                    self.fence_wanted()
                return False
            except _FAILURES as error:
                self.around.hooks.operation_failed(self.topic, error)
                return False
            state.saved, state.attempts, state.has_forgotten = Saved(saved.covered, saved.number, []), 0, False
            state.ends = {producer_id: end for producer_id, end in state.ends.items() if end > saved.covered}
            value = snapshots.to_value(chunks, position)
            self.around.hooks.snapshot_written(self.topic, len(saved.marks), len(value))
            order = saved.covered, saved.number
            try:
                await self.around.store.keep_snapshot(self.topic, state.partition, self._topic_id, order, value)
            except MetadataUnavailable:  # then the next one, or the snapshot topic
                if without:
                    raise
            return True

    def is_covered(self, producer_id: int, last_epoch: int) -> bool:
        """Whether snapshots have everything that was written under a producer id, up to an epoch or later."""
        return bool(self.partitions) and all(state.is_covered(producer_id) for state in self.partitions.values())

    def distrust(self) -> None:
        """Another node served the topic meanwhile: its snapshots are asked for, and what it forgot is forgotten."""
        for state in self.partitions.values():
            state.is_known = False

    def urge(self) -> None:
        """Have a snapshot of everything that moved, at the next occasion."""
        self.is_urged = True

    # People and upkeep ------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the ids of all partitions are known."""
        return bool(self.partitions) and all(state.is_ready for state in self.partitions.values())

    async def known(self, timeout: float) -> None:
        """Wait until the ids of all partitions are known. Raises `KafkaError` 5 where that takes longer, or cannot
        be.
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
        """Why batches are not taken in some partition."""
        return next((state.problem.message for state in self.partitions.values() if state.problem is not None), None)

    def last_ids(self, name: bytes) -> dict[int, int]:
        """The highest id in the log by partition, where there is one. Never one that is only under way."""
        return {index: mark.id for index, state in sorted(self.partitions.items()) if (mark := state.marks.mark(name))}

    def marks_of(self, name: bytes) -> dict[int, Mark]:
        """All that is known of a name, by partition."""
        return {index: mark for index, state in sorted(self.partitions.items()) if (mark := state.marks.mark(name))}

    def newest_names(self, most: int) -> list[bytes]:
        """Names that wrote lately: of those that came last to each partition."""
        seen: dict[bytes, int] = {}
        for state in self.partitions.values():
            for mark in state.marks.newest(most):
                seen[mark.name] = max(seen.get(mark.name, 0), mark.seen)
        return sorted(seen, key=lambda name: seen[name], reverse=True)[:most]

    def is_in_use(self, name: bytes) -> bool:
        """Whether a connected session writes under a name, or something of it is under way."""
        return any(state.names.is_live(name) or name in state.marks.busy_names for state in self.partitions.values())

    async def forget(self, name: bytes) -> bool:
        """Forget a name in all partitions, for good: snapshots without it are in Kafka and Redis before this returns.
        False where it is not known. Raises `TimeoutError` where that cannot be done now, `MetadataUnavailable` where
        Redis is away.
        """
        known = [state for state in self.partitions.values() if state.marks.knows(name)]
        for state in known:
            await self._forget(state, name)
        return bool(known)

    async def _forget(self, state: PartitionIds, name: bytes) -> None:
        message = f"the snapshot of {self.topic}-{state.partition} cannot be written now; try again"
        deadline = time.monotonic() + _FORGET_S
        while (mark := state.marks.mark(name)) is not None and state.marks.covered <= mark.offset:
            if time.monotonic() > deadline:  # read again from there, the log would tell of the name
                raise TimeoutError(message)
            await asyncio.sleep(_POLL_S)
        if not await self._save(state, without=frozenset((name,))):
            raise TimeoutError(message)
        if state.marks.mark(name) != mark or name in state.marks.busy_names:
            raise TimeoutError(f"somebody writes under this name to {self.topic}-{state.partition}; try again")
        state.marks.forget(name)

    async def tidy(self) -> int:
        """Forget names that are idle, once a snapshot has, and sessions that are gone; how many names those were."""
        now, gone = int(time.time()), 0
        for state in list(self.partitions.values()):
            idle = state.marks.idle(now, state.names.is_live)
            with suppress(MetadataUnavailable):  # then another time
                if idle and await self._save(state, without=frozenset(idle)):
                    for name in set(idle).intersection(state.marks.idle(now, state.names.is_live)):  # some came back
                        gone += state.marks.forget(name)
            await asyncio.sleep(0)  # there may be ten thousand names in each of hundreds
        for names in {id(state.names): state.names for state in self.partitions.values()}.values():
            names.tidy()
        return gone
