"""Supervises several nodes in one process: starts them, passes signals on, restarts those that crash, and ends when all
have ended. On SIGHUP every node reads its settings again.

If a worker exits by itself soon after its start, everything ends with its exit code: restarts do not help against a
wrong setting or a taken port. A worker that a signal ends has crashed, even soon after its start, and is restarted. The
supervisor serves no clients and holds no state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from types import FrameType
from typing import Final

import structlog

from sidecar.cli.launch import hangups_held, node_command, settings_pipe
from sidecar.settings.loaded import LoadedSettings
from sidecar.telemetry import logs

_STARTED_AFTER: Final = 10.0
"""Seconds after which a worker counts as started. One that exits earlier at its first start would fail again."""
_SIGNALLED: Final = 128
"""Added to the number of the signal that ended a process, as shells do: exit codes are never negative."""
_PAUSE_FIRST: Final = 1.0
_PAUSE_MOST: Final = 30.0
_POLL: Final = 0.1


def supervise(loaded: LoadedSettings, workers: int) -> int:
    """Run `workers` nodes until they end; returns 0 if all ended as requested, else the first other exit code.

    128 + N stands for a worker that was ended by signal N while all were ending, if the supervisor did not send N.
    """
    logs.configure(loaded.settings.log_level, loaded.settings.log_format)
    return _Supervisor([loaded.for_worker(index) for index in range(workers)]).run()


class _Worker:
    """One node, the pause (seconds) after its next crash, and when to start it again (monotonic seconds)."""

    def __init__(self, loaded: LoadedSettings) -> None:
        self.node_id = loaded.settings.node_id
        self.pause = _PAUSE_FIRST
        self.start_at = 0.0
        self.proven = False
        self.process: subprocess.Popen[bytes] | None = None
        self._loaded = loaded
        self._started = 0.0

    def reload(self) -> None:
        """Have the node, and its replacement after a crash, read its settings again."""
        self._loaded = replace(self._loaded, outdated=True)
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def start(self, now: float) -> None:
        """Start the process; it ends with this one."""
        descriptor = settings_pipe(self._loaded)
        try:
            command = node_command(descriptor, parent=os.getpid())
            # A session of its own: Ctrl-C reaches the supervisor alone, which passes it on once.
            with hangups_held():
                self.process = subprocess.Popen(command, pass_fds=(descriptor,), start_new_session=True)
        finally:
            os.close(descriptor)
        self._started = now

    def ended(self, now: float) -> int | None:
        """The exit code if it has ended by now, -N for signal N. After some seconds of life the worker counts as
        started.
        """
        if self.process is None:
            return None
        code = self.process.poll()
        if now - self._started > _STARTED_AFTER:
            self.proven = True
            if code is None:
                self.pause = _PAUSE_FIRST
        if code is not None:
            self.process = None
        return code

    def start_later(self, now: float) -> float:
        """Plan the next start. Each pause is twice as long as the last one, within bounds; returns it in seconds."""
        pause, self.pause = self.pause, min(_PAUSE_MOST, 2 * self.pause)
        self.start_at = now + pause
        return pause


class _Supervisor:
    def __init__(self, loaded: list[LoadedSettings]) -> None:
        self._workers = [_Worker(each) for each in loaded]
        self._log = structlog.get_logger()
        self._signals: list[int] = []
        self._stopping = False
        self._passed_on: set[int] = set()
        self._exit_code = 0

    def run(self) -> int:
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since before the settings were read
        while True:
            while self._signals:
                self._act(self._signals.pop())
            now = time.monotonic()
            for worker in self._workers:
                self._look_after(worker, now)
            if self._stopping and all(worker.process is None for worker in self._workers):
                return self._exit_code
            time.sleep(_POLL)

    def _look_after(self, worker: _Worker, now: float) -> None:
        if worker.process is None:
            if not self._stopping and now >= worker.start_at:
                worker.start(now)
                self._log.info("worker_started", worker=worker.node_id, pid=worker.process and worker.process.pid)
            return
        code = worker.ended(now)
        if code is None:
            return
        if self._stopping or code == 0 or (code > 0 and not worker.proven):
            as_asked = code == 0 or -code in self._passed_on  # ended before it had a handler
            self._log.log(20 if as_asked else 40, "worker_ended", worker=worker.node_id, exit_code=code)
            if not as_asked:
                self._exit_code = self._exit_code or (code if code > 0 else _SIGNALLED - code)
            if not self._stopping:  # a second signal could end a worker that is still draining
                self._stop(signal.SIGTERM)
        else:
            self._log.error("worker_crashed", worker=worker.node_id, exit_code=code, again_in_s=worker.start_later(now))

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._signals.append(signum)  # handled by the loop, which may be starting a worker now

    def _act(self, signum: int) -> None:
        if signum != signal.SIGHUP:
            self._stop(signum)
            return
        for worker in self._workers:
            worker.reload()

    def _stop(self, signum: int) -> None:
        self._stopping = True
        self._passed_on.add(signum)
        for worker in self._workers:
            if worker.process is not None:
                worker.process.send_signal(signum)
