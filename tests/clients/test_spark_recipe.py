"""docs/use/clients.md, Spark: its Kafka sink as an exclusive, deduplicated producer, its source reads a shadow."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer  # pyright: ignore[reportPrivateImportUsage]

from sidecar.local.jars import resolve_lock
from sidecar.local.java import find_java_for_spark
from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic

from .recipes import SOURCES

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1200)]


def spark(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The job of the recipe, by Spark's own launcher."""
    assert importlib.util.find_spec("pyspark"), "PySpark is not installed: make spark"
    home = find_java_for_spark().path.resolve().parents[1]
    jars = ",".join(map(str, resolve_lock("pipeline")))
    submit = Path(sys.executable).with_name("spark-submit")
    options = ("--master", "local[2]", "--jars", jars, "--conf", "spark.ui.enabled=false")
    return subprocess.run(
        [submit, *options, SOURCES / "spark_job.py", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=directory,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def test_a_job_that_runs_again_writes_nothing_twice_reads_a_shadow_and_is_refused_beside_an_owner(
    node: NodeProcess, services: Services, unique: Unique, tmp_path: Path
) -> None:
    rest, topic, audit = Rest(node.admin_url), create_topic(services.kafka_bootstrap, 1), unique("audit")
    policy = {"access_mode": "exclusive", "deduplication": True}
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200
    assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": audit})[0] == 201
    for count in (3, 5):
        done = spark(tmp_path, "write", node.bootstrap, "billing;", topic, str(count))
        assert done.returncode == 0, done.stderr[-5000:]
    assert [int(value) for value in read_log(services.kafka_bootstrap, topic)] == [0, 1, 2, 3, 4]
    done = spark(tmp_path, "read", node.bootstrap, audit)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split() == ["0", "1", "2", "3", "4"]
    rival = Producer({"bootstrap.servers": node.bootstrap, "client.id": "rival", "log_level": 0})
    rival.produce(topic, b"7", headers={"sidecar-sequence-id": "7"})
    assert rival.flush(60) == 0
    assert rest.topic(topic)["owner"]["name"] == "rival"
    done = spark(tmp_path, "write", node.bootstrap, "billing;", topic, "6")
    assert done.returncode == 1
    assert "PolicyViolationException" in done.stderr
    assert "rival" in done.stderr
