"""A node as a process: from its settings to its exit code. The end of the process has a time limit.

The limit counts from the first SIGTERM or SIGINT and is well below the 30 seconds after which orchestrators kill.
`Node` decides what is finished and closed, and in which order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import structlog
import uvloop

from sidecar.node.connecting import StartError
from sidecar.node.limits import raise_open_files
from sidecar.node.node import Node
from sidecar.node.view.node import AdminFactory
from sidecar.settings.loaded import LoadedSettings
from sidecar.telemetry.logs import configure

END_S: Final = 15.0
"""The time limit in seconds from the first signal to the end of the process."""
CUT_OFF: Final = 11
"""The exit code if requests in flight did not finish."""
_SAME_S: Final = 1.0
"""A second signal within this time (seconds) is ignored: coreutils' `timeout` sends each signal twice."""


class Ending:
    """Handles signals to end the process. `left` returns what is not finished, for the log."""

    def __init__(self, left: Callable[[], Mapping[str, object]]) -> None:
        self.asked = asyncio.Event()
        self._left = left
        self._asked_at = 0.0

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
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
    """End the process at once. The loop is not closed: uvloop would wait without end for peers that do not read."""
    sys.stderr.flush()
    os._exit(code)


async def _serve(loaded: LoadedSettings, admin: AdminFactory) -> int:
    try:
        node = Node(loaded, admin)
    except StartError as error:
        structlog.get_logger().error("cannot_start", problem=str(error))
        return 1
    ending = Ending(node.left)
    ending.listen()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, node.reloader.ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since before the settings were read
    starting = loop.create_task(node.start())
    asked = loop.create_task(ending.asked.wait())
    code = 0
    try:
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asked
            code = 0 if await node.drain() else CUT_OFF
    except StartError as error:
        structlog.get_logger().error("cannot_start", problem=str(error))
        code = 1
    finally:
        starting.cancel()
        asked.cancel()
        await node.stop()
    return code


def run(loaded: LoadedSettings, admin: AdminFactory) -> NoReturn:
    """Serve until SIGTERM or SIGINT, and end the process. Installs uvloop, logs and signal handlers."""
    settings = loaded.settings
    configure(settings.log_level, settings.log_format, node_id=settings.node_id)
    raise_open_files()
    end_process(asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_serve(loaded, admin)))
