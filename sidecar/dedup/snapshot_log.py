"""The snapshots of one topic, in Kafka and as copies in Redis: reads the newest usable one, writes the next."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from metadata import MetadataUnavailable
from sidecar.changelog import FAILURES, AppendUncertainError, Journal, read_batches
from sidecar.cluster.logs import LogReader
from sidecar.dedup import snapshots
from sidecar.dedup.environment import IdsServices
from sidecar.dedup.partition import PartitionIds
from sidecar.dedup.recovery import Extent
from sidecar.dedup.snapshots import Collector, Saved
from sidecar.protocol.caller import FencedError
from sidecar.protocol.ids import Stamp, TopicPartition

_SCAN_BYTES: Final = 4 * 1024 * 1024


async def scan(logs: LogReader, partition: TopicPartition, collector: Collector, offset: int) -> int:
    """Feed a collector what a partition of the snapshot topic holds, from an offset up to its end; returns that."""
    start = (await logs.starts(partition.topic, [partition.partition]))[partition.partition]
    offset = max(start, offset)
    end = (await logs.ends(partition.topic, [partition.partition]))[partition.partition]
    async for records in logs.read(partition, offset, end, _SCAN_BYTES):
        for batch in read_batches(records):
            offset = max(offset, batch.next_offset)
            for at, record in batch.records:
                collector.add(record, at)
        await asyncio.sleep(0)
    return offset


class SnapshotLog:
    """Snapshots of one topic. `fence_wanted`: called when an append is uncertain; the epoch cannot be used again."""

    def __init__(self, topic: str, services: IdsServices, fence_wanted: Callable[[], None]) -> None:
        self.topic = topic
        self.topic_id = b""
        self._services = services
        self._fence_wanted = fence_wanted
        self._journal: Journal | None = None
        self._writing = asyncio.Lock()

    def is_of(self, topic_id: UUID) -> bool:
        """Whether the topic id is unchanged. If not, the topic was deleted and created again."""
        known, self.topic_id = self.topic_id, topic_id.bytes
        return known == self.topic_id

    def renewed(self, stamp: Stamp) -> None:
        """The master slot has a newer epoch: snapshots are stamped with it."""
        self._journal = self._services.changelog.snapshot_journal(stamp, self.topic)

    def end(self) -> None:
        """Another node may write them from now on."""
        self._journal = None

    async def newest(self, extents: Mapping[int, Extent]) -> tuple[dict[int, Saved], dict[int, int]]:
        """By partition, the newest snapshot from which its log can be read on, where there is one; and the highest
        number that any had.
        """
        found: dict[int, Saved] = {}
        try:
            values = await self._services.store.snapshots(self.topic, self.topic_id, list(extents))
        except MetadataUnavailable:
            values = {}
        positions: dict[int, int] = {}
        for index, value in values.items():
            kept = snapshots.of_value(value, self.topic_id)
            if kept is not None:
                found[index], positions[index] = kept
            await asyncio.sleep(0)  # each may have ten thousand names
        # Redis may have been set back: whatever came after its copies is read.
        collector = await self._scan(min(positions.values()) + 1 if len(positions) == len(extents) else 0)
        numbers: dict[int, int] = {}
        for index, extent in extents.items():
            copy = found.pop(index, None)
            numbers[index] = max(collector.last_number(index), copy.number if copy is not None else 0)
            candidates = [] if copy is None else [copy]
            candidates += [each.saved for each in collector.whole(index)]
            newest = snapshots.best(each for each in candidates if extent.reads_on_from(each.covered))
            if newest is not None:
                found[index] = newest
        return found, numbers

    async def _scan(self, offset: int) -> Collector:
        """Read on from an offset. An older writer cannot append there: this epoch's fence covers the topic."""
        collector = Collector(self.topic, self.topic_id)
        await scan(self._services.logs, self._services.changelog.snapshots_of(self.topic), collector, offset)
        return collector

    async def write(self, state: PartitionIds, *, without: frozenset[bytes] = frozenset()) -> bool:
        """Write one snapshot. Returns whether it is in the log. `without`: names to be forgotten; Redis has to forget
        them too. Raises `MetadataUnavailable` where it cannot.
        """
        async with self._writing:
            journal = self._journal
            if journal is None:
                return False
            saved = state.to_save(without)
            chunks = snapshots.encode(self.topic_id, saved, self._services.changelog.clock.now_ms())
            position = 0
            try:
                for record in snapshots.to_records(self.topic, state.partition, chunks):
                    position = await journal.append([record])
            except FencedError:
                if self._journal is journal:
                    self._journal = None  # another node has the topic
                return False
            except AppendUncertainError as error:  # nothing can follow under this epoch
                self._services.hooks.operation_failed(self.topic, error)
                if self._journal is journal:
                    self._journal = None
                    self._fence_wanted()
                return False
            except FAILURES as error:
                self._services.hooks.operation_failed(self.topic, error)
                return False
            state.was_saved(saved)
            value = snapshots.to_value(chunks, position)
            self._services.hooks.snapshot_written(self.topic, len(saved.marks), len(value))
            try:
                await self._services.store.keep_snapshot(self.topic, state.partition, self.topic_id, saved.order, value)
            except MetadataUnavailable:  # the next snapshot, or the topic, replaces it
                if without:
                    raise
            return True
