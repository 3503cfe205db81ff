"""`Peer`, a program on the client library for Java or for Go, as a process that may be killed or stopped."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

SOURCES: Final = Path(__file__).parents[3] / "clients" / "java" / "src"
GO: Final = Path(__file__).parents[3] / "clients" / "go"
PATIENCE: Final = 60.0
"""Seconds a test waits for a line at most: far more than any takes."""


class Peer:
    """One process; its lines are what it prints. Ends with SIGKILL unless it was closed."""

    def __init__(
        self, command: list[str], log: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        self._lines = queue.SimpleQueue[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def line(self) -> str:
        """The next line. Fails where none comes."""
        try:
            return self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no line; exit code {self.process.poll()}\n{self._log.read_text()[-3000:]}") from None

    def expect(self, start: str) -> list[str]:
        """The words of the next line after `start`, with which it has to begin."""
        line = self.line()
        assert line.startswith(start), f"{line!r}\n{self._log.read_text()[-3000:]}"
        return line.removeprefix(start).split()

    def ask(self, *lines: str) -> None:
        """Have it read these."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def silent(self) -> bool:
        """Whether it has printed nothing more so far."""
        return self._lines.empty()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; a process that had ended by itself would prove nothing."""
        assert self.process.poll() is None, self._log.read_text()[-3000:]
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self) -> None:
        """SIGSTOP; returns once it stands still."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def end(self) -> None:
        """End its input and wait for its end, in good order."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """As `end`; it lets go of what it has."""
        self.end()
        self.expect("closed")
        assert self.process.wait(PATIENCE) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
