"""How long each reader at the end of a log waits, when its time is up, and in which order readers are answered.

An empty answer costs a node about 30 µs, and the client's next request follows at once. So the more readers wait, the
longer each of them waits: together they get about 200 empty answers a second, or more once the longest wait is reached.
Clients of Fetch v11 accept that: none gives a request up before its request timeout, which is at least 30 s by default
(in franz-go 10 s more than its own wait). A reader that sends another request on the connection is answered after the
wait that it asked for, as is one that asks for only some of the partitions it reads there. KafkaJS sends heartbeats
only when a Fetch has ended (its `runner.js`): the longest wait is below the least session timeout of a group, 6 s by
default.
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
"""Seconds by which each waiting reader prolongs the wait of all."""
_SPREAD: Final = 0.25
"""The last part of a wait over which its ends are spread: otherwise thousands would be answered at the same time."""
_GOLDEN: Final = 0.6180339887


def wait_s(asked_s: float, waiting: int, longest_s: float, number: int) -> float:
    """Seconds until the empty answer, at least `asked_s`, the client's own limit, and at most `longest_s` if that is
    longer. For readers of different `number` the waits end at different times.
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
    """Calls `due` with the waiters whose time is up, in the order in which they came, and with the number of `add`."""

    __slots__ = ("_due", "_loop", "_ticks")

    def __init__(self, due: Callable[[Iterable[WaiterT], int], None]) -> None:
        self._due = due
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticks: dict[int, _Tick[WaiterT]] = {}

    def add(self, waiter: WaiterT, seconds: float) -> int:
        """Add a waiter whose time is up in `seconds`, at most one tick late, or ten ticks from one second on. Returns
        the number for `remove`.
        """
        loop = self._loop
        if loop is None:  # get_running_loop is a system call (getpid)
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
        """Seconds by the clock of the event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def remove(self, waiter: WaiterT, number: int) -> None:
        """Remove a waiter. A tick without waiters ends with its last one: a client may ask for a wait of 24 days."""
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
"""The number of readers that are answered in one turn of the event loop."""


class Reader(Protocol):
    """A reader that waits for an answer."""

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """One or more of its questions are answered; it no longer waits for any of them."""

    def expired(self, tick: int) -> None:
        """Its time is up, without an answer. `tick`: what `park` or `hurry` returned."""


class Waking:
    """Groups of readers, each with what all of its readers get: answers, or the tick whose time is up."""

    __slots__ = ("_groups", "_left", "_turn_comes", "is_busy")

    def __init__(self) -> None:
        self._groups: deque[tuple[Iterator[Reader], Mapping[Question, Fetched] | int]] = deque()
        self._left = AT_A_TIME
        """The number of readers that this turn may still answer, in all groups together."""
        self._turn_comes = False
        self.is_busy = False
        """Whether readers are left for a later turn."""

    @property
    def left(self) -> int:
        """The number of readers that were not answered yet."""
        return sum(length_hint(readers) for readers, _ in self._groups)

    def add(self, readers: Iterable[Reader], found: Mapping[Question, Fetched] | int) -> None:
        """Answer these readers after those added before; in this turn as many as it may still answer. `readers` must
        not change afterwards.
        """
        self._groups.append((iter(readers), found))
        if not self.is_busy:
            self._answer()

    def go_on(self) -> None:
        """Answer as many readers as one turn may."""
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
        finally:  # also if one reader raises, the others are answered
            self._left, self.is_busy = left, bool(groups)
            if left < AT_A_TIME and not self._turn_comes:
                self._turn_comes = True
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_comes = False
        self.go_on()
