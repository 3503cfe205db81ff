"""A run for people and for later: the tables, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.pipeline.run import Results, Sample

BEGIN: Final = "<!-- pipeline: begin -->"
END: Final = "<!-- pipeline: end -->"
_AIM_RATE: Final = 500_000
_AIM_EXPORT: Final = 0.9

Table = list[tuple[str, ...]]


def jobs(results: Results) -> Table:
    """Records per second by job and size, head first."""
    found: Table = [("job", "records", "records/s", "s", "s with Spark's start", f"aim {_AIM_RATE:,}/s")]
    for (job, millions), samples in results.jobs.items():
        rate = statistics.median(sample.rate for sample in samples)
        found.append((job, f"{millions} million", f"{rate:,.0f}", *_seconds(samples), _said(met=rate >= _AIM_RATE)))
    return found


def exports(results: Results) -> Table:
    """Export beside Spark's bare copy in the same round, head first."""
    ratio = statistics.median(ours.rate / bare.rate for ours, bare in results.exports)
    ours, bare = ([pair[side] for pair in results.exports] for side in (0, 1))
    rates = [f"{statistics.median(sample.rate for sample in side):,.0f}" for side in (ours, bare)]
    return [
        ("", "records/s", "s", "s with Spark's start", f"aim {_AIM_EXPORT} of the bare copy"),
        ("`sidecar pipeline export`", rates[0], *_seconds(ours), f"{ratio:.2f}: {_said(met=ratio >= _AIM_EXPORT)}"),
        ("Spark's Kafka source into Delta", rates[1], *_seconds(bare), ""),
    ]


def _seconds(samples: list[Sample]) -> tuple[str, str]:
    each = [(sample.seconds, sample.whole) for sample in samples]
    return tuple(f"{statistics.median(values):.1f}" for values in zip(*each, strict=True))  # pyright: ignore[reportReturnType]


def _said(*, met: bool) -> str:
    return "kept" if met else "missed"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    return (
        "Records of 100 bytes with sequence ids, lz4, batches of 500, a million per partition, `--master local[2]`,"
        f" Kafka and node on the same {around['cores']} cores ({around['cpu']}). In {results.seconds:.0f} s; Kafka"
        f" {around['kafka']}, Java {around['java']}, Python {around['python']}."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """For a terminal."""
    return "\n\n".join([plain(jobs(results)), plain(exports(results)), _conditions(results, around)])


def document(results: Results, around: dict[str, Any]) -> str:
    """For docs/operate/performance.md."""
    return "\n\n".join([markdown(jobs(results)), markdown(exports(results)), _conditions(results, around)])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """All samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    every = {
        "around": around,
        "jobs": [
            {"job": job, "millions": millions, "samples": [asdict(sample) for sample in samples]}
            for (job, millions), samples in results.jobs.items()
        ],
        "exports": [[asdict(sample) for sample in pair] for pair in results.exports],
        "seconds": results.seconds,
    }
    path.write_text(json.dumps(every, indent=1) + "\n")
