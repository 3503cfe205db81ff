"""How much time has passed, whether the machine slept or not.

CLOCK_MONOTONIC stands still while a machine is suspended (clock_gettime(2)); leases at a server, and what brokers
remember, do not. CLOCK_BOOTTIME counts on. Where the platform has none, the monotonic clock stands in.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


def counting_suspension() -> Callable[[], float]:
    """A clock in seconds from any beginning, which never goes back."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic
    try:
        time.clock_gettime(clock)
    except OSError:  # a kernel without it, or a sandbox that forbids it
        return time.monotonic
    return partial(time.clock_gettime, clock)


elapsed: Final = counting_suspension()
