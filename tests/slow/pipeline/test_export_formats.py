"""Bytes, text and JSON as columns: every record is a row, whatever its key and value are."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.columns import Form, Format, read_schema, records
from sidecar.pipeline.errors import PipelineError
from tests.conftest import Unique
from tests.services import Services
from tests.slow.pipeline.lake import Lake, Log

SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key:string,value:binary>>"
)
FINE = b'{"id": 7, "name": "\xc3\xa4"}'


def read_as(spark: SparkSession, form: Form, *pairs: tuple[bytes | None, bytes | None]) -> list[Any]:
    rows = [(key, value, "t", 0, number, None, 0, None) for number, (key, value) in enumerate(pairs)]
    return records(spark.createDataFrame(rows, SOURCE), form).orderBy("offset").collect()


def corrupt(row: Any) -> tuple[bytes | None, ...] | None:
    return row.corrupt and tuple(each and bytes(each) for each in row.corrupt)


def test_text_that_is_no_utf8_is_kept_as_it_came(spark: SparkSession) -> None:
    pairs = [(b"k", b"\xc3\xa4"), (None, None), (b"", b""), (b"\xff", b"v"), (b"k", b"\xff\x00"), (b"\xfe", b"\xff")]
    rows = read_as(spark, Form(Format.STRING), *pairs)
    assert [(row.key, row.value) for row in rows] == [
        ("k", "ä"), (None, None), ("", ""), (None, "v"), ("k", None), (None, None),
    ]  # fmt: skip
    nothing = [None] * 3
    assert [corrupt(row) for row in rows] == [*nothing, (b"\xff", None), (None, b"\xff\x00"), (b"\xfe", b"\xff")]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        b'{"id": 7',
        b'{"id": "seven"}',
        b"[]",
        b'[{"id": 7}]',
        b"null",
        b'"text"',
        b'{"id": 7}\xff',
        b'{"id": 1e99}',
    ],
)
def test_json_that_is_malformed_or_of_another_form_is_kept_as_it_came(spark: SparkSession, value: bytes) -> None:
    form = Form(Format.JSON, read_schema("id bigint, name string"))
    fine, tombstone, broken = read_as(spark, form, (b"k", FINE), (b"k", None), (b"k", value))
    assert (tuple(fine.value), corrupt(fine)) == ((7, "ä"), None)
    assert (tombstone.value, corrupt(tombstone)) == (None, None)
    assert (broken.key, broken.value, corrupt(broken)) == ("k", None, (None, value))


def test_fields_that_a_json_lacks_are_null_and_those_the_schema_lacks_left_out(spark: SparkSession) -> None:
    form = Form(Format.JSON, read_schema("id bigint, name string"))
    (row,) = read_as(spark, form, (b"k", b'{"id": 7, "more": [1, 2]}'))
    assert (tuple(row.value), row.corrupt) == ((7, None), None)


def test_a_table_of_json_counts_what_is_corrupt_and_is_laid_out_by_day(
    spark: SparkSession, services: Services, unique: Unique, tmp_path: Path
) -> None:
    log = Log(services.kafka_bootstrap, unique("orders"))
    days = {date(2026, 1, 31): 1_769_903_999_999, date(2026, 2, 1): 1_769_904_000_000}  # a millisecond lies between
    for stamp in days.values():
        log.put("k", FINE, timestamp=stamp)
        log.put("k", b"nonsense", timestamp=stamp)
        log.put(b"\xff", b"nonsense", timestamp=stamp)
        log.put("k", None, timestamp=stamp)
    lake = Lake(spark, log.bootstrap, log.topic, tmp_path)
    form = Form(Format.JSON, read_schema("id bigint, name string"), ("topic", "date"))
    done = lake.export(form=form, max_offsets=6)
    assert (done.rows, done.corrupt) == (8, 6)  # four values and two keys
    assert DeltaTable(lake.path).metadata().partition_columns == ["topic", "date"]
    assert sorted(row["date"] for row in lake.rows()) == sorted([*days] * 4)
    values = [row["value"] for row in sorted(lake.rows(), key=lambda row: row["offset"])]
    assert values == [{"id": 7, "name": "ä"}, None, None, None] * 2
    read = spark.read.format("delta").load(str(lake.path)).where(F.col("date") == "2026-02-01")
    assert read.count() == 4


def test_a_schema_that_no_json_can_be_read_into_is_refused_with_the_reason(spark: SparkSession) -> None:
    form = Form(Format.JSON, read_schema("numbers map<int, string>"))
    with pytest.raises(
        PipelineError, match=r"schema struct<numbers:map<int,string>>.* can only contain STRING as a key"
    ):
        read_as(spark, form, (b"k", FINE))
