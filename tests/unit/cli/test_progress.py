"""What long commands say meanwhile, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from sidecar.cli.pipeline import running
from sidecar.cli.progress import Alive, Rounds
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_without_a_terminal_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    def seen() -> bool:
        lines.extend(capsys.readouterr().err.splitlines())
        return len(lines) >= 3

    with Alive("auditing orders", lambda: "7 of 9 tasks", every=0.01):
        wait_for(seen, "three lines")
    assert all(re.fullmatch(r"auditing orders, \d+ s, 7 of 9 tasks", line) for line in lines)


def test_nothing_is_said_of_what_is_over_soon(capsys: pytest.CaptureFixture[str]) -> None:
    with Alive("auditing orders") as alive:
        alive.doing("reading orders")
        alive.print("done")
    assert capsys.readouterr() == ("", "done\n")


def test_what_was_told_last_goes_on(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.cli.progress.EVERY_S", 0.01)
    said: list[str] = []

    def seen() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any(re.fullmatch(r"auditing payments, \d+ s", line) for line in said)

    with running.alive(str):
        running.say("auditing orders")
        running.say("auditing payments")
        wait_for(seen, "the newest")
    assert [line for line in said if not line.endswith(" s")] == ["auditing orders", "auditing payments"]
    running.say("done")
    assert capsys.readouterr().err == "done\n"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard error is a terminal; what somebody would see there can be read."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with os.fdopen(theirs, "w", buffering=1) as err, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", err)
        yield ours
    os.close(ours)


def test_on_a_terminal_one_line_moves_and_those_told_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = bytearray()

    def has(text: str) -> bool:
        with suppress(BlockingIOError):
            shown.extend(os.read(screen, 4096))
        return text.encode() in shown

    with terminal(monkeypatch) as screen:
        with Rounds(2) as progress:
            progress.doing("x" * 500)
            wait_for(lambda: has("xxx"), "something that moves")
            progress.done("direct 5 records/s")
        wait_for(lambda: has("round 1 of 2"), "what was told")
    text = shown.decode()
    assert "\r\x1b[Kround 1 of 2: direct 5 records/s\r\n" in text, "what moved is cleared in front of it"
    assert max(map(len, text.replace("\x1b[K", "\r").split("\r"))) < 100, "and never wraps, or it could not be cleared"


def test_a_signal_in_the_middle_of_a_line_is_told_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A handler runs in the thread that may be telling something."""
    with Alive() as alive:
        done = threading.Event()

        def interrupted() -> None:
            with alive._lock:  # pyright: ignore[reportPrivateUsage] - where a signal finds the thread
                alive.print("ending behind the commit under way")
            done.set()

        threading.Thread(target=interrupted, daemon=True).start()
        assert done.wait(10)
    assert "ending" in capsys.readouterr().err
