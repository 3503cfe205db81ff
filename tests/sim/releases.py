"""Histories of two releases: a cluster of the last one (`former`) is upgraded node by node while clients write, and
may go back. What crosses between them is real: records, scripts and hashes of Redis, requests of clients that move.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.sim.crossings import claim, produce
from tests.sim.history import History, Step
from tests.sim.world import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NODES: Final = 3
_SHAPE: Final = Shape(nodes=_NODES, former=tuple(range(1, _NODES + 1)))
_TOPICS: Final = ("owned", "queued", "shared", "counted", "ledger", "split", "tallied")
_FAULTS: Final = (
    "kill node", "freeze node", "suspend node", "cut path", "reset", "elect", "kill broker", "empty redis",
    "roll back redis", "stop redis", "compact", "move coordinator", "hold markers", "refuse",
)  # fmt: skip
_OVERLAP_S: Final = 4.0


def make(history: History, faults: Mapping[str, Callable[[random.Random, Shape], dict[str, Any]]]) -> History:
    """A history of two releases in place of one; its seed stays."""
    rng = random.Random(f"{history.seed} releases")
    replacements = list(_replacements(rng))
    length = round(replacements[-1].at + rng.uniform(0.8, 2.0), 2)
    steps = [*replacements, *_work(rng, length)]
    kinds = rng.sample(_FAULTS, 3)
    for _ in range(rng.choice((0, 2, 4))):
        kind = rng.choice(kinds)
        at = rng.choice([step.at for step in replacements]) + rng.uniform(-0.2, 0.6)  # while it is under way
        steps.append(Step(round(at, 4), kind, faults[kind](rng, _SHAPE)))
    return History(
        history.seed, _SHAPE, length, tuple(sorted(steps, key=lambda step: step.at)), history.weather,
        by_id=history.by_id,
    )  # fmt: skip


def _replacements(rng: random.Random) -> Iterator[Step]:
    """Node by node, to today's release; in most histories some of the way back, and perhaps on again."""
    at, nodes = rng.uniform(0.4, 0.8), rng.sample(range(1, _NODES + 1), _NODES)
    way = [(node, False) for node in nodes[: rng.choice((1, 2, 3, 3))]]
    if rng.random() < 0.8:
        way += [(node, True) for node, _ in reversed(way[-rng.choice((1, 2, 3)) :])]
        if rng.random() < 0.3:
            way += [(node, False) for node in nodes]
    for node, former in way:
        args = {"node": node, "former": former, "drains": rng.random() < 0.7, "lasts": rng.choice((0.05, 0.2))}
        yield Step(round(at, 4), "replace node", args)
        at += rng.uniform(0.5, 1.4)


def _work(rng: random.Random, length: float) -> Iterator[Step]:
    topics = rng.sample(_TOPICS, 3)
    for number in range(rng.choice((3, 4, 5))):
        topic, at, app = rng.choice(topics), rng.uniform(0.0, length / 2), f"app{number}"
        every = rng.choice((0.03, 0.06, 0.1))
        mode = rng.choice(("", "", "wait_for_exclusive", "exclusive_with_fencing"))
        more = {"every": every, "batches": int((length - at) / every), "repeats": rng.choice((0.0, 0.2)), "mode": mode}
        yield produce(rng, at if number else 0.05, topic, app, names=rng.choice((1, 1, 2)), **more)
        if rng.random() < 0.5:
            yield Step(round(rng.uniform(at, length), 4), rng.choice(("restart", "restart", "close")), {"app": app})
    for _ in range(rng.choice((0, 2, 4))):
        about = rng.choice(({"strings": 1}, {"strings": 2}, {"group": "group0", "topic": "guarded", "partitions": [0]}))
        at = round(rng.uniform(0.0, length * 0.8), 4)
        yield Step(at, "claim", claim(**about, lasts=rng.choice((0.3, _OVERLAP_S))))
    for _ in range(rng.choice((0, 1, 5))):
        topic = "mirror" if "owned" in topics else rng.choice(topics)
        yield Step(round(rng.uniform(0.0, 1.0), 4), "consume", {"topic": topic, "shares": rng.random() < 0.5})
