"""A terminal for one command: a pty of a given size, and what the command has drawn on it."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any, Self

from tests.wait import wait_for

_ROOT = Path(__file__).parents[2]
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENTERED, LEFT, SHOWS_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """`arguments`: of this Python. Killed at the end, where it still runs."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self._mine, self.its = pty.openpty()
        self.columns, self.rows = columns, rows
        self._set_size()
        self.before = self.modes
        self.drawn = ""
        others = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdin=self.its, stdout=self.its, stderr=self.its, cwd=_ROOT,
            env=others | {"TERM": "xterm-256color"} | environment,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.its)  # the last one: the reader is at the end
        self._reader.join(30)
        os.close(self._mine)

    def _read(self) -> None:
        while True:
            try:
                got = os.read(self._mine, 65_536)
            except OSError:
                return
            self.drawn += got.decode(errors="replace")

    @property
    def modes(self) -> list[Any]:
        """Whether keys come one by one, are shown, and so on."""
        return termios.tcgetattr(self.its)

    @property
    def screen(self) -> list[str]:
        """What was drawn last, line by line, without colours."""
        return _CONTROL.sub("", self.drawn.rpartition("\x1b[H")[2]).split("\r\n")

    @property
    def is_as_before(self) -> bool:
        """The main screen, a cursor, and keys that are shown."""
        ended = max(self.drawn.rfind(ENTERED), 0)
        return self.modes == self.before and LEFT in self.drawn[ended:] and SHOWS_CURSOR in self.drawn[ended:]

    def shows(self, *parts: str) -> list[str]:
        """The screen, as soon as all of these are on it."""

        def found() -> list[str]:
            screen = self.screen
            return screen if all(any(part in line for line in screen) for part in parts) else []

        return wait_for(found, f"{parts} on the screen", 60)

    def press(self, keys: str) -> None:
        os.write(self._mine, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._set_size()
        self.process.send_signal(signal.SIGWINCH)

    def _set_size(self) -> None:
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
