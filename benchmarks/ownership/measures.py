"""What is measured of ownership, the aims, and from samples to figures. Pure; all times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table. `once`: all samples belong to one event, so that the last one tells how long it took."""

    key: str
    label: str
    once: bool = False


CHANGES: Final = {2: "change_2", 100: "change_100", 500: "change_500"}
"""Keys of the changes of owner by partitions of the topic."""
CLOSE: Final = "close"
CLIENT_KILL: Final = "client_kill"
NODE_KILL: Final = "node_kill"
CROWD: Final = "crowd"

MEASURES: Final = (
    *(Measure(key, f"change of owner, {partitions} partitions") for partitions, key in CHANGES.items()),
    Measure(CLOSE, "owner closes → next writer"),
    Measure(CLIENT_KILL, "kill -9 of the owner → next writer"),
    Measure(NODE_KILL, "kill -9 of the node → same session writes again"),
    Measure(CROWD, "the same for {samples} topics at once", once=True),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one measure: how many samples, their median, 99th percentile and maximum."""

    samples: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figures | None:
        """None where there are no values. Percentiles are values that occurred (nearest rank)."""
        if not values:
            return None
        ranked = sorted(values)
        return cls(len(ranked), _nearest_rank(ranked, 0.5), _nearest_rank(ranked, 0.99), ranked[-1])


def _nearest_rank(ranked: Sequence[float], share: float) -> float:
    return ranked[math.ceil(len(ranked) * share) - 1]


@dataclass(frozen=True, slots=True)
class Aim:
    """A limit for one figure (`p99` or `most`) of one measure."""

    text: str
    key: str
    figure: str
    at_most: float


LEASE_MS: Final = 3_000
"""The default of SIDECAR_LEASE_MS, which the nodes here run with."""
HEARTBEAT_MS: Final = LEASE_MS / 3
"""How often a node renews it (`sidecar.cluster.nodes`)."""

AIMS: Final = (
    Aim("change of owner at 2 partitions: p99 ≤ 100 ms", CHANGES[2], "p99", 100),
    Aim("owner closes → next writer: p99 ≤ 100 ms", CLOSE, "p99", 100),
    Aim("kill -9 of the node → same session: at most lease + 1 s", NODE_KILL, "most", LEASE_MS + 1_000),
    Aim("500 topics at once ≤ 10 s", CROWD, "most", 10_000),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An aim and its figure, None where that was not measured."""

    aim: Aim
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.value <= self.aim.at_most


def summarise(samples: Mapping[str, Sequence[float]]) -> dict[str, Figures]:
    """Figures by key, in the order of MEASURES; what was not measured is absent."""
    found = {measure.key: Figures.of(samples.get(measure.key, ())) for measure in MEASURES}
    return {key: figures for key, figures in found.items() if figures is not None}


def judge(summary: Mapping[str, Figures], *, whole: bool = True) -> list[Verdict]:
    """Every aim with its figure. `whole` False: fewer topics than the last aim speaks of, which is left open."""
    values = {key: {"p99": figures.p99, "most": figures.most} for key, figures in summary.items()}
    if not whole:
        values.pop(CROWD, None)
    return [Verdict(aim, values.get(aim.key, {}).get(aim.figure)) for aim in AIMS]
