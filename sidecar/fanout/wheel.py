"""The deadlines of thousands who wait, with a timer of the event loop for each tick of 5 ms that has any.

Who waits long waits up to 50 ms longer: those who come together cost less, as they share a turn of the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICK_S: Final = 0.005
_LONG_S: Final = 1.0
_TICKS_OF_LONG: Final = 10

WaiterT = TypeVar("WaiterT")


class _Tick(NamedTuple, Generic[WaiterT]):
    waiters: dict[WaiterT, None]
    timer: asyncio.TimerHandle


class Wheel(Generic[WaiterT]):
    """`due` is called with those whose time has come, in the order in which they came, and what `add` returned."""

    __slots__ = ("_due", "_loop", "_ticks")

    def __init__(self, due: Callable[[Iterable[WaiterT], int], None]) -> None:
        self._due = due
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticks: dict[int, _Tick[WaiterT]] = {}

    @property
    def ticks(self) -> int:
        """How many have anybody who waits for them."""
        return len(self._ticks)

    def add(self, waiter: WaiterT, seconds: float) -> int:
        """Its time comes in so many seconds, at most a tick later, or ten from one second on. Returns what `remove`
        takes.
        """
        loop = self._loop
        if loop is None:  # asking for it is a system call (getpid)
            loop = self._loop = asyncio.get_running_loop()
        number = int((loop.time() + seconds) / TICK_S) + 1
        if seconds >= _LONG_S:
            number += -number % _TICKS_OF_LONG
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = _Tick({}, loop.call_at(number * TICK_S, self._end, number))
        tick.waiters[waiter] = None
        return number

    def now(self) -> float:
        """The clock of the loop, in seconds."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def remove(self, waiter: WaiterT, number: int) -> None:
        """It waits no more. A tick that nobody waits for ends with it: a client may ask for one in 24 days."""
        tick = self._ticks.get(number)
        if tick is None:
            return
        tick.waiters.pop(waiter, None)
        if not tick.waiters:
            tick.timer.cancel()
            del self._ticks[number]

    def _end(self, number: int) -> None:
        self._due(self._ticks.pop(number).waiters, number)
