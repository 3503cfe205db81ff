"""A process whose forks become nodes: `forking.py settings|nodes DESCRIPTOR`, started by `tests.forked`.

It imports everything once, and answers each message on the socket DESCRIPTOR from a fork: with settings as
`sidecar serve` reads them, or with the id of a node, which then belongs to the process that asked. A node may be a
changed one: a message names a module, whose `patch` is called in it before it serves. It ends with the other end of the
socket.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Final, NoReturn

from sidecar.cli import node_process

_MOST_BYTES: Final = 150_000
"""Of a message: settings and an environment."""
_PR_SET_PDEATHSIG: Final = 1
_ADOPTED_S: Final = 60.0


def main() -> None:
    """Answer until nobody asks any more."""
    what, descriptor = sys.argv[1], int(sys.argv[2])
    of_settings = what == "settings"
    if of_settings:
        importlib.import_module("sidecar.cli.setting_flags")
    else:
        node_process._leave_out()
        node_process._import_aiohttp()
        importlib.import_module("sidecar.admin.server")
        importlib.import_module("sidecar.node.process")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as asker:
        while message := asker.recv(_MOST_BYTES):
            if os.fork() == 0:
                asked = json.loads(message)
                os.chdir(asked["directory"])
                os.environ.clear()
                os.environ.update(asked["environment"])
                if of_settings:
                    _answer_settings(asker, asked["log"])
                _become_node(asker, asked)
            os.wait()


def _answer_settings(asker: socket.socket, log: str) -> NoReturn:
    """Nothing is the answer where `sidecar serve` would refuse them. Its warnings are in the log."""
    from sidecar.cli.setting_flags import print_warnings  # noqa: PLC0415 - for this kind of server alone
    from sidecar.settings import SettingsError, resolve  # noqa: PLC0415

    try:
        found = resolve()
    except SettingsError:
        answer = ""
    else:
        answer = found.to_json()
        _write_to(log, 2)
        print_warnings(found.warnings)
    asker.send(json.dumps(answer).encode())
    os._exit(0)


def _write_to(log: str, *places: int) -> None:
    """Have these descriptors write at the end of a file."""
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for place in places:
        os.dup2(opened, place)
    os.close(opened)


def _become_node(asker: socket.socket, asked: Any) -> NoReturn:
    from sidecar.settings.loaded import LoadedSettings  # noqa: PLC0415 - for this kind of server alone

    if os.fork():
        os._exit(0)  # what it leaves behind goes to the process that asked
    deadline = time.monotonic() + _ADOPTED_S
    while os.getppid() != asked["parent"]:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.001)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != asked["parent"]:
        os._exit(1)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _write_to(asked["log"], 1, 2)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # as `sidecar serve` holds it
    asker.send(json.dumps(os.getpid()).encode())
    asker.close()
    if asked["patch"]:
        importlib.import_module(asked["patch"]).patch()
    node_process.run(LoadedSettings.from_json(asked["told"]))


if __name__ == "__main__":
    main()
