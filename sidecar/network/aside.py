"""Work that would hold the event loop and needs nothing of it: done by one thread, one piece after the other.

For codecs, which work without Python's lock. One thread, so that strangers' batches take one core at most, and the
memory of one batch at a time (`sidecar.protocol.room`); who waits for it is bounded by the callers. What a client sent
has an `Allowance`.

The thread has a lower priority than the loop, brokers and clients on the same cores. Not the lowest: it needs Python's
lock now and then, and the loop waits for a thread that has the lock and no core.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.room import give_back, take_room

ResultT = TypeVar("ResultT")

_NICE: Final = 10
"""Of the thread: a tenth of the share that others on its core have (sched(7))."""
_SWITCH_S: Final = 0.0005
"""How long the loop waits for Python's lock while the thread runs Python, and the other way round; 5 ms by default."""


class _Thread:
    """What the loop knows of it."""

    pieces = 0
    """Of work, without an end yet."""
    has_room = False


def _begin() -> None:
    take_room()
    _Thread.has_room = True
    sys.setswitchinterval(_SWITCH_S)
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


_THREAD: Final = ThreadPoolExecutor(1, "aside", _begin)


async def aside(work: Callable[[], ResultT]) -> ResultT:
    """Have it done; raises what it raises. What it returns must not be in the thread's room."""
    loop = asyncio.get_running_loop()
    _Thread.pieces += 1
    try:
        return await loop.run_in_executor(_THREAD, work)
    finally:
        _Thread.pieces -= 1
        if _Thread.has_room and not _Thread.pieces and not loop.is_closed():
            loop.run_in_executor(_THREAD, give_back)


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
