"""What is measured: names, units, how a figure through a node is set against one without it, and the aims."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Target(Enum):
    """Where the clients of a measurement point their `bootstrap.servers`, and at what kind of topic."""

    DIRECT = "direct"
    FORWARDER = "forwarder"
    """The bare forwarder (`benchmarks.forwarder`): where it sends clients is the broker, so nothing of it but latency
    and the time of one record to one reader.
    """
    UNGOVERNED = "ungoverned"
    EXCLUSIVE = "exclusive"

    @property
    def label(self) -> str:
        """For tables."""
        return {
            "direct": "direct Kafka", "forwarder": "bare forwarder",
            "ungoverned": "node, ungoverned", "exclusive": "node, exclusive",
        }[self.value]  # fmt: skip

    @property
    def is_node(self) -> bool:
        """Whether clients find nodes there."""
        return self in (Target.UNGOVERNED, Target.EXCLUSIVE)


class Against(Enum):
    """How a figure is set against that of direct Kafka in the same round."""

    RATIO = "ratio"
    DIFFERENCE = "difference"
    NOTHING = "nothing"
    """The figure is the node's own: direct Kafka has none."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure per target and round. `digits` are those behind the point."""

    key: str
    label: str
    unit: str
    digits: int
    against: Against


MEASURES: Final = (
    Measure("produce", "produce 1 KiB", "MB/s", 1, Against.RATIO),
    Measure("small", "produce 100 B", "thousand records/s", 1, Against.RATIO),
    Measure("consume", "consume", "MB/s", 1, Against.RATIO),
    Measure("produce_p10", "one produce in flight, p10", "µs", 0, Against.DIFFERENCE),
    Measure("produce_p50", "one produce in flight, p50", "µs", 0, Against.DIFFERENCE),
    Measure("produce_p99", "one produce in flight, p99", "µs", 0, Against.DIFFERENCE),
    Measure("list_offsets_p50", "ListOffsets, p50", "µs", 0, Against.DIFFERENCE),
    Measure("pair_p10", "one record to one reader, p10", "µs", 0, Against.DIFFERENCE),
    Measure("pair_p50", "one record to one reader, p50", "µs", 0, Against.DIFFERENCE),
    Measure("cpu_produce", "CPU of the node, produce 1 KiB", "s/GB", 2, Against.NOTHING),
    Measure("cpu_small", "CPU of the node, produce 100 B", "s/GB", 2, Against.NOTHING),
    Measure("cpu_consume", "CPU of the node, consume", "s/GB", 2, Against.NOTHING),
)

BY_KEY: Final = {measure.key: measure for measure in MEASURES}


class Figure(Enum):
    """Which number of a summary an aim speaks of."""

    VALUE = "value"
    AGAINST_DIRECT = "against direct"
    AGAINST_FORWARDER = "against the bare forwarder"
    """What it adds to direct Kafka, by what the forwarder adds."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A limit for a median: at least `at_least`, or at most `at_most`. `target` None: the node as such."""

    text: str
    target: Target | None
    key: str
    figure: Figure
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        """Whether a figure keeps the limit."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


PEAK_MEMORY: Final = "memory_peak"

AIMS: Final = (
    Aim("produce 1 KiB ≥ 0.90 of direct", Target.UNGOVERNED, "produce", Figure.AGAINST_DIRECT, at_least=0.9),
    Aim("consume ≥ 0.65 of direct", Target.UNGOVERNED, "consume", Figure.AGAINST_DIRECT, at_least=0.65),
    Aim("one produce in flight: p50 + 50 µs", Target.UNGOVERNED, "produce_p50", Figure.AGAINST_DIRECT, at_most=50),
    Aim(
        "one produce in flight: p50 adds ≤ 1.6 × a bare forwarder's",
        Target.UNGOVERNED,
        "produce_p50",
        Figure.AGAINST_FORWARDER,
        at_most=1.6,
    ),
    Aim("CPU ≤ 1.50 s/GB, produce 1 KiB", Target.UNGOVERNED, "cpu_produce", Figure.VALUE, at_most=1.5),
    Aim("CPU ≤ 0.60 s/GB, consume", Target.UNGOVERNED, "cpu_consume", Figure.VALUE, at_most=0.6),
    Aim("one produce in flight: p50 + 80 µs", Target.EXCLUSIVE, "produce_p50", Figure.AGAINST_DIRECT, at_most=80),
    Aim(
        "one produce in flight: p50 adds ≤ 2.2 × a bare forwarder's",
        Target.EXCLUSIVE,
        "produce_p50",
        Figure.AGAINST_FORWARDER,
        at_most=2.2,
    ),
    Aim("CPU ≤ 2.20 s/GB, produce 1 KiB", Target.EXCLUSIVE, "cpu_produce", Figure.VALUE, at_most=2.2),
    Aim("one record to one reader: p50 + 120 µs", Target.UNGOVERNED, "pair_p50", Figure.AGAINST_DIRECT, at_most=120),
    Aim("peak of resident memory ≤ 60 MiB", None, PEAK_MEMORY, Figure.VALUE, at_most=60),
)
"""Ahead of the Kafka proxies measured on the same machine (docs/operate/performance.md)."""
