"""Runs and records as Arrow record batches, a few thousand rows each; the columns of both views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sidecar.pipeline.source.batches import Headers, OpenBatch, Range, open_batch
from sidecar.pipeline.source.options import RECORDS, RUNS
from sidecar.pipeline.source.runs import Fold, Run
from sidecar.protocol import stretches as wire
from sidecar.protocol.ids import TopicPartition

_ROWS: Final = 10_000
_BYTES: Final = 16 * 1024 * 1024
"""The limit for the records in a record batch."""

_NO_TIMESTAMP: Final = -1
_LARGEST_MS: Final = 2**63 // 1000 - 1
_FIELDS: Final = {"key": wire.KEY, "value": wire.VALUE, "headers": wire.HEADERS}


def run_batches(
    batches: Iterable[memoryview], where: TopicPartition, within: Range, headers: Headers, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The runs of these batches; the open runs follow at the end of the range."""
    fold = Fold(where, within, headers)
    ended: list[Run] = []
    for batch in batches:
        fold.add(batch)
        ended += fold.take()
        if len(ended) >= _ROWS:
            yield run_table(ended, schema)
            ended = []
    ended += fold.finish()
    if ended:
        yield run_table(ended, schema)


def run_table(runs: list[Run], schema: pa.Schema) -> pa.RecordBatch:
    """A row per run; ids are null if it has none."""
    columns: list[list[Any]] = []
    for name in schema.names:
        if name in ("first_id", "last_id"):
            columns.append([getattr(run, name) if run.ids else None for run in runs])
        else:
            columns.append([getattr(run, name) for run in runs])
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )


class _Rows:
    """Records of some batches, with values from their batches."""

    def __init__(self, partition: int, headers: Headers, wanted: int) -> None:
        self.partition = partition
        self.columns = wire.Columns()
        self.batches: list[tuple[OpenBatch, int, str | None]] = []
        self.bytes = 0
        self._headers = headers
        self._wanted = wanted

    def add(self, batch: OpenBatch) -> None:
        header = batch.header
        if not header.records:
            return
        control = batch.control
        count = batch.unpack(self._headers, self.columns, self._wanted)
        if control is not None:  # the key of a marker is no key of a record
            for values, bit in ((self.columns.keys, wire.KEY), (self.columns.values, wire.VALUE)):
                if self._wanted & bit:
                    values[-count:] = [None] * count
        self.batches.append((batch, count, control))
        self.bytes += len(batch.section)

    @property
    def is_full(self) -> bool:
        return len(self.columns) >= _ROWS or self.bytes >= _BYTES


def record_batches(
    batches: Iterable[memoryview],
    where: TopicPartition,
    within: Range,
    headers: Headers,
    columns: frozenset[str] | None,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The records of these batches; columns that are not among `columns` (None: all) are null."""
    bits = sum(bit for name, bit in _FIELDS.items() if columns is None or name in columns)
    rows = _Rows(where.partition, headers, bits)
    for each in batches:
        batch = open_batch(each, where, within)
        if batch is not None:
            rows.add(batch)
        if rows.is_full:
            yield record_table(rows, columns, schema)
            rows = _Rows(where.partition, headers, bits)
    if len(rows.columns):
        yield record_table(rows, columns, schema)


def record_table(rows: _Rows, wanted: frozenset[str] | None, schema: pa.Schema) -> pa.RecordBatch:
    """A row per record."""
    made = [
        _RECORDS[field.name][1](rows).cast(field.type)
        if wanted is None or field.name in wanted
        else pa.nulls(len(rows.columns), field.type)
        for field in schema
    ]
    return pa.record_batch(made, schema)


def _repeated(rows: _Rows, of: Callable[[OpenBatch], int | bool], kind: type = np.int64) -> np.ndarray:
    """A value of each batch, repeated for every record of it."""
    counts = [count for _, count, _ in rows.batches]
    return np.repeat(np.array([of(batch) for batch, _, _ in rows.batches], kind), counts)


def _offsets(rows: _Rows) -> np.ndarray:
    return _repeated(rows, lambda batch: batch.header.base_offset) + np.array(rows.columns.offset_deltas, np.int64)


def _sequences(rows: _Rows) -> np.ndarray:
    base = _repeated(rows, lambda batch: batch.header.base_sequence)
    found = (base + np.array(rows.columns.offset_deltas, np.int64)) % 2**31
    return np.where(base < 0, -1, found)


def _timestamps(rows: _Rows) -> pa.Array:
    """Timestamps in µs; null if a record has none, or one out of the calendar's range."""
    has_log_time = _repeated(rows, lambda batch: batch.has_log_append_time, np.bool_)
    created = _repeated(rows, lambda batch: batch.header.base_timestamp)
    created += np.array(rows.columns.timestamp_deltas, np.int64)  # which wraps around, as Java's does
    found = np.where(has_log_time, _repeated(rows, lambda batch: batch.header.max_timestamp), created)
    unknown = (found == _NO_TIMESTAMP) | (found > _LARGEST_MS) | (found < -_LARGEST_MS)
    return pa.array(np.where(unknown, 0, found) * 1000, pa.timestamp("us", "UTC"), mask=unknown)


def _texts(found: Sequence[bytes | None]) -> pa.Array:
    """UTF-8 text, with replacement characters for invalid bytes."""
    try:
        return pa.array(found, pa.binary()).cast(pa.string())  # checked as a whole, not string by string
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode(errors="replace") for each in found], pa.string())


def _headers(rows: _Rows) -> pa.Array:
    columns = rows.columns
    ends = np.concatenate(([0], np.cumsum(np.array(columns.header_counts, np.int64)))).astype(np.int32)
    each = pa.StructArray.from_arrays(
        [_texts(columns.header_keys), pa.array(columns.header_values, pa.binary())], ["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), each)


def _controls(rows: _Rows) -> pa.Array:
    found: list[str | None] = []
    for _, count, control in rows.batches:
        found += [control] * count
    return pa.array(found, pa.string())


def _problems(rows: _Rows) -> pa.Array:
    problems = rows.columns.problems
    if not problems:
        return pa.nulls(len(rows.columns), pa.string())
    return pa.array([problems.get(index) for index in range(len(rows.columns))], pa.string())


def _of_header(name: str, kind: type = np.int64) -> Callable[[_Rows], pa.Array]:
    of = attrgetter(f"header.{name}")
    return lambda rows: pa.array(_repeated(rows, of, kind))


_RECORDS: Final[dict[str, tuple[str, Callable[[_Rows], pa.Array]]]] = {
    "partition": ("int", lambda rows: pa.array(np.full(len(rows.columns), rows.partition, np.int32))),
    "offset": ("long", lambda rows: pa.array(_offsets(rows))),
    "timestamp": ("timestamp", _timestamps),
    "key": ("binary", lambda rows: pa.array(rows.columns.keys, pa.binary())),
    "value": ("binary", lambda rows: pa.array(rows.columns.values, pa.binary())),
    "headers": ("array<struct<key:string,value:binary>>", _headers),
    "producer_id": ("long", _of_header("producer_id")),
    "producer_epoch": ("int", _of_header("producer_epoch")),
    "base_offset": ("long", _of_header("base_offset")),
    "base_sequence": ("int", _of_header("base_sequence")),
    "sequence": ("int", lambda rows: pa.array(_sequences(rows))),
    "is_transactional": ("boolean", _of_header("is_transactional", np.bool_)),
    "control": ("string", _controls),
    "sequence_id": ("long", lambda rows: pa.array(rows.columns.sequence_ids, pa.int64())),
    "producer_name": ("string", lambda rows: _texts(rows.columns.names)),
    "id_problem": ("string", _problems),
}
"""Each column of the view `records`: its type as Spark's DDL, and how it is made."""

_RUNS: Final = {
    "partition": "int",
    "first_offset": "long",
    "last_offset": "long",
    "batches": "int",
    "records": "long",
    "bytes": "long",
    "producer_id": "long",
    "producer_epoch": "int",
    "first_sequence": "int",
    "last_sequence": "int",
    "is_transactional": "boolean",
    "control": "string",
    "producer_name": "string",
    "first_id": "long",
    "last_id": "long",
    "ids": "long",
    "malformed": "long",
    "id_gaps": "long",
    "first_timestamp_ms": "long",
    "last_timestamp_ms": "long",
}
"""Each column of the view `runs`, a field of `Run`: its type."""

COLUMNS: Final = {RECORDS: tuple(_RECORDS), RUNS: tuple(_RUNS)}


def ddl(view: str) -> str:
    """The schema of a view as DDL."""
    kinds = _RUNS if view == RUNS else {name: kind for name, (kind, _) in _RECORDS.items()}
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())
