"""Work that would hold the event loop and needs nothing of it: done by one thread, one piece after the other.

For codecs, which work without Python's lock. One thread, so that strangers' batches take one core at most, and the
memory of one batch at a time; who waits for it is bounded by the callers. What a client sent has an `Allowance`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from sidecar.protocol.limits import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable

ResultT = TypeVar("ResultT")

_THREAD: Final = ThreadPoolExecutor(1, "aside")


async def aside(work: Callable[[], ResultT]) -> ResultT:
    """Have it done; raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)


class Opened:
    """What allowances were taken for in this process since the start: bytes that were opened, and seconds for which
    more had to wait.
    """

    size = 0
    waited_s = 0.0


class Allowance:
    """What the thread opens for one client connection: one piece at a time, so that pieces of others have their turn
    between two, and `limits.Bounds.opened_a_second` bytes. `async with` waits for both. A piece may take more than is
    left; the next one waits for that.
    """

    __slots__ = ("_at", "_left", "_one")

    def __init__(self) -> None:
        self._left = float(BOUNDS.opened_a_second)
        self._at = 0.0
        self._one = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._one.acquire()
        try:
            if (wait := self._wait_s()) > 0:
                Opened.waited_s += wait
                await asyncio.sleep(wait)
        except BaseException:
            self._one.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._one.release()

    def spend(self, size: int) -> None:
        """So many bytes were opened."""
        self._left -= size
        Opened.size += size

    def _wait_s(self) -> float:
        now, rate = asyncio.get_running_loop().time(), float(BOUNDS.opened_a_second)
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        return max(0.0, -self._left / rate)
