"""A node as a process: from its settings to its exit code."""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn

import structlog
import uvloop

from sidecar.node.admin_service import AdminFactory
from sidecar.node.connecting import StartError
from sidecar.node.ending import CUT_OFF, Ending, end_process
from sidecar.node.limits import raise_open_files
from sidecar.node.node import Node
from sidecar.settings.loaded import LoadedSettings
from sidecar.telemetry.logs import configure


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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # held since before the settings were read
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
