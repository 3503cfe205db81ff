"""How late the event loop is: one timer that says when it fired. It never does anything about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 0.25
"""Seconds between two looks: some hundred per scrape are enough for a 99th percentile, and cost nothing."""


class LagSampler:
    """Calls `lagged(seconds)` every `INTERVAL` with the time by which the loop was late, from `start` to `stop`."""

    def __init__(self, lagged: Callable[[float], None], interval: float = INTERVAL) -> None:
        self._lagged = lagged
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """To be called with a running loop."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._interval
        self._timer = loop.call_at(self._due, self._fired, loop)

    def stop(self) -> None:
        """No more calls; repeating it is harmless."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._lagged(max(0.0, now - self._due))
        self._due = now + self._interval
        self._timer = loop.call_at(self._due, self._fired, loop)
