"""How long the end of a node may take: from the first SIGTERM or SIGINT to the end of its process, whatever hangs.

Every bound of it is here, well below the 30 seconds after which orchestrators kill. It only keeps time: what is
finished and what is closed, and in which order, is the node's business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import structlog

END_S: Final = 15.0
"""Seconds from the first signal to the end of the process at the latest."""
DRAIN_S: Final = 10.0
"""Seconds of them for what is in flight; the rest is for closing."""
CUT_OFF: Final = 11
"""The exit code where something that was in flight was not finished."""
_SAME_S: Final = 1.0
"""Seconds within which a second signal is the first one again: coreutils' `timeout` sends each one twice."""


class Ending:
    """Whether this process was asked to end. `left` says, for the log, what is not finished."""

    def __init__(self, left: Callable[[], Mapping[str, object]]) -> None:
        self.asked = asyncio.Event()
        self._left = left
        self._asked_at = 0.0

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from here on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.asked.is_set():
            self.asked.set()
            self._asked_at = loop.time()
            loop.call_later(END_S, self._end_now, f"it did not end within {END_S:g} seconds")
        elif loop.time() - self._asked_at >= _SAME_S:
            self._end_now("it got a second signal")

    def _end_now(self, reason: str) -> None:
        structlog.get_logger().error("cut_off", reason=reason, left=self._left())
        end_process(CUT_OFF)


def end_process(code: int) -> NoReturn:
    """End at once. The loop is not closed: uvloop would wait there for ever for sockets whose peers do not read."""
    sys.stderr.flush()
    os._exit(code)
