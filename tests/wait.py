"""Waiting for a condition that can be observed, with a deadline: what tests do instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_POLL = 0.01


def wait_for(condition: Callable[[], T], what: str, timeout: float = 30.0) -> T:
    """The first true value of `condition()`; raises AssertionError naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting for {what} after {timeout:.0f} s; last seen: {value!r}")
        time.sleep(_POLL)
    return value


async def wait_for_async(condition: Callable[[], Awaitable[T]], what: str, timeout: float = 30.0) -> T:
    """As `wait_for`, for a coroutine function; others run in between. The seconds are the loop's."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not (value := await condition()):
        if loop.time() > deadline:
            raise AssertionError(f"still waiting for {what} after {timeout:.0f} s; last seen: {value!r}")
        await asyncio.sleep(_POLL)
    return value


async def wait_until(condition: Callable[[], T], what: str, timeout: float = 30.0) -> T:
    """As `wait_for`; other tasks run in between."""

    async def ask() -> T:
        return condition()

    return await wait_for_async(ask, what, timeout)
