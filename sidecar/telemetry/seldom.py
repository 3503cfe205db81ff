"""Which events of a kind are logged that a stranger can cause as often as he likes: the first few of a while, and then
how many were left out. It decides, and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WHILE_S: Final = 5.0
_KINDS: Final = 1_000
"""Kinds that are remembered; the one that came first is forgotten."""


class _Kind:
    __slots__ = ("began", "left_out", "logged")

    def __init__(self, began: float) -> None:
        self.began = began
        self.logged = self.left_out = 0


class Seldom:
    """What was logged of each kind. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._kinds: dict[str, _Kind] = {}

    def ask(self, kind: str, most: int = 1) -> int | None:
        """None for an event that is left out, as `most` of its kind were logged within `WHILE_S`; else how many were
        left out since the last one that was logged.
        """
        now = self._clock()
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= _KINDS:
                del self._kinds[next(iter(self._kinds))]
            found = self._kinds[kind] = _Kind(now)
        elif now - found.began >= WHILE_S:
            found.began, found.logged = now, 0
        if found.logged >= most:
            found.left_out += 1
            return None
        found.logged += 1
        left_out, found.left_out = found.left_out, 0
        return left_out
