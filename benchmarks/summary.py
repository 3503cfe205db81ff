"""From the figures of all rounds to medians, ranges, ratios to direct Kafka and aims kept or missed. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measures import AIMS, BY_KEY, MEASURES, PEAK_MEMORY, Against, Aim, Figure, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where there are no values."""
        return cls(statistics.median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one target: its values, and how they stand to direct Kafka's of the same rounds (or None)."""

    value: Spread
    against_direct: Spread | None


Summary = dict[str, dict[Target, Cell]]
"""By key of the measure, then by target; what was not measured is absent."""


def summarise(rounds: Sequence[Mapping[Target, Mapping[str, float]]]) -> Summary:
    """Ratios and differences are taken within each round, then their median: what slowed a round slowed both sides."""
    found: Summary = {}
    for measure in MEASURES:
        for target in Target:
            value = Spread.of([one[target][measure.key] for one in rounds if measure.key in one.get(target, {})])
            if value is not None:
                cell = Cell(value, Spread.of(_against(rounds, target, measure.key)))
                found.setdefault(measure.key, {})[target] = cell
    return found


def _against(rounds: Sequence[Mapping[Target, Mapping[str, float]]], target: Target, key: str) -> list[float]:
    against = BY_KEY[key].against
    if target is Target.DIRECT or against is Against.NOTHING:
        return []
    pairs = [
        (one[target][key], one[Target.DIRECT][key])
        for one in rounds
        if key in one.get(target, {}) and key in one.get(Target.DIRECT, {})
    ]
    if against is Against.DIFFERENCE:
        return [value - direct for value, direct in pairs]
    return [value / direct for value, direct in pairs if direct > 0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An aim and the figure it speaks of; `value` is None where that was not measured."""

    aim: Aim
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.aim.met(self.value)


def judge(summary: Summary, peak_memory: float | None) -> list[Verdict]:
    """Every aim with its figure, in the order of AIMS; `peak_memory` in MiB."""
    return [Verdict(aim, _figure(summary, aim, peak_memory)) for aim in AIMS]


def _figure(summary: Summary, aim: Aim, peak_memory: float | None) -> float | None:
    if aim.key == PEAK_MEMORY:
        return peak_memory
    cell = summary.get(aim.key, {}).get(aim.target) if aim.target is not None else None
    if cell is None:
        return None
    if aim.figure is Figure.VALUE:
        return cell.value.median
    added = cell.against_direct.median if cell.against_direct is not None else None
    if added is None or aim.figure is Figure.AGAINST_DIRECT:
        return added
    bare = summary[aim.key].get(Target.FORWARDER)
    by_it = bare.against_direct.median if bare is not None and bare.against_direct is not None else 0.0
    return added / by_it if by_it > 0 else None
