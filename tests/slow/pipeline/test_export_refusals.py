"""Tables, checkpoints and paths that are somebody else's are refused with a sentence, and left as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.pipeline.checkpoint import CheckpointError
from sidecar.pipeline.columns import Form, Format, read_schema
from sidecar.pipeline.errors import OffsetRangeError, PipelineError, UnknownTopicError
from sidecar.pipeline.tables import TableError
from tests.conftest import OwnKafka, Unique
from tests.services import Services
from tests.slow.pipeline.lake import Files, Lake, Log


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    return Log(services.kafka_bootstrap, unique("orders"))


@pytest.fixture
def lake(spark: SparkSession, log: Log, tmp_path: Path) -> Lake:
    return Lake(spark, log.bootstrap, log.topic, tmp_path / "lake")  # beside it may lie the files of a Kafka


def refused(lake: Lake, kind: type[Exception], message: str, **job: object) -> None:
    """The export ends so, and no file anywhere around has changed."""
    before = Files(lake.directory)
    with pytest.raises(kind, match=message):
        lake.export(**job)
    assert Files(lake.directory) == before


def test_what_was_exported_of_one_log_is_not_mixed_with_another(
    lake: Lake, log: Log, own_kafka: OwnKafka, unique: Unique
) -> None:
    log.write(20)
    lake.export()
    other = Log(log.bootstrap, unique("others"))
    far = Log(own_kafka().bootstrap, log.topic)
    elsewhere = Lake(lake.spark, far.bootstrap, far.topic, lake.directory)
    neighbour = Lake(lake.spark, other.bootstrap, other.topic, lake.directory)
    refused(neighbour, TableError, f"holds records of the topic {log.topic}, not {other.topic}")
    refused(elsewhere, TableError, "holds records of the Kafka cluster .*, not ")
    new = str(lake.directory / "new")
    refused(neighbour, CheckpointError, f"is of the topic {log.topic}, not {other.topic}", path=new)
    refused(elsewhere, CheckpointError, "is of the Kafka cluster .*, not ", path=new)
    refused(lake, CheckpointError, "is of another table", path=new)


def test_another_form_of_the_same_records_is_refused(lake: Lake, log: Log) -> None:
    log.write(5)
    lake.export()
    refused(lake, TableError, "column key of the table .* is binary, and string would be", form=Form(Format.STRING))
    dated = Form(partition_by=("date",))
    refused(lake, TableError, "column date of the table .* is not there, and date would be", form=dated)
    refused(lake, TableError, "is partitioned by nothing, not by topic", form=Form(partition_by=("topic",)))


def test_a_path_that_holds_something_else_is_refused(lake: Lake, log: Log) -> None:
    log.write(5)
    lake.path.mkdir(parents=True)
    (lake.path / "letters.txt").write_text("dear")
    refused(lake, TableError, "holds 1 files or directories and no Delta table")
    refused(lake, TableError, "is a file", path=str(lake.path / "letters.txt"))
    refused(lake, TableError, "no table can be made at", path=str(lake.path / "letters.txt" / "below"))
    shutil.rmtree(lake.path)
    lake.spark.range(5).write.format("delta").save(str(lake.path))
    refused(lake, TableError, "is a Delta table that no sidecar pipeline made")


def test_columns_that_no_table_can_have_are_refused(lake: Lake, log: Log) -> None:
    log.write(5)
    for schema, reason in (("id bigint, ID string", "duplicate column"), ("id interval day", "unsupported data type")):
        form = Form(Format.JSON, read_schema(schema))
        refused(lake, TableError, f"no table can be made at .*{reason}.*or other columns", form=form)


def test_a_file_system_that_is_not_to_be_had_is_told_with_what_to_bring(lake: Lake, log: Log) -> None:
    refused(lake, PipelineError, "s3a://lake/table is in a file system .*S3A.*hadoop-aws", path="s3a://lake/table")


def test_a_directory_that_is_no_checkpoint_is_refused(lake: Lake, log: Log) -> None:
    log.write(5)
    lake.checkpoint.mkdir(parents=True)
    (lake.checkpoint / "letters.txt").write_text("dear")
    refused(lake, CheckpointError, "holds something that is no checkpoint of an export")
    (lake.checkpoint / "letters.txt").rename(lake.checkpoint / ".letters")
    refused(lake, CheckpointError, "holds something that is no checkpoint of an export")
    for around in (lake.path, lake.path.parent):
        refused(lake, CheckpointError, "would hold the table", checkpoint=str(around))
    assert not lake.path.exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_a_table_whose_log_is_damaged_is_refused(lake: Lake, log: Log, damage: str) -> None:
    for _ in range(2):
        log.write(5)
        lake.export()
    log.write(5)
    copy = lake.directory / "damaged"  # Delta remembers the tables of a process: this one is new to it
    shutil.copytree(lake.path, copy)
    entries = sorted((copy / "_delta_log").glob("*.json"))
    match damage:
        case "cut":
            entries[1].write_text(entries[1].read_text()[:50])
            (copy / "_delta_log" / f".{entries[1].name}.crc").unlink()
        case "gone":
            entries[1].unlink()
        case _:
            shutil.rmtree(copy / "_delta_log")
            (copy / "_delta_log").mkdir()
    refused(lake, TableError, f"_delta_log.*{copy}|{copy}", path=str(copy))


def test_a_log_that_ends_in_front_of_the_table_is_another_log(lake: Lake, log: Log) -> None:
    log.write(20)
    lake.export()
    log.admin.delete_topics([log.topic])[log.topic].result()
    again = Log(log.bootstrap, log.topic)
    again.write(10)
    refused(lake, OffsetRangeError, "partition 0 of .* ends at offset 5, and the table holds its offsets below 10")


def test_a_topic_that_is_not_there_is_told_before_anything_is_made(lake: Lake, unique: Unique) -> None:
    refused(lake, UnknownTopicError, "there is no topic", topic=unique("nowhere"))
    assert not lake.path.exists()


@pytest.mark.parametrize("schema", ["", "id", "id bigint name", "id strange", '{"type": "struct"}', '{"id": 5}', "{"])
def test_what_is_no_schema_is_refused(spark: SparkSession, schema: str) -> None:
    with pytest.raises(PipelineError, match="the schema"):
        read_schema(schema)


def test_a_schema_is_read_from_ddl_and_from_spark_s_json(spark: SparkSession) -> None:
    schema = read_schema("id bigint, place struct<x: double>")
    assert read_schema(json.dumps(schema.jsonValue())) == schema


def test_a_schema_goes_with_json_alone(spark: SparkSession) -> None:
    for form in (Format.JSON, Format.STRING):
        with pytest.raises(PipelineError, match="a schema goes with the format json"):
            Form(form, None if form is Format.JSON else read_schema("id bigint"))
    with pytest.raises(PipelineError, match="topic and date, not by offset"):
        Form(partition_by=("offset",))
