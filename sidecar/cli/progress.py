"""Progress of long commands on standard error: an animated line on a terminal, elsewhere a line from time to time."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Self

import rich_click as click

EVERY_S: Final = 30.0
_SPIN_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Alive:
    """Shows that a command still runs, and for how long: continuously on a terminal, elsewhere every 30 s. A context
    manager.

    Print other lines with `print`, which clears the animated line first. `detail` returns the progress, or nothing; a
    thread calls it, and it never raises.
    """

    def __init__(self, doing: str = "", detail: Callable[[], str] = str, *, every: float | None = None) -> None:
        self._doing = doing
        self._detail = detail
        self._every = EVERY_S if every is None else every
        self._end = threading.Event()
        self._lock = threading.RLock()  # a signal handler may print while its thread prints
        self._moves = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._began = time.monotonic()

    def doing(self, text: str) -> None:
        """Set the present step."""
        with self._lock:
            self._doing = text
            self._began = time.monotonic()

    def print(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._clear()
            click.echo(text, err=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._clear()

    def _run(self) -> None:
        turn = 0
        while not self._end.wait(_SPIN_S if self._moves else self._every):
            detail = self._detail()
            with self._lock:
                line = ", ".join(filter(None, (self._doing, f"{time.monotonic() - self._began:.0f} s", detail)))
                if self._moves:
                    turn += 1
                    room = shutil.get_terminal_size().columns - 3  # a wrapped line could not be cleared
                    click.echo(f"{_CLEAR}{_FRAMES[turn % len(_FRAMES)]} {line[:room]}", err=True, nl=False)
                else:
                    click.echo(line, err=True)

    def _clear(self) -> None:
        if self._moves:
            click.echo(_CLEAR, err=True, nl=False)


class Rounds(Alive):
    """Progress of `total` rounds, each reported in a line when it is finished."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._done = 0

    def done(self, result: str) -> None:
        """Report a finished round."""
        self._done += 1
        self.print(f"round {self._done} of {self._total}: {result}")
