"""`--watch`: a screen with keys that is updated every two seconds; plain lines if there is no terminal.

However it ends (a key, Ctrl-C, SIGQUIT, SIGTERM, a hangup or an exception), the terminal is restored. It is also
restored while Ctrl-Z stops the process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live

from sidecar.cli.api import AdminApi
from sidecar.cli.board import Board, View, draw, rows_in
from sidecar.cli.options import Shared
from sidecar.cli.output import CommandError, Exit, Format, printable, printable_lines, write
from sidecar.cli.signals import handled_by

_EVERY_S: Final = 2.0
_KEYS: Final = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[H": "home",
    b"\x1b[F": "end", b"\x1b[1~": "home", b"\x1b[4~": "end", b"\x1bOA": "up", b"\x1bOB": "down", b"\t": "tab",
}  # fmt: skip
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class _SignalError(Exception):
    """A signal that ends the process was received. Handlers note it and the loop raises it: an exception in a handler
    could leave a lock held that is needed at the end.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def watch(
    shared: Shared, api: AdminApi, ask: Callable[[], Any], board: Callable[[Any], Board], text: Callable[[Any], str]
) -> None:
    """Show what `ask` returns until the user ends it: on a terminal as the screen that `board` makes of it, elsewhere
    as the lines of `text`. If the node becomes unreachable, that is shown, and the requests continue.

    Raises CommandError with `-o`.
    """
    if shared.output is not Format.TABLE:
        raise CommandError("--watch is for people: leave -o away, or ask again and again", Exit.USAGE)
    with suppress(KeyboardInterrupt):
        if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown"):
            _watch_screen(api, ask, board)
        else:
            _watch_lines(api, lambda: text(ask()))


def _watch_lines(api: AdminApi, ask: Callable[[], str]) -> None:
    while True:
        try:
            found = ask()
        except CommandError as error:
            found = printable_lines(error.message)
        lines = f"{_now()}  {api.url}\n\n{found}\n"
        write(None, Format.TABLE, lambda lines=lines: lines)
        sys.stdout.flush()
        time.sleep(_EVERY_S)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _watch_screen(api: AdminApi, ask: Callable[[], Any], board: Callable[[Any], Board]) -> None:
    try:
        with ExitStack() as stack:
            woken, wake = os.pipe()
            for end in (woken, wake):
                os.set_blocking(end, False)
                stack.callback(os.close, end)
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wake, warn_on_full_buffer=False))
            ended: list[int] = []
            stack.enter_context(handled_by(lambda number, _: ended.append(number), _ENDS))
            answers = _Answers(ask, wake)
            stack.callback(answers.stop)
            _Screen(api, answers, board, woken, ended).run()
    except _SignalError as end:  # the terminal is restored: end by the same signal
        if end.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        signal.signal(end.number, signal.SIG_DFL)
        os.kill(os.getpid(), end.number)


class _Answers(threading.Thread):
    """Calls `ask` again and again in a thread, so that keys work while a node does not answer. `take`: the newest
    result, or its error.
    """

    def __init__(self, ask: Callable[[], Any], wake: int) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._wake = wake
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._newest: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        while not self._over.is_set():
            try:
                found, error = self._ask(), None
            except BaseException as raised:  # noqa: BLE001 - the thread that shows the screen raises it
                found, error = None, raised
            with self._lock:
                self._newest = found, error
                if not self._over.is_set():
                    with suppress(OSError):
                        os.write(self._wake, b"\0")
            self._over.wait(_EVERY_S)

    def take(self) -> tuple[Any, BaseException | None] | None:
        with self._lock:
            found, self._newest = self._newest, None
        return found

    def stop(self) -> None:
        """After this nothing is written."""
        with self._lock:
            self._over.set()


class _Screen:
    """The alternate screen of a terminal, and its keys. `woken` becomes readable when a signal is received; signals
    that end the process are in `ended`.
    """

    def __init__(
        self, api: AdminApi, answers: _Answers, board: Callable[[Any], Board], woken: int, ended: list[int]
    ) -> None:
        self._url = api.url
        self._answers = answers
        self._make = board
        self._woken = woken
        self._ended = ended
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._view = View()
        self._board = Board((), ())
        self._said = "asking the node", ""
        self._stops = False

    def run(self) -> None:
        """Show the screen until q; raises `_SignalError` and the errors of `ask`."""
        self._answers.start()
        with handled_by(self._stop, (signal.SIGTSTP,)), handled_by(lambda *_: None, (signal.SIGWINCH,)):
            while not self._shown():
                self._stops = False
                with handled_by(signal.SIG_DFL, (signal.SIGTSTP,)):  # pyright: ignore[reportArgumentType]
                    os.kill(os.getpid(), signal.SIGTSTP)

    def _stop(self, *_: object) -> None:
        self._stops = True

    def _shown(self) -> bool:
        """Show the screen until it is left; False if it was left only for a while."""
        with (
            self._read_keys(),
            Live(
                console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while not self._stops:
                live.update(self._drawn(), refresh=True)
                if "q" in self._pressed():
                    return True
                self._take()
        return False

    @contextmanager
    def _read_keys(self) -> Iterator[None]:
        """Keys are read one by one and are not echoed."""
        if self._keys is None:
            yield
            return
        before = termios.tcgetattr(self._keys)
        try:
            tty.setcbreak(self._keys)
            yield
        finally:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, before)

    def _drawn(self) -> Group:
        width, height = self._console.size
        said, color = self._said
        head = [(f"{self._url}  {said}", color), *self._board.head]
        return Group(*draw(Board(head, self._board.tables), self._view, width, height))

    def _pressed(self) -> list[str]:
        """Wait for keys, an answer or a signal; returns the keys, which have been handled except q."""
        ends = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready, _, _ = select.select(ends, [], [])
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._ended:
            raise _SignalError(self._ended[0])
        if self._keys is None or self._keys not in ready:
            return []
        keys = list(_split(os.read(self._keys, 1024)))
        if not keys:
            return ["q"]  # the terminal is closed
        rows = rows_in(self._board, self._console.size.height - 1)
        for key in keys:
            self._view.press(key, rows, len(self._board.tables))
        return keys

    def _take(self) -> None:
        answer = self._answers.take()
        if answer is None:
            return
        found, error = answer
        if error is None:
            self._board, self._said = self._make(found), (_now(), "")
        elif isinstance(error, CommandError):
            self._said = f"{_now()}  {printable(error.message)}", "red"
        else:
            raise error


def _split(typed: bytes) -> Iterator[str]:
    """The typed input, key by key."""
    while typed:
        long = next((each for each in _KEYS if typed.startswith(each)), None)
        if long is None:
            yield typed[:1].decode("ascii", "replace")
            typed = typed[1:]
        else:
            yield _KEYS[long]
            typed = typed[len(long) :]
