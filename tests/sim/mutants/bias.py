"""Random histories with more of what brings a mistake out, or with that alone. The same seed is the same history."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.sim.histories import FAULTS
from tests.sim.history import History, Step
from tests.sim.world import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LIBRARIES: Final = ("java", "java", "librdkafka", "sarama", "franz-go")


@dataclass(frozen=True, slots=True)
class Bias:
    """What a history is made of. Of each sequence one is chosen, of `faults` by their weights.

    `apps`: applications that write all the time; `rivals`: others that come later, with these modes. `restarts`: how
    often an application starts anew. `where`: arguments of a kind of fault, or of `work` (`produce`), that are not left
    to chance. `settings`: of the nodes.
    """

    topics: Sequence[str]
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    count: Sequence[int] = (2, 4, 6)
    apps: Sequence[int] = (1, 2)
    libraries: Sequence[str] = _LIBRARIES
    modes: Sequence[str] = ("",)
    rivals: Sequence[int] = (0,)
    rival_modes: Sequence[str] = ("exclusive_with_fencing",)
    restarts: Sequence[int] = (0,)
    ids: bool = False
    every: Sequence[float] = (0.01, 0.02)
    burst: Sequence[int] = (1, 3)
    partitions: Sequence[int] = (2,)
    batches: int = 400
    length: Sequence[float] = (3.0,)
    nodes: Sequence[int] = (2,)
    latency: Sequence[float] = (0.0005, 0.002)
    readers: bool = False
    where: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict[str, Any])
    pairs: float = 0.5
    """How often a fault follows the one before within moments."""

    def __call__(self, seed: int) -> History:
        """The history of a seed."""
        rng = random.Random(f"{seed} bias")
        shape = Shape(nodes=rng.choice(self.nodes))
        length = rng.choice(self.length)
        steps = [*self._work(rng, length), *self._faults(rng, shape, length)]
        weather = {
            "latency": rng.choice(self.latency),
            "spikes": rng.choice((0.0, 0.01, 0.05)),
            "spike_s": rng.choice((0.02, 0.1)),
            "splits": 0.0,
        }
        return History(seed, shape, length, tuple(sorted(steps, key=lambda step: step.at)), weather)

    def _work(self, rng: random.Random, length: float) -> Iterator[Step]:
        topic = rng.choice(self.topics)
        for number in range(rng.choice(self.apps)):
            app = f"app{number}"
            at = rng.uniform(0.0, 0.3)
            yield self._produce(rng, at, app, topic, rng.choice(self.modes), self.batches)
            for _ in range(rng.choice(self.restarts)):
                yield Step(round(rng.uniform(at + 0.2, length), 4), "restart", {"app": app})
        for number in range(rng.choice(self.rivals)):
            at = rng.uniform(0.4, length)
            yield self._produce(rng, at, f"rival{number}", topic, rng.choice(self.rival_modes), 30)
        if self.readers:
            yield Step(0.2, "consume", {"topic": topic})

    def _produce(self, rng: random.Random, at: float, app: str, topic: str, mode: str, batches: int) -> Step:
        args = {
            "app": app,
            "topic": topic,
            "library": rng.choice(self.libraries),
            "mode": mode,
            "ids": self.ids,
            "every": rng.choice(self.every),
            "batches": batches,
            "burst": rng.choice(self.burst),
            "partitions": rng.choice(self.partitions),
        }
        args |= {name: rng.choice(values) for name, values in self.where.get("produce", {}).items()}
        return Step(round(at, 4), "produce", args)

    def _faults(self, rng: random.Random, shape: Shape, length: float) -> Iterator[Step]:
        kinds = sorted(self.faults)
        at = rng.uniform(0.3, length)
        for _ in range(rng.choice(self.count) if kinds else 0):
            (kind,) = rng.choices(kinds, [self.faults[each] for each in kinds])
            args = FAULTS[kind](rng, shape)
            args |= {name: rng.choice(values) for name, values in self.where.get(kind, {}).items()}
            yield Step(round(at, 4), kind, args)
            is_soon = rng.random() < self.pairs
            at = min(length, at + rng.expovariate(1 / 0.1)) if is_soon else rng.uniform(0.3, length)
