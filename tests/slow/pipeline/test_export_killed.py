"""Exports as processes of their own, killed at chosen and at random moments, and two of them at once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.conftest import Unique
from tests.services import Services
from tests.slow.pipeline.lake import Lake, Log

pytestmark = pytest.mark.timeout(1800)  # a Spark is started for each

RECORDS = 20_000


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    return Log(services.kafka_bootstrap, unique("orders"), 3)


@pytest.fixture
def lake(spark: SparkSession, log: Log, tmp_path: Path) -> Lake:
    return Lake(spark, log.bootstrap, log.topic, tmp_path)


def start(lake: Lake, moment: str, **more: Any) -> subprocess.Popen[str]:
    job = asdict(lake.job(max_offsets=1_000, **more))
    del job["form"]
    command = [sys.executable, "-m", "tests.slow.pipeline.dying_export", json.dumps(job), moment]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> int:
    _, text = process.communicate(timeout=900)
    assert process.returncode in {0, -signal.SIGKILL}, text[-5000:]
    return process.returncode


def test_each_record_is_there_once_after_kills_at_all_moments(lake: Lake, log: Log) -> None:
    log.write(RECORDS, partitions=(0, 1, 2))
    chance = random.Random()
    moments = ["written", "committed", *(f"{chance.uniform(0, 4):.3f}" for _ in range(3))]
    chance.shuffle(moments)
    lengths: list[int] = []
    for moment in moments:
        assert end(start(lake, moment)) == -signal.SIGKILL, moments
        lengths.append(DeltaTable(lake.path).count() if (lake.path / "_delta_log").exists() else 0)
    assert 0 < lengths[-1] < RECORDS, f"the kills came too late: {moments} {lengths}"
    assert end(start(lake, "never")) == 0
    assert lake.records() == log.read(), moments


def test_two_processes_may_begin_the_same_table_at_once(lake: Lake, log: Log) -> None:
    log.write(RECORDS // 3, partitions=(0, 1, 2))
    both = [start(lake, "never", checkpoint=f"{lake.checkpoint}-{number}") for number in range(2)]
    assert [end(process) for process in both] == [0, 0]
    assert lake.records() == log.read()
