"""The deadlines of thousands who wait, with a timer of the event loop for each tick of 5 ms that has any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICK_S: Final = 0.005

WaiterT = TypeVar("WaiterT")


class Wheel(Generic[WaiterT]):
    """`due` is called with those whose time has come, in the order in which they came."""

    __slots__ = ("_due", "_ticks")

    def __init__(self, due: Callable[[Iterable[WaiterT]], None]) -> None:
        self._due = due
        self._ticks: dict[int, dict[WaiterT, None]] = {}

    def add(self, waiter: WaiterT, seconds: float) -> int:
        """Its time comes in so many seconds, at most a tick later. Returns what `remove` takes."""
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + seconds) / TICK_S) + 1
        waiters = self._ticks.get(tick)
        if waiters is None:
            waiters = self._ticks[tick] = {}
            loop.call_at(tick * TICK_S, self._end, tick)
        waiters[waiter] = None
        return tick

    def remove(self, waiter: WaiterT, tick: int) -> None:
        """It waits no more."""
        waiters = self._ticks.get(tick)
        if waiters is not None:
            waiters.pop(waiter, None)

    def _end(self, tick: int) -> None:
        waiters = self._ticks.pop(tick)
        if waiters:
            self._due(waiters)
