"""Chance that goes by who draws and when, and by nothing else: for worlds that have to be *steady*.

In a usual world everybody draws from one stream of numbers, and time goes on by a little with each callback. So a
change of the product that nobody outside can see, one more task or one draw less, gives another history: latencies are
others from there on, and races end in another way. In a steady world callbacks take no time (`SimLoop.step_s`), and
what a draw gives depends on the seed, the drawing host and the virtual microsecond alone, or on the path between two
hosts instead of the host. So the same histories are played by any two products that behave alike (`behaviour`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

if TYPE_CHECKING:
    from tests.sim.loop import SimLoop

_WORD: Final = 2**64 - 1
_ODD: Final = 0x9E3779B97F4A7C15


class Chance(random.Random):
    """A generator whose draws depend on the seed, on the host that runs, and on the moment."""

    loop: SimLoop | None = None
    """Of the world that this process is."""

    def __init__(self, seed: Any = None) -> None:
        self.become(seed)
        super().__init__(seed)

    def become(self, seed: Any) -> None:
        """Begin; also for an object that was another kind of generator."""
        self._salt = crc32(repr(seed).encode()) * _ODD
        self._moment = -1
        self._drawn: dict[str, int] = {}
        self._about: str | None = None

    def seed(self, a: Any = None, version: int = 2) -> None:
        """All later draws go by this."""
        super().seed(a, version)
        self.become(a)

    def of(self, about: str) -> Chance:
        """The same, with the next draws about something (a path), however often that was drawn for before."""
        self._about = about
        self._drawn.pop(about, None)
        return self

    def _draw(self) -> int:
        loop = self.loop
        assert loop is not None
        moment = int(loop.now * 1e6)
        if moment != self._moment:
            self._moment = moment
            self._drawn.clear()
        about = self._about
        if about is None:
            about = "" if loop.current is None else loop.current.name
        count = self._drawn[about] = self._drawn.get(about, 0) + 1
        # SplitMix64 (Steele, Lea, Flood 2014): neighbours give numbers that have nothing to do with each other
        word = (self._salt + crc32(about.encode()) * 0xD1342543DE82EF95 + (moment * 1024 + count) * _ODD) & _WORD
        word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _WORD
        return word ^ word >> 31

    def random(self) -> float:
        return (self._draw() >> 11) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        found = 0
        for _ in range(0, k, 64):
            found = found << 64 | self._draw()
        return found >> (-k % 64)
