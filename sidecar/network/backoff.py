"""How long a broker that failed is left alone."""

from __future__ import annotations

import random
from typing import Final

_BACKOFF_FIRST: Final = 0.05
_BACKOFF_MAX: Final = 2.0


class ReconnectBackoff:
    """When a broker may be tried again after failures: exponential from 50 ms to 2 s with full jitter (seconds).

    `reason` is that of the last failure.
    """

    __slots__ = ("_failures", "_random", "not_before", "reason")

    def __init__(self, rng: random.Random | None = None) -> None:
        self._failures = 0
        self._random = rng or random.Random()
        self.not_before = 0.0
        self.reason = ""

    def failed(self, now: float) -> None:
        ceiling = min(_BACKOFF_MAX, _BACKOFF_FIRST * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self.not_before = now + ceiling * (0.5 + 0.5 * self._random.random())

    def succeeded(self) -> None:
        self._failures = 0
        self.not_before = 0.0
