"""A run for people and for later: the table, the same as JSON, and its part of docs/operate/performance.md."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import markdown, plain

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.ids.run import Results, Sample

BEGIN: Final = "<!-- ids: begin -->"
END: Final = "<!-- ids: end -->"
_AIM: Final = 0.8
_AIM_BYTES: Final = 200
_AIM_RECOVERY: Final = 500_000
_AIM_CPU: Final = (50.0, 60.0)
"""Seconds of the node's CPU for a million records that come alone, without ids and with them."""
_FROM_BATCH: Final = 16

Table = list[tuple[str, ...]]


def rows(results: Results) -> Table:
    """One row per load: records per second, the share of those without ids, the node's CPU; head first."""
    head = ("record", "codec", "batch", "records/s with ids", "of those without", "node's CPU s per million records")
    found: Table = [head]
    for load, samples in results.samples.items():
        rate = statistics.median(sample.with_ids for sample in samples)
        cpu = statistics.median(sample.cpu_with for sample in samples)
        before = statistics.median(sample.cpu_without for sample in samples)
        ratio = f"{_ratio(samples):.2f}"
        found.append(
            (
                f"{load.record_bytes} B",
                load.codec,
                str(load.records),
                f"{rate:,.0f}",
                ratio,
                f"{cpu:.2f} ({before:.2f})",
            )
        )
    return found


def _ratio(samples: list[Sample]) -> float:
    return statistics.median(sample.with_ids / sample.without for sample in samples)


def _alone(results: Results) -> tuple[float, float]:
    """The median over all loads of batches of one record: CPU per million without ids and with them."""
    samples = [sample for load, found in results.samples.items() if load.records == 1 for sample in found]
    without = statistics.median(sample.cpu_without for sample in samples)
    return without, statistics.median(sample.cpu_with for sample in samples)


def aims(results: Results) -> Table:
    """The aims beside their figures, head first."""
    (without, with_ids), (aim_without, aim_with) = _alone(results), _AIM_CPU
    slowest = min(_ratio(samples) for load, samples in results.samples.items() if load.records >= _FROM_BATCH)
    recovery = statistics.median(results.recovery)
    return [
        ("aim", "found", ""),
        (f"≥ {_AIM} of the throughput without ids, batches of {_FROM_BATCH} and more", f"{slowest:.2f} at the least",
         _said(met=slowest >= _AIM)),
        (f"one record per batch: ≤ {aim_without:.0f} s of CPU per million without ids, ≤ {aim_with:.0f} s with them",
         f"{without:.1f} s, {with_ids:.1f} s", _said(met=without <= aim_without and with_ids <= aim_with)),
        (f"≤ {_AIM_BYTES} bytes per known name and partition", f"{results.bytes_per_name:.0f}",
         _said(met=results.bytes_per_name <= _AIM_BYTES)),
        (f"recovery ≥ {_AIM_RECOVERY:,} records/s", f"{recovery:,.0f}: {1e6 / recovery:.2f} s per million",
         _said(met=recovery >= _AIM_RECOVERY)),
    ]  # fmt: skip


def _said(*, met: bool) -> str:
    return "kept" if met else "missed"


def _conditions(results: Results, around: dict[str, Any]) -> str:
    return (
        f"In {results.seconds:.0f} s on {around['cores']} cores ({around['cpu']}), Kafka {around['kafka']}, "
        f"Java {around['java']}, Python {around['python']}."
    )


def terminal(results: Results, around: dict[str, Any]) -> str:
    """Everything, for a terminal."""
    return "\n\n".join([plain(rows(results)), _conditions(results, around), plain(aims(results))])


def document(results: Results, around: dict[str, Any]) -> str:
    """The generated part of docs/operate/performance.md."""
    return "\n\n".join([markdown(rows(results)), _conditions(results, around), markdown(aims(results))])


def write_json(path: Path, results: Results, around: dict[str, Any]) -> None:
    """Every sample, figures beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "around": around,
        "seconds": results.seconds,
        "bytes_per_name": results.bytes_per_name,
        "recovery_records_per_s": results.recovery,
        "loads": [
            {**asdict(load), "samples": [asdict(sample) for sample in samples]}
            for load, samples in results.samples.items()
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
