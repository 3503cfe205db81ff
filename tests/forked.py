"""Nodes as forks of a process that has imported all of a node: a start takes hundredths of a second of CPU instead of
more than a second. What runs is what `sidecar serve` runs, with the settings that it would read.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROGRAM: Final = Path(__file__).with_name("forking.py")
_MOST_BYTES: Final = 150_000
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_S: Final = 0.01


class Forked:
    """A child process that this one did not start itself: as much of `subprocess.Popen` as `Child` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """A process of `forking.py`."""

    def __init__(self, what: str) -> None:
        self._own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            options = ("-W", "error", "-X", "faulthandler", "-P")
            self._process = subprocess.Popen(
                (sys.executable, *options, str(_PROGRAM), what, str(other.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(other.fileno(),),
                env={**os.environ, "PYTHONPATH": str(_PROGRAM.parents[1])},
                start_new_session=True,
            )
        atexit.register(self._end)

    def ask(self, **asked: Any) -> Any:
        self._own.send(json.dumps(asked).encode())
        answer = self._own.recv(_MOST_BYTES)
        assert answer, "the process that forks has ended; what it wrote is on stderr"
        return json.loads(answer)

    def _end(self) -> None:
        self._own.close()
        self._process.wait(10)


_servers: dict[str, _Server] = {}
_lock = threading.Lock()


def _server(what: str) -> _Server:
    if what not in _servers:
        _servers[what] = _Server(what)
    return _servers[what]


def start(environment: Mapping[str, str], directory: Path, log: Path, patch: str = "") -> Forked | None:
    """A node in this environment and directory; None where `sidecar serve` would refuse its settings.

    `patch`: the module whose function `patch` changes the node before it serves.
    """
    with _lock:
        given = {"environment": dict(environment), "directory": str(directory), "log": str(log)}
        told = _server("settings").ask(**given)
        if not told:
            return None
        nodes, libc = _server("nodes"), ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            return Forked(nodes.ask(**given, told=told, patch=patch, parent=os.getpid()))
        finally:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
