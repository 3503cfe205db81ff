"""Writes logs through a node and runs the jobs on them, each as the command that a user runs, on two cores.

The rate of a job is what it says itself at its end: its start, some ten seconds of Java, is not in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.ids.writer import Load, build, write
from benchmarks.pipeline.lost import lose_ids
from benchmarks.rounds import say
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MASTER: Final = "local[2]"
SETTINGS: Final = {"SIDECAR_CLUSTER": "bench"}
RECORD_BYTES: Final = 100
_IN_A_BATCH: Final = 500
_IN_A_PARTITION: Final = 1_000_000
_PATIENCE_S: Final = 600
_TOLD: Final = re.compile(r"^([0-9,]+) records in ([0-9.]+) s ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """Sizes of the logs that are audited and rebuilt, in millions of records; how often and how much is exported."""

    millions: tuple[int, ...] = (1, 3, 10)
    rounds: int = 3
    exported: int = 3


QUICK: Final = Work(millions=(1,), rounds=1, exported=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a job said at its end; `whole` seconds include its start."""

    records: int
    seconds: float
    whole: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds


@dataclass(slots=True)
class Results:
    """Samples by job and size; pairs of export and bare copy."""

    jobs: dict[tuple[str, int], list[Sample]] = field(default_factory=dict[tuple[str, int], list[Sample]])
    exports: list[tuple[Sample, Sample]] = field(default_factory=list[tuple[Sample, Sample]])
    seconds: float = 0.0


class JobError(RuntimeError):
    """A job failed, or told no rate."""


def run(arena: Arena, work: Work, started: float) -> Results:
    """All measurements. Raises `JobError`, `RefusedError`, OSError."""
    results = Results()
    for millions in work.millions:
        topic = _log(arena, millions)
        for job in ("audit", "rebuild"):
            for _ in range(work.rounds):
                if job == "rebuild":
                    lose_ids(arena, topic)
                found = _job(arena, job, topic)
                if found.records < millions * _IN_A_PARTITION:
                    raise JobError(f"{job} read {found.records} of {millions} million records")
                results.jobs.setdefault((job, millions), []).append(found)
                say(f"[{time.monotonic() - started:4.0f} s] {job}, {millions} million: {found.rate:,.0f} records/s")
        arena.delete(topic)
    topic = _log(arena, work.exported)
    for turn in range(work.rounds):
        table = arena.directory / f"table-{turn}"
        pair = [_export(arena, topic, table), _copy(arena, topic, table)]
        results.exports.append((pair[0], pair[1]))
        ratio = pair[0].rate / pair[1].rate
        say(f"[{time.monotonic() - started:4.0f} s] export: {pair[0].rate:,.0f} records/s, {ratio:.2f} of a bare copy")
    results.seconds = time.monotonic() - started
    return results


def _log(arena: Arena, millions: int) -> str:
    """A topic with so many partitions of a million records each, with ids, written through the node."""
    topic = f"pipeline-{time.monotonic_ns()}"
    arena.create_all([topic], millions)
    arena.put_policy(topic, {"access_mode": "exclusive", "deduplication": True})
    load = Load(RECORD_BYTES, "lz4", _IN_A_BATCH, _IN_A_PARTITION // _IN_A_BATCH)
    batches = build(load)
    for partition in range(millions):
        write(arena.node_port(1), "writer", topic, batches, load, partition)
    return topic


def _job(arena: Arena, job: str, topic: str) -> Sample:
    return _timed(arena, "-m", "sidecar", "pipeline", job, topic, "--master", MASTER)


def _export(arena: Arena, topic: str, table: Path) -> Sample:
    options = ("--to", str(table), "--available-now", "--master", MASTER)
    try:
        return _timed(arena, "-m", "sidecar", "pipeline", "export", topic, *options)
    finally:
        shutil.rmtree(table, ignore_errors=True)


def _copy(arena: Arena, topic: str, table: Path) -> Sample:
    arguments = (f"{HOST}:{arena.kafka_port}", topic, f"{table}-bare", MASTER)
    try:
        return _timed(arena, "-m", "benchmarks.pipeline.copy", *arguments)
    finally:
        shutil.rmtree(f"{table}-bare", ignore_errors=True)


def _timed(arena: Arena, *arguments: str) -> Sample:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments],
        env=arena.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    whole = time.monotonic() - began
    told = _TOLD.findall(done.stderr)
    if done.returncode or not told:
        raise JobError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2_000:]}")
    records, seconds = told[-1]
    return Sample(int(records.replace(",", "")), float(seconds), whole)
