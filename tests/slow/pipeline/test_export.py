"""A Delta table holds what the log holds, each record once, whatever ends in between."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sidecar.pipeline import gaps as noted
from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.gaps import Gap, GapError
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.ledger import Ledger
from sidecar.pipeline.tables import TableError, delta_log
from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.lake import Files, Lake, Log
from tests.wait import wait_for


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    return Log(services.kafka_bootstrap, unique("orders"))


@pytest.fixture
def lake(spark: SparkSession, log: Log, tmp_path: Path) -> Lake:
    return Lake(spark, log.bootstrap, log.topic, tmp_path)


class DiedError(Exception):
    """Stands for the end of the process, at a place that a test has chosen."""


def die(*_: Any) -> None:
    raise DiedError


def test_the_table_of_a_shadow_holds_what_its_log_holds(
    spark: SparkSession, node: NodeProcess, log: Log, unique: Unique, tmp_path: Path
) -> None:
    shadow = unique("audit")
    log.write(400, headers=[("n", "1"), ("n", b"\xff\x00"), ("none", None)])
    log.transaction(30, 0, commit=True)
    log.transaction(30, 1, commit=False)
    log.put(None, None)
    log.put(b"\xff\xfe", b"\x00")
    assert Rest(node.admin_url).call("POST", f"/v1/topics/{log.topic}/shadows", {"name": shadow})[0] == 201
    lake = Lake(spark, node.bootstrap, shadow, tmp_path)
    done = lake.export(max_offsets=150)
    assert lake.records() == log.read()
    assert done.rows == 432
    assert {row["topic"] for row in lake.rows()} == {shadow}
    assert sum(each.rows for each in lake.progress) == 432
    assert len(lake.progress) > 2
    assert lake.progress[-1].lag == 0
    assert lake.export().rows == 0


def test_a_death_between_the_commit_of_the_table_and_spark_s_doubles_nothing(lake: Lake, log: Log) -> None:
    log.write(300)
    with Kafka(log.bootstrap) as kafka:
        dying = lake.exporter(kafka, max_offsets=100)
        dying._committed = die  # called after the commit of the table
        with pytest.raises(Exception, match="DiedError"):
            dying.run()
    assert len(lake.rows()) == 100
    assert not list((lake.checkpoint / "commits").glob("[0-9]*"))
    log.write(50, prefix="later ")
    lake.export(max_offsets=70)
    assert lake.records() == log.read()


def test_a_death_before_the_commit_of_the_table_loses_nothing(
    lake: Lake, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(300)
    with monkeypatch.context() as patched:
        seen: list[int] = []

        def operation(ledger: Ledger, ends: dict[int, int]) -> Any:
            seen.append(len(ends))
            return die() if len(seen) == 2 else genuine(ledger, ends)

        genuine = Ledger._operation
        patched.setattr(Ledger, "_operation", operation)
        with pytest.raises(Exception, match="DiedError"):
            lake.export(max_offsets=100)
    assert len(lake.rows()) == 100
    lake.export()
    assert lake.records() == log.read()


def test_a_deleted_checkpoint_neither_doubles_nor_loses_anything(lake: Lake, log: Log) -> None:
    log.write(300)
    lake.export(max_offsets=50)
    for more in (5, 300):  # fewer batches and records than before, then as many
        shutil.rmtree(lake.checkpoint)
        lake.spark.sql(f"OPTIMIZE delta.`{lake.path}`")  # other files, and a commit that is nobody's export
        log.write(more, prefix=f"{more} ")
        lake.export()
        assert lake.records() == log.read()


def test_a_checkpoint_that_is_ahead_of_the_table_leaves_nothing_out(lake: Lake, log: Log) -> None:
    """A table restored from an older copy."""
    log.write(100)
    lake.export()
    shutil.copytree(lake.path, lake.directory / "copy")
    log.write(100, prefix="later ")
    lake.export()
    shutil.rmtree(lake.path)
    shutil.move(lake.directory / "copy", lake.path)
    lake.export()
    assert lake.records() == log.read()
    assert any("begun anew" in line for line in lake.said)


def test_a_table_that_was_restored_gets_again_what_it_lost_by_that(lake: Lake, log: Log) -> None:
    """Delta's RESTORE takes rows back and leaves the offsets that were committed with them."""
    log.write(100)
    lake.export()
    log.write(100, prefix="later ")
    lake.export()
    lake.spark.sql(f"RESTORE TABLE delta.`{lake.path}` TO VERSION AS OF 1")
    assert len(lake.rows()) == 100
    log.write(10, prefix="last ")
    lake.export()
    assert lake.records() == log.read()


def test_a_table_that_is_restored_while_it_is_exported_ends_that(lake: Lake, log: Log) -> None:
    log.write(300)
    restored: list[Any] = []

    def restore(_: Any) -> None:
        if not restored:
            restored.append(lake.spark.sql(f"RESTORE TABLE delta.`{lake.path}` TO VERSION AS OF 0").collect())

    with Kafka(log.bootstrap) as kafka:
        exporter = lake.exporter(kafka, max_offsets=100)
        exporter._committed = restore
        with pytest.raises(PipelineError, match="was changed by RESTORE or CLONE meanwhile"):
            exporter.run()
    assert lake.rows() == []
    lake.export()
    assert lake.records() == log.read()


def test_two_exports_that_make_the_table_at_once_make_one(
    lake: Lake, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(100)
    both, genuine = threading.Barrier(2, timeout=120), Ledger.create
    summaries: list[int] = []

    def create(*arguments: Any) -> bool:
        both.wait()
        return genuine(*arguments)

    def export(number: int) -> None:
        summaries.append(lake.export(checkpoint=f"{lake.checkpoint}-{number}").rows)

    monkeypatch.setattr(Ledger, "create", create)
    threads = [threading.Thread(target=export, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(summaries) == 100
    assert len(summaries) == 2
    assert lake.records() == log.read()


def test_of_two_exports_with_the_same_rows_one_is_refused_and_finds_them_written(
    lake: Lake, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have written their files when the first of them commits."""
    log.write(200)
    lake.export()
    log.write(200, prefix="later ")
    both, waited, genuine = threading.Barrier(2, timeout=120), threading.local(), Ledger._operation

    def operation(ledger: Ledger, ends: dict[int, int]) -> Any:
        if not hasattr(waited, "once"):
            waited.once = both.wait()
        return genuine(ledger, ends)

    monkeypatch.setattr(Ledger, "_operation", operation)
    summaries: list[int] = []

    def export(number: int) -> None:
        summaries.append(lake.export(checkpoint=f"{lake.checkpoint}-{number}").rows)

    threads = [threading.Thread(target=export, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(summaries) == [0, 200]
    assert lake.records() == log.read()


def test_what_retention_took_is_told_with_its_partition_and_offsets(lake: Lake, log: Log) -> None:
    log.write(100)
    lake.export()
    log.write(100)
    log.lose(1, 70)
    before = Files(lake.path)
    with pytest.raises(GapError, match=r"partition 1, offsets 50 to 69 \(20\)"):
        lake.export()
    assert Files(lake.path) == before


def test_accepted_gaps_are_noted_beside_the_table_and_the_export_goes_on(lake: Lake, log: Log) -> None:
    log.write(100)
    lake.export()
    exported = lake.records()
    log.write(100)
    log.lose(1, 70)
    assert [(gap.partition, gap.first, gap.last) for gap in lake.export(accept_gaps=True).gaps] == [(1, 50, 69)]
    log.write(10)
    assert lake.export(accept_gaps=True).gaps == []
    assert lake.records() == exported | log.read()
    noted = DeltaTable(f"{lake.path}.gaps").to_pyarrow_table().to_pylist()
    assert [(row["partition"], row["first_offset"], row["last_offset"]) for row in noted] == [(1, 50, 69)]


def test_records_lost_while_the_export_runs_end_it_too(lake: Lake, log: Log) -> None:
    log.write(300, in_a_batch=5)
    fetched_ahead = {"kafka.max.partition.fetch.bytes": "1"}  # a batch or two; what a consumer has is not lost
    with Kafka(log.bootstrap) as kafka:
        exporter = lake.exporter(kafka, max_offsets=100, options=fetched_ahead)
        exporter._committed = lambda _: log.lose(0, 145)
        with pytest.raises(GapError, match=r"partition 0, offsets \d+ to 144"):
            exporter.run()
    whole = lake.records()
    lake.export(accept_gaps=True)
    assert lake.records() == whole | log.read()


def test_partitions_that_come_while_it_runs_are_taken_up(lake: Lake, log: Log) -> None:
    log.write(100)
    with Kafka(log.bootstrap) as kafka:
        exporter = lake.exporter(kafka, available_now=False)
        thread = threading.Thread(target=exporter.run)
        thread.start()
        wait_for(lambda: lake.progress, "the first commit", timeout=120)
        log.grow(3)
        log.write(30, partitions=(2,))
        wait_for(lambda: sum(each.rows for each in lake.progress) == 130, "the new partition", timeout=120)
        exporter.stop()
        thread.join(120)
        assert not thread.is_alive()
    assert lake.records() == log.read()


def test_a_partition_that_came_while_nothing_ran_is_read_from_its_start(lake: Lake, log: Log) -> None:
    log.write(100)
    lake.export()
    log.grow(3)
    log.write(30, partitions=(2,))
    lake.export()
    assert lake.records() == log.read()
    log.grow(4)
    log.write(30, partitions=(3,))
    log.lose(3, 10)
    with pytest.raises(GapError, match="partition 3, offsets 0 to 9"):
        lake.export()
    lake.export(accept_gaps=True)
    assert {each for each in lake.records() if each[0] == 3} == {each for each in log.read() if each[0] == 3}
    assert lake.export().rows == 0


def read(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    """Partitions and offsets, in order; another library does not follow the files of a clone."""
    rows = spark.read.format("delta").load(str(path)).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_a_clone_goes_on_behind_the_rows_that_it_has(lake: Lake, log: Log) -> None:
    """Delta copies rows and properties, and no offsets."""
    log.write(20)
    lake.export()
    clone = lake.directory / "clone"
    lake.spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{lake.path}`")
    log.write(20, prefix="later ")
    lake.export()
    lake.export(path=str(clone), checkpoint=str(lake.directory / "another"))
    assert read(lake.spark, clone) == sorted(log.read())
    shutil.rmtree(clone)
    lake.spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{lake.path}` VERSION AS OF 1")
    lake.spark.sql(f"DELETE FROM delta.`{lake.path}`")
    lake.spark.sql(f"CREATE OR REPLACE TABLE delta.`{lake.path}` SHALLOW CLONE delta.`{clone}`")
    assert len(read(lake.spark, lake.path)) == 20
    lake.export()
    assert read(lake.spark, lake.path) == sorted(log.read())


def test_what_a_restored_table_lost_and_retention_took_is_a_gap(lake: Lake, log: Log) -> None:
    log.write(20)
    log.lose(0, 4)
    lake.export(max_offsets=1_000)
    before = log.read()
    lake.spark.sql(f"RESTORE TABLE delta.`{lake.path}` TO VERSION AS OF 0")
    log.lose(1, 7)
    with pytest.raises(GapError, match=r"gone before they were exported: partition 1, offsets 0 to 6 \(7\)\. "):
        lake.export()
    lake.export(accept_gaps=True)
    assert lake.records() == {each: record for each, record in before.items() if each[0] == 0 or each[1] >= 7}


def test_offsets_that_the_table_was_told_to_forget_double_nothing(lake: Lake, log: Log) -> None:
    forget = "'delta.setTransactionRetentionDuration'"
    log.write(20)
    lake.export()
    lake.spark.sql(f"ALTER TABLE delta.`{lake.path}` SET TBLPROPERTIES ({forget} = 'interval 0 hours')")
    with pytest.raises(TableError, match=r"forgets its offsets.* UNSET TBLPROPERTIES"):
        lake.export()
    delta_log(lake.spark, str(lake.path)).checkpoint()  # what is forgotten is not in it
    lake.spark.sql(f"ALTER TABLE delta.`{lake.path}` UNSET TBLPROPERTIES ({forget})")
    with Kafka(log.bootstrap) as kafka:
        assert Ledger(lake.spark, str(lake.path), kafka.cluster_id, log.topic).stands() == {}
    log.write(20, prefix="later ")
    lake.export()
    assert lake.records() == log.read()


def test_a_time_that_spark_has_no_number_for_ends_the_export_with_its_record(lake: Lake, log: Log) -> None:
    """Of a client that counts nanoseconds, where the topic lets any time in."""
    log.allow_any_time()
    log.write(5)
    log.put("k", "v", partition=1, timestamp=1_767_225_600_000_000_000)
    with pytest.raises(
        PipelineError, match=rf"failed: .*Record at topic {log.topic} partition 1 offset 2 has timestamp"
    ):
        lake.export()


def test_a_restore_between_the_look_at_a_table_and_the_commit_is_seen(
    lake: Lake, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(300)
    restored: list[Any] = []

    def stands(ledger: Ledger) -> dict[int, int]:
        found = genuine(ledger)
        if lake.progress and not restored:
            restored.append(lake.spark.sql(f"RESTORE TABLE delta.`{lake.path}` TO VERSION AS OF 0").collect())
        return found

    genuine = Ledger.stands
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "stands", stands)
        with pytest.raises(PipelineError, match="was changed by RESTORE or CLONE meanwhile"):
            lake.export(max_offsets=100)
    assert restored
    lake.export()
    assert lake.records() == log.read()


@pytest.mark.parametrize("change", ["columns", "table"])
def test_a_table_that_becomes_another_one_while_it_is_exported_is_not_written_to(
    lake: Lake, log: Log, change: str
) -> None:
    """Delta checks no types of what is committed so: the table could not be read any more."""
    log.write(300)
    place = f"delta.`{lake.path}`"
    orders = {
        "columns": f"ALTER TABLE {place} ADD COLUMNS (more string)",
        "table": f"CREATE OR REPLACE TABLE {place} USING delta AS"
        f" SELECT topic, partition, offset, timestamp, key, headers, struct(1 AS a) AS value FROM {place}",
    }

    def become(_: Any) -> None:
        if len(lake.progress) == 1:
            lake.spark.sql(orders[change])

    with Kafka(log.bootstrap) as kafka:
        exporter = lake.exporter(kafka, max_offsets=100)
        committed = exporter._committed
        exporter._committed = lambda done: (committed(done), become(done))[0]
        with pytest.raises(TableError, match=r"columns or properties .* were changed"):
            exporter.run()
    assert lake.spark.read.format("delta").load(str(lake.path)).where("value IS NOT NULL").count() == 100


def test_exports_that_note_a_gap_at_the_same_time_note_it_once(lake: Lake, log: Log) -> None:
    with Kafka(log.bootstrap) as kafka:
        cluster_id = kafka.cluster_id
    together = threading.Barrier(3, timeout=60)

    def note(_: int) -> None:
        together.wait()
        noted.note(lake.spark, str(lake.path), cluster_id, log.topic, [Gap(0, 5, 7)])

    with ThreadPoolExecutor(3) as pool:
        assert len(list(pool.map(note, range(3)))) == 3
    rows = DeltaTable(f"{lake.path}.gaps").to_pyarrow_table().to_pylist()
    assert [(row["partition"], row["first_offset"], row["last_offset"]) for row in rows] == [(0, 5, 7)]
