"""How long to wait after a failure: before the next connection to a broker, and between the tries of an operation."""

import asyncio
import random
from typing import Final

_RANDOM: Final = random.Random()
_BACKOFF_FIRST: Final = 0.05
_BACKOFF_MAX: Final = 2.0


class ReconnectBackoff:
    """When a node may connect to a broker again after failures. The wait grows exponentially from 50 ms to 2 s, and
    each wait is reduced at random by up to half.

    `not_before` is in seconds of the event loop's clock. `reason` is the reason of the last failure.
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


class RetryTimeoutError(TimeoutError):
    """The deadline for all tries passed. The message has the reason why the last try failed."""


class Retry:
    """An operation of several tries. `first` and `ceiling` bound its pauses, `deadline` its whole time (in seconds)."""

    __slots__ = ("_ceiling", "_deadline", "_first", "_limit", "_pauses", "_random", "_what")

    def __init__(
        self, what: str, deadline: float, *, first: float = 0.02, ceiling: float = 1.0, rng: random.Random = _RANDOM
    ) -> None:
        self._what = what
        self._limit = deadline
        self._deadline = asyncio.get_running_loop().time() + deadline
        self._first = first
        self._ceiling = ceiling
        self._pauses = 0
        self._random = rng

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._deadline - asyncio.get_running_loop().time()

    def progressed(self) -> None:
        """A step succeeded: the next pause is short again. The deadline does not change."""
        self._pauses = 0

    async def pause(self, reason: object) -> None:
        """Wait until the next try. Raises `RetryTimeoutError` if the next try would begin after the deadline."""
        longest = min(self._ceiling, self._first * 2 ** min(self._pauses, 30))
        self._pauses += 1
        delay = longest * self._random.uniform(0.5, 1.0)
        if delay >= self.remaining:
            raise RetryTimeoutError(f"{self._what}: not done within {self._limit:g} s, last: {reason}")
        await asyncio.sleep(delay)
