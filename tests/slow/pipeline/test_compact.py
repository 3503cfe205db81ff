"""The newest value of each key at a point, and what changed between two: compared with the log gone through by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sidecar.jobs.compact import Compaction, changes, newest, read, values
from sidecar.pipeline.errors import OffsetRangeError, PipelineError, PointError
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.points import Extent, extent, resolve
from sidecar.pipeline.tables import TableError
from tests.conftest import StartNode, Unique
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.lake import Log

COLUMNS = (
    "key binary, partition int, offset bigint, timestamp timestamp, value binary,"
    " headers array<struct<key:string,value:binary>>"
)
START = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[bytes | None, int, int, datetime, bytes | None, None]


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    return Log(services.kafka_bootstrap, unique("accounts"))


def some_records(seed: int, count: int) -> list[Row]:
    """Keys over two partitions, values that come again, tombstones, records without a key, timestamps that lie."""
    chance, offsets, found = random.Random(seed), [0, 0], list[Row]()
    for _ in range(count):
        partition = chance.randrange(2)
        offsets[partition] += chance.choice((1, 1, 1, 2))  # markers and compaction leave offsets out
        key = None if chance.random() < 0.1 else f"k{chance.randrange(30)}".encode()
        value = None if chance.random() < 0.3 else f"v{chance.randrange(4)}".encode()
        found.append((key, partition, offsets[partition], START + timedelta(seconds=chance.randrange(50)), value, None))
    return found


def by_hand(records: list[Row], before: Mapping[int, int]) -> dict[bytes, Row]:
    """The newest record of each key in front of these offsets, tombstones among them."""
    last: dict[tuple[bytes, int], Row] = {}
    for row in sorted(records, key=lambda row: (row[1], row[2])):
        if row[0] is not None and row[2] < before[row[1]]:
            last[row[0], row[1]] = row
    found: dict[bytes, Row] = {}
    for (key, _), row in sorted(last.items(), key=lambda item: (item[1][3], item[1][1])):
        found[key] = row
    return found


def living(records: list[Row], before: Mapping[int, int]) -> dict[bytes, bytes]:
    return {key: row[4] for key, row in by_hand(records, before).items() if row[4] is not None}


def frame(spark: SparkSession, records: list[Row]) -> DataFrame:
    return spark.createDataFrame(records, COLUMNS)


def test_the_newest_value_of_each_key_is_what_going_through_the_log_finds(spark: SparkSession) -> None:
    records = some_records(1, 400)
    until = {0: 10**9, 1: 10**9}
    rows = values(newest(frame(spark, records))).collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == living(records, until)
    newest_by_hand = by_hand(records, until)
    assert all((row.partition, row.offset) == newest_by_hand[bytes(row.key)][1:3] for row in rows)
    assert len(rows) == len({bytes(row.key) for row in rows})


def test_a_diff_tells_which_keys_came_changed_and_went(spark: SparkSession) -> None:
    records = some_records(2, 400)
    until, before = {0: 10**9, 1: 10**9}, {0: 100, 1: 140}
    old, new = living(records, before), living(records, until)
    expected = {key: ("added", None, new[key]) for key in new.keys() - old.keys()}
    expected |= {key: ("removed", old[key], None) for key in old.keys() - new.keys()}
    expected |= {key: ("changed", old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}
    assert {each[0] for each in expected.values()} == {"added", "removed", "changed"}
    assert old.keys() & new.keys() - expected.keys(), "some key is as it was"
    rows = changes(newest(frame(spark, records), before)).collect()
    found = {
        bytes(row.key): (row.change, row.old_value and bytes(row.old_value), row.new_value and bytes(row.new_value))
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(found)


def test_in_a_partition_the_offset_decides_and_between_partitions_the_timestamp(spark: SparkSession) -> None:
    later, sooner = START + timedelta(hours=1), START
    records: list[Row] = [
        (b"lies", 0, 5, later, b"old", None),
        (b"lies", 0, 6, sooner, b"new", None),
        (b"moved", 0, 3, later, b"new", None),
        (b"moved", 1, 9, sooner, b"old", None),
        (b"ended", 0, 10, sooner, b"old", None),
        (b"ended", 1, 4, later, None, None),
        (b"equal", 0, 11, sooner, b"old", None),
        (b"equal", 1, 5, sooner, b"new", None),
    ]
    rows = values(newest(frame(spark, records))).collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == {b"lies": b"new", b"moved": b"new", b"equal": b"new"}


def compaction(
    spark: SparkSession, log: Log, as_of: str, since: str | None = None
) -> tuple[Compaction, Mapping[int, int]]:
    with Kafka(log.bootstrap) as kafka:
        there = extent(kafka, log.topic)
        until, before = resolve(as_of, kafka, there), resolve(since, kafka, there) if since else None
        records = read(spark, log.bootstrap, there, until, {})
        return Compaction(records, there, kafka.cluster_id, until, before), until


def table(path: Path) -> dict[bytes, Any]:
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    found = {row["key"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_table_as_of_a_time_of_offsets_and_of_now(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Timestamps rise by a second from record to record; behind them are records of an aborted transaction."""
    for number in range(40):
        key, value = f"k{number % 7}", None if number % 9 == 8 else f"v{number}"
        log.put(key, value, number % 2, timestamp=1_767_225_600_000 + number * 1000)
    log.put(None, "nobody's", 0, timestamp=1_767_225_700_000)
    log.transaction(20, 1, commit=False)
    seen = log.read()

    def expected(until: Mapping[int, int]) -> dict[bytes, bytes]:
        rows: list[Row] = [
            (key, partition, offset, START + timedelta(seconds=2 * offset + partition), value, None)
            for (partition, offset), (key, value, _) in seen.items()
        ]
        return living(rows, until)

    for as_of, ends in (
        ("2026-01-01T00:00:25Z", {0: 13, 1: 12}),
        ("2026-01-01T01:00:25.500+01:00", {0: 13, 1: 13}),
        (json.dumps({"0": 3, "1": 17}), {0: 3, 1: 17}),
        ("now", {0: 21, 1: 41}),
    ):
        job, until = compaction(spark, log, as_of)
        assert until == ends
        counts = job.run(str(tmp_path / "table"))
        assert {key: row["value"] for key, row in table(tmp_path / "table").items()} == expected(until)
        assert counts.rows == {"key": len(expected(until))}
        assert counts.null_keys == (as_of == "now")
        assert counts.records == sum(offset < until[partition] for partition, offset in seen)
        assert counts.keys_in_several_partitions == (3 if as_of[0] == "{" else 7)


def test_a_diff_is_written_and_counted(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    for key, value in (("stays", "1"), ("changes", "1"), ("goes", "1")):
        log.put(key, value)
    for key, value in (
        ("changes", "2"),
        ("goes", None),
        ("comes", "1"),
        ("stays", "1"),
        ("passes", "1"),
        ("passes", None),
    ):
        log.put(key, value)
    job, _ = compaction(spark, log, "now", json.dumps({"0": 3, "1": 0}))
    assert job.run(str(tmp_path / "diff")).rows == {"added": 1, "changed": 1, "removed": 1}
    found = {key: (row["change"], row["old_value"], row["new_value"]) for key, row in table(tmp_path / "diff").items()}
    assert found == {
        b"changes": ("changed", b"1", b"2"),
        b"goes": ("removed", b"1", None),
        b"comes": ("added", None, b"1"),
    }
    job, _ = compaction(spark, log, "now", json.dumps({"0": 3, "1": 0}))
    assert job.run(None).rows == {"added": 1, "changed": 1, "removed": 1}
    job, _ = compaction(spark, log, "now")
    with pytest.raises(TableError, match="was made by `pipeline diff`, not compact"):
        job.run(str(tmp_path / "diff"))


def test_a_diff_from_a_later_point_to_an_earlier_one_is_refused(spark: SparkSession) -> None:
    """It would read nothing of what lies between the two."""
    records = frame(spark, some_records(3, 10))
    for before in ({0: 11, 1: 0}, {0: 20, 1: 5}):
        with pytest.raises(OffsetRangeError, match=r"partition 0 of accounts .* earlier point by --diff"):
            Compaction(records, LOG, "cluster", {0: 10, 1: 5}, before)
    Compaction(records, LOG, "cluster", {0: 10, 1: 5}, {0: 10, 1: 5})


def test_a_shadow_is_compacted_through_a_node(
    spark: SparkSession, services: Services, node_process: StartNode, log: Log, unique: Unique
) -> None:
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", None)):
        log.put(key, value, timestamp=1_767_225_600_000)
    log.put("c", "1", timestamp=1_767_225_601_000)
    node, shadow = node_process(), unique("audit")
    assert Rest(node.admin_url).call("POST", f"/v1/topics/{log.topic}/shadows", {"name": shadow})[0] == 201
    for as_of, expected in (("2026-01-01T00:00:01Z", {b"a": b"2"}), ("now", {b"a": b"2", b"c": b"1"})):
        with Kafka(node.bootstrap) as kafka:
            there = extent(kafka, shadow)
            until = resolve(as_of, kafka, there)
            job = Compaction(read(spark, node.bootstrap, there, until, {}), there, kafka.cluster_id, until)
        assert {bytes(row.key): bytes(row.value) for row in job.rows().collect()} == expected


def test_records_that_are_lost_while_they_are_read_are_told_and_the_table_stays(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write(20)
    job, _ = compaction(spark, log, "now")
    job.run(str(tmp_path / "table"))
    before = table(tmp_path / "table")
    log.write(20, prefix="later ")
    job, _ = compaction(spark, log, "now")
    log.lose(0, 5)
    with pytest.raises(PipelineError, match=rf"{log.topic} cannot be compacted .*[Oo]ffset.*start it again"):
        job.run(str(tmp_path / "table"))
    assert table(tmp_path / "table") == before


LOG = Extent("accounts", {0: 10, 1: 0}, {0: 20, 1: 5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0": 9, "1": 5}', "offset 9 of partition 0 of accounts is not in its log.*10 to 20"),
        ('{"0": 21, "1": 5}', "offset 21 of partition 0"),
        ('{"0": 15}', "no offset is given for partition 1"),
        ('{"0": 15, "1": 5, "2": 0}', "has no partition 2: it has 0 to 1"),
    ],
)
def test_offsets_that_a_log_does_not_have_are_refused(services: Services, text: str, message: str) -> None:
    with Kafka(services.kafka_bootstrap) as kafka, pytest.raises(OffsetRangeError, match=message):
        resolve(text, kafka, LOG)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00+05:00"])
def test_a_time_that_kafka_would_take_for_something_else_is_refused(services: Services, text: str) -> None:
    """-1 is the end of a log, -2 its start."""
    with Kafka(services.kafka_bootstrap) as kafka, pytest.raises(PointError, match="in front of 1970"):
        resolve(text, kafka, LOG)


@pytest.mark.parametrize("text", ["yesterday", "{}", '{"0": "5"}', '{"a": 5}', '{"0": true}', "{0: 5}", "12:00"])
def test_what_is_no_point_is_refused_with_examples(services: Services, text: str) -> None:
    with Kafka(services.kafka_bootstrap) as kafka, pytest.raises(PointError, match=r'give .*\{"0": 5, "1": 7\}'):
        resolve(text, kafka, LOG)
