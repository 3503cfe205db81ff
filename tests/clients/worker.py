"""A worker process seen from the tests: started, given a cell at a time, watched, and killed when it takes too long."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .sockets import Watch

ROOT = Path(__file__).parents[2]
_START_S = 60.0
_STOP_S = 10.0
_LOOK_S = 0.2
_END = object()


class WorkerError(Exception):
    """The worker took too long, or ended in the middle of a cell."""


@dataclass
class Answered:
    """What a worker said to a cell, and the far ends of its connections meanwhile; `held` are those seen standing
    still.
    """

    answer: Mapping[str, Any]
    far_ends: set[str] = field(default_factory=set)
    held: set[str] | None = None


class Worker:
    """A running worker. Used by one thread at a time. What it prints to stderr goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        self._watch: Watch | None = None
        self._lines: queue.Queue[str | object] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            told = self._next(time.monotonic() + _START_S)
        except WorkerError:
            self.close()
            raise
        self.version: str = told["ready"]
        self.features = frozenset(told["features"])
        self._watch = Watch(self._process.pid)

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(_END)

    def _next(self, deadline: float, seen: set[str] | None = None) -> dict[str, Any]:
        """The next message; meanwhile the far ends of its connections are collected into `seen`."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, min(_LOOK_S, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise WorkerError(f"no answer in time; its log ends with:\n{self._log_tail()}") from None
                if seen is not None:
                    seen |= self._far_ends()
                continue
            if line is _END:
                raise WorkerError(f"it ended with {self._process.wait()}; its log ends with:\n{self._log_tail()}")
            return json.loads(str(line))

    def _far_ends(self) -> set[str]:
        return self._watch.look() if self._watch is not None else set()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
        except (BrokenPipeError, ValueError) as error:
            raise WorkerError(f"it has ended; its log ends with:\n{self._log_tail()}") from error

    def run(self, cell: Mapping[str, Any], limit_s: float) -> Answered:
        """Have it run a cell. Raises WorkerError after `limit_s`, or when it ends; then it is of no more use."""
        deadline = time.monotonic() + limit_s
        far_ends: set[str] = set()
        held: set[str] | None = None
        self._say(cell)
        while True:
            message = self._next(deadline, far_ends)
            if "outcome" in message:
                return Answered(message, far_ends | (held or set()), held)
            held = (held or set()) | self._far_ends()
            self._say({"go": True})

    def close(self) -> None:
        """End it: by the end of its input, and if that does not help, by force, with the processes it started."""
        if self._process.stdin and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._kill()
        self._reader.join(_STOP_S)
        if self._process.stdout:
            self._process.stdout.close()

    def kill(self) -> None:
        """End it at once."""
        self._kill()
        self.close()

    def _kill(self) -> None:
        if self._watch is not None:
            self._watch.kill()
        self._process.kill()
        self._process.wait(_STOP_S)
