"""`format("sidecar")` on real logs: what was written comes out, in both views, through Kafka, a node and a shadow."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from sidecar.pipeline.errors import (
    CorruptLogError,
    OffsetRangeError,
    PipelineError,
    UnknownTopicError,
    pipeline_error_of,
)
from tests.conftest import Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.logs import read_messages
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.batches import NOW, Written, encode, named
from tests.slow.pipeline.logs import append, move_start, produce
from tests.slow.pipeline.source.conftest import Frame
from tests.topics import create_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy(*frame.columns[:2]).collect()


def values(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy(*frame.columns[:2]).select(*columns).collect()]


def shadow_of(rest: Rest, topic: str, name: str) -> str:
    status, answer = rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": name})
    assert status == 201, answer
    return name


# Records --------------------------------------------------------------------------------------------------------------


def write_all_forms(bootstrap: str, topic: str) -> None:
    """Keys, values and headers of all forms, in every codec."""
    for codec in CODECS:
        settings = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 20}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number in range(60):
            key = [None, b"", b"key %d" % number][number % 3]
            value = [None, b"", b"value %d " % number * 50, bytes(range(256))][number % 4]
            headers: list[tuple[str, str | bytes | None]] = [("n", b"\xff\x00"), ("ä", None), ("n", b"")]
            producer.produce(
                topic, value, key=key, partition=number % 2, headers=headers[: number % 4], timestamp=NOW + number
            )
        assert producer.flush(30) == 0


def as_consumed(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """The same log, read by librdkafka."""
    return [
        (partition, each.offset(), each.timestamp()[1], each.key(), each.value(), each.headers() or [])
        for partition in (0, 1)
        for each in read_messages(bootstrap, topic, partition)
    ]


def as_framed(frame: DataFrame) -> list[tuple[Any, ...]]:
    found = frame.select("partition", "offset", F.unix_millis("timestamp"), "key", "value", "headers")
    return [
        (*row[:3], *(None if each is None else bytes(each) for each in row[3:5]), headers_of(row[5]))
        for row in found.orderBy("partition", "offset").collect()
    ]


def headers_of(found: list[Row]) -> list[tuple[str, bytes | None]]:
    return [(key, None if value is None else bytes(value)) for key, value in found]


def test_records_are_those_that_a_consumer_reads_also_through_a_shadow(
    services: Services, frame: Frame, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    write_all_forms(services.kafka_bootstrap, topic)
    expected = as_consumed(services.kafka_bootstrap, topic)
    assert len(expected) == 60 * len(CODECS)
    assert as_framed(frame(topic)) == expected
    assert as_framed(frame(topic, splitOffsets=7)) == expected
    shadow = shadow_of(rest, topic, unique("audit"))
    assert as_framed(frame(shadow, bootstrap=node.bootstrap, splitOffsets=40)) == expected
    runs = [rows(frame(name, bootstrap=at, view="runs")) for name, at in ((topic, None), (shadow, node.bootstrap))]
    assert runs[0] == runs[1]
    assert sum(row.records for row in runs[0]) == len(expected)


def test_who_wrote_a_record_and_where_it_stood_is_told(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(
        services.kafka_bootstrap,
        topic,
        [
            encode([named(0, 5, b"billing"), named(1, 6, b"billing")], producer_id=4711, epoch=3, sequence=0),
            encode([named(0, None), named(1, 2**63 - 1)]),
            encode([Written()] * 1, producer_id=4711, epoch=3, sequence=2),
        ],
    )
    columns = ("offset", "producer_id", "producer_epoch", "base_offset", "base_sequence", "sequence", "sequence_id")
    assert values(frame(topic), *columns, "producer_name", "is_transactional", "control", "id_problem") == [
        (0, 4711, 3, 0, 0, 0, 5, "billing", False, None, None),
        (1, 4711, 3, 0, 0, 1, 6, "billing", False, None, None),
        (2, -1, -1, 2, -1, -1, None, None, False, None, None),
        (3, -1, -1, 2, -1, -1, 2**63 - 1, None, False, None, None),
        (4, 4711, 3, 4, 2, 2, None, None, False, None, None),
    ]


def test_what_is_wrong_with_an_id_is_told_and_counted(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    wrong = [b"x", b"-1", b"", str(2**63).encode()]
    batch = encode([named(0, 1), *(named(1 + at, text) for at, text in enumerate(wrong)), named(5, 2, b"\xff")])
    append(services.kafka_bootstrap, topic, [batch])
    assert values(frame(topic), "sequence_id", "id_problem") == [
        (1, None),
        (None, "the sequence id 'x' is not a decimal integer"),
        (None, "the sequence id '-1' is negative"),
        (None, "the sequence id '' is not a decimal integer"),
        (None, "the sequence id '9223372036854775808' is larger than 2^63 - 1"),
        (None, "the producer name is not UTF-8"),
    ]
    assert values(frame(topic, view="runs"), "records", "ids", "malformed") == [(6, 1, 5)]


def test_headers_of_other_names_are_looked_for_where_that_is_asked(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(services.kafka_bootstrap, topic, [encode([Written(0, [("id", b"7"), ("who", b"me")])])])
    options = {"sequenceIdHeader": "id", "producerNameHeader": "who"}
    assert values(frame(topic, **options), "sequence_id", "producer_name") == [(7, "me")]
    assert values(frame(topic, view="runs", **options), "first_id", "producer_name") == [(7, "me")]
    assert values(frame(topic, view="runs"), "first_id", "producer_name") == [(None, None)]


def test_columns_that_are_not_asked_for_are_null(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(
        services.kafka_bootstrap,
        topic,
        [encode([Written(0, [("n", b"7")], b"key", b"value")], producer_id=9, epoch=0, sequence=0)],
    )
    (row,) = rows(frame(topic, columns="offset, value,producer_id"))
    assert {name for name, value in row.asDict().items() if value is not None} == {"offset", "value", "producer_id"}
    assert (bytes(row.value), row.producer_id) == (b"value", 9)


def test_the_brokers_time_stands_for_the_producers_where_the_topic_says_so(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1, **{"message.timestamp.type": "LogAppendTime"})
    append(services.kafka_bootstrap, topic, [encode([named(0, 0), named(1, 1)])])
    times = [each.timestamp()[1] for each in read_messages(services.kafka_bootstrap, topic)]
    assert times[0] > NOW + 1000
    assert [row[0] for row in frame(topic).select(F.unix_millis("timestamp")).collect()] == times
    assert values(frame(topic, view="runs"), "first_timestamp_ms", "last_timestamp_ms") == [(times[0], times[1])]


# Transactions ---------------------------------------------------------------------------------------------------------


def test_transactions_show_their_markers_and_a_log_may_end_in_one(
    services: Services, frame: Frame, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    create_internal_topics(services.kafka_bootstrap)
    topic = create_topic(services.kafka_bootstrap, 1)
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"v%d" % number)
        producer.flush(30)
        end(30)
    shadow = shadow_of(rest, topic, unique("audit"))
    for name, bootstrap in ((topic, None), (shadow, node.bootstrap)):
        told = values(frame(name, bootstrap=bootstrap), "offset", "is_transactional", "control", "key", "sequence")
        assert [row[:4] for row in told] == [
            (0, True, None, None), (1, True, None, None), (2, True, None, None), (3, True, "commit", None),
            (4, True, None, None), (5, True, None, None), (6, True, None, None), (7, True, "abort", None),
        ]  # fmt: skip
        assert [row[4] >= 0 for row in told] == [True, True, True, False] * 2
        runs = frame(name, bootstrap=bootstrap, view="runs", splitOffsets=2)
        assert sum(row.records for row in rows(runs)) == 8
        whole = frame(name, bootstrap=bootstrap, view="runs")
        assert values(whole, "first_offset", "last_offset", "records", "batches", "control") == [
            (0, 2, 3, 1, None), (3, 3, 1, 1, "commit"), (4, 6, 3, 1, None), (7, 7, 1, 1, "abort"),
        ]  # fmt: skip


# Ranges ---------------------------------------------------------------------------------------------------------------


def test_splits_cut_batches_and_count_nothing_twice(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    produce(services.kafka_bootstrap, topic, 1_000, **{"batch.num.messages": 64})
    (whole,) = rows(frame(topic, view="runs"))
    assert (whole.records, whole.first_id, whole.last_id, whole.id_gaps) == (1_000, 0, 999, 0)
    split = rows(frame(topic, view="runs", splitOffsets=37))
    assert len(split) == -(-1_000 // 37)
    for name in ("records", "batches", "bytes", "ids"):
        assert sum(row[name] for row in split) == whole[name]
    assert [row.first_id for row in split] == list(range(0, 1_000, 37))
    part = frame(topic, view="runs", startingOffsets='{"0": 10}', endingOffsets='{"0": 20}')
    assert values(part, "first_offset", "last_offset", "first_id", "last_id", "batches") == [(10, 19, 10, 19, 1)]


def test_some_partitions_are_read_and_the_others_are_nobodys_business(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 3)
    for partition in range(3):
        append(services.kafka_bootstrap, topic, [encode([named(0, at)]) for at in range(3)], partition)
    some = frame(topic, partitions="0,2", startingOffsets='{"0": 1, "2": 2}', endingOffsets='{"0": 3, "2": 3}')
    assert values(some, "partition", "offset") == [(0, 1), (0, 2), (2, 2)]
    assert frame(topic, view="runs", partitions="", startingOffsets="{}", endingOffsets="{}").count() == 0


def test_a_frame_reads_up_to_the_end_that_there_was_when_it_was_made(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(services.kafka_bootstrap, topic, [encode([named(0, 0)])])
    made = frame(topic)
    append(services.kafka_bootstrap, topic, [encode([named(0, 1)])])
    assert [made.count(), made.where("offset >= 0").count()] == [1, 1]
    assert frame(topic).count() == 2


def test_an_empty_log_and_an_empty_range_have_no_rows(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    assert rows(frame(topic)) == rows(frame(topic, view="runs")) == []
    append(services.kafka_bootstrap, topic, [encode([named(0, 0)])])
    assert frame(topic, startingOffsets='{"0": 1, "1": 0}').count() == 0
    assert frame(topic, endingOffsets='{"0": 0, "1": 0}').count() == 0


# What cannot be read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"topic": "orders-which-nobody-made"}, UnknownTopicError, "there is no topic orders-which-nobody-made at"),
        (
            {"startingOffsets": '{"0": 1}'},
            PipelineError,
            "startingOffsets has to name every partition of .*: 1 missing",
        ),
        (
            {"endingOffsets": '{"0": 1, "1": 0, "7": 0}'},
            PipelineError,
            "names partitions that .* has not: 7; it has 0 to 1",
        ),
        ({"endingOffsets": '{"0": 99, "1": 0}'}, OffsetRangeError, "offset 99 of .*-0 is behind its end, 3"),
        (
            {"startingOffsets": '{"0": 0, "1": 0}'},
            OffsetRangeError,
            "offset 0 of .*-0 is lost to retention: .* begins at 1",
        ),
        ({"startingOffsets": "{"}, PipelineError, "option startingOffsets is '{': earliest, or JSON"),
    ],
)
def test_what_cannot_be_read_is_told_where_the_frame_is_made(
    services: Services, frame: Frame, options: dict[str, str], kind: type[PipelineError], said: str
) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    append(services.kafka_bootstrap, topic, [encode([named(at, at) for at in range(3)])])
    move_start(services.kafka_bootstrap, topic, 1)
    with pytest.raises(PySparkException) as failed:
        frame(options.pop("topic", topic), **options)
    told = pipeline_error_of(failed.value)
    assert type(told) is kind
    assert re.search(said, str(told)), told


def test_a_range_that_retention_took_after_the_frame_was_made_fails_the_action(
    services: Services, frame: Frame
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(services.kafka_bootstrap, topic, [encode([named(0, at)]) for at in range(3)])
    made = frame(topic)
    move_start(services.kafka_bootstrap, topic, 2)
    with pytest.raises(PySparkException) as failed:
        made.collect()
    assert type(pipeline_error_of(failed.value)) is OffsetRangeError
    assert f"offset 0 of {topic}-0 is lost: retention has moved the start of its log to 2" in str(
        pipeline_error_of(failed.value)
    )


def test_a_schema_of_ones_own_is_refused(services: Services, frame: Frame) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    reader = frame(topic).sparkSession.read.format("sidecar").schema("offset long")
    found = reader.options(**{"bootstrap.servers": services.kafka_bootstrap, "topic": topic}).load()
    with pytest.raises(PySparkException) as failed:
        found.collect()
    assert "has a schema of its own" in str(pipeline_error_of(failed.value))


def test_an_error_of_somebody_else_is_not_taken_for_ours() -> None:
    assert pipeline_error_of(ValueError("nothing")) is None
    told = pipeline_error_of(
        ValueError("Traceback …\nsidecar.pipeline.errors.CorruptLogError: the batch\n at org.apache")
    )
    assert (type(told), str(told)) == (CorruptLogError, "the batch")
