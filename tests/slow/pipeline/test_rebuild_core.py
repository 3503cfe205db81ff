"""What runs tell of sequence ids, against a reference that reads record by record."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from sidecar.jobs import portions
from sidecar.jobs.portions import Writer

RUNS = (
    "partition int, first_offset long, last_offset long, records long, producer_id long, producer_epoch int,"
    " is_transactional boolean, control string, producer_name string, last_id long, ids long, malformed long"
)
RECORDS = (
    "partition int, offset long, producer_id long, producer_epoch int, is_transactional boolean, producer_name string,"
    " sequence_id long, control string"
)


class Logged(NamedTuple):
    """A record in a log: written by whom, under which header, with which id."""

    partition: int
    offset: int
    producer_id: int
    epoch: int
    header: str | None
    id: int | None
    malformed: bool = False
    transactional: bool = False


WRITERS = [
    Writer(1, 0, 2, None),
    Writer(1, 3, 5, "billing"),
    Writer(2, 0, 1, "", True),
    Writer(2, 2, 9, "ledger"),
]


def name_of(record: Logged) -> tuple[str | None, bool]:
    """Name, and whether the writer's is forgotten."""
    if record.header is not None:
        return record.header, False
    for writer in WRITERS:
        if writer.producer_id == record.producer_id and writer.first_epoch <= record.epoch <= writer.last_epoch:
            return writer.name, writer.forgotten
    return None, False


def runs_of(log: Iterable[Logged]) -> list[tuple[Any, ...]]:
    """As the source's view `runs`: one writer's and name's records while ids rise, or while there are none."""
    open_runs: dict[tuple[int, int, int, bool, str | None], list[Logged]] = {}
    done: list[list[Logged]] = []
    for record in log:
        key = record.partition, record.producer_id, record.epoch, record.transactional, record.header
        run = open_runs.get(key)
        if run is not None:
            last = max((each.id for each in run if each.id is not None), default=None)
            plain = [each for each in run if each.id is None and not each.malformed]
            goes_on = record.malformed or (
                not plain and (last is None or record.id > last) if record.id is not None else last is None
            )
            if not goes_on:
                done.append(open_runs.pop(key))
        open_runs.setdefault(key, []).append(record)
    rows: list[tuple[Any, ...]] = []
    for run in [*done, *open_runs.values()]:
        ids = [each.id for each in run if each.id is not None]
        first, last = run[0], run[-1]
        rows.append(
            (first.partition, first.offset, last.offset, len(run), first.producer_id, first.epoch,
             first.transactional, None, first.header, ids[-1] if ids else None, len(ids),
             sum(each.malformed for each in run))
        )  # fmt: skip
    return rows


def reference(log: Iterable[Logged]) -> dict[tuple[int, str], tuple[int, int]]:
    """The highest id by partition and name, and the offset of its first record."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for record in log:
        name, forgotten = name_of(record)
        if record.id is None or name is None or forgotten or record.transactional:
            continue
        known = found.get((record.partition, name))
        if known is None or record.id > known[0]:
            found[record.partition, name] = record.id, record.offset
    return found


def rebuilt(spark: SparkSession, log: list[Logged], limit: int = 100, **how: Any) -> dict[tuple[int, str], Any]:
    """What the core makes of it, with the offsets that have to be looked up."""
    writers = portions.writers_frame(spark, WRITERS)
    found = portions.by_name(spark.createDataFrame(runs_of(log), RUNS), writers, **how)
    names = portions.newest(found, limit).cache()
    rows = {(row.partition, row.name): (row.id, row.offset) for row in names.collect()}
    records = spark.createDataFrame(
        [(r.partition, r.offset, r.producer_id, r.epoch, r.transactional, r.header, r.id, None) for r in log], RECORDS
    )
    for row in portions.offsets_of(records, writers, portions.uncertain(names)).collect():
        assert rows[row.partition, row.name][1] is None
        rows[row.partition, row.name] = rows[row.partition, row.name][0], row.offset
    return rows


def any_log(partition: int) -> list[Logged]:
    """A log of one partition, by chance: the same one for the same partition."""
    chance, offset = Random(partition), 0
    found: list[Logged] = []
    for _ in range(chance.randrange(1, 40)):
        offset += chance.randrange(1, 3)
        bad = chance.random() < 0.1
        sequence_id = None if bad or chance.random() < 0.2 else chance.randrange(30)
        writer = chance.choice([(1, 0), (1, 3), (1, 5), (2, 1), (2, 2), (3, 0), (-1, -1)])
        header = chance.choice([None, None, "billing", "north", "größe"])
        found.append(Logged(partition, offset, *writer, header, sequence_id, bad, chance.random() < 0.2))
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_the_highest_ids_and_their_offsets_are_those_that_reading_record_by_record_finds(
    spark: SparkSession, compacted: bool
) -> None:
    log = [record for partition in range(300) for record in any_log(partition)]
    assert rebuilt(spark, log, compacted=compacted) == reference(log)


def test_the_totals_tell_of_all_records_and_of_the_first_id_whose_writer_is_forgotten(spark: SparkSession) -> None:
    log = [
        Logged(0, 0, 2, 0, None, None),  # forgotten, but without an id
        Logged(0, 1, 2, 1, "billing", 5),  # its header tells
        Logged(0, 2, 2, 1, None, 6),
        Logged(0, 3, 2, 0, None, 7),
        Logged(0, 4, 3, 0, None, 8),  # nobody's
        Logged(1, 9, 1, 4, None, None, malformed=True),
        Logged(1, 10, 1, 4, None, 3),
    ]
    writers = portions.writers_frame(spark, WRITERS)
    found = portions.by_name(spark.createDataFrame(runs_of(log), RUNS), writers)
    rows = sorted(tuple(row) for row in portions.totals(found).collect())
    assert rows == [(0, 5, 0, 2, 1, 0), (1, 2, 1, None, 1, 1)]


def test_markers_are_no_records(spark: SparkSession) -> None:
    writers = portions.writers_frame(spark, WRITERS)
    marker = (0, 7, 7, 1, 1, 4, True, "abort", None, None, 0, 0)
    assert portions.by_name(spark.createDataFrame([marker], RUNS), writers).collect() == []


def test_offsets_that_compaction_took_are_not_counted(spark: SparkSession) -> None:
    """Markers are: what they leave out is no gap."""
    marker = (0, 7, 7, 1, 1, 4, True, "abort", None, None, 0, 0)
    log = [Logged(0, offset, 1, 0, "billing", offset) for offset in (3, 4, 9)]
    runs = spark.createDataFrame([marker, *runs_of(log)], RUNS)
    assert [tuple(row) for row in portions.offsets_left(runs).collect()] == [(0, 4)]


def test_of_too_many_names_those_stay_that_were_written_under_last(spark: SparkSession) -> None:
    log = [Logged(partition, offset, 9, 0, f"n{offset:03}", 1) for partition in (0, 1) for offset in range(30)]
    log += [Logged(0, 100, 9, 0, "n000", 0)]  # a lower id: written under all the same
    found = rebuilt(spark, log, limit=10)
    assert {key for key in found if key[0] == 1} == {(1, f"n{offset:03}") for offset in range(20, 30)}
    kept = {(0, f"n{offset:03}") for offset in range(21, 30)} | {(0, "n000")}
    assert {key for key in found if key[0] == 0} == kept
    assert found[0, "n000"] == (1, 0), "the higher id counts, never the newer one"
