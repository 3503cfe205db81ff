"""Readers that wait at the end of a log: how long each does, when its time is up, and who is answered in which turn.

An empty answer costs a node some 30 µs, and the next request comes at once. So the more readers wait, the longer each
of them does: all of them together are given some 200 empty answers a second, or more once the longest wait is reached.
Clients of Fetch v11 bear that: none ends a request before its request timeout, 30 s and more where it is not set (10 s
beyond its own wait in franz-go). A reader that sends another request on the connection is answered as early as it asked
for, and so is one that asks for a part of what it reads there. KafkaJS sends heartbeats only when a Fetch has ended
(its `runner.js`): the longest wait is below the least session timeout of a group, 6 s by default.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import length_hint
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from sidecar.fanout.question import Question
from sidecar.protocol.calls.tails import Fetched

EACH_S: Final = 0.005
"""How much longer all wait for each one that does."""
_SPREAD: Final = 0.25
"""Which share of a wait, the last one, is when they come to ask again: thousands of them were answered at once."""
_GOLDEN: Final = 0.6180339887


def wait_s(asked_s: float, waiting: int, longest_s: float, number: int) -> float:
    """Seconds until the empty answer: `asked_s` is what the client asked for, and the least; `longest_s` the most that
    it is made to wait. Readers of different `number` come to ask again at different times.
    """
    crowded = min(longest_s, waiting * EACH_S)
    if crowded <= asked_s:
        return asked_s
    return asked_s + (crowded - asked_s) * (1 - _SPREAD * ((number * _GOLDEN) % 1.0))


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


AT_A_TIME: Final = 64
"""Readers that are answered in one turn of the event loop."""


class Reader(Protocol):
    """A reader that waits for an answer."""

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """One of its questions is answered, or more; it waits for none of them any more."""

    def expired(self, tick: int) -> None:
        """Its time has come, and nothing else. `tick`: what `park` or `hurry` returned."""


class Waking:
    """Groups of readers, each with what all of it is given: an answer, or the tick whose time has come."""

    __slots__ = ("_groups", "_left", "_turn_comes", "is_busy")

    def __init__(self) -> None:
        self._groups: deque[tuple[Iterator[Reader], Mapping[Question, Fetched] | int]] = deque()
        self._left = AT_A_TIME
        """How many this turn may answer, whichever groups they are of."""
        self._turn_comes = False
        self.is_busy = False
        """Whether a later turn goes on with it."""

    @property
    def left(self) -> int:
        """How many readers have not had their turn."""
        return sum(length_hint(readers) for readers, _ in self._groups)

    def add(self, readers: Iterable[Reader], found: Mapping[Question, Fetched] | int) -> None:
        """Answer these after those that were added before; at once as many as this turn may. Nobody may change
        `readers`.
        """
        self._groups.append((iter(readers), found))
        if not self.is_busy:
            self._answer()

    def go_on(self) -> None:
        """Answer as many as one turn may."""
        self._left = AT_A_TIME
        self._answer()

    def _answer(self) -> None:
        left, groups = self._left, self._groups
        try:
            while left and groups:
                readers, found = groups[0]
                for reader in islice(readers, left):
                    left -= 1
                    if isinstance(found, int):
                        reader.expired(found)
                    else:
                        reader.arrived(found)
                if left:
                    groups.popleft()
        finally:  # whatever befalls one reader, the others are answered
            self._left, self.is_busy = left, bool(groups)
            if left < AT_A_TIME and not self._turn_comes:
                self._turn_comes = True
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_comes = False
        self.go_on()
