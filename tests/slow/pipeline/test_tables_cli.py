"""`sidecar pipeline export` and `compact`, and what all jobs have in common, as a person starts them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sidecar.cli.output import Exit
from tests.conftest import Unique
from tests.services import Services
from tests.slow.pipeline.conftest import QUICK
from tests.slow.pipeline.lake import Log
from tests.slow.pipeline.standalone import EXECUTORS, standalone

_CONF = [each for name, value in QUICK.items() if name != "spark.ui.enabled" for each in ("--conf", f"{name}={value}")]


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    return Log(services.kafka_bootstrap, unique("orders"))


def start(bootstrap: str, *arguments: str, master: str = "local[2]") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sidecar", "pipeline", *arguments]
    options = ["--bootstrap", bootstrap, "--master", master, *_CONF, "-o", "json"]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(bootstrap: str, *arguments: str, master: str = "local[2]") -> tuple[int, Any, str]:
    """Exit code, what it says as data, what it says else."""
    with start(bootstrap, *arguments, master=master) as process:
        try:
            data, talk = process.communicate(timeout=300)
        finally:
            process.kill()
    return process.returncode, json.loads(data) if data else None, talk


def test_an_export_that_is_told_to_end_ends_in_good_order(log: Log, tmp_path: Path) -> None:
    log.write(100)
    process = start(log.bootstrap, "export", log.topic, "--to", str(tmp_path / "table"))
    assert process.stderr is not None
    talk: list[str] = []
    for line in process.stderr:
        talk.append(line)
        if "100 rows; 0 offsets behind; at 0:50 1:50" in line:
            break
    process.send_signal(signal.SIGTERM)
    data, rest = process.communicate(timeout=120)
    text = "".join([*talk, rest])
    assert process.returncode == Exit.OK, text
    found = json.loads(data)
    assert (found["rows"], found["offsets"], found["gaps"]) == (100, {"0": 50, "1": 50}, [])
    assert "Spark's page: http://" in text
    assert "Exception" not in text, "something is told that is no failure"
    assert DeltaTable(tmp_path / "table").count() == 100
    assert (tmp_path / "table.checkpoint").is_dir()


@pytest.mark.parametrize("command", ["audit", "export --to never", "compact --to never"])
def test_a_topic_that_is_not_there_is_told_before_spark_starts(
    command: str, services: Services, unique: Unique
) -> None:
    job, *options = command.split()
    topic = unique("nowhere")
    code, data, talk = run(services.kafka_bootstrap, job, topic, *options)
    assert (code, data) == (Exit.NOT_FOUND, None)
    assert f"there is no topic {topic} at {services.kafka_bootstrap}: check its name" in talk
    assert "starting Spark" not in talk


def test_a_failure_is_one_sentence(log: Log, tmp_path: Path) -> None:
    log.write(100)
    assert run(log.bootstrap, "export", log.topic, "--to", str(tmp_path / "table"), "--available-now")[0] == Exit.OK
    log.write(100)
    log.lose(0, 70)
    code, data, talk = run(log.bootstrap, "export", log.topic, "--to", str(tmp_path / "table"), "--available-now")
    assert (code, data) == (Exit.FAILURE, None)
    errors = [line for line in talk.splitlines() if "partition 0, offsets 50 to 69" in line]
    assert len(errors) == 1
    assert "Traceback" not in talk
    assert "\tat " not in talk


def test_a_compaction_is_written_and_a_diff_told(log: Log, tmp_path: Path) -> None:
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1"), (None, "1")):
        log.put(key, value)
    code, data, talk = run(log.bootstrap, "compact", log.topic, "--to", str(tmp_path / "table"))
    assert code == Exit.OK, talk
    assert (data["keys"], data["tombstones"], data["null_keys"], data["as_of"]) == (2, 1, 1, {"0": 6, "1": 0})
    assert "1 records have no key: left out" in talk
    assert sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["key"].to_pylist()) == [b"a", b"c"]
    code, data, talk = run(log.bootstrap, "compact", log.topic, "--diff", '{"0": 2, "1": 0}')
    assert (code, data["added"], data["changed"], data["removed"]) == (Exit.OK, 1, 1, 1), talk
    code, _, talk = run(log.bootstrap, "compact", "nowhere", "--diff", "now")
    assert (code, "there is no topic nowhere" in talk) == (Exit.NOT_FOUND, True)


def test_what_contradicts_itself_is_refused_before_spark_starts(log: Log) -> None:
    code, _, talk = run(log.bootstrap, "compact", log.topic)
    assert (code, "name the table with --to" in talk, "starting Spark" in talk) == (Exit.USAGE, True, False)
    log.write(4)
    code, _, talk = run(log.bootstrap, "compact", log.topic, "--as-of", '{"0": 0, "1": 0}', "--diff", "now")
    assert (code, "earlier point by --diff" in talk, "starting Spark" in talk) == (Exit.FAILURE, True, False)


def test_spark_that_cannot_be_started_is_told_with_what_to_look_at(log: Log, tmp_path: Path) -> None:
    wrong = ("--conf", "spark.driver.cores=many")
    code, _, talk = run(log.bootstrap, "export", log.topic, "--to", str(tmp_path / "table"), *wrong)
    assert code == Exit.FAILURE
    assert "Driver cores must be a positive number" in talk
    assert "Spark cannot be started on local[2] (" in talk
    assert "Traceback" not in talk


def test_no_java_is_left_behind_by_an_interrupt_while_spark_starts(log: Log, tmp_path: Path) -> None:
    with start(log.bootstrap, "export", log.topic, "--to", str(tmp_path / "table")) as process:
        assert process.stderr is not None
        assert any("incubator" in line for line in process.stderr), "Java's first word"
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=120)  # to the end of what Java could still write
    assert process.returncode == Exit.FAILURE
    assert "ending as soon as Spark has started" in talk
    assert "Traceback" not in talk
    assert not (tmp_path / "table").exists()


def test_a_cluster_of_a_master_and_two_workers_exports_the_same(log: Log, tmp_path: Path) -> None:
    log.write(1_000)
    (tmp_path / "spark").mkdir()
    with standalone(tmp_path / "spark") as master:
        options = [word for each in EXECUTORS for word in ("--conf", each)]
        to = ("--to", str(tmp_path / "table"), "--available-now")
        code, found, talk = run(log.bootstrap, "export", log.topic, *to, *options, master=master)
    assert (code, found["rows"]) == (Exit.OK, 1_000), talk
    assert DeltaTable(tmp_path / "table").count() == 1_000
