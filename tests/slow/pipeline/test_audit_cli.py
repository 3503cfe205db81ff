"""`sidecar pipeline audit` and `report` as a person starts them: what they say, and by which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sidecar.cli.output import Exit
from tests.conftest import StartNode, Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.conftest import QUICK
from tests.slow.pipeline.standalone import EXECUTORS, standalone
from tests.topics import create_topic
from tests.wait import wait_for

_LOCAL = ("--master", "local[2]", *[word for each in QUICK.items() for word in ("--conf", "=".join(each))])
_RECORDS = 60


class Shop:
    """A node, a topic with ids that it wrote, and a shadow whose reader has not read all of it."""

    def __init__(self, node: NodeProcess, services: Services, cluster: str, directory: Path) -> None:
        self.node, self.kafka, self.directory = node, services.kafka_bootstrap, directory
        self.topic = create_topic(self.kafka, 2)
        self.shadow = f"{self.topic}-audit"
        self._environment = {
            "SIDECAR_BOOTSTRAP_SERVERS": self.kafka,
            "SIDECAR_REDIS_URL": services.redis_url,
            "SIDECAR_CLUSTER": cluster,
            "SIDECAR_ADMIN_URL": node.admin_url,
            "PATH": "/usr/bin:/bin",
        }
        rest = Rest(node.admin_url)
        body = {"access_mode": "exclusive", "deduplication": True}
        assert rest.call("PUT", f"/v1/topics/{self.topic}/policy", body)[0] == 200
        self._write()
        assert rest.call("POST", f"/v1/topics/{self.topic}/shadows", {"name": self.shadow})[0] == 201
        self._read(10)

    def _write(self) -> None:
        settings = {"bootstrap.servers": self.node.bootstrap, "client.id": "billing", "enable.idempotence": True}
        producer, failed = Producer({**settings, "log_level": 0}), list[str]()
        for number in range(_RECORDS):
            headers: list[tuple[str, str | bytes | None]] = [("sidecar-sequence-id", str(number))]
            producer.produce(
                self.topic, b"v", partition=number % 2, headers=headers,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )  # fmt: skip
        assert producer.flush(60) == 0
        assert not failed

    def _read(self, records: int) -> None:
        """One partition's first records, by a group of the shadow."""
        settings = {"bootstrap.servers": self.node.bootstrap, "group.id": "auditors", "enable.auto.commit": False}
        consumer = Consumer({**settings, "log_level": 0})
        place = TopicPartition(self.shadow, 0, records)
        wait_for(lambda: consumer.commit(offsets=[place], asynchronous=False), "a cursor", 30)
        consumer.close()

    def seed(self) -> None:
        """Past the node: a duplicate that nobody who owns the topic wrote."""
        producer = Producer({"bootstrap.servers": self.kafka, "log_level": 0})
        headers: list[tuple[str, str | bytes | None]] = [
            ("sidecar-sequence-id", "3"),
            ("sidecar-producer-name", "billing"),
        ]
        producer.produce(self.topic, b"v", partition=1, headers=headers)
        assert producer.flush(30) == 0

    def run(self, *arguments: str, master: tuple[str, ...] = _LOCAL) -> tuple[int, Any, str]:
        """Exit code, data and talk."""
        done = subprocess.run(
            [sys.executable, "-m", "sidecar", "pipeline", *arguments, *master, "-o", "json"],
            capture_output=True, text=True, check=False, timeout=400, cwd=self.directory, env=self._environment,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.fixture
def shop(node_process: StartNode, services: Services, unique: Unique, tmp_path: Path) -> Shop:
    cluster = unique("a")
    return Shop(node_process(cluster=cluster), services, cluster, tmp_path)


def test_a_log_passes_then_does_not_and_the_report_has_both(shop: Shop) -> None:
    audit = ("audit", shop.topic, "--table", "audits")
    code, found, talk = shop.run(*audit, "--html", "audit.html")
    assert (code, list(found)) == (Exit.OK, ["topic", "records", "violations", "gaps", "examples"]), talk
    assert (found["topic"], found["records"], found["examples"]) == (shop.topic, _RECORDS, [])
    assert not any(found["violations"].values())
    assert "Spark's page" not in talk, "it is switched off here"
    assert f"{_RECORDS} records in " in talk
    assert shop.topic in (shop.directory / "audit.html").read_text()
    shop.seed()
    code, found, talk = shop.run(*audit)
    assert code == Exit.FAILURE
    assert found["violations"] == {"duplicates": 1, "regressions": 0, "interleaved": 0, "unowned": 1, "missing": 0}
    assert {each["kind"] for each in found["examples"]} == {"duplicates", "unowned"}
    code, (told,), talk = shop.run("report", "audits", "--html", "report.html")
    assert code == Exit.OK, talk
    assert (told["topic"], told["records"]) == (shop.topic, _RECORDS + 1)
    assert [each["passes"] for each in told["audits"]] == [False, True]
    owned = next(each for each in told["writers"] if each["generation"] == 1)
    assert (owned["name"], owned["records"]) == ("billing", _RECORDS)
    assert told["takeovers_by_kind"]["claimed"] == 1
    (lag,) = told["lags"]
    assert (lag["shadow"], lag["reader"]) == (shop.shadow, "auditors")
    assert lag["lag"] >= _RECORDS // 2 + 1 - 10
    assert "Lag by shadow" in (shop.directory / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("audit", "no-such-topic"), Exit.NOT_FOUND, "no-such-topic"),
        pytest.param(("audit",), Exit.USAGE, "name topics, or --all", marks=pytest.mark.smoke),
        (("report", "nothing-there"), Exit.FAILURE, "nothing-there` makes them"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(shop: Shop, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, data, talk = shop.run(*arguments)
    assert (found, data) == (code, None), talk
    assert said in talk
    assert "Traceback" not in talk


def test_a_cluster_of_a_master_and_two_workers_audits_the_same(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    with standalone(tmp_path / "spark") as master:
        options = [word for each in EXECUTORS for word in ("--conf", each)]
        code, found, talk = shop.run("audit", shop.topic, "--table", "audits", master=("--master", master, *options))
    assert (code, found["records"]) == (Exit.OK, _RECORDS), talk
    assert not any(found["violations"].values())
