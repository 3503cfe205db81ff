"""One thread for work that would block the event loop and does not need it. It does one piece of work at a time.

It is for codecs, which work without Python's lock. There is one thread, so that batches of strangers take one core at
most, and the memory of one batch at a time (`sidecar.protocol.room`). The callers limit how many pieces of work wait.
Work on a client's data needs an `Allowance`.

The thread has a lower priority than the loop, brokers and clients on the same cores. It does not have the lowest: it
needs Python's lock now and then, and the loop waits while the thread has the lock and no core.
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
"""The thread's nice value: it gets a tenth of the share of other threads on its core (sched(7))."""
_SWITCH_S: Final = 0.0005
"""How long the loop waits for Python's lock while the thread runs Python, and vice versa. Python's default is 5 ms."""


class _Thread:
    """What the loop knows about the thread."""

    pieces = 0
    """Pieces of work that have not ended."""
    has_room = False


def _begin() -> None:
    take_room()
    _Thread.has_room = True
    sys.setswitchinterval(_SWITCH_S)
    if sys.platform == "linux":  # on other systems a priority applies to the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


_THREAD: Final = ThreadPoolExecutor(1, "aside", _begin)


async def aside(work: Callable[[], ResultT]) -> ResultT:
    """Run `work` in the thread. Raises what `work` raises; its result must not be in the thread's `Room`."""
    loop = asyncio.get_running_loop()
    _Thread.pieces += 1
    try:
        return await loop.run_in_executor(_THREAD, work)
    finally:
        _Thread.pieces -= 1
        if _Thread.has_room and not _Thread.pieces and not loop.is_closed():
            loop.run_in_executor(_THREAD, give_back)


class Opened:
    """Counts of all allowances in this process since its start: bytes opened, and seconds for which work waited for
    its client's allowance.
    """

    size = 0
    waited_s = 0.0


class Allowance:
    """Limits what the thread opens for one client connection: one piece at a time, so that pieces of other clients are
    done in between, and `limits.Bounds.opened_a_second` bytes a second. `async with` waits for both. A piece may exceed
    what is left of the allowance; the next piece then waits longer.
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
        """Count `size` bytes that were opened."""
        self._left -= size
        Opened.size += size

    def _wait_s(self) -> float:
        now, rate = asyncio.get_running_loop().time(), float(BOUNDS.opened_a_second)
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        return max(0.0, -self._left / rate)
