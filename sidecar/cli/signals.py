"""Temporary signal handlers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], Any],
    signals: Sequence[signal.Signals],
    *,
    ignored_too: Collection[signal.Signals] = (),
) -> Iterator[None]:
    """Handles these signals with `handler`, and restores the earlier handlers afterwards. Ignored signals (nohup) stay
    ignored, except those in `ignored_too`.
    """
    before = {each: signal.getsignal(each) for each in signals}
    for each, known in before.items():
        if known is not signal.SIG_IGN or each in ignored_too:
            signal.signal(each, handler)
    try:
        yield
    finally:
        for each, known in before.items():
            signal.signal(each, known)


def interruptible() -> AbstractContextManager[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the block with KeyboardInterrupt; for the main thread.

    This includes SIGINT: if it was ignored at the start, as for `command &` in a script, Python installs no handler.
    """
    return handled_by(signal.default_int_handler, ENDING, ignored_too=(signal.SIGINT, signal.SIGTERM))
