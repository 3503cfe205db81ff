"""Work that is legal and long, in slices: others have their turn between two of them.

The work is a generator that yields after each slice, so that it reads as it would without; where it is known to be
short `protocol.primitives.at_once` runs it. While several are at work each waits for the others, so that all of them
together take one slice of each turn of the loop.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


class AtWork:
    """How many are at work in this process, and how many slices there were since the start."""

    count = slices = 0


async def in_slices(steps: Generator[None, None, ResultT]) -> ResultT:
    """Run to the end, one slice in a turn of the loop; raises what the work raises."""
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
