"""The simulator finds mistakes: each of `planted`, by a short schedule that brings it out, under one of some seeds.

With the mistake something is wrong; without it, under the same seeds, nothing is.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.histories import History, Step
from tests.sim.planted import PLANTS
from tests.sim.worker import Worker
from tests.sim.world import Shape

SEEDS = range(3)
SHAPE = Shape(nodes=2)


def produce(at: float = 0.1, app: str = "app0", topic: str = "owned", **more: Any) -> Step:
    """An application that writes all the time."""
    args = {"library": "java", "mode": "", "ids": False, "every": 0.01, "batches": 300, "burst": 2, "partitions": 2}
    return Step(at, "produce", {"app": app, "topic": topic, **args, **more})


def kills(*at: float) -> list[Step]:
    """Both nodes die in turns, in the middle of things."""
    args = {"lasts": 0.2, "silently": False}
    return [
        Step(moment, "kill node", {"node": 1 + number % 2, "fuse": 20 + 7 * number, **args})
        for number, moment in enumerate(at)
    ]


def rivals(*at: float) -> list[Step]:
    """New sessions that depose whoever holds the topic."""
    return [
        produce(moment, f"rival{number}", mode="exclusive_with_fencing", batches=20) for number, moment in enumerate(at)
    ]


def stops(*at: float) -> list[Step]:
    """Nodes stand still for longer than their leases, in turns."""
    return [
        Step(moment, "freeze node", {"node": 1 + number % 2, "lasts": 1.0, "timers_first": False})
        for number, moment in enumerate(at)
    ]


def refusals(*at: float) -> list[Step]:
    """Batches are written, and the brokers say that they do not know."""
    return [
        Step(moment, "refuse", {"broker": 0, "api": 0, "error": 7, "times": 1, "after_append": True}) for moment in at
    ]


def schedule(plant: str) -> list[Step]:
    match plant:
        case "no fence":
            return [produce(), *rivals(0.8, 1.6), *stops(0.5, 1.5)]
        case "no tails":
            return [produce(), *kills(0.6, 1.6, 2.6)]
        case "no marks":
            restarts = [Step(moment, "restart", {"app": "app0"}) for moment in (0.5, 0.9, 1.3)]
            return [produce(topic="counted", ids=True), *restarts]
        case "forgetful redis":
            empties = [Step(moment, "empty redis") for moment in (0.92, 0.96, 1.0, 1.04, 1.72, 1.76, 1.8, 1.84)]
            return [produce(), *rivals(0.9, 1.7), *empties]
        case "raise is a repeat":
            too_large = {"broker": 0, "api": 0, "error": 10, "times": 1, "after_append": False}
            return [produce(), *[Step(moment, "refuse", too_large) for moment in (0.5, 0.9)]]
        case "lost is unsent":
            return [produce(library="plain", topic="shared"), *refusals(0.5, 0.8, 1.1, 1.4)]
    raise AssertionError(plant)


def wrong(worker: Worker, plant: str, seed: int) -> list[str]:
    steps = sorted(schedule(plant), key=lambda step: step.at)
    return worker.play(History(seed, SHAPE, 3.0, tuple(steps), {"latency": 0.001})).wrong


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_mistake_is_found(plant: str) -> None:
    with Worker(SHAPE, plant) as worker:
        assert any(wrong(worker, plant, seed) for seed in SEEDS)


def test_without_mistakes_nothing_is_found() -> None:
    with Worker(SHAPE) as worker:
        assert not [found for plant in PLANTS for seed in SEEDS for found in wrong(worker, plant, seed)]
