"""The JVM that runs the tools, seen from Python: start one, look at its output, wait for its end, interrupt it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..runtime import MismatchError

T = TypeVar("T")

WAIT_S = 25.0


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool has written so far; `exit` is None while it runs."""

    out: str
    err: str
    exit: int | None

    def lines(self) -> list[str]:
        return self.out.splitlines()


class Host:
    """One JVM for all tools of a worker. Not thread-safe; ends with the worker, whose end closes its stdin."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.version: str = self._answer()["ready"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MismatchError(f"the JVM of the tools ended with exit code {self._process.wait()}")
        return json.loads(line)

    def ask(self, **request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def start(self, main: str, arguments: Sequence[str], stdin: str = "") -> Running:
        """Run the class's `main` as a process of its own would be."""
        return Running(
            self,
            f"{main} {' '.join(arguments)}"[:600],
            self.ask(start=main, arguments=list(arguments), stdin=stdin)["tool"],
        )


@dataclass(frozen=True, slots=True)
class Running:
    """A tool that was started and may have ended."""

    host: Host
    what: str
    number: int

    def look(self, wait_s: float = 0.0) -> Output:
        """What it has written, after its end or `wait_s` seconds."""
        seen = self.host.ask(look=self.number, wait_ms=int(wait_s * 1000))
        return Output(seen["out"], seen["err"], seen["exit"])

    def until(self, what: str, condition: Callable[[Output], T], within_s: float = WAIT_S) -> T:
        """Wait until its output makes `condition` true, and return what that returned."""
        deadline = time.monotonic() + within_s
        while True:
            seen = self.look()
            if value := condition(seen):
                return value
            if time.monotonic() > deadline or seen.exit is not None:
                raise MismatchError(
                    f"{what}: not seen in the output of {self.what}:\n{seen.out[-2000:]}\n{seen.err[-2000:]}"
                )
            time.sleep(0.02)

    def end(self, *, expected: int = 0, within_s: float = WAIT_S) -> Output:
        """Wait for its end and check its exit code."""
        seen = self.look(within_s)
        if seen.exit != expected:
            ended = "did not end" if seen.exit is None else f"ended with {seen.exit} instead of {expected}"
            raise MismatchError(f"{self.what} {ended}:\n{seen.out[-2000:]}\n{seen.err[-3000:]}")
        return seen

    def interrupt(self) -> Output:
        """Have it shut down as a signal would, and wait for that. Its exit code then says nothing."""
        self.host.ask(interrupt=self.number)
        seen = self.look(WAIT_S)
        if seen.exit is None:
            raise MismatchError(f"{self.what} did not end when interrupted:\n{seen.out[-2000:]}\n{seen.err[-2000:]}")
        return seen
