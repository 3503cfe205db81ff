"""Cut a failing history down: leave out steps as long as it fails in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.history import History


def shrink(history: History, fails: Callable[[History], list[str]]) -> set[int]:
    """The places of the steps that can be left out. Halves first, then one by one, until nothing more can go."""
    kind = _kind(fails(history))
    out: set[int] = set()
    size = max(1, len(history.steps) // 2)
    while True:
        shrunk = False
        left = [place for place in range(len(history.steps)) if place not in out]
        for first in range(0, len(left), size):
            tried = out | set(left[first : first + size])
            if tried != out and _kind(fails(history.without(tried))) == kind:
                out, shrunk = tried, True
        if size > 1:
            size //= 2
        elif not shrunk:
            return out


def _kind(wrong: list[str]) -> str:
    """What kind of failure it is: the first words of what is wrong."""
    return wrong[0].split(":")[0].split(" ")[0] if wrong else ""
