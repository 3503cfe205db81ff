"""Reads the marks of a partition from its newest snapshot and the log after it (PIP-6), merged by the higher id. Reads
the newest usable snapshots of a topic, and writes the next ones, in Kafka and as copies in Redis.

If ids cannot be known, because retention or compaction deleted records that no snapshot covers, `IdsLostError` is
raised. Ids are never guessed.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeGuard
from uuid import UUID

from metadata import MetadataUnavailable
from sidecar.changelog import FAILURES, AppendUncertainError, Journal, RawRecord, read_batches
from sidecar.cluster.logs import LogReader
from sidecar.dedup import snapshots
from sidecar.dedup.content import Headers, payload_of
from sidecar.dedup.marks import SLICE_NAMES, Mark, Marks
from sidecar.dedup.names import FORGOTTEN, WriterNames
from sidecar.dedup.partition import IdsServices, PartitionIds
from sidecar.dedup.snapshots import Collector, Saved
from sidecar.network.aside import aside
from sidecar.network.slices import in_slices
from sidecar.protocol import records as wire
from sidecar.protocol.batch import BatchHeader, batch_sizes, read_header
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Stamp, TopicPartition
from sidecar.protocol.primitives import Octets
from sidecar.protocol.records import Kind

_PORTION_RECORDS: Final = 5_000


class IdsLostError(Exception):
    """The sequence ids in a partition cannot be known."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The log of a partition, from `start` to `end`. From `ids_from` on no id may be missed."""

    start: int
    end: int
    ids_from: int

    def reads_on_from(self, covered: int) -> bool:
        """Whether the log can be read on from `covered`. Not if records after it were deleted, or the log ends before
        it (an unclean election lost acknowledged records).
        """
        return self.start <= covered <= self.end

    @property
    def from_scratch(self) -> int | None:
        """The offset to read from if nothing is known; None if retention deleted records with ids."""
        return self.start if self.start <= self.ids_from else None


def begin(marks: Marks, extent: Extent, saved: Saved | None, partition: TopicPartition) -> Generator[None, None, int]:
    """Take over a snapshot, and return the offset from which the log has to be read. Raises `IdsLostError`. Works in
    slices (`sidecar.network.slices`); marks may move on between them, because the higher id counts.

    A snapshot from before the beginning of the log counts too, if no id after it may be missed any more: an operator
    decided so (`Extent.ids_from`).
    """
    if marks.covered > extent.end:
        marks.clear()
    if saved is not None and saved.covered > extent.end:
        saved = None
    known = max(marks.covered, -1 if saved is None else saved.covered)
    if known < extent.start:
        if extent.from_scratch is None:
            raise IdsLostError(
                f"the log of {partition} begins at offset {extent.start}, and no snapshot is left with the sequence ids"
                f" from offset {max(known, extent.ids_from)} to there"
            )
        known = extent.start
    for number, mark in enumerate(() if saved is None else saved.marks, 1):
        marks.learn(mark)
        if not number % SLICE_NAMES:
            yield
    return known


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a log: the writers of its batches, the names of the headers, and the offset from which no id may be
    missed.
    """

    writers: WriterNames
    headers: Headers
    ids_from: int


class IdSummary(NamedTuple):
    """A summary of batches: the offset after them (-1: no batch), the number of records, and the highest id of each
    name with its offset.
    """

    behind: int
    records: int
    highest: dict[bytes, tuple[int, int]]


def ids_in(data: Octets, reading: Reading, offset: int = -1) -> IdSummary:
    """Return the summary of a fetched record set. Its time grows with their size, and it changes no shared state.
    `offset`: the one to read from; -1: the first one there is.

    Skips batches without ids, markers, and ids that no node would have accepted: malformed ids, and those in
    transactions, which may have been aborted and are older than the policy. Raises `IdsLostError` for an id whose
    writer is forgotten, and for offsets of which nothing is left.
    """
    behind, records, highest = offset, 0, dict[bytes, tuple[int, int]]()
    window = memoryview(data)
    for start, size in batch_sizes(data, 0, len(data)):
        header = read_header(data, start, start + size)
        _check_whole(header, behind, reading)
        behind = max(behind, header.base_offset + header.last_offset_delta + 1)
        if header.is_control or not header.records:
            continue
        records += header.records
        if header.is_transactional:
            continue
        for name, sequence_id, at in _ids_of(window[start : start + size], header, reading):
            known = highest.get(name)
            if known is None or sequence_id > known[0]:
                highest[name] = sequence_id, at
    return IdSummary(behind, records, highest)


def _check_whole(header: BatchHeader, offset: int, reading: Reading) -> None:
    """Raise `IdsLostError` if compaction removed records before or in a batch, which would follow at `offset`.

    Brokers give every record and marker the next offset, so one of which nothing is left was removed: it may have had
    an id. Compaction keeps the header of a producer's last batch, without its records (`Cleaner.checkBatchRetention`).
    """
    behind = header.base_offset + header.last_offset_delta + 1
    is_whole = header.is_control or header.records > header.last_offset_delta
    gone = header.base_offset if is_whole else behind
    if 0 <= offset < gone and gone > reading.ids_from:
        raise IdsLostError(
            f"compaction has removed records between offsets {offset} and {gone}, and no snapshot has their sequence"
            " ids"
        )


def learn(summary: IdSummary, marks: Marks, now: int) -> None:
    """Merge a summary into the marks; the higher id counts. `now` is in Unix seconds."""
    for name, (sequence_id, offset) in summary.highest.items():
        marks.learn(Mark(name, sequence_id, offset, now))


def _ids_of(batch: memoryview, header: BatchHeader, reading: Reading) -> Iterator[tuple[bytes, int, int]]:
    """Yield the names and ids of a batch with their offsets; of rising ids only the last."""
    name, headers = reading.writers.of(header.producer_id, header.producer_epoch), reading.headers
    base = header.base_offset
    try:
        payload = payload_of(batch)
        kind, _, last = wire.summarise(payload, header.records, headers.sequence_id, headers.producer_name, dense=False)
        if kind is Kind.NONE:
            return
        if kind is Kind.RISING and header.records == header.last_offset_delta + 1:  # else compaction removed records
            if _is_known(name, base, reading):
                yield name, last, base + header.last_offset_delta
            return
        found = wire.each(payload, header.records, headers.sequence_id, headers.producer_name, dense=False)
    except KafkaError:
        return  # no node would have accepted it
    for record in found:
        its_name = record.name if record.name is not None else name
        if record.problem is None and record.sequence_id is not None and _is_known(its_name, base, reading):
            yield its_name, record.sequence_id, base + record.offset_delta


def _is_known(name: bytes | None, offset: int, reading: Reading) -> TypeGuard[bytes]:
    if name == FORGOTTEN:
        if offset >= reading.ids_from:
            raise IdsLostError(f"the writer of the sequence ids at offset {offset} is not known any more")
        return False
    return name is not None


def _portions(data: bytes) -> Iterator[memoryview]:
    """Yield portions of about `_PORTION_RECORDS` records, so that other work gets the thread in between: a compressed
    fetch may contain millions of records.
    """
    window, start, records = memoryview(data), 0, 0
    for at, size in batch_sizes(data, 0, len(data)):
        records += read_header(data, at, at + size).records
        if records >= _PORTION_RECORDS:
            yield window[start : at + size]
            start, records = at + size, 0
    if start < len(window):
        yield window[start:]


async def read_on(
    logs: LogReader,
    partition: TopicPartition,
    marks: Marks,
    offset: int,
    end: int,
    reading: Reading,
    progress: Callable[[int, int], None],
    now: Callable[[], int],
) -> None:
    """Read the log between two offsets into the marks. `progress` is called with the number of offsets and of records
    that were read; `now` returns Unix seconds. Raises the errors of `LogReader.read`, and `IdsLostError`.
    """
    async with aclosing(logs.read(partition, offset, end)) as found:
        async for data in found:
            for portion in _portions(data):
                summary = await aside(partial(ids_in, portion, reading, offset))
                learn(summary, marks, now())
                progress(summary.behind - offset, summary.records)
                offset = summary.behind


_SCAN_BYTES: Final = 4 * 1024 * 1024


async def scan(logs: LogReader, partition: TopicPartition, collector: Collector, offset: int) -> int:
    """Pass the records of a partition of the snapshot topic, from an offset to its end, to a collector. Returns the
    end.
    """
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
    """The snapshots of one topic. `fence_wanted` is called when an append is uncertain: the epoch cannot be used any
    more.
    """

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
        """Stamp snapshots with the newer epoch of the master slot."""
        self._journal = self._services.changelog.snapshot_journal(stamp, self.topic)

    def end(self) -> None:
        """Stop writing: another node may write the snapshots from now on."""
        self._journal = None

    async def newest(self, extents: Mapping[int, Extent]) -> tuple[dict[int, Saved], dict[int, int]]:
        """Return, by partition, the newest snapshot of no more than its log ever had, if there is one, and the highest
        number that any snapshot had.
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
            await asyncio.sleep(0)  # each snapshot may have ten thousand names
        # Redis may have been restored to an older state, so everything after its copies is read.
        collector = await self._scan(min(positions.values()) + 1 if len(positions) == len(extents) else 0)
        numbers: dict[int, int] = {}
        for index, extent in extents.items():
            copy = found.pop(index, None)
            numbers[index] = max(collector.last_number(index), copy.number if copy is not None else 0)
            candidates = [] if copy is None else [copy]
            candidates += [each.saved for each in collector.whole(index)]
            newest = snapshots.best(each for each in candidates if each.covered <= extent.end)
            if newest is not None:
                found[index] = newest
        return found, numbers

    async def _scan(self, offset: int) -> Collector:
        """Read the snapshot topic from an offset. An older writer cannot append to it: this epoch's fence covers that
        topic.
        """
        collector = Collector(self.topic, self.topic_id)
        await scan(self._services.logs, self._services.changelog.snapshots_of(self.topic), collector, offset)
        return collector

    async def write(self, state: PartitionIds, *, without: frozenset[bytes] = frozenset()) -> bool:
        """Write one snapshot. Returns whether it is in the log. `without`: names that are forgotten, in Redis too.
        Raises `MetadataUnavailable` if Redis cannot do that.
        """
        async with self._writing:
            journal = self._journal
            if journal is None:
                return False
            saved, topic_id = state.to_save(without), self.topic_id
            chunks = await in_slices(snapshots.encoding(topic_id, saved, self._services.changelog.clock.now_ms()))
            position, written = 0, list[RawRecord]()
            try:
                for record in snapshots.to_records(self.topic, state.partition, chunks):
                    position = await journal.append([record])
                    written.append(record)
            except FencedError:
                if self._journal is journal:
                    self._journal = None  # another node has taken the topic
                return False
            except AppendUncertainError as error:  # nothing more can be appended under this epoch
                self._services.hooks.operation_failed(self.topic, error)
                if self._journal is journal:
                    self._journal = None
                    self._fence_wanted()
                return False
            except FAILURES as error:
                self._services.hooks.operation_failed(self.topic, error)
                return False
            state.was_saved(saved)
            value = snapshots.to_value(written, position)
            self._services.hooks.snapshot_written(self.topic, len(saved.marks), len(value))
            try:
                await self._services.store.keep_snapshot(self.topic, state.partition, topic_id, saved.order, value)
            except MetadataUnavailable:  # the next snapshot replaces it, and until then the topic has the newer one
                if without:
                    raise
            return True
