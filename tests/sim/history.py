"""A history: clients, nodes and operators, what each does when, and what goes wrong when. Plain data.

A step has a moment (virtual seconds since the history began), a kind, and arguments by name. Faults heal by themselves
after `lasts` seconds, and all of them at the end, so any step can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.world import Shape


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens at a moment."""

    at: float
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.at:7.3f}  {self.kind:<16} " + " ".join(f"{name}={value}" for name, value in self.args.items())


@dataclass(frozen=True, slots=True)
class History:
    """All of it. `seed` decides what steps leave open; `length`: seconds until everything is healed. `compares`: in the
    end nodes' answers to Fetch are held against those of brokers (`comparing`); `by_id`: readers name topics by id.
    """

    seed: int
    shape: Shape
    length: float
    steps: tuple[Step, ...]
    weather: Mapping[str, float] = field(default_factory=dict)
    compares: bool = False
    by_id: bool = False

    def without(self, steps: set[int]) -> History:
        """Some steps left out, by their places."""
        return replace(self, steps=tuple(step for place, step in enumerate(self.steps) if place not in steps))

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.shape.nodes} nodes, {self.length:.1f} s, weather {dict(self.weather)}"
        return "\n".join([head, *map(str, self.steps)])
