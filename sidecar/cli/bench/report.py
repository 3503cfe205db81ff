"""What was measured, as data and as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sidecar.cli.bench.load import Rate
from sidecar.cli.output import table

_PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}
_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """By target: the rate of each round, and nanoseconds of all round trips."""

    rates: Mapping[str, list[Rate]]
    round_trips: dict[str, list[int]]

    def last(self) -> str:
        """The newest round, for people."""
        return ", ".join(f"{name} {rates[-1].per_second:,.0f} records/s" for name, rates in self.rates.items())


def as_data(found: Found, targets: Mapping[str, Sequence[str]], said: Mapping[str, Any]) -> dict[str, Any]:
    """As `-o json` prints it. Ratios are node to direct: of rates the median of the rounds' own, null without."""
    throughput = {name: _throughput(rates, said["size"]) for name, rates in found.rates.items()}
    latency = {name: _latency(took) for name, took in found.round_trips.items() if took}
    return {
        "targets": targets,
        "options": dict(said),
        "throughput": throughput,
        "latency_ms": latency,
        "ratio": _ratios(found, latency),
    }


def _throughput(rates: Sequence[Rate], record_bytes: int) -> dict[str, Any]:
    middle = median(each.per_second for each in rates)
    return {
        "records": sum(each.records for each in rates),
        "records_per_second": round(middle, 1),
        "megabytes_per_second": round(middle * record_bytes / _MEGABYTE, 3),
        "rounds": [{"records": each.records, "seconds": round(each.seconds, 4)} for each in rates],
    }


def _latency(took: Sequence[int]) -> dict[str, Any]:
    ranked = sorted(took)
    return {
        "samples": len(ranked),
        **{name: _ms(percentile(ranked, share)) for name, share in _PERCENTILES.items()},
        "max": _ms(ranked[-1]),
    }


def percentile(ranked: Sequence[int], share: float) -> int:
    """The value below which `share` of the sorted values lie (nearest rank)."""
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1_000_000, 4)


def _ratios(found: Found, latency: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
    if "direct" not in found.rates:
        return None
    pairs = zip(found.rates["node"], found.rates["direct"], strict=True)
    ratios = {"records_per_second": round(median(node.per_second / direct.per_second for node, direct in pairs), 3)}
    if latency:
        ratios |= {name: round(latency["node"][name] / latency["direct"][name], 3) for name in _PERCENTILES}
    return ratios


def as_text(data: Mapping[str, Any]) -> str:
    """A line for each figure, a column for each target."""
    names = list(data["targets"])
    ratios: Mapping[str, float] = data["ratio"] or {}
    throughput, latency = data["throughput"], data["latency_ms"]
    rows: list[list[object]] = [
        ["records/s", *(f"{throughput[name]['records_per_second']:,.0f}" for name in names)],
        ["MB/s", *(f"{throughput[name]['megabytes_per_second']:,.1f}" for name in names)],
    ]
    keys = ["records_per_second", "records_per_second"]
    if latency:
        for key in (*_PERCENTILES, "max"):
            rows.append([f"{key.replace('_', '.')} ms", *(f"{latency[name][key]:,.3f}" for name in names)])
            keys.append(key)
    if ratios:
        for row, key in zip(rows, keys, strict=True):
            row.append(f"{ratios[key]:.2f}" if key in ratios else "")
    columns = ["", *("straight to Kafka" if name == "direct" else "through the node" for name in names)]
    return table([*columns, "ratio"] if ratios else columns, rows)
