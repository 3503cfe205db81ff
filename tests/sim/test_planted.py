"""The simulator finds mistakes: each of `planted` by at least one of a few seeds that once found it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.sim import histories
from tests.sim.planted import PLANTS
from tests.sim.worker import Worker
from tests.sim.world import Shape

FOUND_BY = {
    "no fence": (),
    "no tails": (),
    "no marks": (),
    "forgetful redis": (),
    "raise is a repeat": (),
    "lost is unsent": (),
}


@contextmanager
def workers(plant: str) -> Iterator[dict[Shape, Worker]]:
    found: dict[Shape, Worker] = {}
    try:
        yield found
    finally:
        for each in found.values():
            each.close()


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_mistake_is_found(plant: str) -> None:
    with workers(plant) as found:
        for seed in FOUND_BY[plant]:
            history = histories.make(seed)
            if history.shape not in found:
                found[history.shape] = Worker(history.shape, plant)
            if found[history.shape].play(history).wrong:
                return
    pytest.fail(f"none of {FOUND_BY[plant]} finds it: look for others with tests.sim.planted")
