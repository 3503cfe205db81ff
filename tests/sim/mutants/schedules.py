"""Short schedules, for moments which chance brings too seldom. The seed decides what they leave open."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.sim.history import History, Step
from tests.sim.world import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Schedule:
    """The same steps under any seed, each later by up to `jitter` seconds as the seed has it. `brief`, `settings`: see
    `Shape`.
    """

    steps: Sequence[Step]
    length: float = 3.0
    nodes: int = 2
    latency: float = 0.001
    jitter: float = 0.0
    brief: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def __call__(self, seed: int) -> History:
        """The history of a seed."""
        rng = random.Random(f"{seed} schedule")
        late = [replace(step, at=round(step.at + self.jitter * rng.random(), 4)) for step in self.steps]
        steps = tuple(sorted(late, key=lambda step: step.at))
        shape = Shape(nodes=self.nodes, brief=self.brief, settings=self.settings)
        return History(seed, shape, self.length, steps, {"latency": self.latency})


def produce(at: float = 0.1, app: str = "app0", topic: str = "owned", **more: Any) -> Step:
    """An application that writes all the time."""
    args = {"library": "java", "mode": "", "ids": False, "every": 0.01, "batches": 300, "burst": 2, "partitions": 2}
    return Step(at, "produce", {"app": app, "topic": topic, **args, **more})


def restarts(*at: float, app: str = "app0") -> list[Step]:
    """It ends and starts anew."""
    return [Step(moment, "restart", {"app": app}) for moment in at]


def kills(*at: float) -> list[Step]:
    """Both nodes die in turns, in the middle of things."""
    args = {"lasts": 0.2, "silently": False}
    return [
        Step(moment, "kill node", {"node": 1 + number % 2, "fuse": 20 + 7 * number, **args})
        for number, moment in enumerate(at)
    ]


def rivals(*at: float, topic: str = "owned") -> list[Step]:
    """New sessions that depose the topic's holder."""
    return [
        produce(moment, f"rival{number}", topic, mode="exclusive_with_fencing", batches=20)
        for number, moment in enumerate(at)
    ]


def stops(*at: float, lasts: float = 1.0) -> list[Step]:
    """Nodes stand still for longer than their leases, in turns."""
    return [
        Step(moment, "freeze node", {"node": 1 + number % 2, "lasts": lasts, "timers_first": False})
        for number, moment in enumerate(at)
    ]


def refusals(*at: float, error: int = 7, times: int = 1, after_append: bool = True, api: int = 0) -> list[Step]:
    """Brokers answer with an error, behind the append or in front of it."""
    args = {"broker": 0, "api": api, "error": error, "times": times, "after_append": after_append}
    return [Step(moment, "refuse", args) for moment in at]


def resets(*at: float) -> list[Step]:
    """All connections of clients are reset."""
    return [Step(moment, "reset", {"node": node, "other": "clients", "share": 1.0}) for moment in at for node in (1, 2)]


def led(topic: str, broker: int, partition: int = 0) -> Step:
    """A broker leads a partition, whatever the start of the world made of it."""
    return Step(0.4, "elect", {"topic": topic, "partition": partition, "broker": broker})


def hold(at: float, topic: str = "counted", lasts: float = 0.4, **more: Any) -> Step:
    """What a topic's leaders are sent they append, and answer later."""
    return Step(at, "hold answers", {"topic": topic, "lasts": lasts, **more})
