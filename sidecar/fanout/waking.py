"""Readers that are to be answered, a few in each turn of the event loop: a node does more than answer thousands.

The order is that in which they were found. A reader that fails does not keep the others from their answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sidecar.fanout.question import Question
    from sidecar.protocol.calls.tails import Fetched

AT_A_TIME: Final = 64
"""Readers that are answered in one turn of the event loop."""


class Reader(Protocol):
    """A reader that waits for an answer."""

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """One of its questions is answered, or more; it waits for none of them any more."""
        ...

    def expired(self, tick: int) -> None:
        """Its time has come, and nothing else. `tick`: what `park` or `hurry` returned."""
        ...


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
