"""One supervised child process: it cannot outlive this one, is watched until it is ready, and is stopped in good order.

Children run in their own session, so a Ctrl-C at the terminal reaches the parent alone, which then stops them one after
the other. `guard` ties each to the parent's life. For the kernel the parent is the *thread* that forked. Therefore one
thread, which lives as long as this process, forks all children.

It never restarts a child and never reads a child's output, which goes to a log file.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.local.errors import StartError

GUARD = Path(__file__).with_name("guard.py")
LOG_LIMIT = 16 * 1024 * 1024
"""A log longer than this many bytes is renamed to `NAME.1` when its writer starts again."""

_POLL = 0.02
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `environment` overrides ours, None removes a variable; `dies_by` is the signal to send when this
    process ends.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path
    environment: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    directory: Path | None = None
    dies_by: signal.Signals = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a process, even among later ones with the same id, also after a reboot and a change of the clock."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Identity":
        """The identity of the process that has this id now; the caller knows that there is one."""
        return cls(pid, _start_mark(pid) or "")

    def alive(self) -> bool:
        """Whether this very process runs; a process that has ended and was not collected yet does not run."""
        return bool(self.started) and _start_mark(self.pid) == self.started


def _start_mark(pid: int) -> str | None:
    """The id of this boot and the clock ticks from the boot to the start of `pid` (proc_pid_stat(5), field 22)."""
    try:
        # The second field, the program's name in parentheses, may hold anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if state in "ZX" else f"{boot}/{fields[18]}"


class Child:
    """A running child process. Not for use from several threads at once."""

    def __init__(self, command: Command, process: "subprocess.Popen[bytes]", log_start: int) -> None:
        self.command = command
        self._process = process
        self._log_start = log_start
        self._paused = False
        self.identity = Identity.of(process.pid)

    @classmethod
    def start(cls, command: Command) -> "Child":
        """Start `command`; its standard output and error are appended to its log. Raises OSError."""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        if command.log.exists() and command.log.stat().st_size > LOG_LIMIT:
            command.log.replace(command.log.with_name(command.log.name + ".1"))
        guarded = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(command.dies_by)))
        environment = {**os.environ, **command.environment}
        with command.log.open("ab") as log:
            log_start = log.tell()
            process = _forker.submit(
                subprocess.Popen[bytes],
                (*guarded, *command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=command.directory,
                env={name: value for name, value in environment.items() if value is not None},
                start_new_session=True,
            ).result()
        return cls(command, process, log_start)

    @property
    def name(self) -> str:
        """The name given to the command."""
        return self.command.name

    @property
    def pid(self) -> int:
        """The process id, which the guard keeps when it becomes the command."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        """Whether it runs, paused or not."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """The log of this child, without that of an earlier one with the same file."""
        with self.command.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return once `ready()`. Raises StartError, with the end of the log, if it ends or `timeout` seconds pass."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.alive:
                raise StartError(f"{self.name} ended with exit code {self.exit_code}.\n{self._tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready within {timeout:.0f} s.\n{self._tail()}")
            time.sleep(_POLL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises subprocess.TimeoutExpired after `timeout` seconds."""
        return self._process.wait(timeout)

    def pause(self) -> None:
        """Stop all its threads, like a long garbage collection or a frozen machine; its sockets stay open. Returns when
        all threads are stopped.
        """
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """Continue after `pause`."""
        self._process.send_signal(signal.SIGCONT)
        self._paused = False

    def terminate(self) -> None:
        """Ask it to end and return at once."""
        self._process.terminate()
        if self._paused:
            self.resume()

    def stop(self, grace: float = 15.0) -> int:
        """End it: SIGTERM, after `grace` seconds SIGKILL. Returns the exit code; may be called again."""
        self.terminate()
        try:
            return self._process.wait(grace)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it with SIGKILL, like a crash; returns the exit code."""
        self._process.kill()
        return self._process.wait()

    def _tail(self, lines: int = 15) -> str:
        text = "\n".join(self.log_text().splitlines()[-lines:])
        return f"The end of {self.command.log}:\n{text}" if text else f"{self.command.log} is empty."
