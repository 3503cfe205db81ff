"""What signals do for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], Any], signals: Sequence[signal.Signals]) -> Iterator[None]:
    """These signals are handled by `handler`, and as before afterwards. What is ignored (nohup) stays so."""
    before = {each: signal.getsignal(each) for each in signals}
    for each, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(each, handler)
    try:
        yield
    finally:
        for each, known in before.items():
            signal.signal(each, known)
