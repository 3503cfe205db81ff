"""Rows as Arrow has them: what no consumer of a real log would write, and how many rows come at a time. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from sidecar.pipeline.source import tables
from sidecar.pipeline.source.batches import Headers, Range
from sidecar.protocol.ids import TopicPartition
from tests.slow.pipeline.batches import NOW, Written, encode, named

WHERE = TopicPartition("orders", 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("headers", HEADERS)])


def rows(*batches: bytes, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    views, within = map(memoryview, batches), Range(0, 10**6)
    found = tables.record_batches(views, WHERE, within, Headers(), None, schema)
    return [row for each in found for row in each.to_pylist()]


def test_a_header_that_is_no_text_has_replacement_characters() -> None:
    headers: list[tuple[str | bytes, bytes | None]] = [(b"\xffn", b"\xff"), ("ä", None)]
    (row,) = rows(encode([Written(0, headers)]))
    assert row["headers"] == [{"key": "\ufffdn", "value": b"\xff"}, {"key": "ä", "value": None}]


@pytest.mark.parametrize("moment", [-1, 2**62, -(2**62)])
def test_a_time_that_no_calendar_reaches_is_null(moment: int) -> None:
    first, second = rows(encode([Written(0, time_delta=moment - NOW), Written(1, time_delta=0)]))
    assert first["timestamp"] is None
    assert second["timestamp"].timestamp() * 1000 == NOW


def test_rows_come_in_portions_however_large_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_ROWS", 10)
    batches = [encode([named(delta, at + delta) for delta in range(4)], at) for at in range(0, 40, 4)]
    found = tables.record_batches(map(memoryview, batches), WHERE, Range(2, 39), Headers(), None, SCHEMA)
    portions = [each.column("offset").to_pylist() for each in found]
    assert [len(portion) for portion in portions] == [10, 12, 12, 3]
    assert [offset for portion in portions for offset in portion] == list(range(2, 39))


def test_runs_come_in_portions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_ROWS", 2)
    schema = to_arrow_schema(StructType([StructField("first_offset", LongType()), StructField("first_id", LongType())]))
    batches = [memoryview(encode([named(0, 7)], at)) for at in range(5)]
    found = list(tables.run_batches(batches, WHERE, Range(0, 5), Headers(), schema))
    assert [each.num_rows for each in found] == [2, 2, 1]
    assert [row for each in found for row in each.to_pylist()] == [
        {"first_offset": at, "first_id": 7} for at in range(5)
    ]


def test_a_marker_that_compaction_emptied_is_no_record() -> None:
    emptied = encode([], 0, last_delta=0, producer_id=1, epoch=0, transactional=True, control=True)
    assert rows(emptied, encode([named(0, 1)], 1))[0]["offset"] == 1
