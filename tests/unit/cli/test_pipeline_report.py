"""`sidecar pipeline report` looks whether there is anything to report on before it starts Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from sidecar.cli.pipeline import running
from sidecar.cli.root import cli


class SparkError(Exception):
    """Spark would be started now."""


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> NoReturn:
        raise SparkError

    monkeypatch.setattr(running, "spark_session", started)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str) -> tuple[int, str, bool]:
    said = CliRunner().invoke(cli, ["pipeline", "report", *words], prog_name="sidecar")
    return said.exit_code, said.output, isinstance(said.exception, SparkError)


@pytest.mark.parametrize("written", [str, Path.as_uri])
@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_a_path_without_tables_is_told_without_spark(tmp_path: Path, written: Callable[[Path], str], name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    code, told, is_started = run(written(tmp_path / name))
    assert (code, is_started) == (1, False)
    assert f"{tmp_path / name} holds no tables of audits" in told


@pytest.mark.parametrize("written", [str, Path.as_uri])
def test_spark_reads_what_looks_like_tables(tmp_path: Path, written: Callable[[Path], str]) -> None:
    (tmp_path / "verdicts" / "_delta_log").mkdir(parents=True)
    assert run(written(tmp_path))[2]


@pytest.mark.parametrize("path", ["s3a://bucket/audits", "hdfs://name/audits", "file://elsewhere/audits"])
def test_what_is_elsewhere_is_for_spark_to_look_at(path: str) -> None:
    assert run(path)[2]


def test_a_path_may_be_one_of_the_file_system_that_spark_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("/nonexist", "--conf", "spark.hadoop.fs.defaultFS=hdfs://name")[2]
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert run("/nonexist")[2]
