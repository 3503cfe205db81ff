"""Folds batches into runs: what one writer wrote in a row, regardless of other writers. Pure.

A *writer* is a producer id and epoch, in transactions or outside; its stamped sequences follow one another (KIP-98). A
*run* is what it wrote under one producer name with ids that rise strictly, or without ids. If a writer's next sequence
does not follow, all its runs end. If the next id of a name does not rise, or ids begin or cease, that name's run ends.
If a marker ends a transaction, the runs in it end. Batches of other writers in between end nothing. If very many runs
are open, all of them end, as at the end of a range.

A record with a malformed id counts in the run of its name, and one with a malformed name in the run without a name;
each is counted there as malformed. What compaction left of a batch is counted. A batch without any records left moves
the offsets and the sequences of a run. A batch and its bytes count in the range, and in the run, of its first record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sidecar.pipeline.source.batches import Headers, OpenBatch, Range, open_batch
from sidecar.protocol.batch import SEQUENCE_MODULUS
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.stretches import Stretch

_NO_SEQUENCE: Final = -1
MOST_OPEN: Final = 50_000
"""The most runs that are open at a time, so that many names or writers take no more memory than few."""


@dataclass(slots=True)
class Run:
    """One row of the view. Sequences and ids are -1 if there are none; both ends of offsets and of ids are included."""

    partition: int
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    is_transactional: bool
    producer_name: str | None
    first_timestamp_ms: int
    last_timestamp_ms: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    control: str | None = None
    first_id: int = -1
    last_id: int = -1
    ids: int = 0
    malformed: int = 0

    @property
    def id_gaps(self) -> int:
        """Numbers left out between the first and the last id."""
        return self.last_id - self.first_id + 1 - self.ids if self.ids else 0

    def goes_on_with(self, found: Stretch) -> bool:
        """Whether the new ids follow this run's last one in rising order, or neither has any."""
        if found.ids:
            return self.records == self.ids + self.malformed and found.first_id > self.last_id
        return not self.ids or found.records == found.malformed


@dataclass(slots=True)
class _Writer:
    """`next_sequence` is None before its first batch, -1 for a producer without an id."""

    next_sequence: int | None = None
    runs: dict[bytes | None, Run] = field(default_factory=dict[bytes | None, Run])


class Fold:
    """The runs of one range of a partition, batch by batch in the order of the log."""

    def __init__(self, where: TopicPartition, within: Range, headers: Headers) -> None:
        self._where = where
        self._within = within
        self._headers = headers
        self._writers: dict[int, dict[tuple[int, bool], _Writer]] = {}
        self._done: list[Run] = []
        self._open = 0

    def add(self, batch: memoryview) -> None:
        """Add the next batch; its part outside the range is left out. Raises `CorruptLogError`."""
        found = open_batch(batch, self._where, self._within)
        if found is None:
            return
        header = found.header
        writers = self._writers.setdefault(header.producer_id, {})
        if header.is_control:
            self._mark(found, writers)
            return
        writer = writers.setdefault((header.producer_epoch, header.is_transactional), _Writer())
        if writer.next_sequence not in (None, header.base_sequence):
            self._end(writer)
        follows = (header.last_sequence + 1) % SEQUENCE_MODULUS
        writer.next_sequence = follows if header.base_sequence >= 0 else _NO_SEQUENCE
        if not header.records:
            self._add_emptied(found, writer)
            return
        stretches = found.stretches(self._headers, found.low, found.high)
        counts = 1 if stretches and self._begins_here(found) else 0
        for stretch in stretches:
            self._add(found, stretch, writer, counts)
            counts = 0
        if self._open > MOST_OPEN or len(self._writers) > MOST_OPEN:
            self._end_all()

    def _begins_here(self, batch: OpenBatch) -> bool:
        """Whether no earlier range has a record of the batch."""
        if self._within.is_first or not batch.is_cut_in_front:
            return True
        return batch.is_compacted and not batch.stretches(self._headers, 0, batch.low - 1)

    def _add(self, batch: OpenBatch, stretch: Stretch, writer: _Writer, counts: int) -> None:
        run = writer.runs.get(stretch.name)
        if run is None or not run.goes_on_with(stretch):
            if run is not None:
                self._done.append(run)
            else:
                self._open += 1
            began = batch.timestamp(stretch.first_timestamp_delta)
            run = writer.runs[stretch.name] = self._empty(batch, stretch.first_offset_delta, stretch.name, began)
        base, last = batch.header.base_offset, stretch.last_offset_delta
        run.last_offset, run.last_sequence = base + last, batch.sequence(last)
        run.last_timestamp_ms = batch.timestamp(stretch.last_timestamp_delta)
        run.batches += counts
        run.bytes += counts * batch.header.size
        run.records += stretch.records
        run.malformed += stretch.malformed
        if stretch.ids:
            run.first_id = run.first_id if run.ids else stretch.first_id
            run.last_id = stretch.last_id
            run.ids += stretch.ids

    def _empty(self, batch: OpenBatch, first: int, name: bytes | None, timestamp: int) -> Run:
        header = batch.header
        return Run(
            partition=self._where.partition,
            first_offset=header.base_offset + first,
            last_offset=header.base_offset + first,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            first_sequence=batch.sequence(first),
            last_sequence=batch.sequence(first),
            is_transactional=header.is_transactional,
            producer_name=None if name is None else name.decode(),
            first_timestamp_ms=timestamp,
            last_timestamp_ms=timestamp,
        )

    def _add_emptied(self, batch: OpenBatch, writer: _Writer) -> None:
        """Add a batch without records. The name of its records is unknown, so it extends the run with the highest
        offset, or begins a run without a name.
        """
        if batch.is_cut_in_front and not self._within.is_first:
            return
        run = max(writer.runs.values(), key=lambda each: each.last_offset, default=None)
        if run is None:
            self._open += 1
            run = writer.runs[None] = self._empty(batch, batch.low, None, batch.header.max_timestamp)
        run.last_offset, run.last_sequence = batch.header.base_offset + batch.high, batch.sequence(batch.high)
        run.batches += 1
        run.bytes += batch.header.size

    def _mark(self, batch: OpenBatch, writers: dict[tuple[int, bool], _Writer]) -> None:
        """Add a control batch: it is a run of its own, and ends its producer's transaction, of whatever epoch."""
        for (_, is_transactional), writer in writers.items():
            if is_transactional:
                self._end(writer)
        run = self._empty(batch, batch.low, None, batch.header.max_timestamp)
        run.control = batch.control
        run.last_offset = batch.header.base_offset + batch.high
        run.batches, run.bytes, run.records = 1, batch.header.size, batch.header.records
        self._done.append(run)

    def _end(self, writer: _Writer) -> None:
        self._open -= len(writer.runs)
        self._done.extend(writer.runs.values())
        writer.runs.clear()

    def _end_all(self) -> None:
        for writers in self._writers.values():
            for writer in writers.values():
                self._end(writer)
        self._writers.clear()

    def take(self) -> list[Run]:
        """The runs that have ended since the last call."""
        found, self._done = self._done, []
        return found

    def finish(self) -> list[Run]:
        """End and return all other runs: the range is at its end."""
        self._end_all()
        return sorted(self.take(), key=lambda run: run.first_offset)


def fold(batches: Iterable[memoryview], where: TopicPartition, within: Range, headers: Headers) -> list[Run]:
    """All runs of these batches."""
    found = Fold(where, within, headers)
    for batch in batches:
        found.add(batch)
    return found.finish()
