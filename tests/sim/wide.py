"""Long, wide histories: a minute or more, topics of twenty partitions, up to thirty sessions that come, leave and come
back, and now and then something that goes wrong. A small share of all histories.

Each has some of the features below, never all: what one feature hides, a history without it shows (swarm testing).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.sim.crossings import claim
from tests.sim.history import History, Step
from tests.sim.world import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PARTITIONS: Final = 20
_SHAPE: Final = Shape(nodes=3, partitions=PARTITIONS, pool=6)
_SESSIONS: Final = 34
_TOPICS: Final = ("owned", "queued", "shared", "shared", "counted", "counted", "ledger", "split", "tallied", "ordinary")
_WITH_IDS: Final = ("counted", "ledger", "tallied")
_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "shared": ("", "", "", "", "exclusive_with_fencing"), "counted": ("", "", "", "", "exclusive_with_fencing"),
    "ordinary": ("",),
}  # fmt: skip
_ANY_MODE: Final = ("", "", "wait_for_exclusive", "wait_for_exclusive", "exclusive_with_fencing")
_LIBRARIES: Final = ("java",) * 4 + ("librdkafka",) * 3 + ("sarama", "franz-go", "aiokafka", "plain")
_FEATURES: Final = (
    "restarts",
    "closes",
    "versions",
    "claims",
    "readers",
    "groups",
    "operators",
    "pairs",
    "jumps",
    "bursts",
)
_LEFT_OUT: Final = frozenset({"misconfigure", "intrude", "raise epoch", "elect unclean", "lose answers"})
"""Faults that are for short histories."""
_MOST_TOPICS: Final = 3


def make(history: History, faults: Mapping[str, Callable[[random.Random, Shape], dict[str, Any]]]) -> History:
    """A wide history in place of one; its seed stays."""
    rng = random.Random(f"{history.seed} wide history")
    features = {each for each in _FEATURES if rng.random() < 0.5}
    length = round(rng.choice((40.0, 60.0, 60.0, 60.0, 90.0)) * rng.uniform(1.0, 1.2), 2)
    topics: list[str] = rng.sample(sorted(set(_TOPICS)), rng.randint(2, _MOST_TOPICS))
    steps = [*_sessions(rng, features, topics, length), *_others(rng, features, topics, length)]
    kinds = rng.sample(sorted(faults.keys() - _LEFT_OUT), rng.choice((3, 5, 8)))
    at = rng.uniform(1.0, length / 4)
    for _ in range(rng.choice((6, 9, 12))):
        kind = rng.choice(kinds)
        steps.append(Step(round(at, 4), kind, faults[kind](rng, _SHAPE)))
        at = at + rng.expovariate(1 / 0.3) if "pairs" in features and rng.random() < 0.5 else rng.uniform(1.0, length)
        at = min(at, length)
    if "jumps" not in features:
        steps = [step for step in steps if step.kind not in ("jump clock", "skew broker")]
    steps = [step for step in steps if step.at <= length]
    in_order = tuple(sorted(steps, key=lambda step: step.at))
    return History(history.seed, _SHAPE, length, in_order, history.weather, by_id=history.by_id)


def _sessions(rng: random.Random, features: set[str], topics: list[str], length: float) -> Iterator[Step]:
    """Applications, some with several sessions one after the other: about thirty sessions in all."""
    left, number = rng.randint(_SESSIONS - 4, _SESSIONS), 0
    while left > 0:
        topic, app = rng.choice(topics), f"app{number}"
        at = round(rng.uniform(0.0, length * 0.8), 4)
        args = {
            "app": app, "topic": topic, "library": rng.choice(_LIBRARIES),
            "mode": rng.choice(_MODES.get(topic, _ANY_MODE)), "ids": topic in _WITH_IDS and rng.random() < 0.9,
            "every": rng.choice((0.02, 0.2, 1.0, 3.0)) if "bursts" in features else rng.choice((0.3, 1.0, 3.0)),
            "batches": rng.choice((5, 10, 20)), "burst": rng.choice((1, 2, 5)), "partitions": rng.choice((1, 2)),
            "names": rng.choice((1, 1, 2)), "repeats": rng.choice((0.0, 0.2)), "common": rng.random() < 0.3,
        }  # fmt: skip
        if "versions" in features:
            args["version"] = rng.choice((8, 9, 11, 12, 13))
        yield Step(at, "produce", args)
        left, number = left - 1, number + 1
        again = at
        while left > 0 and "restarts" in features and rng.random() < 0.5:
            again = rng.uniform(again, length)
            left -= 1
            yield Step(round(again, 4), "restart", {"app": app})
        if "closes" in features and rng.random() < 0.4:
            yield Step(round(rng.uniform(again, length), 4), "close", {"app": app})


def _others(rng: random.Random, features: set[str], topics: list[str], length: float) -> Iterator[Step]:
    """Claims, readers, groups, operators."""

    def moments(most: int) -> list[float]:
        return [round(rng.uniform(0.0, length), 4) for _ in range(rng.randint(1, most))]

    if "claims" in features:
        for at in moments(8):
            about = rng.choice(
                ({"strings": 1}, {"strings": 2}, {"group": "group0", "topic": "guarded", "partitions": [0]})
            )
            yield Step(at, "claim", claim(**about, lasts=rng.choice((0.5, 3.0, 10.0))))
    if "readers" in features:
        topic = rng.choice([*topics, "mirror"])
        for at in moments(6):
            yield Step(at, "consume", {"topic": topic, "shares": rng.random() < 0.7})
    if "groups" in features:
        for at in moments(3):
            yield Step(at, "join", {"group": "group0", "topic": "mirror", "joins": rng.random() < 0.4, "slow": 0.3})
    if "operators" in features:
        for at in moments(5):
            action = rng.choice(("fence", "release", "look", "cursors", "events", "touch", "change shadow"))
            yield Step(at, "operate", {"action": action, "topic": rng.choice(topics), "shadow": "mirror"})
