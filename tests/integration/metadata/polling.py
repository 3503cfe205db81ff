"""Waiting for something that can be seen, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_DEADLINE_S = 20.0
_INTERVAL_S = 0.01


def eventually(condition: Callable[[], bool], what: str, within_s: float = _DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(_INTERVAL_S)


async def eventually_async(condition: Callable[[], Awaitable[T]], what: str, within_s: float = _DEADLINE_S) -> T:
    deadline = time.monotonic() + within_s
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        await asyncio.sleep(_INTERVAL_S)
    return value
