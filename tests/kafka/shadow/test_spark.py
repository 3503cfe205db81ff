"""Spark's own Kafka source reads a shadow as it reads a topic. `make test-slow` brings PySpark: 430 MB."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark
from tests.conftest import Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic

_JOB = Path(__file__).with_name("spark_reads.py")
_IN_A_TRANSACTION = 10
_TRANSACTIONS = 8


def write(bootstrap: str, topic: str, aborted: set[int]) -> None:
    """Transactions one behind the other, some of them aborted, with records of all forms."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "zstd"})
    producer.init_transactions(30)
    for number in range(_TRANSACTIONS):
        producer.begin_transaction()
        for index in range(_IN_A_TRANSACTION):
            key = None if index == 3 else f"{number}.{index}"
            value = None if index == 4 else os.urandom(20)
            both: list[tuple[str, str | bytes | None]] = [("n", str(index)), ("n", b"\xff\x00")]
            producer.produce(topic, value, key=key, partition=index % 2, headers=both * (index % 3))
        producer.flush(30)
        producer.abort_transaction(30) if number in aborted else producer.commit_transaction(30)


def spark(directory: Path, readings: list[dict[str, Any]]) -> list[list[list[Any]]]:
    """The rows of each reading, in the order of the log."""
    assert importlib.util.find_spec("pyspark"), "PySpark is not installed: make spark"
    answer, jars = directory / "rows.json", ",".join(map(str, resolve_lock("pipeline")))
    home = find_java_for_spark().path.resolve().parents[1]
    done = subprocess.run(
        [sys.executable, str(_JOB), jars, str(answer)],
        input=json.dumps(readings),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=directory,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return [sorted(rows, key=lambda row: row[1:3]) for rows in json.loads(answer.read_text())]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_reads_the_same_rows_of_a_shadow_and_of_its_source(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique, tmp_path: Path
) -> None:
    """In batches and as a stream, at both isolation levels, also where the last transaction of the log was aborted."""
    create_internal_topics(services.kafka_bootstrap)
    readings: list[dict[str, Any]] = []
    for aborted in ({1, 4}, {1, _TRANSACTIONS - 1}):
        orders, audit = create_topic(services.kafka_bootstrap, 2), unique("audit")
        write(services.kafka_bootstrap, orders, aborted)
        assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": audit})[0] == 201
        readings += [
            {"bootstrap": bootstrap, "topic": topic, "isolation": isolation, "stream": stream}
            for isolation in ("read_committed", "read_uncommitted")
            for stream in (False, True)
            for bootstrap, topic in ((services.kafka_bootstrap, orders), (node.bootstrap, audit))
        ]
    found = spark(tmp_path, readings)
    for direct, shadow, reading in zip(found[::2], found[1::2], readings[1::2], strict=True):
        transactions = _TRANSACTIONS - 2 * (reading["isolation"] == "read_committed")
        assert len(direct) == transactions * _IN_A_TRANSACTION
        assert {row[0] for row in shadow} == {reading["topic"]}
        assert [row[1:] for row in shadow] == [row[1:] for row in direct]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_is_not_held_up_by_aborted_records_at_the_end_of_a_log(
    node: NodeProcess, services: Services, rest: Rest, unique: Unique, tmp_path: Path
) -> None:
    """Several answers have no record for it. It gives up where its position does not move: Kafka's does, so ours."""
    create_internal_topics(services.kafka_bootstrap)
    orders, audit = create_topic(services.kafka_bootstrap, 1), unique("audit")
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "transactional.id": orders})
    producer.init_transactions(30)
    for records, committed in ((100, True), (30_000, False)):
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(orders, bytes(100))
            producer.poll(0)
        producer.flush(60)
        producer.commit_transaction(30) if committed else producer.abort_transaction(30)
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": audit})[0] == 201
    reading = {"isolation": "read_committed", "stream": False}
    places = ((services.kafka_bootstrap, orders), (node.bootstrap, audit))
    direct, shadow = spark(
        tmp_path, [{**reading, "bootstrap": bootstrap, "topic": topic} for bootstrap, topic in places]
    )
    assert [row[1:] for row in direct] == [row[1:] for row in shadow]
    assert [row[2] for row in shadow] == list(range(100))
