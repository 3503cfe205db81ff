"""Runs long work in slices, so that other work has its turn between two slices.

The work is a generator that yields after each slice, so that its code stays in its normal order. If the work is known
to be short, `protocol.primitives.at_once` runs it. While several pieces of work run, each waits for the others, so that
all together take one slice in each turn of the loop.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


class AtWork:
    """How many pieces of work run in this process, and how many slices were run since its start."""

    count = slices = 0


async def in_slices(steps: Generator[None, None, ResultT]) -> ResultT:
    """Run the work to its end, at most one slice in a turn of the loop. Raises what the work raises."""
    AtWork.count += 1
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            AtWork.slices += 1
            for _ in range(AtWork.count):
                await asyncio.sleep(0)
    finally:
        AtWork.count -= 1
        steps.close()


class Turns:
    """Lets long steps of several requests begin one by one, each in a turn of the loop of its own."""

    def __init__(self, few: int) -> None:
        """`few`: the size of the largest step that waits for no turn."""
        self._few = few
        self._lock = asyncio.Lock()

    async def begin(self, size: int) -> None:
        """Return when a step of this size may begin; the step must not wait for anything."""
        if size > self._few:
            async with self._lock:
                await asyncio.sleep(0)
