"""Jobs as the commands that people run, at a Kafka with TLS and logins, with nothing but the settings of the nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sidecar.cli.root import cli
from sidecar.local.ports import HOST
from tests.conftest import OwnValkey, StartNode, Unique
from tests.kafka.security.secured import NODE, PASSWORD, Secured, secured_kafka
from tests.rest import Rest

pytestmark = pytest.mark.timeout(900)

RECORDS = 50


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        running.scram_user(NODE, "SCRAM-SHA-256")
        yield running


def towards(secured: Secured, protocol: str) -> dict[str, Any]:
    """The settings `SIDECAR_KAFKA_…` of nodes that use this listener."""
    if protocol == "SSL":
        certificate, key = secured.authority.issue(NODE, file="job")
        who = {"SSL_CA": str(secured.authority.ca), "SSL_CERTIFICATE": str(certificate), "SSL_KEY": str(key)}
    else:
        who = {"SASL_MECHANISM": "SCRAM-SHA-256", "SASL_USERNAME": NODE, "SASL_PASSWORD": PASSWORD}
        who |= {"SSL_CA": str(secured.authority.ca)} if protocol == "SASL_SSL" else {}
    return {"KAFKA_SECURITY_PROTOCOL": protocol, **{f"KAFKA_{name}": value for name, value in who.items()}}


class Jobs:
    """The commands, in this process and on one session of Spark: to start it takes longer than all of them."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        @contextmanager
        def lent(*_: object, **__: object) -> Iterator[SparkSession]:
            yield spark

        monkeypatch.setattr("sidecar.cli.pipeline.running.spark_session", lent)
        self._none = {name: None for name in os.environ if name.startswith("SIDECAR_")}

    def run(self, settings: dict[str, str], *arguments: str) -> Any:
        """What a command prints."""
        ours = {f"SIDECAR_{name}": value for name, value in settings.items()}
        done = CliRunner().invoke(cli, ["pipeline", *arguments, "-o", "json"], env=self._none | ours)
        assert done.exit_code == 0, done.output
        assert PASSWORD not in done.output
        return json.loads(done.stdout)


@pytest.fixture
def jobs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(spark, monkeypatch)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_every_job_takes_what_the_nodes_are_told(
    secured: Secured,
    own_valkey: OwnValkey,
    node_process: StartNode,
    unique: Unique,
    tmp_path: Path,
    jobs: Jobs,
    protocol: str,
) -> None:
    kafka, redis, topic = f"{HOST}:{secured.ports[protocol]}", own_valkey().url, unique("orders")
    secured.topics(topic)
    settings = towards(secured, protocol)
    node = node_process(kafka=kafka, redis=redis, cluster=topic, **settings)
    policy = {"access_mode": "exclusive", "deduplication": True}
    assert Rest(node.admin_url).call("PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "billing", "enable.idempotence": True})
    for number in range(RECORDS):
        headers: list[tuple[str, str | bytes | None]] = [
            ("sidecar-sequence-id", str(number).encode()),
            ("sidecar-producer-name", b"billing"),
        ]
        producer.produce(topic, str(number).encode(), f"key-{number % 5}".encode(), headers=headers)
    assert producer.flush(60) == 0
    told = {
        **settings,
        "BOOTSTRAP_SERVERS": kafka,
        "REDIS_URL": redis,
        "CLUSTER": topic,
        "ADMIN_URL": node.admin_url,
    }
    audit = jobs.run(told, "audit", topic)
    assert (audit["records"], set(audit["violations"].values())) == (RECORDS, {0})
    exported = jobs.run(told, "export", topic, "--to", str(tmp_path / "export"), "--available-now")
    assert exported["rows"] == RECORDS
    compacted = jobs.run(told, "compact", topic, "--to", str(tmp_path / "compact"), "--yes")
    assert compacted["keys"] == 5
    rebuilt = jobs.run(told, "rebuild", topic)
    assert rebuilt["topic"] == topic
