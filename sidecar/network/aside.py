"""Work that would hold the event loop and needs nothing of it: done by one thread, one piece after the other.

For codecs, which work without Python's lock. One thread, so that strangers' batches take one core at most, and the
memory of one batch at a time; the callers bound how many wait for it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ResultT = TypeVar("ResultT")

_THREAD: Final = ThreadPoolExecutor(1, "aside")


async def aside(work: Callable[[], ResultT]) -> ResultT:
    """Have it done; raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
