"""A clock of elapsed time that also counts the time in which the machine is suspended.

CLOCK_MONOTONIC stops while a machine is suspended (clock_gettime(2)), but leases at a server and brokers' memory still
expire. CLOCK_BOOTTIME does not stop. If the platform has none, the monotonic clock is used.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


def counting_suspension() -> Callable[[], float]:
    """Return a clock in seconds since some moment, which never goes back."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic
    try:
        time.clock_gettime(clock)
    except OSError:  # a kernel without it, or a sandbox that forbids it
        return time.monotonic
    return partial(time.clock_gettime, clock)


elapsed: Final = counting_suspension()
